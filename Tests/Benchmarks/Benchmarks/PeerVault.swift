// A file for each secret, encrypted with swift-crypto and a key that the program keeps in memory.
import Crypto
import Foundation
import Glibc

struct PeerVault {
  static let name = "AES.GCM + durable file"
  static let atomicName = "AES.GCM + .atomic"

  private let directory: URL
  /// The key is the same in all processes.
  private let key = SymmetricKey(data: Data(repeating: 7, count: 32))

  init(in parent: String) throws { directory = try makeDirectory("\(parent)/crypto") }

  func get(_ key: String) throws -> Data {
    let box = try AES.GCM.SealedBox(combined: Data(contentsOf: file(in: directory, key)))
    return try AES.GCM.open(box, using: self.key, authenticating: Data(key.utf8))
  }

  func model<Value: Decodable>(_ key: String, _ type: Value.Type = Value.self) throws -> Value {
    try JSONDecoder().decode(Value.self, from: get(key))
  }

  func setAtomically(_ value: Data, forKey key: String) throws {
    try sealed(value, key).write(to: file(in: directory, key), options: .atomic)
  }

  func setDurably(_ value: Data, forKey key: String) throws {
    let box = try sealed(value, key)
    let path = directory.path(percentEncoded: false)
    let token = String(UInt64.random(in: .min ... .max), radix: 16)
    try FloorVault.setDurably(
      file(in: directory, key).path(percentEncoded: false), temporary: "\(path).\(token).tmp",
      in: path
    ) { file in
      box.withUnsafeBytes { write(file, $0.baseAddress, $0.count) == $0.count }
    }
  }

  private func sealed(_ value: Data, _ key: String) throws -> Data {
    let box = try AES.GCM.seal(value, using: self.key, authenticating: Data(key.utf8))
    guard let combined = box.combined else { throw SystemFailure(code: EINVAL) }
    return combined
  }
}
