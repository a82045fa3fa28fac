// A vault for measurements, and the paths of its files.
import Foundation
import Glibc
import Keepsake

/// A service without secrets whose directory exists, and the floor in the same vault directory.
struct EmptyVault {
  let service: SecureVault.Service
  let store: SecureVault.Store
  let floor: FloorVault
  private let directory: String

  init(_ service: SecureVault.Service, _ parent: String) throws {
    self.service = service
    store = SecureVault.service(service)
    let vault = try store.folderURL.path(percentEncoded: false)
    let others = Set(try Self.directories(in: vault))
    // Creates the directory of the service, and the vault if necessary.
    try store.set(Data(), forKey: "")
    try store.remove("")
    guard let own = try Self.directories(in: vault).first(where: { !others.contains($0) }) else {
      throw SystemFailure(code: ENOENT)
    }
    directory = "\(vault)/\(own)"
    let base = URL(filePath: vault).deletingLastPathComponent().path
    floor = try FloorVault(in: "\(base)/floor", directory: own)
  }

  /// The paths of its secrets.
  func entries() throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: directory).map { "\(directory)/\($0)" }
  }

  private static func directories(in vault: String) throws -> [String] {
    guard FileManager.default.fileExists(atPath: vault) else { return [] }
    return try FileManager.default.contentsOfDirectory(atPath: vault).filter { $0.count == 32 }
  }
}
