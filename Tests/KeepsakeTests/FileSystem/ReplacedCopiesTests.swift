import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// What restores replace is kept for people, up to a number.
@Suite(.singleThreaded) struct ReplacedCopiesTests {
  @Test(arguments: [App.Store.settings, .secrets])
  func theThreeNewestAreKept(_ store: App.Store) throws {
    let directory = try TemporaryDirectory(isQuick: true)
    let (settings, secrets) = (directory.store(), directory.secrets())
    let name = store == .settings ? TemporaryDirectory.journal : "vault"
    let foreign = [name + ".replaced-notes", name + ".replaced-20240101"]
    for name in foreign { try directory.write([1], to: name) }
    var kept: [String] = []
    for round in 0..<6 {
      let backup = directory.file("backup\(round)").path
      let restore: PreparedRestore
      if store == .settings {
        try settings.set(round, forKey: "a")
        try settings.backUp(to: backup)
        restore = try settings.prepareRestore(from: backup)
      } else {
        try secrets.set("\(round)", forKey: "a")
        try secrets.backUp(to: backup, keyFile: nil)
        restore = try secrets.prepareRestore(from: backup, keyFile: nil)
      }
      kept.append(FileSystem.name(of: try #require(try restore.commit())))
      // The age is that of the file, whose time has this precision.
      waitForTick()
    }
    let found = try directory.names().filter { $0.hasPrefix(name + ".replaced-") }
    #expect(found == (foreign + kept.suffix(3)).sorted())
  }
}
