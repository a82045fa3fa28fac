import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension KeepsakectlTests {
  @Test func showsASecretOnlyOnRequest() throws {
    try fill()
    let list = try run("vault", "list", app)
    #expect(list.status == 0 && list.text.contains("com.app.auth  accessToken  20"))
    #expect(!list.text.contains("tok-") && !list.text.contains("7734"))
    let rows = try run("vault", "list", app + "/com.app.auth", "--json").rows()
    #expect(rows.map { $0["key"] as? String } == ["accessToken"])
    #expect(rows[0]["needsPerson"] as? Bool == false)
    #expect(rows[0].keys.sorted() == ["created", "key", "modified", "needsPerson", "service"])

    let refused = try run("vault", "show", app, "pin")
    #expect(refused.failed(77, "--reveal"))
    #expect(!refused.errors.contains("7734"))
    #expect(try run("vault", "show", app, "pin", "--reveal").text == "7734")
    #expect(try type("vault", "show", app, "pin").screen == "7734\r\n")
    let token = try run("vault", "show", app + "/com.app.auth", "accessToken", "--reveal")
    #expect(token.status == 0 && token.text == "tok-0123456789")
    try expectFailure(1, "has no secret \"nope\"", "vault", "show", app, "nope", "--reveal")
    try expectFailure(1, "has no secret \"nope\"", "vault", "delete", app, "nope")
    try expectFailure(
      1, "has no service \"auth\". It has: com.app.auth", "vault", "list", app + "/auth")
    try expectFailure(1, "no secrets here", "vault", "list", "com.example.missing")
    try expectFailure(64, "applies to a whole app", "vault", "rotate", app + "/com.app.auth")

    let before = try Bytes.read(header)
    #expect(try run("vault", "rotate", app).status == 0)
    #expect(try Bytes.read(header) != before)
    #expect(try run("vault", "show", app, "pin", "--reveal").text == "7734")
    #expect(try run("vault", "delete", app, "pin").status == 0)
    try expectFailure(1, "has no secret \"pin\"", "vault", "show", app, "pin", "--reveal")
    #expect(try run("vault", "list", app, "--json").rows().count == 1)
  }

  @Test func asksForThePassphrase() throws {
    try fill()
    let chosen = "correct horse"
    var run = try type(
      "vault", "protect", app,
      answers: [
        ("New passphrase: ", ""), ("The passphrase is empty. New passphrase: ", chosen),
        ("Repeat passphrase: ", "staple"),
        ("The passphrases do not match. New passphrase: ", chosen),
        ("Repeat passphrase: ", chosen),
      ])
    let asked = run.screen.components(separatedBy: "Repeat passphrase: ").count - 1
    #expect(asked == 2, "an empty passphrase is not asked for again: \(run.screen)")
    #expect(
      run.status == 0 && run.screen.contains("are protected by a passphrase"), "\(run.screen)")
    try lowerTheCost(of: chosen)
    // Without a terminal.
    for arguments in [
      ["vault", "list", app], ["vault", "show", app, "pin", "--reveal"],
      ["vault", "rotate", app],
      ["vault", "protect", app], ["vault", "delete", app, "pin"],
    ] {
      let run = try inspector.run(arguments)
      #expect(run.failed(77, "terminal"), "\(run)")
    }
    let contents = try self.run("list", app)
    #expect(contents.status == 0 && contents.text.contains("protected by a passphrase, locked"))
    let report = try #require(try self.run("doctor", app, "--json").json() as? [String: Any])
    #expect((report["skipped"] as? [String])?.count == 1)
    #expect((report["findings"] as? [Any])?.isEmpty == true, "\(report)")

    run = try type("vault", "show", app, "pin", answers: [("Passphrase: ", chosen)])
    #expect(run.status == 0 && run.screen.hasSuffix("7734\r\n") && !run.screen.contains("horse"))
    let wrong = "The passphrase is wrong. Passphrase: "
    run = try type(
      "vault", "list", app,
      answers: [("locked. Passphrase: ", "staple"), (wrong, "battery"), (wrong, "stable")])
    #expect(run.status == 77 && run.screen.contains("wrong passphrase"))
    run = try type("vault", "list", app, answers: [("Passphrase: ", "")])
    #expect(run.status == 77 && run.screen.contains("no passphrase was given"))
    // Control-C at the prompt.
    run = try type("vault", "rotate", app, answers: [("Passphrase: ", "\u{3}")])
    #expect(run.status == 128 + SIGINT, "\(run.screen)")
    run = try type("doctor", app, answers: [("Passphrase: ", "\u{3}")])
    #expect(run.status == 128 + SIGINT, "\(run.screen)")
    run = try type(
      "doctor", app, answers: [("locked. Passphrase: ", "staple"), (wrong, chosen)])
    #expect(run.status == 0 && run.screen.contains("2 secrets"), "\(run.screen)")
    run = try type("vault", "protect", app, "--key-file", answers: [("Passphrase: ", chosen)])
    #expect(run.status == 0, "\(run.screen)")
    #expect(try self.run("vault", "show", app, "pin", "--reveal").text == "7734")
  }

  // MARK: Without a terminal

  private func secret(_ key: String = "pin") throws -> String {
    try run("vault", "show", app, key, "--reveal").text
  }

  /// Never an argument, which other users could see in the list of processes.
  @Test func storesASecretFromStandardInputOrThePrompt() throws {
    #expect(try run("vault", "set", app, "pin", input: "7734").status == 0)
    #expect(try secret() == "7734")
    #expect(try run("vault", "set", app, "pin", "--bytes", input: "7734").status == 0)
    #expect(try secret() == "7734\n")
    for arguments in [["pin"], ["pin", "--bytes"]] {
      let empty = try inspector.run(["vault", "set", app] + arguments)
      #expect(empty.failed(66, "standard input has no secret"), "\(empty)")
    }
    try expectFailure(64, "too many arguments", "vault", "set", app, "pin", "1234")
    #expect(try secret() == "7734\n")
    var run = try type(
      "vault", "set", app + "/auth", "token", answers: [("Secret token of \(app)/auth: ", "tok-1")])
    #expect(run.status == 0 && !run.screen.contains("tok-1"), "\(run.screen)")
    #expect(try self.run("vault", "show", app + "/auth", "token", "--reveal").text == "tok-1")
    run = try type("vault", "set", app, "pin", answers: [("Secret pin of \(app): ", "")])
    #expect(run.status == 77 && run.screen.contains("no secret was typed"), "\(run.screen)")
    #expect(try secret() == "7734\n")
  }

  /// The configuration allows only validated algorithms, and there is no module that has them.
  @Test func saysWhichAlgorithmOpenSSLLacks() throws {
    #expect(try run("vault", "set", app, "pin", input: "7734").status == 0)
    let configuration = """
      openssl_conf = all
      [all]
      alg_section = algorithms
      [algorithms]
      default_properties = fips=yes
      """
    try directory.write(Array(configuration.utf8), to: "openssl.cnf")
    let fips = ["OPENSSL_CONF": path("openssl.cnf")]
    let before = try directory.contents()
    for arguments in [["show", app, "pin", "--reveal"], ["rotate", app]] {
      let run = try inspector.run(["vault"] + arguments, environment: fips)
      #expect(run.failed(74, "OpenSSL failed (HMAC): unsupported"), "\(run)")
    }
    #expect(try directory.contents() == before && secret() == "7734")
  }

  @Test func takesPassphrasesFromADescriptor() throws {
    let option = "--passphrase-fd=0"
    #expect(try run("vault", "protect", app, option, input: "correct horse").status == 0)
    try lowerTheCost(of: "correct horse")
    let both = try run("vault", "set", app, "pin", option, input: "correct horse\n7734")
    #expect(both.status == 0, "\(both)")
    func show(_ passphrase: String) throws -> Example.Run {
      try run("vault", "show", app, "pin", "--reveal", option, input: passphrase)
    }
    #expect(try show("correct horse").text == "7734")
    #expect(try show("staple").failed(77, "wrong passphrase"))
    #expect(try show("").failed(77, "no passphrase was given"))
    #expect(try run("doctor", app, option, input: "correct horse").text.contains("1 secret,"))
    #expect(try run("doctor", app, option, input: "staple").failed(77, "wrong passphrase"))
    let none = try run("vault", "show", app, "pin", "--reveal")
    #expect(none.failed(77, "--passphrase-fd"), "\(none)")
    for number in ["x", "999", "-1"] {
      try expectFailure(
        64, "needs the number of an open descriptor", "vault", "list", app,
        "--passphrase-fd=\(number)")
    }
    let changed = try run(
      "vault", "protect", app, option, input: "correct horse\nbattery staple")
    #expect(changed.status == 0, "\(changed)")
    #expect(try show("correct horse").failed(77, "wrong passphrase"))
    #expect(try show("battery staple").text == "7734")
  }

  /// It stops there, and asks when it is in the foreground.
  @Test func asksAProgramThatWasStartedInTheBackground() throws {
    try makeVault(passphrase: "correct horse")
    let terminal = try PseudoTerminal()
    let script = #"set -m; "$@" & while jobs -r | grep -q .; do sleep 0.02; done; fg >/dev/null"#
    let shell = try Child(
      "bash", ["-c", script, "bash", inspector.path, "vault", "list", app],
      environment: inspector.environment, terminal: terminal, isInteractive: true)
    try terminal.answer("Passphrase: ", "correct horse")
    let text = shell.finish()
    #expect(text.contains("pin") && shell.exitStatus == 0, "\(text)")
  }

  @Test(.enabled(if: Keyring.isAvailable)) func remembersAKeyUntilTheVaultIsLocked() throws {
    try makeVault(passphrase: "correct horse")
    var run = try type(
      "vault", "list", app, "--remember", answers: [("Passphrase: ", "correct horse")])
    #expect(run.status == 0 && run.screen.contains("pin"), "\(run.screen)")
    run = try self.run("vault", "show", app, "pin", "--reveal")
    #expect(run.status == 0 && run.text == "7734", "\(run)")
    #expect(try self.run("vault", "lock", app).status == 0)
    run = try self.run("vault", "show", app, "pin", "--reveal")
    #expect(run.failed(77, "terminal"), "\(run)")
  }

  /// Its name is in the header; in a keyring that no other test uses.
  @Test(.enabled(if: Keyring.isAvailable)) func locksAVaultWhoseHeaderIsDamaged() throws {
    try fill()
    try flipBit(of: header, at: 3)
    let command = [inspector.path, "vault", "lock", app]
    let child = try Child(
      Peer.executable, [directory.path, "with-remembered-key"] + command,
      environment: inspector.environment, mergesErrors: true)
    let output = child.finish()
    #expect(output.contains("the file is not a vault header"), "\(output)")
    #expect(output.hasSuffix("status 1, forgotten\n"), "\(output)")
  }

  @Test func addsListsAndRemovesRecoveries() throws {
    try fill()
    func unlockMethods() throws -> [[String: Any]] {
      try self.run("vault", "unlock-methods", app, "--json").rows()
    }
    var rows = try unlockMethods()
    #expect(rows.map { $0["kind"] as? String } == ["key file"])
    #expect(rows[0].keys.sorted() == ["id", "isRecovery", "kind"])
    try expectFailure(77, "standard output is not a terminal", "vault", "add-recovery", app)
    #expect(try unlockMethods().count == 1)
    var run = try type("vault", "add-recovery", app)
    let code = String(
      try #require(run.screen.firstMatch(of: /([0-9A-Z]{4}-){6}[0-9A-Z]{4}/), "\(run)").0)
    #expect(run.status == 0 && run.screen.contains("it is not shown again"))
    rows = try unlockMethods()
    #expect(rows.map { $0["kind"] as? String } == ["key file", "recovery code"])
    #expect(rows.map { $0["isRecovery"] as? Bool } == [false, true])
    let id = try #require(rows[1]["id"] as? String)
    let list = try self.run("vault", "unlock-methods", app)
    // Numbers in IDs are random, and may have fewer digits than the other one.
    let line = list.text.split(separator: "\n").first { $0.hasPrefix(id + " ") }
    #expect(list.status == 0 && list.errors == "" && line?.hasSuffix("  recovery code") == true)

    try FileSystem.unlink(keyFile)
    try expectFailure(77, "vault.key", "vault", "show", app, "pin", "--reveal")
    #expect(try unlockMethods().count == 2, "the list needs no key")
    run = try type(
      "vault", "show", app, "pin",
      answers: [
        ("are locked. Recovery code or passphrase: ", "nonsense"),
        ("That is wrong. Recovery code or passphrase: ", code),
      ])
    #expect(run.status == 0 && run.screen.hasSuffix("7734\r\n"), "\(run.screen)")
    #expect(!run.screen.contains(code))
    // It protects the vault with a new key, which ends all recoveries.
    run = try type(
      "vault", "protect", app, "--key-file", answers: [("Recovery code or passphrase: ", code)])
    #expect(run.status == 0 && run.screen.contains("protected by a key file"), "\(run.screen)")
    #expect(try unlockMethods().count == 1)
    #expect(try self.run("vault", "show", app, "pin", "--reveal").text == "7734")

    let scope = stores()
    defer { scope.close() }
    try KeySlot.$defaultLogN.withValue(10) {
      try scope.vault(.standard).addRecovery(passphrase: "staple")
    }
    _ = try scope.vault(.standard).addRecovery()
    rows = try unlockMethods()
    #expect(rows.count == 3 && rows[1]["kind"] as? String == "recovery passphrase")
    try expectFailure(1, "has no recovery \"\(id)\"", "vault", "remove-recovery", app, id)
    let (first, second) = (rows[1]["id"] as? String ?? "", rows[2]["id"] as? String ?? "")
    run = try self.run("vault", "remove-recovery", app, first)
    #expect(run.status == 0 && run.text == "Removed recovery passphrase \(first).\n")
    run = try self.run("vault", "remove-recovery", app)
    #expect(run.status == 0 && run.text == "Removed recovery code \(second).\n")
    #expect(try unlockMethods().count == 1)
    try expectFailure(1, "no secrets here", "vault", "unlock-methods", "com.example.missing")
  }

  /// Deriving a key from a passphrase takes half a second here.
  @Test(.slow) func addsARecoveryPassphrase() throws {
    try fill()
    let chosen = "battery staple"
    var run = try type(
      "vault", "add-recovery", app, "--passphrase",
      answers: [("New passphrase: ", chosen), ("Repeat passphrase: ", chosen)])
    #expect(run.status == 0 && run.screen.contains("Another passphrase opens"), "\(run.screen)")
    try FileSystem.unlink(keyFile)
    run = try type(
      "vault", "show", app, "pin", answers: [("Recovery code or passphrase: ", chosen)])
    #expect(run.status == 0 && run.screen.hasSuffix("7734\r\n"), "\(run.screen)")
  }

  /// Lets the programs that open the vault from now on spend less time on the passphrase.
  private func lowerTheCost(of passphrase: String) throws {
    if Coverage.isComplete { return }
    let scope = stores()
    defer { scope.close() }
    let store = scope.vault(.standard)
    try store.unlock(passphrase: passphrase)
    try store.protect(with: .passphrase(passphrase, logN: QuickPassphrases.logN))
  }

  @Test(arguments: ["a credential", "a key source"])
  func explainsHowToOpenAVaultWhoseKeyIsMissing(_ source: String) throws {
    try directory.makeDirectory("credentials")
    try directory.write(Array(repeating: 7, count: 32), to: "credentials/other.key")
    let credentials = ["CREDENTIALS_DIRECTORY": path("credentials")]
    let isCredential = source == "a credential"
    let scope = stores(
      environment: credentials,
      vaultOptions: VaultOptions(sources: [
        isCredential ? .credential("other.key") : .closure("kms") { Data(count: 32) }
      ]))
    defer { scope.close() }
    try scope.vault(.standard).set("7734", forKey: "pin")
    let message = isCredential ? "LoadCredential=other.key:FILE" : "only the app has"
    try expectFailure(77, message, "vault", "list", app)
    try expectFailure(77, message, "vault", "show", app, "pin", "--reveal")
    try expectFailure(77, message, "vault", "protect", app, "--key-file")
    #expect(try run("list", app).text.contains(", locked"))
    let doctor = try run("doctor", app)
    #expect(
      doctor.status == 0 && doctor.text.hasPrefix("skipped  the secrets, which are protected by"))
    let shown = try run("vault", "show", app, "pin", "--reveal", environment: credentials)
    #expect(isCredential ? shown.text == "7734" : shown.status == 77, "\(shown.text)")
  }

  @Test(.quickPassphrases) func promptsForASecretThatRequiresUserPresence() throws {
    let scope = stores(vaultOptions: VaultOptions(authenticate: { _ in "correct horse" }))
    defer { scope.close() }
    try scope.vault(.standard).set("7734", forKey: "pin", access: .userPresence)
    let row = try run("vault", "list", app, "--json").rows()[0]
    #expect(row["needsPerson"] as? Bool == true)
    #expect(try run("vault", "show", app, "pin", "--reveal").status == 77)
    let shown = try type(
      "vault", "show", app, "pin",
      answers: [("Show pin of \(app). Passphrase: ", "correct horse")])
    #expect(shown.status == 0 && shown.screen.hasSuffix("7734\r\n"))
    #expect(try run("doctor", app).status == 0, "the doctor does not open it")
  }
}
