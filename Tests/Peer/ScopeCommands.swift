// Values inside and outside of temporary scopes. The tests also use this file.
import Dispatch
import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// The same value in each kind of store.
enum OneOfEachStore {
  /// Stores the value and returns the paths of its files.
  static func set(_ value: String) throws -> [String] {
    try Defaults.shared.set(value, forKey: "k")
    try Defaults.suite("files").set(value, forKey: "k")
    try SecureVault.shared.set(value, forKey: "k")
    try DiskCache.shared.set(value, forKey: "k")
    for directory in directories { try directory.save(value, as: "k") }
    let urls = [try Defaults.shared.fileURL, try DiskCache.shared.fileURL("k")]
    return try urls.compactMap { $0?.path } + directories.map { try $0.url("k").path }
  }

  /// The distinct values that are stored.
  static func values() throws -> Set<String> {
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

func printPaths() async throws {
  for path in try OneOfEachStore.set("outside") { printLine("outside \(path)") }
  for number in 0..<20 {
    try await StorageSystem.withTemporary {
      for path in try OneOfEachStore.set("\(number)") { printLine("inside \(path)") }
    }
  }
  for path in try await Task.detached(operation: { try OneOfEachStore.set("detached") }).value {
    printLine("outside \(path)")
  }
  // A task that outlives its scope.
  let (opened, gate) = AsyncStream.makeStream(of: Void.self)
  let late = try await StorageSystem.withTemporary {
    Task {
      for await _ in opened {}
      return try OneOfEachStore.set("late")
    }
  }
  gate.finish()
  for path in try await late.value { printLine("inside \(path)") }
}
