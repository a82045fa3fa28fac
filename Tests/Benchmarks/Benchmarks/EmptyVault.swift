// A vault to measure in, and where its files lie.
import Foundation
import Glibc
import Keepsake

/// A service without secrets, whose directory is made, and the floor beside its vault.
struct EmptyVault {
  let service: SecureVault.Service
  let store: SecureVault.Store
  let floor: FloorVault
  private let directory: String

  init(_ service: SecureVault.Service, _ host: String) throws {
    self.service = service
    store = SecureVault.service(service)
    let vault = try store.folderURL.path(percentEncoded: false)
    let others = Set(try Self.directories(in: vault))
    // Makes the directory, and the vault if it is the first.
    try store.set(Data(), forKey: "")
    try store.remove("")
    guard let own = try Self.directories(in: vault).first(where: { !others.contains($0) }) else {
      throw SystemFailure(code: ENOENT)
    }
    directory = "\(vault)/\(own)"
    let root = URL(filePath: vault).deletingLastPathComponent().path
    floor = try FloorVault(in: "\(root)/floor", directory: own)
  }

  /// Where its secrets lie.
  func entries() throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: directory).map { "\(directory)/\($0)" }
  }

  private static func directories(in vault: String) throws -> [String] {
    guard FileManager.default.fileExists(atPath: vault) else { return [] }
    return try FileManager.default.contentsOfDirectory(atPath: vault).filter { $0.count == 32 }
  }
}
