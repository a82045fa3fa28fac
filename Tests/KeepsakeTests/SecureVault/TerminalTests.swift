import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// Passphrases and secrets that are typed at a terminal, in a second process.
@Suite(.multiprocess, .quickPassphrases) struct TerminalTests {
  private let directory: TemporaryDirectory
  private let terminal: PseudoTerminal
  private let passphrase = "correct horse"

  init() throws {
    directory = try TemporaryDirectory(isQuick: true)
    terminal = try PseudoTerminal()
  }

  private func protectVault() throws {
    let store = directory.secrets()
    try store.set("tok", forKey: "token")
    try store.protect(with: .passphrase(passphrase))
  }

  /// Runs `unlockAtTerminal` in the peer, which prints the result, the secret and the failures.
  private func unlock(
    _ answers: (prompt: String, line: String)..., remembering: Bool = false
  ) throws -> (text: String, screen: String) {
    let terminal = try PseudoTerminal()
    let peer = try Child(
      Peer.executable,
      [directory.path, "unlock-at-terminal"] + (remembering ? ["remember"] : []),
      mergesErrors: true, terminal: terminal)
    for answer in answers { try terminal.answer(answer.prompt, answer.line) }
    let text = peer.finish()
    #expect(peer.exitStatus == 0 && terminal.isEchoing)
    return (text, terminal.finish())
  }

  private func unlockWithoutTerminal() throws -> String {
    try Child(
      Peer.executable, [directory.path, "unlock-at-terminal"], mergesErrors: true,
      startsSession: true
    ).finish()
  }

  private let first = "Unlock the peer. Passphrase: "
  private let next = "The passphrase is wrong. Passphrase: "

  @Test func aWrongPassphraseCanBeCorrectedTwice() throws {
    try protectVault()
    var (text, screen) = try unlock((first, "staple"), (next, "battery"), (next, passphrase))
    #expect(text == "true tok\n")
    #expect(!["staple", "battery", "horse"].contains { screen.contains($0) }, "\(screen)")

    (text, screen) = try unlock((first, "staple"), (next, "battery"), (next, "stable"))
    #expect(text.hasSuffix("\nfalse nil\n"), "\(text)")
    #expect(text.hasPrefix("error unlockAtTerminal failed: wrong passphrase"), "\(text)")
    #expect(screen.components(separatedBy: "Passphrase: ").count - 1 == 3, "\(screen)")
  }

  @Test(arguments: ["", "\u{4}"]) func cancellingReportsNothing(_ line: String) throws {
    try protectVault()
    #expect(try unlock((first, line)).text == "false nil\n")
    #expect(try unlock((first, "staple"), (next, line)).text == "false nil\n")
  }

  @Test func anOpenVaultNeedsNoTerminal() throws {
    #expect(try unlock().text == "true nil\n", "there is no vault yet")
    let store = directory.secrets()
    try store.set("tok", forKey: "token")
    let (text, screen) = try unlock()
    #expect(text == "true tok\n" && screen == "")

    try store.lock()
    #expect(try store.unlockAtTerminal() && store.get("token") == "tok")
  }

  /// The key file is lost, and a recovery code opens the vault.
  @Test func aRecoveryCodeReplacesAMissingKey() throws {
    let store = directory.secrets()
    try store.set("tok", forKey: "token")
    try FileManager.default.moveItem(atPath: directory.keyFilePath, toPath: directory.path + "/key")
    var (text, screen) = try unlock()
    #expect(
      text.contains("vault.key") && text.hasSuffix("\nfalse nil\n") && screen == "", "\(text)")
    try FileManager.default.moveItem(atPath: directory.path + "/key", toPath: directory.keyFilePath)
    let code = try store.addRecovery()
    #expect(try unlock().text == "true tok\n")

    try FileSystem.unlink(directory.keyFilePath)
    let (first, next) = (
      "Unlock the peer. Recovery code or passphrase: ",
      "That is wrong. Recovery code or passphrase: "
    )
    (text, screen) = try unlock((first, "nonsense"), (next, code.lowercased()))
    #expect(text == "true tok\n" && !screen.contains(code.lowercased()))
    // The reason is that the key is missing, not that the user cancelled or there is no terminal.
    (text, _) = try unlock((first, ""))
    #expect(text.contains("vault.key") && text.hasSuffix("\nfalse nil\n"), "\(text)")
    text = try unlockWithoutTerminal()
    #expect(text.contains("vault.key") && text.hasSuffix("\nfalse nil\n"), "\(text)")
    (text, _) = try unlock((first, "a"), (next, "b"), (next, "c"))
    #expect(text.contains("wrong passphrase") && text.hasSuffix("\nfalse nil\n"), "\(text)")
  }

  @Test func withoutATerminalItSaysSo() throws {
    try protectVault()
    let text = try unlockWithoutTerminal()
    #expect(text.contains("unlockAtTerminal failed: the terminal cannot be used"), "\(text)")
    #expect(text.hasSuffix("false nil\n"), "\(text)")
  }

  // MARK: The echo

  /// Starts the peer, which asks for a line and shows nothing of it.
  private func ask(_ arguments: String...) throws -> Child {
    let peer = try Child(
      Peer.executable, [directory.path, "ask"] + arguments, terminal: terminal)
    try terminal.expect("Secret: ")
    #expect(!terminal.isEchoing)
    return peer
  }

  /// Expects the peer to print what was typed, and the terminal to show what is typed from then on.
  private func expectEnd(_ peer: Child, printing text: String) {
    #expect(peer.finish() == text && peer.exitStatus == 0)
    #expect(terminal.isEchoing)
  }

  @Test(arguments: ["typed\n", "\n", "\u{4}", "\u{3}"])
  func theEchoReturnsAfterTheKeys(_ keys: String) throws {
    let peer = try ask()
    try terminal.type(keys)
    let text = peer.finish()
    #expect(peer.exitStatus == (keys == "\u{3}" ? 128 + SIGINT : 0))
    let typed = ["typed\n": "typed\n", "\n": "\n", "\u{4}": "nil\n"]
    #expect(text == typed[keys, default: ""])
    #expect(terminal.isEchoing && !terminal.finish().contains("typed"))
  }

  @Test(arguments: [SIGHUP, SIGINT, SIGQUIT, SIGTERM])
  func theEchoReturnsWhenASignalEndsTheProgram(_ number: Int32) async throws {
    let peer = try ask()
    try #require(kill(peer.identifier, number) == 0)
    try await eventually("the signal ends it") { !peer.isRunning }
    if peer.isRunning { peer.killAndWait() }
    #expect(peer.exitStatus == 128 + number)
    #expect(terminal.isEchoing)
  }

  @Test func theEchoReturnsWhenTheProgramExits() throws {
    let peer = try ask("exiting")
    peer.finish()
    #expect(peer.exitStatus == 3)
    #expect(terminal.isEchoing)
  }

  /// The second prompt waits for the first, and finds the settings as they were.
  @Test func twoPromptsDoNotMix() throws {
    let peer = try ask("twice")
    try terminal.type("one\n")
    try terminal.answer("Secret: ", "two")
    #expect(peer.finish().split(separator: "\n").sorted() == ["one", "two"])
    #expect(peer.exitStatus == 0 && terminal.isEchoing)
    // A line ends after each prompt.
    #expect(terminal.finish().split(separator: "\r\n") == ["Secret: ", "Secret: "])
  }

  /// Two inputs that were repaired would be the same passphrase.
  @Test func inputThatIsNotUTF8IsRefused() throws {
    let peer = try ask()
    for input in [[0x61, 0xFF, 0x0A], [0xC3, 0x0A]] as [[UInt8]] {
      try terminal.type(bytes: input)
      try terminal.expect("not valid UTF-8. Secret: ")
    }
    try terminal.type("tök\n")
    expectEnd(peer, printing: "tök\n")
    #expect(!terminal.finish().contains("t\u{F6}k"))
  }

  /// The next program of the same login is not asked.
  @Test(.enabled(if: Keyring.isAvailable)) func aRememberedVaultNeedsNoTerminal() throws {
    try protectVault()
    #expect(try unlock((first, passphrase), remembering: true).text == "true tok\n")
    let (text, screen) = try unlock()
    #expect(text == "true tok\n" && screen == "")
    try directory.secrets().lock()
    #expect(try unlock((first, passphrase)).text == "true tok\n")
  }

  /// The shell has used the terminal with its own settings in the meantime.
  @Test(arguments: [false, true])
  func nothingIsShownAfterAStop(hasHandler: Bool) async throws {
    let peer = try hasHandler ? ask("handling") : ask()
    try #require(kill(peer.identifier, SIGSTOP) == 0)
    try await eventually("it is stopped") {
      MemoryScan.text("/proc/\(peer.identifier)/stat").contains(") T ")
    }
    terminal.showInput()
    #expect(terminal.isEchoing)
    try #require(kill(peer.identifier, SIGCONT) == 0)
    if hasHandler { #expect(peer.line() == "continued") }
    try await eventually("input is hidden again") { !terminal.isEchoing }
    try terminal.type("typed\n")
    expectEnd(peer, printing: "typed\n")
    #expect(!terminal.finish().contains("typed"))
  }

  @Test func aTabBelongsToTheLineAndOtherControlKeysAreRefused() throws {
    let peer = try ask()
    for keys in ["p\u{1B}w\n", "p\u{1B}[Aw\n", "\u{1}pw\n", "p\u{1A}w\n", "p\u{0}w\n"] {
      try terminal.type(keys)
      try terminal.expect("That has a control key in it, such as Escape or an arrow key. Secret: ")
    }
    try terminal.type("\u{1B}[A\u{15}p\tw\n")  // Control-U begins again
    expectEnd(peer, printing: "p\tw\n")
  }

  @Test func aTypingErrorInACodeIsNamed() throws {
    let store = directory.secrets()
    try store.set("tok", forKey: "token")
    let code = try store.addRecovery()
    try FileSystem.unlink(directory.keyFilePath)
    let question = "Recovery code or passphrase: "
    let mistyped = (code.first == "2" ? "3" : "2") + code.dropFirst()
    let (text, _) = try unlock(
      ("Unlock the peer. " + question, mistyped),
      ("There is a typing error in the code. " + question, code.dropFirst(2) + ";\u{E9}"),
      ("There is a typing error in the code. " + question, code))
    #expect(text == "true tok\n")
  }

  @Test func aProgramKeepsItsOwnSignalHandlers() throws {
    let peer = try ask("handling")
    try #require(kill(peer.identifier, SIGTERM) == 0)
    #expect(peer.line() == "terminated")
    #expect(!terminal.isEchoing, "the prompt goes on")
    try terminal.type("one\n")
    expectEnd(peer, printing: "one\n")
  }
}
