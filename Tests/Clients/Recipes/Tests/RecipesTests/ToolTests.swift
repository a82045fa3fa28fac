import ArgumentParser
import Keepsake
import KeepsakeTesting
import Testing

@testable import tool

@Suite(.temporaryStorage) struct ToolTests {
  private func run(_ arguments: String...) throws {
    var command = try Tool.parseAsRoot(arguments)
    try command.run()
  }

  /// How the program ends after `error`: its exit code and last line.
  private func end(_ error: any Error) -> (status: Int32, message: String) {
    (Tool.exitCode(for: error).rawValue, Tool.fullMessage(for: error))
  }

  @Test func tokenIsShownAndRemoved() throws {
    let missing = try #require(throws: (any Error).self) { try run("show-token") }
    #expect(end(missing).message.hasPrefix("Error: There is no token: run `tool set-token`."))
    SecureVault.set("tok", forKey: "token")
    try run("show-token")
    try run("remove-token")
    #expect(SecureVault.get("token") == nil)
  }

  @Test func errorsSayWhatToDo() throws {
    SecureVault.set(25, forKey: "token")
    let error = try #require(throws: StorageError.self) { try run("show-token") }
    #expect(end(error) == (1, "Error: \(error)"))
  }
}
