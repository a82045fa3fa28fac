// Compiled into all programs, with each configuration of isolation checks.
import Checks
import Foundation
import Keepsake

struct Closed: Error {}

/// An engine whose calls all fail.
struct ClosedEngine: StorageEngines.Engine {
  func data(forKey key: String) throws -> Data? { throw Closed() }
  func set(_ data: Data?, forKey key: String) throws { throw Closed() }
  func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool { throw Closed() }
  func keys() throws -> [String] { throw Closed() }
}

func checkEngines() async throws {
  let table = TableEngine()
  let directory = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
  let folder = Folder(directory)
  let engines: [Defaults.Suite: any StorageEngines.Engine] = [
    "table": table, "files": StorageEngines.files(in: folder), "session": StorageEngines.memory(),
    "closed": ClosedEngine(),
  ]
  try await StorageSystem.withTemporary(engines: engines) {
    for suite: Defaults.Suite in ["table", "files", "session"] {
      Defaults.set("dark", forKey: "theme", suite: suite)
      Defaults.update("count", default: 1, suite: suite) { $0 += 1 }
      check(Defaults.string("theme", suite: suite), is: "dark")
      check(Defaults.keys(suite: suite).sorted(), is: ["count", "theme"])
    }
    check(table.data(forKey: "theme"), is: Data("\"dark\"".utf8))
    check(try folder.load("count.json"), is: Data("2".utf8))
    StorageSystem.onFailure = { error in check(error.underlyingError is Closed) }
    check(!Defaults.set(1, forKey: "count", suite: "closed"))
    do {
      try Defaults.suite("closed").set(1, forKey: "count")
      check(false)
    } catch StorageError.Code.engineFailed {
      check(true)
    } catch {
      throw error
    }
  }
  try FileManager.default.removeItem(at: directory)
}
