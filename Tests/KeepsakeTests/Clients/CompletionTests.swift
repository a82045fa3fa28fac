import Foundation
import Testing

extension OneAtATime {
  /// What an editor offers after the dot, asked of the language server that comes with Swift.
  @Suite(.enabled(if: EditorSession.isServerThere)) struct CompletionTests {
    @Test(.timeLimit(.minutes(2))) func keysCompleteAfterADot() throws {
      let calls = sites.enumerated().map { number, site in site.call(number) }
      let text = ([declarations] + calls).joined(separator: "\n")
      let editor = try EditorSession(text.replacing(Site.cursor, with: ""))
      for (number, line) in text.split(separator: "\n").dropFirst(declaredLines).enumerated() {
        let cursor = try #require(line.firstRange(of: Site.cursor)).lowerBound
        let column = line.utf16.distance(from: line.startIndex, to: cursor)
        let offered = try editor.completions(line: declaredLines + number, column: column)
        #expect(keys.intersection(offered) == sites[number].expected, "\(sites[number].code)")
      }
      editor.end()
    }
  }
}

/// A place in a program where a key is about to be written.
private struct Site {
  static let cursor = "¦"
  let code: String
  let expected: Set<String>

  /// In a function of its own, or as a property.
  func call(_ number: Int) -> String {
    code.hasPrefix("@")
      ? "struct Settings\(number) { \(code) }" : "func call\(number)() async throws { \(code) }"
  }
}

private let settings: Set = ["fontSize", "theme", "lastLogin", "recents"]
private let secrets: Set = ["accessToken", "password"]
private let entries: Set = ["frontPage", "avatar"]
private let keys = settings.union(secrets).union(entries)

private let declarations = """
  import Foundation
  import Keepsake
  struct Token: Codable { var text = "" }
  struct Article: Codable { var title = "" }
  extension Defaults.Key<Int> { static let fontSize = Self("fontSize", default: 16) }
  extension Defaults.Key<String> { static let theme = Defaults.Key("theme", default: "light") }
  extension Defaults.Key<Date?> { static let lastLogin = Self("lastLogin", suite: "team") }
  extension Defaults.Key<[Article]> { static let recents = Self("recents", default: []) }
  extension SecureVault.Key<Token> { static let accessToken = Self("token", service: "auth") }
  extension SecureVault.Key<String> { static let password = Self("password") }
  extension DiskCache.Key<Article> { static let frontPage = Self("page", cache: "News") }
  extension DiskCache.Key<Data> { static let avatar = Self("avatar", expiry: .days(1)) }
  """

private let declaredLines = declarations.split(separator: "\n").count

/// As far as somebody has come who writes them; the bracket that an editor adds is there.
private let sites = [
  ("Defaults[.¦]", settings),
  ("let size = Defaults[.¦]", settings),
  ("let size: Int = Defaults[.¦]", ["fontSize"]),
  ("Defaults[.¦] = 18", ["fontSize"]),
  ("Defaults.update(.¦)", settings),
  ("Defaults.update(.¦) { $0 += 1 }", settings),
  ("Defaults.remove(.¦)", settings),
  ("Defaults.contains(.¦)", settings),
  ("Defaults.changes(.¦)", settings),
  ("for await size in Defaults.changes(.¦) {}", settings),
  ("@Default(.¦)", settings),
  ("@Default(.¦) var size: Int", settings),
  ("@DefaultOptional(.¦) var login: Date?", settings),
  ("let size = try Defaults.shared.get(.¦)", settings),
  ("try Defaults.shared.set(18, for: .¦)", ["fontSize"]),
  ("try Defaults.shared.update(.¦)", settings),
  ("for await size in Defaults.shared.changes(.¦) {}", settings),
  ("SecureVault[.¦]", secrets),
  ("let token = SecureVault[.¦]", secrets),
  (#"SecureVault[.¦] = "secret""#, ["password"]),
  ("SecureVault.get(.¦)", secrets),
  (#"SecureVault.set("secret", for: .¦)"#, ["password"]),
  ("SecureVault.remove(.¦)", secrets),
  ("let token = try SecureVault.shared.get(.¦)", secrets),
  ("DiskCache[.¦]", entries),
  ("let page = DiskCache[.¦]", entries),
  ("DiskCache[.¦] = Article()", ["frontPage"]),
  ("DiskCache.remove(.¦)", entries),
  ("try await DiskCache.fetch(.¦)", entries),
  ("let page = try await DiskCache.fetch(.¦) { Article() }", entries),
  ("let page = try DiskCache.shared.get(.¦)", entries),
  ("try await DiskCache.shared.fetch(.¦)", entries),
].map { Site(code: $0, expected: $1) }

/// A language server with one open file, which imports the library as it is built.
private final class EditorSession {
  private let folder: TemporaryDirectory
  private let server: Child
  private let document: [String: Any]
  private let patience: DispatchWorkItem
  private var requests = 0

  static let isServerThere = (ProcessInfo.processInfo.environment["PATH"] ?? "")
    .split(separator: ":")
    .contains { FileManager.default.isExecutableFile(atPath: "\($0)/sourcekit-lsp") }

  init(_ text: String) throws {
    folder = try TemporaryDirectory()
    let source = folder.file("client.swift")
    document = ["uri": source.absoluteString]
    let command: [String: Any] = [
      "directory": folder.path, "file": source.path,
      "arguments": ["swiftc", "-swift-version", "6", "-parse-as-library", source.path]
        + Peer.compilerFlags + ["-module-cache-path", folder.path + "/modules"],
    ]
    try JSONSerialization.data(withJSONObject: [command])
      .write(to: folder.file("compile_commands.json"))
    // What it keeps goes with the folder: it asks for the home in two ways. What it thinks of
    // unfinished calls is not of interest.
    server = try Child(
      "sh", ["-c", "exec sourcekit-lsp 2>/dev/null"],
      environment: [
        "HOME": folder.path, "CFFIXED_USER_HOME": folder.path, "TMPDIR": folder.path,
        "XDG_CACHE_HOME": folder.path + "/cache", "XDG_CONFIG_HOME": folder.path + "/config",
      ])
    // Reading from a server that hangs ends with it.
    let identifier = server.identifier
    patience = DispatchWorkItem { kill(identifier, SIGKILL) }
    DispatchQueue.global().asyncAfter(deadline: .now() + 60, execute: patience)
    // On a busy machine the answers else come before it knows how the file is compiled.
    try request(
      "initialize",
      [
        "processId": NSNull(), "rootUri": folder.url.absoluteString,
        "capabilities": [String: Any](),
        "initializationOptions": ["buildSettingsTimeout": 60_000, "backgroundIndexing": false],
      ])
    try send("initialized", [:])
    let opened = document.merging(["languageId": "swift", "version": 0, "text": text]) { $1 }
    try send("textDocument/didOpen", ["textDocument": opened])
  }

  deinit { patience.cancel() }

  /// The names that it offers at a position.
  func completions(line: Int, column: Int) throws -> [String] {
    let answer = try request(
      "textDocument/completion",
      ["textDocument": document, "position": ["line": line, "character": column]])
    let result = try #require(answer["result"] as? [String: Any], "\(answer)")
    let items = try #require(result["items"] as? [[String: Any]])
    return items.compactMap { $0["label"] as? String }
  }

  func end() {
    _ = try? request("shutdown", [:])
    try? send("exit", [:])
    server.finish()
  }

  private func send(_ method: String, _ parameters: [String: Any], id: Int? = nil) throws {
    var message: [String: Any] = ["jsonrpc": "2.0", "method": method, "params": parameters]
    message["id"] = id
    let body = String(decoding: try JSONSerialization.data(withJSONObject: message), as: UTF8.self)
    // The line's own end is a part of the message.
    try server.say("Content-Length: \(body.utf8.count + 1)\r\n\r\n\(body)")
  }

  @discardableResult
  private func request(_ method: String, _ parameters: [String: Any]) throws -> [String: Any] {
    requests += 1
    try send(method, parameters, id: requests)
    while true {
      var length = 0
      while let header = server.line(), header != "\r" {
        if let match = header.wholeMatch(of: /Content-Length: (\d+)\r/) { length = Int(match.1)! }
      }
      let body = try #require(server.bytes(length), "the language server ended")
      let message = try JSONSerialization.jsonObject(with: body) as? [String: Any]
      // It also says what goes on, and asks.
      if message?["method"] == nil, message?["id"] as? Int == requests { return message ?? [:] }
    }
  }
}
