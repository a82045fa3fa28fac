import Foundation
import Testing

@Suite struct TokensTests {
  private let folder: TemporaryFolder
  private let token = "tok-0123456789-abcdefghij"

  init() throws { folder = try TemporaryFolder() }

  private struct Run {
    let status: Int32
    /// Standard output, and standard error where a run merges them.
    let text: String
    /// What a terminal has shown.
    var screen = ""
  }

  private var environment: [String: String] { Example("keepsake-tokens", in: folder).environment }

  /// Without a terminal, not even that of whoever runs the tests.
  private func run(
    _ arguments: String..., input: String? = nil, mergesErrors: Bool = true
  ) throws -> Run {
    let child = try Child(
      Peer.builtProduct("keepsake-tokens").path, arguments, environment: environment,
      mergesErrors: mergesErrors, startsSession: true)
    let first = try input.flatMap { try child.ask($0) }
    let text = (first.map { $0 + "\n" } ?? "") + child.finish()
    return Run(status: child.exitStatus, text: text)
  }

  /// At a terminal that asks and is answered.
  private func type(
    _ arguments: String..., isInteractive: Bool = false, answers: [(prompt: String, line: String)]
  ) throws -> Run {
    let terminal = try PseudoTerminal()
    let child = try Child(
      Peer.builtProduct("keepsake-tokens").path, arguments, environment: environment,
      mergesErrors: true,
      terminal: terminal, isInteractive: isInteractive)
    for answer in answers { try terminal.answer(answer.prompt, answer.line) }
    let text = child.finish()
    return Run(status: child.exitStatus, text: text, screen: terminal.finish())
  }

  /// Neither in the bytes of a file nor in a name.
  private func expectNowhere(_ secrets: String...) throws {
    let files = try #require(FileManager.default.enumerator(atPath: folder.path))
    var count = 0
    for case let name as String in files {
      let bytes = (try? Data(contentsOf: folder.file(name))) ?? Data()
      for secret in secrets {
        for form in [secret, Data(secret.utf8).base64EncodedString()] {
          #expect(!name.contains(form) && bytes.range(of: Data(form.utf8)) == nil, "in \(name)")
        }
      }
      count += 1
    }
    #expect(count > 3, "no vault was made")
  }

  @Test func logsInAndOutUnderAKeyFile() throws {
    var run = try run("whoami")
    #expect(run.status == 1 && run.text.contains("run `keepsake-tokens login USER`"), "\(run)")
    run = try self.run("login", "ada-lovelace", input: token)
    #expect(run.status == 0 && run.text == "Logged in as ada-lovelace.\n", "\(run.text)")
    run = try self.run("whoami")
    #expect(run.status == 0 && run.text.contains("ada-lovelace, since 2"), "\(run.text)")
    #expect(run.text.contains(", under a key file\n") && !run.text.contains(token), "\(run.text)")
    run = try self.run("token")
    #expect(run.status == 0 && run.text == token + "\n")
    try expectNowhere(token, "ada-lovelace")
    run = try self.run("login", "grace", input: token + "-2")
    #expect(try self.run("token").text == token + "-2\n")
    run = try self.run("logout")
    #expect(run.status == 0 && run.text == "Logged out.\n")
    run = try self.run("token")
    #expect(run.status == 1 && run.text.contains("not logged in"))
    #expect(try self.run("logout").status == 0)
    try expectNowhere(token)
  }

  @Test func aPassphraseIsAskedForOnTheTerminal() throws {
    #expect(try run("login", "ada", input: token).status == 0)
    let chosen = "correct horse"
    var run = try type(
      "protect",
      answers: [
        ("New passphrase: ", chosen), ("The same again: ", "battery"),
        ("They differ. New passphrase: ", chosen), ("The same again: ", chosen),
      ])
    #expect(run.status == 0 && run.text == "The tokens are under a passphrase.\n", "\(run.text)")
    #expect(!run.screen.contains("horse") && !run.screen.contains("battery"), "\(run.screen)")
    try expectNowhere(token, chosen)

    // Its standard streams are pipes, as in a script, but somebody sits there.
    run = try type("token", answers: [("Passphrase: ", chosen)])
    #expect(run.status == 0 && run.text == token + "\n", "\(run.text)")
    #expect(!run.screen.contains(token) && !run.screen.contains("horse"), "\(run.screen)")
    run = try type("whoami", answers: [("Passphrase: ", chosen)])
    #expect(run.status == 0 && run.text.contains("under a passphrase"), "\(run.text)")
    run = try type("token", answers: [("Passphrase: ", "staple")])
    #expect(run.status == 77 && run.text.contains("wrong passphrase"), "\(run.text)")
    #expect(!(run.text + run.screen).contains("staple"))

    run = try type("token", answers: [("Passphrase: ", "")])
    #expect(run.status == 77 && run.text.contains("no passphrase was given"), "\(run.text)")

    // Nobody sits there.
    for arguments in ["token", "whoami", "protect", "logout"] {
      let run = try self.run(arguments)
      #expect(run.status == 77 && run.text.contains("terminal"), "\(run.text)")
    }
    run = try type("protect", "--key-file", answers: [("Passphrase: ", chosen)])
    #expect(run.status == 0 && run.text == "The tokens are under a key file.\n", "\(run.text)")
    #expect(try self.run("token").text == token + "\n")
  }

  @Test func aTokenIsTypedHidden() throws {
    var run = try type("login", "ada", isInteractive: true, answers: [("Token of ada: ", token)])
    #expect(run.status == 0 && run.text == "Logged in as ada.\n", "\(run.text)")
    #expect(!run.screen.contains(token), "\(run.screen)")
    run = try self.run("token", mergesErrors: false)
    #expect(run.text == token + "\n")
    run = try type("login", "ada", isInteractive: true, answers: [("Token of ada: ", "")])
    #expect(run.status == 65 && run.screen.contains("no token was given"), "\(run.screen)")
    #expect(try self.run("token").text == token + "\n", "an empty token replaces none")
    try expectNowhere(token)
  }

  @Test func saysWhatIsWrong() throws {
    for arguments in [
      [], ["bogus"], ["login"], ["login", ""], ["login", "--bogus"], ["login", "a", "b"],
      ["whoami", "x"],
      ["token", "x"], ["logout", "x"], ["protect", "--bogus"], ["protect", "--key-file", "x"],
    ] {
      let child = try Child(
        Peer.builtProduct("keepsake-tokens").path, arguments, environment: environment,
        mergesErrors: true)
      #expect(child.finish().contains("usage") && child.exitStatus == 64, "\(arguments)")
    }
    #expect(try run("login", "ada").status == 65, "no token on standard input")
    for wrong in ["two words", "\u{FEFF}tok", "tok\t"] {
      let login = try run("login", "ada", input: wrong)
      #expect(login.status == 65 && login.text.contains("that is no token"), "\(login)")
    }
    try folder.write([], to: "data")  // a file where the folder belongs
    let failed = try run("login", "ada")
    #expect(failed.status == 73 && failed.text.contains(" failed: "), "\(failed.text)")
  }

  @Test func startsAnewWithoutThePassphrase() throws {
    #expect(try run("login", "ada", input: token).status == 0)
    let answers = [("New passphrase: ", "forgotten"), ("The same again: ", "forgotten")]
    #expect(try type("protect", answers: answers).status == 0)
    #expect(try run("login", "ada").status == 77)
    #expect(try run("logout", "--erase").status == 0)
    #expect(try run("whoami").status == 1)
    #expect(try run("login", "ada", input: token).status == 0)
    #expect(try run("whoami").text.contains("key file"))
  }
}
