internal import KeepsakeLibc

extension StorageError {
  /// A failed system call on `path`.
  init(errno: Int32, operation: String, path: String) {
    let isUnsupported =
      [ENOSYS, ENOTSUP, ENOLCK, ENODEV].contains(errno)
      || errno == EINVAL && ["lock", "map", "times"].contains(operation)
    if isUnsupported {
      self = .unsupported(errno, .system(errno), operation, path)
      return
    }
    let (code, problem, remedy): (Code, String, String) =
      switch errno {
      case ENOENT:
        (.notFound, "there is no such file or directory", "Check the path.")
      case EACCES:
        (.accessDenied, "access denied", "Check the owner and the mode of the path.")
      case EPERM:
        (
          .accessDenied, "access denied",
          "Check the owner, the mode and the attributes (lsattr) of the path."
        )
      case EROFS:
        (
          .accessDenied, "the file system is read-only",
          "Choose a writable directory with HOME, the XDG variables, TMPDIR or "
            + "StorageSystem.bootstrap."
        )
      case ENOSPC where FileSystem.hasNoInodes(at: path):
        (
          .diskFull, "the file system has space, but no inodes for more files",
          "Delete files that are not needed, then try again."
        )
      case ENOSPC:
        (.diskFull, "disk full", "Free some space, then try again.")
      case EDQUOT:
        (.diskFull, "the quota is exhausted", "Free some space or raise the quota, then try again.")
      case EFBIG:
        (
          .diskFull, "the file would exceed the size limit",
          "Raise the file-size limit, then try again."
        )
      case EISDIR:
        (.isDirectory, "a directory is in the way", "Move the directory away.")
      case ENOTDIR:
        (.notDirectory, "a file is in the way of a directory", "Move the file away.")
      case ENOTEMPTY, EEXIST:
        (.system(errno), "the name is taken", "Delete what is there, or choose another name.")
      case ENAMETOOLONG:
        (.system(errno), "the name is too long", "Use a shorter name.")
      case EMFILE, ENFILE:
        (
          .system(errno), "too many files are open",
          "Close files, or raise the limit on open descriptors."
        )
      case ELOOP:
        (.symbolicLink, "a symbolic link is in the way", "Remove the link.")
      case EBUSY:
        (
          .busy, "the system is using the path, for example as a mount point",
          "Mount the directory instead of the file in it, or unmount what is there."
        )
      case EXDEV:
        (
          .crossDevice, "the paths are on different file systems",
          "Choose a path on the same file system."
        )
      case ENOTCONN, ESTALE, EHOSTDOWN, ETIMEDOUT:
        (
          .system(errno), "the file system has lost its server",
          "Mount the file system again, then try again."
        )
      case ESPIPE:
        (.system(errno), "the file is not a regular file", "Move the file away.")
      case EIO:
        (
          .system(errno), "the disk reported an error",
          "Copy the data to another disk and check this one."
        )
      default:
        (.system(errno), "a system call failed", "See this error in the manual page of the call.")
      }
    self.init(
      code, operation: operation, path: path,
      reason: "\(problem) (\(operation): \(String(cString: strerror(errno))))", remedy: remedy)
  }

  /// A system call that the file system of `path` does not have.
  static func unsupported(
    _ errno: Int32, _ code: Code, _ operation: String, _ path: String
  ) -> StorageError {
    StorageError(
      code, operation: operation, path: path,
      reason: "\(FileSystem.typeName(at: path)) does not support this call "
        + "(\(operation): \(String(cString: strerror(errno))))",
      remedy: "Choose a directory on another file system with HOME, the XDG variables, TMPDIR or "
        + "StorageSystem.bootstrap.")
  }

  /// A file that must exist is missing.
  static func missing(_ path: String) -> StorageError {
    StorageError(errno: ENOENT, operation: "open", path: path)
  }

  static func directoryInTheWay(_ path: String) -> StorageError {
    StorageError(errno: EISDIR, operation: "open", path: path)
  }

  /// A symbolic link leads to a path that no other call could be given.
  static func targetNotUTF8(_ path: String) -> StorageError {
    StorageError(
      .invalidName, operation: "resolve", path: path,
      reason: "the symbolic link leads to a path that is not UTF-8",
      remedy: "Rename the directory that it leads to, or remove the link.")
  }

  /// A file must not be opened for writing.
  static func notPermitted(_ path: String) -> StorageError {
    StorageError(errno: EACCES, operation: "open", path: path)
  }

  static func tooLarge(_ path: String, _ count: Int) -> StorageError {
    StorageError(
      .misuse, operation: "read", path: path,
      reason: "the file has \(ByteCount(count)), which is too much to read at once",
      remedy: "Read a large value in chunks. Move a file away that you do not know.")
  }

  static func linkInTheWay(_ path: String) -> StorageError {
    StorageError(
      .accessDenied, operation: "open", path: path,
      reason: "a symbolic link is in the place of a directory of this store",
      remedy: "Remove the link, or link the directory of the whole store instead.")
  }

  /// What is mounted in the place of a directory is not the store's.
  static func mountInTheWay(_ path: String, _ operation: String) -> StorageError {
    StorageError(
      .accessDenied, operation: operation, path: path,
      reason: "another file system is mounted here",
      remedy: "Unmount it first.")
  }

  /// The system returned less of a file than its size.
  static func prematureEnd(_ path: String) -> StorageError {
    StorageError(
      .system(EIO), operation: "read", path: path,
      reason: "the file is longer than what could be read of it (read: 0 bytes)",
      remedy: "Copy the data to another disk, and check this one for errors.")
  }

  /// Whether the process or the system has run out of descriptors, which says nothing about the
  /// path.
  var isDescriptorLimit: Bool { code.systemError == EMFILE || code.systemError == ENFILE }
}

extension StorageError.Code {
  /// A directory where the call needs a file.
  static let isDirectory = system(EISDIR)
  /// A file where the call needs a directory.
  static let notDirectory = system(ENOTDIR)
  /// A symbolic link where the call does not follow one, or links in a circle.
  static let symbolicLink = system(ELOOP)
  /// A file that changed while it was in use.
  static let busy = system(EBUSY)
  /// Two paths on different file systems.
  static let crossDevice = system(EXDEV)
  /// A copy whose task was cancelled, which callers see as a `CancellationError`.
  static let cancelled = system(ECANCELED)
  /// A name that is not UTF-8.
  static let invalidName = system(EILSEQ)
}

extension Result where Success == Int, Failure == Errno {
  /// The `errno` of a failed call; nil if it succeeded.
  @inline(__always)
  var errorCode: Int32? {
    if case .failure(let error) = self { error.code } else { nil }
  }

  /// The call's result, or its failure as an error that names the path.
  @inline(__always)
  @discardableResult
  func get(_ call: SystemCall, _ path: @autoclosure () -> String) throws(StorageError) -> Int {
    switch self {
    case .success(let value): return value
    case .failure(let error):
      throw StorageError(errno: error.code, operation: call.rawValue, path: path())
    }
  }
}
