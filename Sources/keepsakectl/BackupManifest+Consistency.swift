import FoundationEssentials
import Keepsake

extension BackupManifest {
  /// Throws unless the manifest lists all files of the backup, and no other ones, and only them are
  /// restored. Anyone who could write to the backup may have written the manifest.
  func requireConsistency(in directory: Folder, _ found: [String]) throws {
    let path = try directory.url().path(percentEncoded: false)
    let listed = Set(files.map(\.path))
    let unlisted = found.first { $0 != Self.name && !$0.hasSuffix("/") && !listed.contains($0) }
    if let unlisted {
      throw Failure(
        message: "\(path)/\(unlisted) is not a part of the backup. "
          + "Move it away if you know it, or restore another backup; nothing was changed.")
    }
    let suites = try suites.map { suite in
      guard try suite.file == Self.file(ofSuite: suite.name) else {
        throw Self.damaged(path + "/" + Self.name)
      }
      return suite.file
    }
    let parts =
      Set(suites).union(hasVault ? [Self.vault + "/vault.hdr"] : [])
      .union(hasKeyFile ? [Self.keyFile] : [])
    let others = listed.subtracting(parts).filter { !hasVault || !$0.hasPrefix(Self.vault + "/") }
    guard parts.isSubset(of: listed), others.isEmpty, suites.count == Set(suites).count else {
      throw Self.damaged(path + "/" + Self.name)
    }
  }

  /// The file of a suite in a backup.
  static func file(ofSuite name: String) throws -> String {
    "settings/" + (try Defaults.Suite(name).fileName("suite")) + ".jsonl"
  }
}
