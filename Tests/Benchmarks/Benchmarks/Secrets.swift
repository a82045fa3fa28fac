// The vault: reading and writing secrets of three sizes. Keepsake and the floor read the very same
// files; they write files of the same size into folders of the same depth, side by side.
import Foundation
import Keepsake

struct Secrets {
  private let folder: String
  private static let service: SecureVault.Service = "com.app.auth"
  private static let sizes = [32, 1_024, 1 << 20]

  init(folder: String) { self.folder = folder }

  /// What replaces files comes last, as ext4 is slow for minutes to make new ones after that.
  func measure(_ bench: inout Bench) throws {
    for size in Self.sizes { try measureReading(&bench, size: size) }
    try measureLooking(&bench)
    try measureSealing(&bench)
    for size in Self.sizes { try measureNewKeys(&bench, size: size) }
    for size in Self.sizes { try measureExistingKeys(&bench, size: size) }
  }

  // MARK: Reading

  private func measureReading(_ bench: inout Bench, size: Int) throws {
    let keys = (0..<(size > 100_000 ? 16 : 500)).map(Self.key)
    let vault = try EmptyVault(Self.service(of: "read", size), folder)
    let crypto = try CryptoVault(in: try Self.makeFolder("\(folder)/read-\(size)"))
    let (text, data) = (Self.text(size), Self.data(size))
    for key in keys {
      try size == 32 ? vault.store.set(text, forKey: key) : vault.store.set(data, forKey: key)
      try crypto.setAtomically(data, forKey: key)
    }
    let entries = try vault.entries()
    let fileSize = try Self.size(of: entries[0])
    sync()
    let floor: Subject = {
      try each(entries, $0) { sink &+= try FloorVault.get($0, fileSize).count }
    }
    let peers: [(name: String, subject: Subject)] = [
      (CryptoVault.name, { try each(keys, $0) { sink &+= try crypto.get($0).count } })
    ]
    if size == 32 {
      try bench.measure(
        "SecureVault.get", size: size, target: "<= 2.5",
        keepsake: { try each(keys, $0) { sink &+= try vault.store.get($0)?.utf8.count ?? 0 } },
        floor: floor, peers: peers)
      // The facade finds its store by name first.
      try bench.measure(
        "SecureVault.get, facade", size: size, target: "none",
        keepsake: {
          each(keys, $0) {
            sink &+= SecureVault.get($0, service: vault.service)?.utf8.count ?? 0
          }
        }, floor: floor, peers: peers)
    } else {
      try bench.measure(
        "SecureVault.getData", size: size, target: "none",
        keepsake: { try each(keys, $0) { sink &+= try vault.store.getData($0)?.count ?? 0 } },
        floor: floor, peers: peers)
    }
    try bench.measure(
      "SecureVault.withSecret", size: size, target: "none",
      keepsake: {
        try each(keys, $0) { key in
          sink &+= try vault.store.withSecret(key) { (bytes: RawSpan) in bytes.byteCount } ?? 0
        }
      }, floor: floor)
  }

  /// Whether something is there.
  private func measureLooking(_ bench: inout Bench) throws {
    let vault = try EmptyVault("looks", folder)
    let keys = (0..<500).map(Self.key)
    let missing = (500..<1_000).map(Self.key)
    for key in keys { try vault.store.set(Self.text(32), forKey: key) }
    let present = try vault.entries()
    let absent = (0..<500).map { vault.floor.entry($0).path }
    sync()
    func looks(_ paths: [String]) -> Subject {
      { each(paths, $0) { sink &+= FloorCache.contains($0) ? 1 : 0 } }
    }
    try bench.measure(
      "SecureVault.contains", size: 32, target: "none",
      keepsake: { try each(keys, $0) { sink &+= try vault.store.contains($0) ? 1 : 0 } },
      floor: looks(present))
    try bench.measure(
      "SecureVault.contains, missing", target: "none",
      keepsake: { try each(missing, $0) { sink &+= try vault.store.contains($0) ? 1 : 0 } },
      floor: looks(absent))
    try bench.measure(
      "SecureVault.get, missing", target: "none",
      keepsake: { try each(missing, $0) { sink &+= try vault.store.get($0)?.utf8.count ?? 0 } },
      floor: looks(absent))
  }

  // MARK: Writing

  private func measureNewKeys(_ bench: inout Bench, size: Int) throws {
    let vault = try EmptyVault(Self.service(of: "new", size), folder)
    let crypto = try CryptoVault(in: try Self.makeFolder("\(folder)/new-\(size)"))
    let data = Self.data(size)
    // What Keepsake's file is going to hold.
    try vault.store.set(data, forKey: Self.key(0))
    let contents = Self.data(try Self.size(of: try vault.entries()[0]))
    var next = 1
    var keys: [String] = []
    var entries: [FloorVault.Entry] = []
    try bench.measure(
      "SecureVault.set, new key", size: size, target: size == 32 ? "<= 1.3" : "none",
      batch: .milliseconds(20), limit: size > 100_000 ? 4 : 100,
      prepare: {
        keys = (next..<next + $0).map(Self.key)
        entries = (next..<next + $0).map(vault.floor.entry)
        next += $0
      },
      keepsake: { for key in keys[..<$0] { try vault.store.set(data, forKey: key) } },
      floor: { for entry in entries[..<$0] { try vault.floor.set(contents, entry) } },
      peers: [
        (
          CryptoVault.durableName,
          { for key in keys[..<$0] { try crypto.setDurably(data, forKey: key) } }
        ),
        (
          CryptoVault.atomicName,
          { for key in keys[..<$0] { try crypto.setAtomically(data, forKey: key) } }
        ),
      ])
  }

  private func measureExistingKeys(_ bench: inout Bench, size: Int) throws {
    let vault = try EmptyVault(Self.service(of: "over", size), folder)
    let crypto = try CryptoVault(in: try Self.makeFolder("\(folder)/over-\(size)"))
    let data = Self.data(size)
    let numbers = 0..<(size > 100_000 ? 4 : 32)
    let (keys, entries) = (numbers.map(Self.key), numbers.map(vault.floor.entry))
    let keepsake: Subject = { try each(keys, $0) { try vault.store.set(data, forKey: $0) } }
    try keepsake(keys.count)
    let contents = Self.data(try Self.size(of: try vault.entries()[0]))
    let floor: Subject = { try each(entries, $0) { try vault.floor.set(contents, $0) } }
    let durably: Subject = { try each(keys, $0) { try crypto.setDurably(data, forKey: $0) } }
    let atomically: Subject = {
      try each(keys, $0) { try crypto.setAtomically(data, forKey: $0) }
    }
    for fill in [floor, durably] { try fill(keys.count) }
    try bench.measure(
      "SecureVault.set, existing key", size: size, target: size == 32 ? "<= 1.3" : "none",
      batch: .milliseconds(20), limit: 100, keepsake: keepsake, floor: floor,
      peers: [(CryptoVault.durableName, durably), (CryptoVault.atomicName, atomically)])
  }

  /// A whole set in memory, where nothing waits for a disk: against bare EVP through a buffer of the same
  /// size, with the same file calls.
  private func measureSealing(_ bench: inout Bench) throws {
    let memory = "/dev/shm"
    let isThere = FileManager.default.isWritableFile(atPath: memory)
    let host = "\(isThere ? memory : folder)/keepsake-benchmarks-\(getpid())-sealing"
    defer { try? FileManager.default.removeItem(atPath: host) }
    let vault = try EmptyVault(
      SecureVault.Service("sealing", in: URL(filePath: try Self.makeFolder(host))), host)
    // With the sixteen bytes before it, a length that needs no padding.
    let value = Self.data((1 << 20) - 16)
    let message = [UInt8](Self.data(1 << 20))
    let entry = vault.floor.entry(0)
    let crypto = try CryptoVault(in: host)
    try bench.measure(
      "sealing in \(isThere ? "memory" : "a folder")", size: 1 << 20, target: "<= 1.18",
      keepsake: { for _ in 0..<$0 { try vault.store.set(value, forKey: "value") } },
      floor: { for _ in 0..<$0 { try vault.floor.seal(message, entry) } },
      peers: [
        (
          CryptoVault.durableName,
          { for _ in 0..<$0 { try crypto.setDurably(value, forKey: "value") } }
        )
      ])
  }

  // MARK: Keys and values

  /// A service has a folder of its own, and one for each row is as good as a new vault.
  private static func service(of row: String, _ size: Int) -> SecureVault.Service {
    "\(row).\(size)"
  }

  private static func key(_ number: Int) -> String { "token.\(10_000_000 + number)" }

  private static func text(_ size: Int) -> String { String(repeating: "x", count: size) }

  private static func data(_ size: Int) -> Data {
    Data((0..<size).map { _ in UInt8.random(in: .min ... .max) })
  }

  private static func size(of path: String) throws -> Int {
    let attributes = try FileManager.default.attributesOfItem(atPath: path)
    guard let size = attributes[.size] as? Int else { throw SystemFailure(code: EINVAL) }
    return size
  }

  private static func makeFolder(_ path: String) throws -> String {
    // For the user alone: in any other a set has to give its files the folder's mode.
    try FileManager.default.createDirectory(
      atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    return path
  }
}

/// A service without secrets, whose folder is made, and the floor beside its vault.
private struct EmptyVault {
  let service: SecureVault.Service
  let store: SecureVault.Store
  let floor: FloorVault
  private let folder: String

  init(_ service: SecureVault.Service, _ host: String) throws {
    self.service = service
    store = SecureVault.service(service)
    let vault = try store.folderURL.path(percentEncoded: false)
    let others = Set(try Self.folders(in: vault))
    // Makes the folder, and the vault if it is the first.
    try store.set(Data(), forKey: "")
    try store.remove("")
    guard let own = try Self.folders(in: vault).first(where: { !others.contains($0) }) else {
      throw SystemFailure(code: ENOENT)
    }
    folder = "\(vault)/\(own)"
    let root = URL(filePath: vault).deletingLastPathComponent().path
    floor = try FloorVault(in: "\(root)/floor", folder: own)
  }

  /// Where its secrets lie.
  func entries() throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: folder).map { "\(folder)/\($0)" }
  }

  private static func folders(in vault: String) throws -> [String] {
    guard FileManager.default.fileExists(atPath: vault) else { return [] }
    return try FileManager.default.contentsOfDirectory(atPath: vault).filter { $0.count == 32 }
  }
}
