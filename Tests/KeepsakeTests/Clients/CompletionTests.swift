import Foundation
import Testing

@testable import KeepsakeTestSupport

extension OneAtATime {
  /// Asks the language server that comes with Swift which keys it offers after a dot.
  @Suite(.slow, .enabled(if: EditorSession.isServerInstalled)) struct CompletionTests {
    @Test(.timeLimit(.minutes(20))) func offersTheMatchingKeysAfterADot() throws {
      let calls = fragments.enumerated().map { number, fragment in fragment.declaration(number) }
      let text = ([declarations] + calls).joined(separator: "\n")
      let editor = try EditorSession(text.replacing(Fragment.cursor, with: ""))
      for (number, line) in text.split(separator: "\n").dropFirst(declaredLines).enumerated() {
        let cursor = try #require(line.firstRange(of: Fragment.cursor)).lowerBound
        let column = line.utf16.distance(from: line.startIndex, to: cursor)
        let offered = try editor.completions(line: declaredLines + number, column: column)
        let fragment = fragments[number]
        #expect(keys.intersection(offered) == fragment.expectedKeys, "\(fragment.code)")
      }
      editor.end()
    }
  }
}

/// Unfinished code with the cursor where a key is about to be typed.
private struct Fragment {
  static let cursor = "¦"
  let code: String
  let expectedKeys: Set<String>

  /// The code in its own function, or as the property of a struct.
  func declaration(_ number: Int) -> String {
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

/// Code as it is while a programmer types it. Editors have already added the closing bracket.
private let fragments = [
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
  ("let page = try await DiskCache.shared.fetch(.¦) { Article() }", entries),
  ("try await DiskCache.fetch(.¦, staleFor: .hours(1))", entries),
].map { Fragment(code: $0, expectedKeys: $1) }

/// A language server with one open file, which imports the library that the tests were built with.
private final class EditorSession {
  private let directory: TemporaryDirectory
  private let server: Child
  private let document: [String: Any]
  private let timeout: DispatchWorkItem
  private var requestCount = 0

  static let isServerInstalled = (ProcessInfo.processInfo.environment["PATH"] ?? "")
    .split(separator: ":")
    .contains { FileManager.default.isExecutableFile(atPath: "\($0)/sourcekit-lsp") }

  init(_ text: String) throws {
    directory = try TemporaryDirectory()
    let source = directory.file("client.swift")
    document = ["uri": source.absoluteString]
    let command: [String: Any] = [
      "directory": directory.path, "file": source.path,
      "arguments": ["swiftc", "-swift-version", "6", "-parse-as-library", source.path]
        + Peer.compilerFlags + ["-module-cache-path", directory.path + "/modules"],
    ]
    try JSONSerialization.data(withJSONObject: [command])
      .write(to: directory.file("compile_commands.json"))
    // Its caches go into the temporary directory, for which it reads HOME and CFFIXED_USER_HOME.
    // Standard error has its remarks on the unfinished code.
    server = try Child(
      "sh", ["-c", "exec sourcekit-lsp 2>/dev/null"],
      environment: [
        "HOME": directory.path, "CFFIXED_USER_HOME": directory.path, "TMPDIR": directory.path,
        "XDG_CACHE_HOME": directory.path + "/cache", "XDG_CONFIG_HOME": directory.path + "/config",
      ])
    // Killing a server that hangs also ends the read that waits for its answer.
    let identifier = server.identifier
    timeout = DispatchWorkItem { kill(identifier, SIGKILL) }
    DispatchQueue.global().asyncAfter(deadline: .now() + 600, execute: timeout)
    // With the short default timeout, a busy server answers before it has read the compiler flags.
    try request(
      "initialize",
      [
        "processId": NSNull(), "rootUri": directory.url.absoluteString,
        "capabilities": [String: Any](),
        "initializationOptions": ["buildSettingsTimeout": 60_000, "backgroundIndexing": false],
      ])
    try send("initialized", [:])
    let opened = document.merging(["languageId": "swift", "version": 0, "text": text]) { $1 }
    try send("textDocument/didOpen", ["textDocument": opened])
  }

  deinit { timeout.cancel() }

  /// The names that the server offers at a position.
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
    // `writeLine` adds a newline, which belongs to the message.
    try server.writeLine("Content-Length: \(body.utf8.count + 1)\r\n\r\n\(body)")
  }

  @discardableResult
  private func request(_ method: String, _ parameters: [String: Any]) throws -> [String: Any] {
    requestCount += 1
    try send(method, parameters, id: requestCount)
    while true {
      var length = 0
      while let header = server.line(), header != "\r" {
        if let match = header.wholeMatch(of: /Content-Length: (\d+)\r/) { length = Int(match.1)! }
      }
      let body = try #require(server.bytes(length), "the language server ended")
      let message = try JSONSerialization.jsonObject(with: body) as? [String: Any]
      // Skip the notifications and requests of the server.
      if message?["method"] == nil, message?["id"] as? Int == requestCount { return message ?? [:] }
    }
  }
}
