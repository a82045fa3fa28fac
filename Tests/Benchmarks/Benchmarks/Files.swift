// An app's own files: saving, loading and checking them, against plain system calls and Foundation.
import CFloor
import Foundation
import Glibc
import Keepsake

struct Files {
  private let directory: String
  private static let foundation = "Foundation"

  init(directory: String) { self.directory = directory }

  func measure(_ bench: inout Bench) throws {
    for size in [1_024, 1 << 20] {
      try measureSaving(&bench, size: size)
      try measureLoading(&bench, size: size)
    }
    try measureExistence(&bench)
    try measureTotalSize(&bench, count: bench.isQuick ? 1_000 : 10_000)
  }

  private func makeFolder(_ name: String) throws -> (Folder, String) {
    let path = "\(directory)/files-\(name)"
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    return (Folder(URL(filePath: path)), path)
  }

  /// Measures replacing a file, durably and not durably.
  private func measureSaving(_ bench: inout Bench, size: Int) throws {
    let value = Data((0..<size).map { UInt8(truncatingIfNeeded: $0) })
    let limit = size > 100_000 ? 8 : 200
    let (durable, path) = try makeFolder("durable-\(size)")
    try bench.measure(
      "Folder.save, durable", size: size, batch: .milliseconds(8), most: limit,
      keepsake: { for _ in 0..<$0 { try durable.save(value, as: "a.bin") } },
      floor: { for _ in 0..<$0 { try Self.put(value, in: path, "b.bin", durable: true) } },
      peers: [
        Peer(Self.foundation, weaker: Atomic.isWeaker) {
          for _ in 0..<$0 { try value.write(to: URL(filePath: path + "/c.bin"), options: .atomic) }
        }
      ])
    let quick = try Folder.caches.subfolder("quick-\(size)").create().path
    try bench.measure(
      "Folder.save, not durable", size: size, batch: .milliseconds(8), most: limit,
      keepsake: {
        for _ in 0..<$0 { try Folder.caches.save(value, as: "quick-\(size)/a.bin") }
      },
      floor: { for _ in 0..<$0 { try Self.put(value, in: quick, "b.bin", durable: false) } },
      peers: [
        Peer(Self.foundation, stronger: Atomic.isStronger) {
          for _ in 0..<$0 { try value.write(to: URL(filePath: quick + "/c.bin"), options: .atomic) }
        }
      ])
  }

  /// Writes a temporary file and renames it; `durable` syncs both the file and the directory.
  private static func put(
    _ value: Data, in directory: String, _ name: String, durable: Bool
  ) throws {
    let (path, temporary) = ("\(directory)/\(name)", "\(directory)/.\(name).tmp")
    func isWritten(to file: Int32) -> Bool {
      value.withUnsafeBytes { write(file, $0.baseAddress, $0.count) == $0.count }
    }
    if durable {
      return try FloorVault.setDurably(path, temporary: temporary, in: directory, isWritten)
    }
    let flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC
    let file = try check(temporary.withCString { open($0, flags, 0o600) })
    defer { close(file) }
    guard isWritten(to: file) else { throw SystemFailure(code: errno) }
    try check(temporary.withCString { old in path.withCString { rename(old, $0) } })
  }

  private func measureLoading(_ bench: inout Bench, size: Int) throws {
    let (folder, path) = try makeFolder("load-\(size)")
    let names = (0..<(size > 100_000 ? 16 : 1_000)).map { "part/\($0).bin" }
    for name in names { try folder.save(Data(count: size), as: name) }
    let paths = names.map { "\(path)/\($0)" }
    let urls = paths.map { URL(filePath: $0) }
    try bench.measure(
      "Folder.load", size: size,
      keepsake: { try each(names, $0) { sink &+= (try folder.load($0) as Data).count } },
      floor: { try each(paths, $0) { sink &+= try FloorCache.get($0).count } },
      peers: [
        Peer(Self.foundation) { try each(urls, $0) { sink &+= try Data(contentsOf: $0).count } }
      ])
  }

  private func measureExistence(_ bench: inout Bench) throws {
    let (folder, path) = try makeFolder("load-1024")
    for (what, names) in [
      ("existing", (0..<1_000).map { "part/\($0).bin" }),
      ("missing", (0..<1_000).map { "part/\($0)" }),
    ] {
      let paths = names.map { "\(path)/\($0)" }
      try bench.measure(
        "Folder.exists, \(what)",
        keepsake: { try each(names, $0) { sink &+= try folder.exists($0) ? 1 : 0 } },
        floor: { each(paths, $0) { sink &+= FloorCache.contains($0) ? 1 : 0 } },
        peers: [
          Peer(Self.foundation) {
            each(paths, $0) { sink &+= FileManager.default.fileExists(atPath: $0) ? 1 : 0 }
          }
        ])
    }
  }

  private func measureTotalSize(_ bench: inout Bench, count: Int) throws {
    let (folder, path) = try makeFolder("tree")
    for number in 0..<count { try Data(count: 10).write(to: makeURL(path, number)) }
    try bench.measure(
      "Folder.totalSize", count: count, batch: .milliseconds(1), rounds: 5,
      keepsake: { for _ in 0..<$0 { sink &+= try folder.totalSize() } },
      floor: { for _ in 0..<$0 { sink &+= floor_walk(path) } },
      peers: [Peer(Self.foundation) { for _ in 0..<$0 { sink &+= try Self.totalSize(path) } }])
  }

  private func makeURL(_ path: String, _ number: Int) throws -> URL {
    let directory = "\(path)/\(number % 100)"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    return URL(filePath: "\(directory)/\(number)")
  }

  private static func totalSize(_ path: String) throws -> Int {
    var total = 0
    for name in try FileManager.default.subpathsOfDirectory(atPath: path) {
      let attributes = try FileManager.default.attributesOfItem(atPath: path + "/" + name)
      if attributes[.type] as? FileAttributeType == .typeRegular {
        total += attributes[.size] as? Int ?? 0
      }
    }
    return total
  }
}
