import FoundationEssentials
import Keepsake

/// The file of a backup that is written last, and lists all others.
///
/// ```
/// DIRECTORY/backup.json
/// DIRECTORY/settings/<suite>.jsonl     a journal
/// DIRECTORY/vault/…                    a vault's directory
/// DIRECTORY/vault.key                  the vault's key file
/// ```
struct BackupManifest: Codable {
  struct Suite: Codable {
    var name: String
    var file: String
  }

  struct File: Codable {
    var path: String
    var bytes: Int
    /// The checksum of the article on cache files, in hexadecimal digits.
    var checksum: String
  }

  /// Read alone at first: other versions may have other members.
  private struct Version: Codable {
    var keepsakeBackup: Int
  }

  private static let version = 1
  static let name = "backup.json"
  static let vault = "vault"
  static let keyFile = "vault.key"

  private var keepsakeBackup = Self.version
  var app: String
  var created: String
  var suites: [Suite] = []
  var hasVault = false
  var hasKeyFile = false
  var files: [File] = []

  init(app: String) {
    self.app = app
    created = Date().ISO8601Format()
  }

  // MARK: Writing

  /// Lists all files of the directory, and writes the manifest to it.
  func write(to directory: Folder) throws {
    var manifest = self
    let paths = try directory.list(recursively: true).filter { !$0.hasSuffix("/") }
    manifest.files = try paths.sorted().map { try Self.describe($0, in: directory) }
    try directory.save(try Output.json(manifest), as: Self.name)
  }

  private static func describe(_ path: String, in directory: Folder) throws -> File {
    let data: Data = try directory.load(path)
    let checksum = data.withUnsafeBytes { StreamChecksum.sum($0) }
    return File(path: path, bytes: data.count, checksum: String(checksum, radix: 16))
  }

  // MARK: Reading

  /// Reads the manifest of a backup.
  ///
  /// - Throws: A ``Failure`` unless it is of this version and all its files are as they were.
  static func read(from directory: Folder) throws -> BackupManifest {
    let path = try directory.url().path(percentEncoded: false)
    guard try directory.exists(name) else {
      throw Failure(
        message: "\(path) has no \(name), so it is not a complete backup. "
          + "Name a directory that `keepsakectl backup` has written.")
    }
    let names = try directory.list(recursively: true, includingHidden: true)
    try BackupDirectory.requireSafe(path, names)
    let text: Data = try directory.load(name)
    let decoder = JSONDecoder()
    if let version = try? decoder.decode(Version.self, from: text),
      version.keepsakeBackup != Self.version
    {
      throw Failure(
        message: "\(path) was written by a newer version of keepsakectl. "
          + "Update keepsakectl; nothing was changed.")
    }
    guard let manifest = try? decoder.decode(BackupManifest.self, from: text) else {
      throw damaged(path + "/" + name)
    }
    for file in manifest.files {
      // Missing, shorter, longer or changed.
      let found = try? describe(file.path, in: directory)
      guard let found, found.bytes == file.bytes, found.checksum == file.checksum else {
        throw damaged(path + "/" + file.path)
      }
    }
    try manifest.requireConsistency(in: directory, names)
    return manifest
  }

  static func damaged(_ path: String) -> Failure {
    Failure(
      message: "\(path) is missing or damaged. Restore another backup; nothing was changed.")
  }
}
