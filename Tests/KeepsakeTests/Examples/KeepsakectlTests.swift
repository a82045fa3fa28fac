import Foundation
import Testing

@testable import Keepsake

extension OneAtATime {
  @Suite struct KeepsakectlTests {
    private let directory: TemporaryDirectory
    private let app = "com.example.notes"

    private let inspector: Example

    init() throws {
      directory = try TemporaryDirectory(isQuick: true)
      inspector = Example("keepsakectl", in: directory)
    }

    // MARK: Running it

    private func run(
      _ arguments: String..., input: String? = nil, environment changes: [String: String] = [:]
    ) throws -> Example.Run {
      try inspector.run(arguments, input: input, environment: changes)
    }

    /// At a terminal, which all its streams are.
    private func type(
      _ arguments: String..., columns: UInt16 = 80,
      answers: [(prompt: String, line: String)] = [], environment changes: [String: String] = [:]
    ) throws -> Example.Run {
      try inspector.type(
        arguments, answers: answers, columns: columns, showsOutput: true, environment: changes)
    }

    private func expect(
      _ status: Int32, _ part: String, _ arguments: String...,
      sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
      let run = try inspector.run(arguments)
      #expect(run.failed(status, part), "\(run)", sourceLocation: sourceLocation)
      #expect(run.errors.split(separator: "\n").count == 1, sourceLocation: sourceLocation)
    }

    // MARK: What there is to inspect

    /// The stores of an app as the program finds them.
    private func stores(of app: String? = nil) -> StorageScope {
      let variables = inspector.environment
      return StorageScope(
        finder: DirectoryFinder(app: app ?? self.app, environment: { variables[$0] }))
    }

    private func fill() throws {
      let scope = stores()
      defer { scope.close() }
      try scope.defaults(.standard).set("dark", forKey: "theme")
      try scope.defaults(.standard).set(16, forKey: "size")
      try scope.defaults("team").set([1, 2], forKey: "numbers")
      try scope.vault("com.app.auth").set("tok-0123456789", forKey: "accessToken")
      try scope.vault(.standard).set("7734", forKey: "pin")
      try scope.cache(.standard).set(Data(count: 5_000), forKey: "image_001")
      try scope.cache("Images").set("png", forKey: "avatar", expiry: .days(7))
      try scope.cache("Images").set("old", forKey: "page", expiry: .minutes(5))
    }

    private func path(_ place: String) -> String { "\(directory.path)/\(place)" }
    private var journal: String { path("config/\(app)/standard.jsonl") }
    private var header: String { path("data/\(app)/vault/vault.hdr") }

    private func payload(_ key: String) throws -> String {
      let scope = stores()
      defer { scope.close() }
      return try #require(try scope.cache("Images").fileURL(key)).path
    }

    /// That of the secret that was set last.
    private func pathOfNewestSecret() throws -> String {
      let scope = stores()
      defer { scope.close() }
      let directory = try scope.vault(.standard).folderURL
      let files = try FileManager.default.subpathsOfDirectory(atPath: directory.path)
      var times: [String: Date] = [:]
      for file in files where file.utf8.count == 65 {
        let path = directory.path + "/" + file
        times[path] =
          try FileManager.default.attributesOfItem(atPath: path)[.modificationDate] as? Date
      }
      return try #require(times.max { $0.value < $1.value }?.key)
    }

    private func flip(_ path: String, at position: Int) throws {
      let byte = try Bytes.read(path)[position]
      try Bytes.write(byte ^ 1, at: position, of: path)
    }

    // MARK: Tests

    @Test func listsAllAppsAndWhatEachHas() throws {
      #expect(try run("list").text.isEmpty)
      #expect(try run("list", "--json").rows().isEmpty)
      try fill()
      let other = stores(of: "com.example.mail")
      defer { other.close() }
      try other.defaults("a/b").set(1, forKey: "x")
      // Another program's lines of JSON are no settings.
      try FileManager.default.createDirectory(
        atPath: path("config/stranger"), withIntermediateDirectories: true)
      try directory.write(Array("{}\n".utf8), to: "config/stranger/events.jsonl")

      let table = try run("list")
      #expect(table.status == 0)
      #expect(
        table.text == """
          APP                SUITES  SECRETS  CACHES
          com.example.mail   1       0        0
          com.example.notes  2       2        2

          """)
      let rows = try run("list", "--json").rows()
      #expect(rows.map { $0["app"] as? String } == ["com.example.mail", app])
      #expect(rows.map { $0["secrets"] as? Int } == [0, 2])

      let contents = try #require(try run("list", app, "--json").json() as? [String: Any])
      let services = try #require(contents["services"] as? [[String: Any]])
      #expect(services.map { $0["name"] as? String } == ["com.app.auth", "standard"])
      #expect(services.map { $0["secrets"] as? Int } == [1, 1])
      #expect(contents["vault"] as? String == "key file")
      let suites = try #require(contents["suites"] as? [[String: Any]])
      #expect(suites.map { $0["name"] as? String } == ["standard", "team"])
      #expect(suites.map { $0["keys"] as? Int } == [2, 1])
      let caches = try #require(contents["caches"] as? [[String: Any]])
      #expect(caches.map { $0["entries"] as? Int } == [2, 1])
      let mail = try #require(
        try run("list", "com.example.mail", "--json").json() as? [String: Any])
      #expect(mail["services"] is NSNull && mail["vault"] is NSNull, "each key is always there")
      #expect(try run("list", app).text.contains("settings  team"))
      try expect(1, "has no settings, secrets or caches here", "list", "com.example.nobody")

      // A systemd unit has one app.
      let unit = try run(
        "list", "--json", environment: ["CONFIGURATION_DIRECTORY": path("config/\(app)")])
      #expect(try unit.rows().map { $0["suites"] as? Int }.contains(2))
    }

    @Test func aStoreThatFailsHidesNoOther() throws {
      try fill()
      try newer(path("config/\(app)/team.jsonl"))
      try flip(header, at: 60)
      let all = try run("list", app)
      #expect(all.status == 1 && all.text.contains("settings  team      not readable"))
      #expect(all.text.contains("settings  standard  2 keys"), "\(all.text)")
      #expect(all.text.contains("cache     Images    2 entries"))
      let complaints = all.errors.split(separator: "\n").filter { $0.hasPrefix("keepsakectl: ") }
      #expect(complaints.count == 2, "\(complaints)")
      let listed = try inspector.run(["list", app, "--json"])
      let contents = try #require(try listed.json() as? [String: Any])
      let suites = try #require(contents["suites"] as? [[String: Any]])
      #expect(listed.status == 1 && suites.map { $0["keys"] is NSNull } == [false, true])

      try FileManager.default.removeItem(atPath: path("state/\(app)/vault.key"))
      try flip(header, at: 60)
      let locked = try run("list", app)
      #expect(locked.text.contains("under a key file, locked"), "\(locked.text)")

      let loop = path("loop")
      try FileManager.default.createSymbolicLink(atPath: loop, withDestinationPath: loop)
      let apps = try run("list", environment: ["XDG_DATA_HOME": loop])
      #expect(apps.status == 74 && apps.text.contains("com.example.notes  2       0        2"))
      #expect(apps.errors.hasPrefix("keepsakectl: \(loop): "), "\(apps.errors)")
    }

    @Test func readsAndWritesSettings() throws {
      for (key, value) in [
        ("theme", #""dark""#), ("size", "16"), ("offset", "-5"), ("ratio", "1.5"),
        ("list", #"[1,{"a":[]},"]"]"#), ("bytes", #"{"$data": "AQI="}"#),
      ] {
        #expect(try run("settings", "set", app, key, value).status == 0)
        #expect(try run("settings", "get", app, key).text == value + "\n")
      }
      #expect(try run("settings", "set", app, "plain", "true", "--string").status == 0)
      #expect(try run("settings", "get", app, "plain").text == "\"true\"\n")
      #expect(try run("settings", "get", app, "plain", "--string").text == "true\n")
      #expect(try run("settings", "set", app, "--string", "--", "dashes", "--x").status == 0)
      #expect(try run("settings", "get", app, "dashes").text == "\"--x\"\n")
      let scope = stores()
      defer { scope.close() }
      #expect(try scope.defaults(.standard).data("bytes") == Data([1, 2]))
      #expect(try scope.defaults(.standard).int("offset") == -5)

      let list = try #require(
        try run("settings", "list", app, "--json").json() as? [String: Any])
      #expect(list.count == 8 && list["size"] as? Int == 16)
      #expect(try run("settings", "list", app).text.contains("\noffset  -5\n"))

      #expect(try run("settings", "set", app + "/team/sub", "x", "1").status == 0)
      #expect(try scope.defaults("team/sub").int("x") == 1)

      #expect(try run("settings", "delete", app, "theme").status == 0)
      try expect(1, "has no setting \"theme\"", "settings", "get", app, "theme")
      try expect(1, "has no setting \"theme\"", "settings", "delete", app, "theme")
      try expect(65, "wrong type", "settings", "get", app, "size", "--string")
      try expect(1, "has no suite \"tema\". It has: standard", "settings", "list", app + "/tema")
      try expect(1, "no settings here", "settings", "list", "com.example.nobody")
      #expect(!FileManager.default.fileExists(atPath: path("config/com.example.nobody")))
    }

    @Test func movesSettingsThroughADocument() throws {
      let settings = #"{"theme":"dark","size":16,"bytes":{"$data":"AQI="}}"#
      #expect(try run("settings", "import", app, input: settings).status == 0)
      let exported = try run("settings", "export", app)
      #expect(
        try run("settings", "import", "com.example.copy", input: exported.text).status == 0)
      #expect(try run("settings", "export", "com.example.copy").text == exported.text)
      let list = try run("settings", "export", app, "--plist")
      try directory.write(Array(list.text.utf8), to: "list.plist")
      #expect(try run("settings", "import", app + "/third", path("list.plist")).status == 0)
      #expect(
        try run("settings", "get", app + "/third", "bytes").text == #"{"$data": "AQI="}"# + "\n")

      try expect(66, "cannot be read", "settings", "import", app, path("nowhere"))
      #expect(try run("settings", "import", app, input: "{").status == 65)
      try directory.write([0xFF, 0, 0xFE], to: "garbage")
      try expect(65, "\(path("garbage")): neither", "settings", "import", app, path("garbage"))
      try expect(66, "Is a directory", "settings", "import", app, directory.path)
      let script = "echo '{\"piped\": 1}' | \"$0\" settings import \(app) /dev/stdin"
      let piped = try Child(
        "/bin/sh", ["-c", script, inspector.path], environment: inspector.environment)
      #expect(piped.finish().isEmpty && piped.exitStatus == 0)
      #expect(try run("settings", "get", app, "piped").text == "1\n")
      #expect(try run("settings", "import", app, "-", input: "{\"dash\": 1}").status == 0)
    }

    @Test func refusesWhatCannotBeStored() throws {
      #expect(try run("settings", "set", app, "x", "1").status == 0)
      let repaired = try Child(
        "/bin/sh", ["-c", "\"$0\" settings set \(app) \"$(printf '\\377')\" 1", inspector.path],
        environment: inspector.environment, mergesErrors: true)
      #expect(repaired.finish().contains("not UTF-8") && repaired.exitStatus == 64)
      for value in [#"{"$data": "%"}"#, "1e400", "[1,]"] {
        try expect(65, "none that can be stored", "settings", "set", app, "y", value)
      }
      for value in ["dark", "{", "1, \"y\": 2", "1}", "", "[1", "1}{\"y\":2"] {
        try expect(65, "not JSON", "settings", "set", app, "y", value)
      }
      try expect(65, "null is no value", "settings", "set", app, "y", " null ")
      try expect(1, "has no setting \"y\"", "settings", "get", app, "y")
    }

    @Test func namesFromAnywhereAreHarmless() throws {
      let names = [
        "line\nbreak", "\u{1B}[2Jclear", "quote\"}\\", "\u{202E}backwards", "caf\u{E9}",
        "cafe\u{301}", "", "a,b:{c}", "\u{85}next", "\u{E0001}tag",
      ]
      let scope = stores()
      defer { scope.close() }
      for name in names {
        try scope.defaults(.standard).set(name, forKey: name)
        try scope.vault(.init(name)).set(name, forKey: name)
        try scope.cache("strange").set(name, forKey: name)
        #expect(try run("settings", "get", app, name, "--string").text == name + "\n")
      }
      for name in ["caf\u{E9}", "cafe\u{301}"] {
        let value = try run("settings", "get", app, name).text
        #expect(value.utf8.elementsEqual("\"\(name)\"\n".utf8), "names are bytes")
      }
      let document = try run("settings", "list", app, "--json")
      #expect(try document.json() as? [String: String] != nil)
      let keys = try run("vault", "list", app, "--json").rows().compactMap { $0["key"] as? String }
      #expect(Set(keys.map { Array($0.utf8) }) == Set(names.map { Array($0.utf8) }))
      let entries = try run("cache", "list", app, "--json").rows()
      #expect(entries.count == names.count)
      for arguments in [
        ["settings", "list", app], ["vault", "list", app], ["cache", "list", app],
      ] {
        for run in [try inspector.run(arguments), try inspector.run(arguments + ["--json"])] {
          let isClean = run.text.unicodeScalars.allSatisfy {
            $0 == "\n" || ![.control, .format].contains($0.properties.generalCategory)
          }
          #expect(run.status == 0 && isClean, "\(arguments)")
        }
        #expect(try inspector.run(arguments).text.split(separator: "\n").count == names.count + 1)
      }
      let shown = try type("settings", "get", app, "\u{1B}[2Jclear", "--string")
      #expect(shown.screen == "\\u001b[2Jclear\r\n")
      let wrong = try run("settings", "get", app, "\u{1B}[2Jnothing")
      #expect(wrong.status == 1 && !wrong.errors.contains("\u{1B}"))
    }

    @Test func tablesFitTheTerminalAndHaveColourOnlyThere() throws {
      try fill()
      let scope = stores()
      defer { scope.close() }
      let long = String(repeating: "long ", count: 100)
      try scope.defaults(.standard).set(long, forKey: "long")
      let piped = try run("settings", "list", app)
      #expect(piped.text.contains(long) && !piped.text.contains("\u{1B}"))
      let shown = try type("settings", "list", app)
      #expect(shown.screen.contains("\u{1B}[1m") && shown.screen.contains("…"))
      let plain = try type("settings", "list", app, environment: ["NO_COLOR": "1"])
      #expect(!plain.screen.contains("\u{1B}"))
      #expect(plain.screen.split(separator: "\r\n").allSatisfy { $0.count <= 80 })
      let dumb = try type("settings", "list", app, environment: ["TERM": "dumb"])
      #expect(!dumb.screen.contains("\u{1B}"))
      // Names are cut before dates are.
      try scope.vault(.standard).set("x", forKey: long)
      let secrets = try type("vault", "list", app)
      #expect(secrets.screen.contains("T") && secrets.screen.split(separator: "…").count == 2)
      let narrow = try type("vault", "list", app, columns: 40, environment: ["NO_COLOR": "1"])
      #expect(narrow.screen.split(separator: "\r\n").allSatisfy { $0.count <= 40 })
      // In a pipe one long name does not move the others away.
      let lines = try run("vault", "list", app).text.split(separator: "\n")
      #expect(lines.count == 4 && lines.filter { $0.count < 140 }.count == 3)
    }

    /// Wide characters take two columns of a terminal, marks none.
    @Test func columnsStandBelowEachOtherInAnyScript() throws {
      let scope = stores()
      defer { scope.close() }
      for key in ["plain", "日本", "e\u{301}te\u{301}", "👩‍👩‍👧", "한ﾊ", "🇩🇪", "नमस्ते"] {
        try scope.defaults(.standard).set(1, forKey: key)
      }
      #expect(
        try run("settings", "list", app).text == """
          KEY    VALUE
          plain  1
          e\u{301}te\u{301}    1
          नमस्ते   1
          日本   1
          한ﾊ    1
          🇩🇪     1
          👩‍👩‍👧     1

          """)
      try scope.defaults("wide").set(1, forKey: String(repeating: "鍵", count: 100))
      let cut = try type("settings", "list", app + "/wide", columns: 40)
      let key = String(repeating: "鍵", count: 16)
      #expect(cut.screen.contains("\r\n\(key)…  1\r\n"), "\(cut.screen)")
    }

    @Test func watchesWhatOthersSet() throws {
      try fill()
      let terminal = try PseudoTerminal()
      let watcher = try inspector.run("settings", "watch", app, "--json", at: terminal)
      try terminal.expect("Control-C ends it.")
      #expect(try run("settings", "set", app, "size", "17").status == 0)
      #expect(watcher.line() == #"{"size":17}"#)
      #expect(try run("settings", "delete", app, "theme").status == 0)
      #expect(watcher.line() == #"{"theme":null}"#)
      kill(watcher.identifier, SIGINT)
      #expect(watcher.exitStatus == 128 + SIGINT)
    }

    @Test func keepsSecretsToThemselves() throws {
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
      try expect(1, "has no secret \"nope\"", "vault", "show", app, "nope", "--reveal")
      try expect(1, "has no secret \"nope\"", "vault", "delete", app, "nope")
      try expect(1, "has no service \"auth\". It has: com.app.auth", "vault", "list", app + "/auth")
      try expect(1, "no secrets here", "vault", "list", "com.example.nobody")
      try expect(64, "name the app alone", "vault", "rotate", app + "/com.app.auth")

      let before = try Bytes.read(header)
      #expect(try run("vault", "rotate", app).status == 0)
      #expect(try Bytes.read(header) != before)
      #expect(try run("vault", "show", app, "pin", "--reveal").text == "7734")
      #expect(try run("vault", "delete", app, "pin").status == 0)
      try expect(1, "has no secret \"pin\"", "vault", "show", app, "pin", "--reveal")
      #expect(try run("vault", "list", app, "--json").rows().count == 1)
    }

    @Test func asksForThePassphrase() throws {
      try fill()
      let chosen = "correct horse"
      var run = try type(
        "vault", "protect", app,
        answers: [
          ("New passphrase: ", ""), ("It is empty. New passphrase: ", chosen),
          ("The same again: ", "staple"), ("They differ. New passphrase: ", chosen),
          ("The same again: ", chosen),
        ])
      let asked = run.screen.components(separatedBy: "The same again: ").count - 1
      #expect(asked == 2, "not after nothing: \(run.screen)")
      #expect(run.status == 0 && run.screen.contains("are under a passphrase"), "\(run.screen)")
      // Nobody sits there.
      for arguments in [
        ["vault", "list", app], ["vault", "show", app, "pin", "--reveal"],
        ["vault", "rotate", app],
        ["vault", "protect", app], ["vault", "delete", app, "pin"],
      ] {
        let run = try inspector.run(arguments)
        #expect(run.failed(77, "terminal"), "\(run)")
      }
      let contents = try self.run("list", app)
      #expect(contents.status == 0 && contents.text.contains("under a passphrase, locked"))
      let checked = try #require(try self.run("doctor", app, "--json").json() as? [String: Any])
      #expect((checked["skipped"] as? [String])?.count == 1)
      #expect((checked["findings"] as? [Any])?.isEmpty == true, "\(checked)")

      run = try type("vault", "show", app, "pin", answers: [("Passphrase: ", chosen)])
      #expect(run.status == 0 && run.screen.hasSuffix("7734\r\n") && !run.screen.contains("horse"))
      run = try type("vault", "list", app, answers: [("Passphrase: ", "staple")])
      #expect(run.status == 77 && run.screen.contains("wrong passphrase"))
      run = try type("vault", "list", app, answers: [("Passphrase: ", "")])
      #expect(run.status == 77 && run.screen.contains("no passphrase was given"))
      // Control-C, as it comes from a keyboard, ends it where nothing has begun.
      run = try type("vault", "rotate", app, answers: [("Passphrase: ", "\u{3}")])
      #expect(run.status == 128 + SIGINT, "\(run.screen)")
      run = try type("doctor", app, answers: [("Passphrase: ", "\u{3}")])
      #expect(run.status == 128 + SIGINT, "\(run.screen)")
      run = try type("doctor", app, answers: [("Passphrase: ", "staple")])
      #expect(run.status == 77 && run.screen.contains("wrong passphrase"))
      run = try type("doctor", app, answers: [("Passphrase: ", chosen)])
      #expect(run.status == 0 && run.screen.contains("2 secrets"), "\(run.screen)")
      run = try type("vault", "protect", app, "--key-file", answers: [("Passphrase: ", chosen)])
      #expect(run.status == 0, "\(run.screen)")
      #expect(try self.run("vault", "show", app, "pin", "--reveal").text == "7734")
    }

    @Test(arguments: ["a credential", "a key source"])
    func aVaultWhoseKeyIsNotHereSaysWhatToDo(_ source: String) throws {
      try FileManager.default.createDirectory(
        atPath: path("credentials"), withIntermediateDirectories: true)
      try directory.write(Array(repeating: 7, count: 32), to: "credentials/other.key")
      let credentials = ["CREDENTIALS_DIRECTORY": path("credentials")]
      let variables = inspector.environment.merging(credentials) { $1 }
      let isCredential = source == "a credential"
      let scope = StorageScope(
        finder: DirectoryFinder(app: app, environment: { variables[$0] }),
        vaultOptions: VaultOptions(sources: [
          isCredential ? .credential("other.key") : .closure("kms") { Data(count: 32) }
        ]))
      defer { scope.close() }
      try scope.vault(.standard).set("7734", forKey: "pin")
      let word = isCredential ? "LoadCredential=other.key:FILE" : "only the app has"
      try expect(77, word, "vault", "list", app)
      try expect(77, word, "vault", "show", app, "pin", "--reveal")
      try expect(77, word, "vault", "protect", app, "--key-file")
      #expect(try run("list", app).text.contains(", locked"))
      let doctor = try run("doctor", app)
      #expect(doctor.status == 0 && doctor.text.hasPrefix("skipped  the secrets, which are under"))
      let shown = try run("vault", "show", app, "pin", "--reveal", environment: credentials)
      #expect(isCredential ? shown.text == "7734" : shown.status == 77, "\(shown.text)")
    }

    @Test func aSecretThatNeedsAPersonAsksForOne() throws {
      let variables = inspector.environment
      let scope = StorageScope(
        finder: DirectoryFinder(app: app, environment: { variables[$0] }),
        vaultOptions: VaultOptions(authenticate: { _ in "correct horse" }))
      defer { scope.close() }
      try scope.vault(.standard).set("7734", forKey: "pin", access: .userPresence)
      let row = try run("vault", "list", app, "--json").rows()[0]
      #expect(row["needsPerson"] as? Bool == true)
      #expect(try run("vault", "show", app, "pin", "--reveal").status == 77)
      let shown = try type(
        "vault", "show", app, "pin",
        answers: [("Show pin of \(app). Passphrase: ", "correct horse")])
      #expect(shown.status == 0 && shown.screen.hasSuffix("7734\r\n"))
      #expect(try run("doctor", app).status == 0, "it is not opened")
    }

    @Test func damageHidesNothingElseAndIsSaid() throws {
      try fill()
      let secret = try pathOfNewestSecret()
      try flip(secret, at: 60)
      let list = try run("vault", "list", app)
      #expect(
        list.status == 1 && list.text.contains("accessToken") && list.errors.contains("damaged"))
      let rows = try inspector.run(["vault", "list", app, "--json"])
      #expect(try rows.status == 1 && rows.rows().count == 1)
      try expect(1, "damaged", "vault", "show", app, "pin", "--reveal")
      let protected = try run("vault", "protect", app, "--key-file")
      #expect(protected.status == 1 && protected.errors.contains("damaged"), "it lacks one")
      try flip(header, at: 3)
      #expect(try run("vault", "list", app).status == 1)

      try FileManager.default.removeItem(atPath: header)
      try expect(1, "header is missing", "vault", "list", app)
      try directory.write([], to: "config/file")
      try expect(74, "A file stands where a directory belongs", "settings", "list", "file")

      try flip(journal, at: 80)
      let settings = try run("settings", "list", app)
      #expect(settings.status == 1 && settings.errors.contains("damaged"))
      #expect(settings.text.contains("size"), "what is intact is listed")
      try flip(path("config/\(app)/team.jsonl"), at: 14)  // the version, of which there are three
      try newer(path("config/\(app)/team.jsonl"))
      try expect(1, "newer version", "settings", "list", app + "/team")
    }

    /// Makes it a journal of a version to come.
    private func newer(_ path: String) throws {
      let text = String(decoding: try Bytes.read(path), as: UTF8.self)
      let header = text.prefix(77).replacing(/"\d:/, with: "\"2:")
      try Bytes.write(Array((header + text.dropFirst(77)).utf8), to: path)
    }

    @Test func inspectsCaches() throws {
      try fill()
      let rows = try run("cache", "list", app, "--json").rows()
      #expect(rows.map { $0["key"] as? String } == ["avatar", "page", "image_001"])
      #expect(rows.map { $0["bytes"] as? Int } == [3, 3, 5_000])
      #expect(rows.map { $0["expires"] is NSNull } == [false, false, true])
      #expect(try run("cache", "list", app + "/standard").text.contains("image_001  5 kB"))
      let ending = try run("cache", "expiry", app, "--json").rows()
      #expect(ending.map { $0["key"] as? String } == ["page", "avatar"])
      let sizes = try run("cache", "sizes", app, "--json").rows()
      #expect(sizes.map { $0["entries"] as? Int } == [2, 1])
      #expect(sizes.allSatisfy { ($0["bytes"] as? Int ?? 0) >= 8_192 })
      try expect(1, "has no cache \"Imgs\". It has: Images", "cache", "list", app + "/Imgs")
      try expect(1, "has no cache here", "cache", "sizes", "com.example.nobody")

      let scope = stores()
      defer { scope.close() }
      try scope.cache("Images").set("gone", forKey: "gone", expiry: .seconds(0.05))
      usleep(100_000)
      #expect(try run("cache", "list", app + "/Images", "--json").rows().count == 2)
      let swept = try run("cache", "sweep", app, "--json").rows()
      #expect(swept.map { $0["expired"] as? Int } == [1, 0])

      try expect(64, "--yes", "cache", "clear", app + "/Images")
      var asked = try type("cache", "clear", app + "/Images", answers: [("[y/N] ", "n")])
      #expect(asked.status == 1 && asked.screen.contains("nothing was removed"))
      #expect(try run("cache", "list", app, "--json").rows().count == 3)
      asked = try type("cache", "clear", app + "/Images", answers: [("[y/N] ", "y")])
      #expect(asked.status == 0 && asked.screen.contains("Cleared Images."), "\(asked.screen)")
      #expect(try run("cache", "list", app, "--json").rows().count == 1)
      #expect(try run("cache", "clear", app, "--yes").status == 0)
      try expect(1, "has no cache here", "cache", "list", app)
    }

    @Test func aCacheThatFailsHidesNoOtherEntryAndKeepsNoOtherCache() throws {
      try fill()
      try makeSidecarNewer("avatar")
      let listed = try inspector.run(["cache", "list", app, "--json"])
      #expect(listed.status == 1 && listed.errors.contains("newer version"), "\(listed)")
      #expect(try listed.rows().map { $0["key"] as? String } == ["page", "image_001"])

      let lock = path("cache/\(app)/caches/.Images.ledger")
      try FileManager.default.removeItem(atPath: lock)
      try FileManager.default.createDirectory(atPath: lock, withIntermediateDirectories: true)
      let cleared = try run("cache", "clear", app, "--yes")
      #expect(cleared.status == 74 && cleared.text.contains("Cleared standard.\n"), "\(cleared)")
      try FileManager.default.removeItem(atPath: lock)
      #expect(try inspector.run(["cache", "list", app, "--json"]).rows().count == 1)
    }

    // MARK: The doctor

    /// All files with their bytes and times, but for the times of last access.
    private func snapshot() throws -> [String: String] {
      var files: [String: String] = [:]
      for name in try FileManager.default.subpathsOfDirectory(atPath: directory.path) {
        let status = try #require(try FileSystem.status(path(name), withTimes: true))
        let bytes = status.isDirectory ? "" : "\(try Bytes.read(path(name)).hashValue)"
        files[name] = "\(status.modified) \(status.mode) \(bytes)"
      }
      return files
    }

    @Test func theDoctorSaysNothingOfAHealthyAppAndChangesNothing() throws {
      try fill()
      let before = try snapshot()
      let healthy = try run("doctor", app)
      #expect(healthy.status == 0)
      #expect(
        healthy.text
          == "\(app): nothing is wrong. Looked at 2 suites, 2 secrets, 3 cache entries.\n")
      #expect(try snapshot() == before)
      let report = try #require(try run("doctor", app, "--json").json() as? [String: Any])
      #expect((report["findings"] as? [Any])?.isEmpty == true)
      try expect(1, "has no settings, secrets or caches here", "doctor", "com.example.nobody")
      #expect(!FileManager.default.fileExists(atPath: path("data/com.example.nobody")))
    }

    /// What is planted, and a word of what the doctor says of it.
    struct Damage: CustomTestStringConvertible, Sendable {
      let testDescription: String
      let word: String
      let plant: @Sendable (KeepsakectlTests) throws -> Void

      init(
        _ name: String, says word: String,
        plant: @escaping @Sendable (KeepsakectlTests) throws -> Void
      ) {
        testDescription = name
        self.word = word
        self.plant = plant
      }
    }

    private static let damages = [
      Damage("a damaged setting", says: "does not read as written") {
        try $0.flip($0.journal, at: 90)
      },
      Damage("settings of a newer version", says: "newer version") { try $0.newer($0.journal) },
      Damage("settings of another program", says: "does not start as a Keepsake journal") {
        try Bytes.write(Array("{\"theme\": 1}\n".utf8), to: $0.journal)
      },
      Damage("a damaged secret", says: "its bytes are not those") {
        let path = try $0.pathOfNewestSecret()
        try $0.flip(path, at: try Bytes.read(path).count - 20)
      },
      Damage("a damaged header", says: "header") { try $0.flip($0.header, at: 60) },
      Damage("a lost header", says: "header is missing") {
        try FileManager.default.removeItem(atPath: $0.header)
      },
      Damage("a lost key file", says: "key") {
        try FileManager.default.removeItem(atPath: $0.path("state/\($0.app)/vault.key"))
      },
      Damage("an open key file", says: "vault.key") {
        chmod($0.path("state/\($0.app)/vault.key"), 0o644)
      },
      Damage("a damaged entry", says: "damaged") { try $0.flip(try $0.payload("avatar"), at: 1) },
      Damage("a damaged sidecar", says: "damaged") {
        try $0.flip(try $0.payload("avatar") + ".meta", at: 50)
      },
      Damage("a sidecar of a newer version", says: "newer version") {
        try $0.makeSidecarNewer("avatar")
      },
      Damage("a file kept aside", says: "kept aside") {
        let name = "config/\($0.app)/standard.jsonl.damaged-1760000000"
        try $0.directory.write([1], to: name)
        chmod($0.path(name), 0o600)
      },
      Damage("a killed writer's file", says: "killed") {
        let name = "data/\($0.app)/vault/.entry.1f.tmp"
        try $0.directory.write([1], to: name)
        chmod($0.path(name), 0o600)
        try $0.makeOld($0.path(name))
      },
      Damage("an emptied cache", says: "killed") {
        let path = $0.path("cache/\($0.app)/caches/.Images.1f.trash")
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        try $0.makeOld(path)
      },
    ]

    private func makeSidecarNewer(_ key: String) throws {
      let path = try payload(key) + ".meta"
      let newer = Bytes.put(UInt8(2), at: 3, in: try Bytes.read(path))
      try Bytes.write(Sidecar.summed(newer), to: path)
    }

    /// What is left of a writer that cannot live any more.
    private func makeOld(_ path: String) throws {
      #expect(try run("doctor", app).status == 0, "its writer may live")
      let old = Date(timeIntervalSinceNow: -200_000)
      try FileManager.default.setAttributes([.modificationDate: old], ofItemAtPath: path)
    }

    /// Each is planted alone, found alone, and left as it is.
    @Test(arguments: damages) func theDoctorFinds(_ damage: Damage) throws {
      try fill()
      try damage.plant(self)
      try expectOneFinding(damage.word) { try run("doctor", app) }
    }

    private func expectOneFinding(_ word: String, _ examine: () throws -> Example.Run) throws {
      let before = try snapshot()
      let run = try examine()
      #expect(run.status == 1 && run.text.contains(word), "\(run.text)")
      #expect(run.text.contains("1 problem."), "\(run.text)")
      #expect(try snapshot() == before)
    }

    @Test func theDoctorFindsLooseModes() throws {
      try fill()
      chmod(header, 0o644)
      try expectOneFinding("chmod go= '\(header)'") { try run("doctor", app) }
    }

    @Test(.enabled(if: geteuid() == 0, "only the superuser can give a file away"))
    func theDoctorFindsAForeignOwner() throws {
      try fill()
      chown(journal, 1, 1)
      try expectOneFinding("another user") { try run("doctor", app) }
    }

    @Test(.enabled(if: geteuid() != 0, "the superuser can write to each directory"))
    func theDoctorFindsADirectoryThatItsUserCannotWrite() throws {
      try fill()
      chmod(path("config/\(app)"), 0o500)
      try expectOneFinding("cannot be written") { try run("doctor", app) }
    }

    @Test(.enabled(if: canMount, "only the superuser can mount, and not in each container"))
    func theDoctorFindsADirectoryThatNobodyCanWrite() throws {
      try fill()
      try expectOneFinding("cannot be written") {
        let child = try Child(
          "unshare",
          Self.sealing(path("config/\(app)")) + [inspector.path, "doctor", app],
          environment: inspector.environment, mergesErrors: true, startsSession: true)
        let text = child.finish()
        return Example.Run(status: child.exitStatus, text: text, errors: "")
      }
    }

    /// Words for unshare(1): a directory is read-only for the command that follows, and for nobody
    /// else.
    private static func sealing(_ directory: String) -> [String] {
      let script = #"""
        mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"
        """#
      return ["--mount", "--propagation", "private", "sh", "-c", script, directory]
    }

    private static let canMount: Bool = {
      guard geteuid() == 0, let directory = try? TemporaryDirectory(isQuick: true),
        let probe = try? Child("unshare", sealing(directory.path) + ["true"], mergesErrors: true)
      else { return false }
      withExtendedLifetime(directory) { _ = probe.finish() }
      return probe.exitStatus == 0
    }()

    @Test func theDoctorShowsItsProgressAndLeavesNoCopyWhenItIsInterrupted() throws {
      let scope = stores()
      defer { scope.close() }
      // Every other one is too long for the name of a file.
      let long = String(repeating: "long", count: 100)
      for number in 0..<600 {
        let key = number.isMultiple(of: 2) ? "\(number)" : long + "\(number)"
        try scope.cache(.standard).set(number, forKey: key, expiry: .days(7))
      }
      try FileManager.default.createDirectory(
        atPath: path("tmp"), withIntermediateDirectories: true)
      let changes = ["TMPDIR": path("tmp")]
      let whole = try run("doctor", app, environment: changes)
      #expect(
        whole.text
          == "\(app): nothing is wrong. Looked at 0 suites, 0 secrets, 600 cache entries.\n")
      for signal in [SIGINT, SIGTERM] {
        let terminal = try PseudoTerminal()
        let child = try Child(
          inspector.path, ["doctor", app],
          environment: inspector.environment.merging(changes) { $1 },
          terminal: terminal, isInteractive: true)
        try terminal.expect("Looking at cache standard ")
        kill(child.identifier, signal)
        #expect(child.exitStatus == 128 + signal)
        #expect(try FileManager.default.contentsOfDirectory(atPath: path("tmp")).isEmpty)
      }
    }

    @Test func theDoctorGoesOnWhereSomethingCannotBeLookedAt() throws {
      try fill()
      try FileManager.default.removeItem(atPath: path("config/\(app)"))
      try directory.write([], to: "config/\(app)")
      let run = try run("doctor", app)
      #expect(run.status == 1 && run.text.contains("Looked at 0 suites, 2 secrets, 3 cache"))
      let report = try #require(try self.run("doctor", app, "--json").json() as? [String: Any])
      let findings = try #require(report["findings"] as? [[String: Any]])
      #expect(findings.map { $0["path"] as? String } == [path("config/\(app)")])
      #expect(findings.first?.keys.sorted() == ["key", "path", "problem", "remedy"])
    }

    @Test func theDoctorMissesSpace() throws {
      try fill()
      let run = try run("doctor", app, "--free=9000000000000000000")
      #expect(run.status == 1 && run.text.contains("1 problem."), "one disk, one line")
      #expect(run.text.contains("are free"))
      try expect(64, "number of bytes", "doctor", app, "--free=-1")
      try expect(64, "number of bytes", "doctor", app, "--free=much")
    }

    // MARK: Its command line

    @Test func saysHowItIsUsed() throws {
      for arguments in [
        [], ["bogus"], ["settings"], ["settings", "bogus"], ["settings", "get"],
        ["settings", "get", app], ["settings", "get", app, "a", "b"], ["list", "a", "b"],
        ["settings", "get", app, "a", "--bogus"], ["vault"], ["vault", "show", app],
        ["cache", "list"], ["doctor"], ["doctor", app + "/x"], ["doctor", app, "--free"],
        ["settings", "get", "..", "x"], ["settings", "get", "", "x"], ["help", "bogus"],
        ["settings", "list", app, "--json=1"], ["--", "--help"], ["list", app + "/team"],
        ["list", "-x"], ["settings", "get", app, "-dash"], ["vault", "protect", app + "/x"],
      ] {
        let run = try inspector.run(arguments)
        #expect(run.failed(64, "keepsakectl: "), "\(arguments): \(run)")
        #expect(run.errors.split(separator: "\n").count == 1, "\(arguments): \(run)")
      }
      let help = try run("--help")
      #expect(try help.status == 0 && help.text == run("help").text)
      #expect(help.text.split(separator: "\n").allSatisfy { $0.count <= 80 })
      let verbs = help.text.split(separator: "\n").filter { $0.hasPrefix("  ") }
      #expect(verbs.count == 19)
      for line in verbs {
        let words = line.split(separator: " ")
        let name = words.prefix { $0.allSatisfy(\.isLowercase) }.map(String.init)
        let verb = try inspector.run(["help"] + name)
        #expect(
          verb.status == 0
            && verb.text.hasPrefix("usage: keepsakectl \(name.joined(separator: " "))"))
        #expect(try inspector.run(name + ["--help"]).text == verb.text)
        #expect(try inspector.run(name + ["-h"]).text == verb.text)
        #expect(verb.text.contains("for example: keepsakectl \(name.joined(separator: " ")) "))
      }
      #expect(try run("help", "vault").text.contains("vault rotate"))
      #expect(try directory.names().isEmpty, "nothing was made")
    }

    @Test func managesWithoutAHome() throws {
      try fill()
      let without = try run("settings", "get", app, "theme", environment: ["HOME": ""])
      #expect(without.status == 0 && without.text == "\"dark\"\n")
      // The password database's home directory counts; nothing is made in it.
      let name = "keepsakectl-test-" + UUID().uuidString
      let nowhere = ["HOME": "", "XDG_CONFIG_HOME": "", "XDG_DATA_HOME": "", "XDG_CACHE_HOME": ""]
      for verb in [
        ["settings", "list"], ["vault", "list"], ["cache", "list"], ["doctor"], ["list"],
      ] {
        let run = try inspector.run(verb + [name], environment: nowhere)
        #expect(run.failed(1, name), "\(run)")
      }
    }

    @Test func afterAFullDiskItSaysSo() throws {
      try fill()
      let run = try inspector.run("settings", "list", app, output: "/dev/full")
      #expect(run.failed(74, "cannot be written"), "\(run)")
    }

    @Test func aWatcherWhoseLinesAreLostEnds() throws {
      try fill()
      let terminal = try PseudoTerminal()
      let watcher = try Child(
        "/bin/sh",
        [
          "-c", "exec timeout --foreground 60 \"$0\" \"$@\" >/dev/full", inspector.path, "settings",
          "watch", app,
        ],
        environment: inspector.environment, terminal: terminal, isInteractive: true)
      try terminal.expect("Control-C ends it.")
      #expect(try run("settings", "set", app, "size", "17").status == 0)
      #expect(watcher.exitStatus == 74)
      let screen = terminal.finish()
      #expect(
        screen.components(separatedBy: "the output cannot be written").count == 2, "\(screen)")
    }
  }
}
