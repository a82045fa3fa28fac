import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// The files of a vault that
/// ``TemporaryDirectory/secrets(_:failures:keySources:authenticate:environment:)`` makes, for tests
/// that change them.
extension TemporaryDirectory {
  var headerPath: String { path + "/vault/vault.hdr" }
  var keyFilePath: String { path + "/state/vault.key" }

  /// A new vault of all services. It shares nothing in memory with other vaults.
  func vault(
    _ sources: [SecureVault.KeySource] = [.keyFile],
    authenticate: SecureVault.Authenticator? = nil, timeout: Duration = .seconds(10),
    failures: Failures = Failures()
  ) -> Vault {
    let finder = DirectoryFinder(
      app: "test", chosen: .init(data: url, state: url.appending(path: "state")),
      environment: { _ in nil })
    let paths = VaultPaths(
      in: StoreDirectory(path: path, isCallerOwned: false), finder: finder)
    return Vault(
      storage: VaultDirectory(paths, timeout: timeout), finder: finder,
      options: VaultOptions(sources: sources, authenticate: authenticate), timeout: timeout,
      report: failures.append)
  }

  /// A session with the keys of the current header.
  func openVault(_ sources: [SecureVault.KeySource] = [.keyFile]) throws -> VaultSession {
    try #require(try vault(sources).session())
  }

  /// The path of a secret, whether it exists or not.
  func secretPath(
    _ key: String, _ service: String = "standard",
    _ sources: [SecureVault.KeySource] = [.keyFile]
  ) throws -> String {
    try openVault(sources).entryPath(service: service, key: key).path
  }

  /// All files below with their bytes, except lock files.
  func contents() throws -> [String: Data] {
    var contents: [String: Data] = [:]
    for name in try FileManager.default.subpathsOfDirectory(atPath: path)
    where !name.hasSuffix(".lock") {
      let status = try #require(try FileSystem.status(file(name).path))
      contents[name] = status.isDirectory ? Data() : try Data(contentsOf: file(name))
    }
    return contents
  }

  /// The temporary files of unfinished replacements.
  func temporaries() throws -> [String] {
    try FileManager.default.subpathsOfDirectory(atPath: path).filter { $0.hasSuffix(".tmp") }
      .sorted()
  }
}

/// Runs `interruption` once, just before `body` takes the vault's lock for the first time.
func interruptBeforeLocking(
  _ interruption: @escaping @Sendable () throws -> Void, in body: () throws -> Void
) throws {
  try interrupt(before: .lock, at: "/vault/.lock", interruption, in: body)
}

extension EntryHeader {
  /// The header of an entry's bytes.
  init(_ bytes: [UInt8]) throws(StorageError) {
    let path = EntryPath(vault: "", directoryName: "", fileName: "")
    self = try bytes.withBytes { bytes throws(StorageError) in try EntryHeader(bytes, at: path) }
  }
}
