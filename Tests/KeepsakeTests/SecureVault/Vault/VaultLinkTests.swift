import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// A link in the place of a service's directory: nothing behind it is changed.
@Suite struct VaultLinkTests {
  @Test(arguments: ["set", "remove", "removeAll"])
  func aLinkInsteadOfADirectoryIsNotFollowed(_ call: String) throws {
    let directory = try TemporaryDirectory()
    try directory.secrets().set("1", forKey: "k")
    let service = FileSystem.parent(of: try directory.secretPath("k"))
    let elsewhere = directory.path + "/elsewhere"
    try FileSystem.rename(service, to: elsewhere)
    try directory.link("vault/" + FileSystem.name(of: service), to: elsewhere)
    let before = try directory.contents()
    let store = directory.secrets()
    let error = expectFailure(.accessDenied) {
      switch call {
      case "set": try store.set("2", forKey: "k")
      case "remove": try store.remove("k")
      default: try store.removeAll()
      }
    }
    #expect(error?.path == service)
    #expect(try directory.contents() == before)
    try FileSystem.unlink(service)
    try FileSystem.rename(elsewhere, to: service)
    #expect(try directory.secrets().get("k") == "1")
  }
}
