// Reading a large entry of the disk cache in pieces, against read(2) into one buffer.
import Foundation
import Glibc
import Keepsake

struct Chunks {
  private static let pieceSize = 1 << 20

  private let directory: String
  private let size: Int

  init(directory: String, isQuick: Bool) {
    self.directory = directory
    size = (isQuick ? 64 : 256) << 20
  }

  func measure(_ bench: inout Bench) throws {
    var parent = "\(directory)/chunks"
    let original = try EmptyCache(in: parent)
    try original.store.set(Data(count: size), forKey: "k")
    var path = try original.payloads(["k"])[0]
    sync()
    var store = original.store
    // From here on Keepsake has verified the checksum.
    try Self.readPieces(of: store)
    try bench.measure(
      "DiskCache.chunks, read before", size: size, target: 1.11, most: 1,
      keepsake: { _ in try Self.readPieces(of: store) },
      floor: { _ in try Self.read(path) })

    // A renamed directory is a new cache to the process: it remembers nothing of the files.
    var moves = 0
    try bench.measure(
      "DiskCache.chunks, first read", size: size, most: 1,
      prepare: { _ in
        moves += 1
        let moved = "\(directory)/chunks-\(moves)"
        try FileManager.default.moveItem(atPath: parent, toPath: moved)
        parent = moved
        store = DiskCache.named(DiskCache.Name(EmptyCache.name, in: URL(filePath: parent)))
        path = try EmptyCache.payloads(["k"], store, like: [path])[0]
      },
      keepsake: { _ in try Self.readPieces(of: store) },
      floor: { _ in try Self.read(path) })
  }

  private static func readPieces(of store: DiskCache.Store) throws {
    let count = try blocking { () async throws -> Int in
      guard let pieces = try store.chunks("k", size: pieceSize) else { return 0 }
      var count = 0
      for try await piece in pieces { count += piece.count }
      return count
    }
    sink &+= count
  }

  private static func read(_ path: String) throws {
    let file = try check(path.withCString { open($0, O_RDONLY | O_CLOEXEC) })
    defer { close(file) }
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: pieceSize, alignment: 64)
    defer { buffer.deallocate() }
    while true {
      let count = Glibc.read(file, buffer.baseAddress, pieceSize)
      guard count >= 0 else { throw SystemFailure(code: errno) }
      if count == 0 { return }
      sink &+= count
    }
  }
}
