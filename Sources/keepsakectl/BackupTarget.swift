import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// The directory that a backup is written to.
struct BackupTarget {
  let path: String
  let folder: Folder

  /// Creates the directory, or uses an empty one.
  init(_ name: String) throws {
    // Without what would follow a link at its end.
    let url = URL(filePath: name)
    var path = url.path(percentEncoded: false)
    while path.utf8.count > 1, path.hasSuffix("/") || path.hasSuffix("/.") { path.removeLast() }
    do {
      _ = try BackupDirectory(creating: path)
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
      try body()
    } catch {
      // Without the last file it could not be restored.
      try? folder.clear()
      rmdir(path)
      throw error
    }
  }
}
