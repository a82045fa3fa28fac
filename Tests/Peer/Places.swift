// Where the peer's things lie; the tests read this file too, and ask the same of themselves.
import Dispatch
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Something of each kind, stored under one mark.
enum Places {
  /// Stores it, and says where it lies.
  static func fill(_ mark: String) throws -> [String] {
    try Defaults.shared.set(mark, forKey: "k")
    try Defaults.suite("files").set(mark, forKey: "k")
    try SecureVault.shared.set(mark, forKey: "k")
    try DiskCache.shared.set(mark, forKey: "k")
    for directory in directories { try directory.save(mark, as: "k") }
    let urls = [try Defaults.shared.fileURL, try DiskCache.shared.fileURL("k")]
    return try urls.compactMap { $0?.path } + directories.map { try $0.url("k").path }
  }

  /// What is stored, without a word more than once.
  static func marks() throws -> Set<String> {
    let single = [
      try Defaults.shared.string("k"), try Defaults.suite("files").string("k"),
      try SecureVault.shared.get("k"), try DiskCache.shared.model("k"),
    ]
    let files: [String?] = try directories.map { try $0.load("k") }
    return Set((single + files).map { $0 ?? "nothing" })
  }

  private static var directories: [Folder] {
    [.documents, .applicationSupport, .caches, .temporary]
  }
}

func sayPlaces() async throws {
  for path in try Places.fill("outside") { say("outside \(path)") }
  for number in 0..<20 {
    try await StorageSystem.withTemporary {
      for path in try Places.fill("\(number)") { say("inside \(path)") }
    }
  }
  for path in try await Task.detached(operation: { try Places.fill("detached") }).value {
    say("outside \(path)")
  }
  // One that comes after the end of its scope.
  let (opened, gate) = AsyncStream.makeStream(of: Void.self)
  let late = try await StorageSystem.withTemporary {
    Task {
      for await _ in opened {}
      return try Places.fill("late")
    }
  }
  gate.finish()
  for path in try await late.value { say("inside \(path)") }
}
