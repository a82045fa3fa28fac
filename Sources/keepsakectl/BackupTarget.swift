import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// The directory that a backup is written to.
struct BackupTarget {
  let path: String
  let folder: Folder
  private let directory: BackupDirectory

  /// Creates the directory, or uses an empty one.
  init(_ name: String) throws {
    // Without a slash at its end, which would follow a link.
    let url = URL(filePath: name)
    var path = url.path(percentEncoded: false)
    while path.utf8.count > 1, path.utf8.last == UInt8(ascii: "/") { path.removeLast() }
    do {
      directory = try BackupDirectory(creating: path)
    } catch {
      switch error.code {
      case .misuse: throw Failure.usage("\(name) is not empty. Name a new directory.")
      case .accessDenied where error.operation == "backUp": throw error
      default:
        throw Failure(
          message: "\(name) cannot be created: \(error.reason ?? ""). "
            + "Name a new directory in one that you can write to.", status: 74)
      }
    }
    self.path = path
    folder = Folder(URL(filePath: path))
  }

  /// Runs `body`, which writes the backup. If it fails, removes what it has written.
  func fill(_ body: () throws -> Void) throws {
    do {
      try directory.perform(body)
      try directory.requireOwn()
    } catch {
      // Without the last file it could not be restored.
      try? folder.clear()
      rmdir(path)
      throw error
    }
  }
}
