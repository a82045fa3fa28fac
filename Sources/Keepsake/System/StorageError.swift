public import FoundationEssentials
internal import KeepsakeLibc

/// What failed, on which key or path, and what to do about it.
///
/// Stores throw it; facades hand it to ``StorageSystem/onFailure``. It never carries a stored
/// value. Tell cases apart by ``code``:
///
/// ```swift
/// do {
///   try Defaults.shared.set(profile, forKey: "profile")
/// } catch StorageError.Code.diskFull {
///   print("free some space first")
/// } catch {
///   print(error)
/// }
/// ```
///
/// Let the last `catch` take all: Swift 6.3 may crash with "Found ownership error" on a `do` of
/// typed throws that does not.
public struct StorageError: Error, Sendable {
  /// The kind of failure.
  ///
  /// A struct and not an enum, so that a new kind breaks nobody's `switch`. Use it in a `catch`
  /// clause, as in `catch StorageError.Code.notFound`.
  public struct Code: Hashable, Sendable {
    let name: String
    /// The system's `errno` for ``system(_:)``, otherwise nil.
    public let systemError: Int32?

    init(_ name: String, systemError: Int32? = nil) {
      self.name = name
      self.systemError = systemError
    }

    /// Nothing is stored there.
    public static let notFound = Code("not found")
    /// A value is stored, but of another type than the one asked for.
    public static let wrongType = Code("wrong type")
    /// The value's own `encode(to:)` or its source failed, or it cannot be expressed; the old value
    /// is intact.
    public static let encodingFailed = Code("encoding failed")
    /// The stored bytes cannot be turned into the type asked for, or imported.
    public static let decodingFailed = Code("decoding failed")
    /// A file was changed by something else, or its storage is failing.
    public static let damaged = Code("damaged")
    /// The system refused access, or the file system is read-only.
    public static let accessDenied = Code("access denied")
    /// The key to the vault is not there: call `unlock`, or bring the key file or other source
    /// back.
    public static let locked = Code("locked")
    /// The passphrase is not the right one.
    public static let wrongPassphrase = Code("wrong passphrase")
    /// The disk, the quota or the file-size limit is exhausted.
    public static let diskFull = Code("disk full")
    /// Another process held a lock for longer than the time-out.
    public static let timedOut = Code("timed out")
    /// A newer version of the library wrote the file.
    public static let unsupportedVersion = Code("unsupported version")
    /// The call itself is wrong: a name that cannot be used, a nested update, a late bootstrap.
    public static let misuse = Code("misuse")
    /// A ``StorageEngine`` threw an error of its own: see ``StorageError/underlyingError``.
    public static let engineFailed = Code("engine failed")
    /// Any other failure of the operating system, by its `errno`.
    public static func system(_ errno: Int32) -> Code { Code("system error", systemError: errno) }
  }

  /// Behind one reference: every call that can throw would else set aside the room for all of it.
  private let details: Details

  private final class Details: Sendable {
    let code: Code
    let operation: String
    let key: String?
    let path: String?
    let reason: String?
    let remedy: String
    let underlyingError: (any Error)?

    init(
      _ code: Code, _ operation: String, _ key: String?, _ path: String?, _ reason: String?,
      _ remedy: String, _ underlyingError: (any Error)?
    ) {
      self.code = code
      self.operation = operation
      self.key = key
      self.path = path
      self.reason = reason
      self.remedy = remedy
      self.underlyingError = underlyingError
    }
  }

  /// The kind of failure.
  public var code: Code { details.code }
  /// What was being done, such as `set` or `rename`; with the facade's name, such as
  /// `Defaults.set`, in what a facade reports to ``StorageSystem/onFailure``.
  public var operation: String { details.operation }
  /// The key it was done to, where there is one.
  public var key: String? { details.key }
  /// The file or directory it was done to, where there is one.
  public var path: String? { details.path }
  /// What the reader can do about it, as a sentence.
  public var remedy: String { details.remedy }
  /// The error below this one, where there is one.
  public var underlyingError: (any Error)? { details.underlyingError }
  /// What happened, more closely than ``code`` says it.
  var reason: String? { details.reason }

  /// Makes an error, for a ``StorageEngine`` of one's own.
  ///
  /// - Parameters:
  ///   - code: The kind of failure.
  ///   - operation: What was being done; the call that ended says it anew.
  ///   - key: The key it was done to.
  ///   - path: The file or other place it was done to.
  ///   - reason: What happened, without any stored value.
  ///   - remedy: What the reader can do about it, as a sentence.
  ///   - underlyingError: The error below this one; its text is not shown.
  public init(
    _ code: Code, operation: String, key: String? = nil, path: String? = nil,
    reason: String? = nil, remedy: String, underlyingError: (any Error)? = nil
  ) {
    details = Details(code, operation, key, path, reason, remedy, underlyingError)
  }

  /// The same failure as seen from the call that it ended.
  @usableFromInline
  func inContext(of operation: String, key: String? = nil, path: String? = nil) -> StorageError {
    StorageError(
      code, operation: operation, key: key ?? self.key, path: self.path ?? path, reason: reason,
      remedy: remedy, underlyingError: underlyingError)
  }

  /// The same failure as it is reported: who reads a line of it shall know which kind of store it
  /// was.
  func reported(by facade: String) -> StorageError { inContext(of: "\(facade).\(operation)") }

  /// Whether the process or the system has run out of descriptors, which says nothing about the
  /// path.
  var isDescriptorLimit: Bool { code.systemError == EMFILE || code.systemError == ENFILE }

  /// Whether the call failed because the path is that of a directory.
  var isDirectory: Bool { code.systemError == EISDIR }

  /// Whether the call failed because the path is, or contains, a symbolic link.
  var isSymbolicLink: Bool { code.systemError == ELOOP }

  /// A failed system call on `path`.
  init(errno: Int32, operation: String, path: String) {
    let code: Code
    let remedy: String
    switch errno {
    case ENOENT:
      (code, remedy) = (.notFound, "Check that the path exists.")
    case EACCES, EPERM:
      (code, remedy) = (.accessDenied, "Check who owns the path and what its mode allows.")
    case EROFS:
      (code, remedy) = (
        .accessDenied,
        "The file system is read-only: choose a writable directory, by HOME, the XDG variables, "
          + "TMPDIR or StorageSystem.bootstrap."
      )
    case ENOSPC, EDQUOT:
      (code, remedy) = (.diskFull, "Free some space or raise the quota, then try again.")
    case EFBIG:
      (code, remedy) = (.diskFull, "Raise the file-size limit, then try again.")
    case EISDIR:
      (code, remedy) = (.system(errno), "A directory stands where the file belongs: move it away.")
    case ENOTDIR:
      (code, remedy) = (.system(errno), "A file stands where a directory belongs: move it away.")
    case ENOTEMPTY, EEXIST:
      (code, remedy) = (.system(errno), "Something stands there: empty it or delete it first.")
    case ENAMETOOLONG:
      (code, remedy) = (.system(errno), "Use a shorter name.")
    case EMFILE, ENFILE:
      (code, remedy) = (.system(errno), "Close files or raise the limit on open descriptors.")
    case ELOOP:
      (code, remedy) = (
        .system(errno), "A symbolic link stands in the way or leads in a circle: remove it."
      )
    case EIO:
      (code, remedy) = (.system(errno), "The disk reports an error: check it and keep a copy.")
    default:
      (code, remedy) = (.system(errno), "See the system's error and the path.")
    }
    self.init(
      code, operation: operation, path: path,
      reason: "\(operation): \(String(cString: strerror(errno)))", remedy: remedy)
  }
}

/// Lets `catch StorageError.Code.diskFull` match a ``StorageError`` of that code.
public func ~= (code: StorageError.Code, error: any Error) -> Bool {
  (error as? StorageError)?.code == code
}

extension StorageError: CustomStringConvertible, LocalizedError {
  /// One line: the operation, the key, what happened, where, and the remedy.
  public var description: String {
    var line = "\(operation) failed"
    if let key { line += " for key \(key.debugDescription)" }
    line += ": \(code)"
    if let reason { line += " (\(reason))" }
    if let path { line += " at \(path)" }
    return line + ". " + remedy
  }

  /// The same line as ``description``.
  public var errorDescription: String? { description }
  /// What happened, without the remedy.
  public var failureReason: String? { reason ?? code.description }
  /// The same sentence as ``remedy``.
  public var recoverySuggestion: String? { remedy }
}

extension StorageError.Code: CustomStringConvertible {
  /// The code in words.
  public var description: String {
    guard let systemError else { return name }
    return "\(name) \(systemError)"
  }
}
