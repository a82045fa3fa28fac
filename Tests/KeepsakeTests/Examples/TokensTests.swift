import Foundation
import Testing

@testable import KeepsakeTestSupport

@Suite(.singleThreaded) struct TokensTests {
  private let tokens: Example
  private var directory: TemporaryDirectory { tokens.directory }
  private let token = "tok-0123456789-abcdefghij"

  init() throws { tokens = Example("keepsake-tokens", in: try TemporaryDirectory()) }

  /// Runs it with a terminal that answers its questions. The standard streams are pipes, as in a
  /// script.
  private func type(
    _ arguments: String..., answers: [(prompt: String, line: String)]
  ) throws -> Example.Run {
    try tokens.type(arguments, answers: answers, isInteractive: false)
  }

  /// Expects that no file has a secret in its bytes or its name.
  private func expectNoTrace(of secrets: String...) throws {
    let files = try #require(FileManager.default.enumerator(atPath: directory.path))
    var count = 0
    for case let name as String in files {
      let bytes = (try? Data(contentsOf: directory.file(name))) ?? Data()
      for secret in secrets {
        for form in [secret, Data(secret.utf8).base64EncodedString()] {
          #expect(!name.contains(form) && bytes.range(of: Data(form.utf8)) == nil, "in \(name)")
        }
      }
      count += 1
    }
    #expect(count > 3, "there is no vault")
  }

  @Test func logsInAndOutWithAKeyFile() throws {
    var run = try tokens.run("whoami")
    #expect(run.failed(1, "Not logged in. Run `keepsake-tokens login USER`"), "\(run)")
    run = try tokens.run("login", "ada-lovelace", input: token)
    #expect(run.status == 0 && run.text == "Logged in as ada-lovelace.\n", "\(run.text)")
    run = try tokens.run("whoami")
    #expect(run.status == 0 && run.text.contains("ada-lovelace, since 2"), "\(run.text)")
    #expect(
      run.text.contains(", protected by a key file\n") && !run.text.contains(token), "\(run.text)")
    run = try tokens.run("token")
    #expect(run.status == 0 && run.text == token + "\n")
    try expectNoTrace(of: token, "ada-lovelace")
    run = try tokens.run("login", "grace", input: token + "-2")
    #expect(try tokens.run("token").text == token + "-2\n")
    run = try tokens.run("logout")
    #expect(run.status == 0 && run.text == "Logged out.\n")
    run = try tokens.run("token")
    #expect(run.failed(1, "Not logged in"))
    #expect(try tokens.run("logout").status == 0)
    try expectNoTrace(of: token)
  }

  @Test func asksForThePassphraseOnTheTerminal() throws {
    #expect(try tokens.run("login", "ada", input: token).status == 0)
    let chosen = "correct horse"
    var run = try type(
      "protect",
      answers: [
        ("New passphrase: ", chosen), ("Repeat passphrase: ", "battery"),
        ("The passphrases do not match. New passphrase: ", chosen), ("Repeat passphrase: ", chosen),
      ])
    #expect(
      run.status == 0 && run.text == "The token is protected by a passphrase.\n", "\(run.text)")
    #expect(!run.screen.contains("horse") && !run.screen.contains("battery"), "\(run.screen)")
    try expectNoTrace(of: token, chosen)

    run = try type("token", answers: [("Passphrase: ", chosen)])
    #expect(run.status == 0 && run.text == token + "\n", "\(run.text)")
    #expect(!run.screen.contains(token) && !run.screen.contains("horse"), "\(run.screen)")
    run = try type("whoami", answers: [("Passphrase: ", chosen)])
    #expect(run.status == 0 && run.text.contains("protected by a passphrase"), "\(run.text)")
    let wrong = "The passphrase is wrong. Passphrase: "
    run = try type("token", answers: [("locked. Passphrase: ", "staple"), (wrong, "")])
    #expect(run.status == 77 && run.text.contains("No passphrase was given."), "\(run.text)")
    #expect(!(run.text + run.screen).contains("staple"))

    // Without a terminal.
    for arguments in ["token", "whoami", "protect", "logout"] {
      let run = try tokens.run(arguments)
      #expect(run.failed(77, "terminal"), "\(run)")
    }
    run = try type("protect", "--key-file", answers: [("Passphrase: ", chosen)])
    #expect(run.status == 0 && run.text == "The token is protected by a key file.\n", "\(run.text)")
    #expect(try tokens.run("token").text == token + "\n")
  }

  @Test func typedTokenIsHidden() throws {
    let login = ["login", "ada"]
    var run = try tokens.type(login, answers: [("Token of ada: ", token)])
    #expect(run.status == 0 && run.text == "Logged in as ada.\n", "\(run.text)")
    #expect(!run.screen.contains(token), "\(run.screen)")
    run = try tokens.run("token")
    #expect(run.text == token + "\n")
    run = try tokens.type(login, answers: [("Token of ada: ", "")])
    #expect(run.status == 65 && run.screen.contains("No token was given."), "\(run.screen)")
    #expect(
      try tokens.run("token").text == token + "\n", "no token does not replace the stored one")
    try expectNoTrace(of: token)
  }

  @Test func explainsWrongUse() throws {
    for arguments in [
      [], ["bogus"], ["login"], ["login", ""], ["login", "--bogus"], ["login", "a", "b"],
      ["whoami", "x"],
      ["token", "x"], ["logout", "x"], ["protect", "--bogus"], ["protect", "--key-file", "x"],
    ] {
      #expect(try tokens.run(arguments).failed(64, "usage: keepsake-tokens"), "\(arguments)")
    }
    #expect(try tokens.run("login", "ada").status == 65, "no token on standard input")
    for wrong in ["two words", "\u{FEFF}tok", "tok\t"] {
      let login = try tokens.run("login", "ada", input: wrong)
      #expect(login.failed(65, "A token has no spaces"), "\(login)")
    }
    try directory.write([], to: "data")  // a file where the directory belongs
    let failed = try tokens.run("login", "ada")
    #expect(failed.failed(73, " failed: "), "\(failed)")
  }

  @Test func erasesTheVaultWithoutThePassphrase() throws {
    #expect(try tokens.run("login", "ada", input: token).status == 0)
    let answers = [("New passphrase: ", "forgotten"), ("Repeat passphrase: ", "forgotten")]
    #expect(try type("protect", answers: answers).status == 0)
    #expect(try tokens.run("login", "ada").status == 77)
    #expect(try tokens.run("logout", "--erase").status == 0)
    #expect(try tokens.run("whoami").status == 1)
    #expect(try tokens.run("login", "ada", input: token).status == 0)
    #expect(try tokens.run("whoami").text.contains("key file"))
  }
}
