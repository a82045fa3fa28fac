import Foundation
import Testing

@testable import KeepsakeTestSupport

/// Builds and runs the programs of the package Tests/Clients, which use the library as any other
/// package does. The package treats their warnings as errors.
@Suite(.ownThread, .slow) struct ClientTests {
  @Test(.timeLimit(.minutes(20))) func buildsWithoutWarnings() async throws {
    let build = try await ClientPackage.build.value
    #expect(build.status == 0 && build.diagnostics.isEmpty, "\(build.output)")
  }

  @Test(.timeLimit(.minutes(20)), arguments: ClientPackage.programs)
  func programFindsWhatItStored(program: String) async throws {
    try #require(try await ClientPackage.build.value.status == 0)
    let run = try await ClientPackage.run(program)
    #expect(run.status == 0 && run.output == "ok\n", "\(run.output)")
  }

  /// Names of targets and products must be unique among all packages of a program, so an app could
  /// not use a name that this package takes.
  @Test func namesOfTargetsDoNotCollideWithThoseOfApps() throws {
    let text = try String(contentsOf: Repository.file("Package.swift"), encoding: .utf8)
    let names = Set(text.matches(of: /name: "([^"]+)"/).map { String($0.1) })
    #expect(names.contains("keepsake-quickstart"))
    let others = names.filter { !$0.lowercased().contains("keepsake") }
    // OpenSSL's headers and the trait
    #expect(others == ["COpenSSL", "COpenSSLTLS", "SecureVault"])
  }

  @Test func wrongCallsDoNotCompile() async throws {
    try await expectErrors(in: rejectedStatements)
  }

  /// The compiler checks lifetimes after types, and only if there is no type error.
  @Test func secretBytesCannotEscapeTheirClosure() async throws {
    try await expectErrors(in: escapingStatements, ["-emit-sil", "-o", "/dev/null"])
  }

  /// The messages about wrappers in the article on compiler messages.
  @Test func messagesAboutWrappersAreCurrent() async throws {
    let types = wrongWrappers.enumerated().map { number, wrong in
      wrong.key.replacing("Wrong", with: "Wrong\(number)")
    }
    let output = try await compile(["import Observation"] + types + [declarations])
    for (code, message) in wrongWrappers {
      #expect(output.contains("error: \(message)"), "\(code)")
    }
    try expectArticle(lists: wrongWrappers.map(\.value))
  }

  /// The messages about calls in the article on compiler messages.
  @Test func messagesAboutCallsAreCurrent() async throws {
    let lines = wrongCalls.enumerated().map { "func wrong\($0)() async throws { \($1.key) }" }
    let errors = errors(in: try await compile(lines + [declarations]))
    for (index, (code, message)) in wrongCalls.enumerated() {
      // The compiler may name one requirement after the other.
      #expect(errors[index + 1]?.first == message, "\(code)")
    }
    let missingImport = "unknown attribute 'Observable'"
    let other = try await compile(["import Keepsake", "@Observable final class Wrong {}"])
    #expect(self.errors(in: other)[2]?.first == missingImport, "\(other)")
    try expectArticle(lists: wrongCalls.map(\.value) + [missingImport])
  }

  private func expectArticle(lists messages: [String]) throws {
    let article = try #require(Document.all.first { $0.name == "CompilerMessages" }).text()
    for message in messages { #expect(article.contains("| `\(message)`"), "\(message)") }
  }

  /// What the compiler says about a file with these lines.
  private func compile(
    _ lines: [String], _ mode: [String] = ["-typecheck"]
  ) async throws -> String {
    let directory = try TemporaryDirectory()
    try directory.write(Array(lines.joined(separator: "\n").utf8), to: "client.swift")
    return try await Command.run(
      ["swiftc"] + mode + ["-swift-version", "6", "-parse-as-library"]
        + [directory.file("client.swift").path] + Peer.compilerFlags
    ).output
  }

  /// The errors by their lines, without the links that the compiler adds to some.
  private func errors(in output: String) -> [Int: [String]] {
    let errors = output.matches(of: /client\.swift:(\d+):\d+: error: (.*?)(?: \[#\w+\])?\n/)
    return Dictionary(grouping: errors) { Int($0.1) ?? 0 }.mapValues { $0.map { String($0.2) } }
  }

  /// Compiles each statement in its own function, and expects an error in each and nowhere else.
  private func expectErrors(
    in statements: [String], _ mode: [String] = ["-typecheck"]
  ) async throws {
    let lines = statements.enumerated().map { "func wrong\($0)() { \($1) }" } + [declarations]
    let output = try await compile(lines, mode)
    let failed = Set(errors(in: output).keys)
    for (index, statement) in statements.enumerated() {
      #expect(failed.contains(index + 1), "compiles: \(statement)")
    }
    #expect(failed.isSubset(of: 1...statements.count), "\(output)")
  }
}

/// Declarations for the rejected statements, and a function that must compile: it shows that the
/// statements do not fail because the module or a name is missing.
private let declarations = """
  import Foundation
  import Keepsake
  extension Defaults.Key<Int> { static let fontSize = Defaults.Key("fontSize", default: 16) }
  struct Article: Codable { var title = "" }
  struct Opaque {}
  struct Size {}
  extension DiskCache.Key<Article> { static let frontPage = Self("frontPage", expiry: .days(1)) }
  extension SecureVault.Key<Article> { static let sealed = Self("sealed", service: "auth") }
  let team: Defaults.Suite = "team"
  let news: DiskCache.Name = "news"
  var cache: DiskCache.Store { DiskCache.shared }
  @MainActor var downloads = 0
  func rightInSynchronousCode() throws -> Int {
    try StorageSystem.withTemporarySynchronously { try Defaults.shared.remove(["a", "b"]) }
    return try StorageSystem.withTemporarySynchronously { Defaults.int("size", default: 16) }
  }
  func right(_ chunks: AsyncStream<Data>) async throws {
    Defaults.set(nil, forKey: "size")
    Defaults.set(Int?.none, forKey: "size")
    DiskCache.set(nil, forKey: "k", expiry: .days(1))
    SecureVault.set(nil, forKey: "k", access: .whenUnlocked)
    try DiskCache.shared.set(nil, forKey: "k")
    try Defaults.shared.set(18, for: .fontSize)
    let kept = try await DiskCache.fetch("k", expiry: .never) { old in
      old == nil ? .value(Article()) : .unchanged
    }
    let gone: DiskCache.CachedValue<Article>? = try await DiskCache.fetch("k", expiry: .never) {
      _ in .gone
    }
    _ = (kept, gone)
    Defaults[.fontSize] += Defaults.get(.fontSize) + Defaults.int("size", default: 1)
    let total: Int = try Defaults.update(.fontSize) { $0 += 1 } + Defaults.shared.get(.fontSize)
    for await size in Defaults.changes(.fontSize) where size > total { break }
    for await size in Defaults.shared.changes(.fontSize) where size > total { break }
    @Default(.fontSize) var property: Int
    @Default(.fontSize) var untyped
    @Default("ratio", suite: "team") var ratio = 0.5
    property += untyped + Int(ratio)
    property += try Defaults.shared.update(.fontSize) { $0 -= 1 }
    DiskCache[.frontPage] = Article()
    DiskCache.set(Article(), forKey: "k", expiry: .idle(.days(1)), cache: "team")
    let article: Article? = DiskCache.get(.frontPage) ?? DiskCache.model("k")
    let fetched: Article = try await DiskCache.fetch("k") { article ?? Article() }
    try DiskCache.shared.set(fetched, for: .frontPage)
    let title = try await DiskCache.fetch(.frontPage) { fetched }.title
    let length = try await DiskCache.shared.fetch(.frontPage) { Article(title: title) }.title.count
    try await cache.set(chunks: chunks, forKey: "k") { _, _ in }
    _ = try await DiskCache.shared.perform { try $0.keys() }
    try DiskCache.shared.removeAll()
    SecureVault[.sealed] = SecureVault.model("k")
    SecureVault.set(Article(), forKey: "k", access: .userPresence, service: "auth")
    let size: Int? = SecureVault.withSecret("k", reason: "Sign") { $0.byteCount }
    let isOpen = SecureVault.protect(with: .passphrase("p")) && SecureVault.unlock(passphrase: "p")
    if !isOpen { SecureVault.lock(service: "auth") }
    try SecureVault.shared.set(article, for: .sealed)
    try await StorageSystem.withTemporary(
      keySources: [.closure("server") { Data() }], authenticate: { $0.isNew ? "p" : nil }
    ) {
      try SecureVault.service("auth").withSecret("k") { _ in if size == length { throw Failed() } }
    }
  }
  struct Failed: Error {}
  """

/// Wrong declarations, and the compiler's message about each.
private let wrongWrappers: KeyValuePairs = [
  #"@Observable final class Wrong { @Default("size") var size = 16 }"#:
    "invalid redeclaration of synthesized property '_size'",
  #"struct Wrong { @Default("size") var size: Int }"#:
    "cannot convert value of type 'String' to expected argument type 'Defaults.Key<Int>'",
  #"struct Wrong { @Default("size", defaultValue: 16) var size = 16 }"#:
    "extra argument 'defaultValue' in call",
  #"struct Wrong { @DefaultOptional("size") var size = 16 }"#:
    "no exact matches in call to initializer",
  #"struct Wrong { @Default(.fontSize) var size = 16 }"#: "type 'String' has no member 'fontSize'",
  #"struct Wrong { @DefaultOptional("size") var size: Int }"#:
    "property type 'Int' does not match 'wrappedValue' type 'Value?'",
  #"struct Wrong { @Default("size") var size = Size() }"#:
    "generic struct 'Default' requires that 'Size' conform to 'Decodable'",
]

private let typedKeyTakesFor =
  "'set(_:forKey:)' is unavailable: A typed key takes 'for:', not 'forKey:'."
private let stringTakesForKey =
  "'set(_:for:)' is unavailable: A string takes 'forKey:', not 'for:'."
private let needsOneType = "Give the values one Codable type: a struct, or Defaults.Value."

/// Wrong calls, and the compiler's message about each.
private let wrongCalls: KeyValuePairs = [
  #"Defaults.set(Size(), forKey: "size")"#:
    "static method 'set(_:forKey:suite:)' requires that 'Size' conform to 'Decodable'",
  #"try DiskCache.shared.set([], forKey: "list")"#: "type 'Any' cannot conform to 'Encodable'",
  #"Defaults.set(.none, forKey: "page")"#: "generic parameter 'T' could not be inferred",
  "Defaults.set(18, forKey: .fontSize)": typedKeyTakesFor,
  "try Defaults.shared.set(18, forKey: .fontSize)": typedKeyTakesFor,
  "DiskCache.set(Article(), forKey: .frontPage)": typedKeyTakesFor,
  "try SecureVault.shared.set(Article(), forKey: .sealed)": typedKeyTakesFor,
  #"Defaults.set(["size": 18, "theme": "dark"], forKey: "window")"#:
    "'set(_:forKey:suite:)' is unavailable: \(needsOneType)",
  #"Defaults.set([18, "dark"], forKey: "window")"#:
    "'set(_:forKey:suite:)' is unavailable: \(needsOneType)",
  #"DiskCache.set(["size": 18, "theme": "dark"], forKey: "window")"#:
    "'set(_:forKey:)' is unavailable: \(needsOneType)",
  #"SecureVault["token"] = "tok""#:
    "'subscript(_:)' is unavailable: Brackets take a typed key. Use get and set.",
  #"let size: Int = Defaults.get("size")"#:
    "'get(_:suite:)' is unavailable: There may be no value: read an optional, or name a default.",
  #"Defaults.update("launches") { $0 += 1 }"#:
    "'update(_:suite:_:)' is unavailable: Name a default, as in update(key, default: 0).",
  #"Defaults["size"] = 18"#:
    "'subscript(_:)' is unavailable: Brackets take a typed key. Use get and set.",
  #"let name = Defaults.string(forKey: "name")"#:
    "'string(forKey:)' has been renamed to 'string(_:)'",
  "let defaults = Defaults.standard": "'standard' has been renamed to 'shared'",
  #"Defaults.set(18, for: "size")"#: stringTakesForKey,
  #"try DiskCache.shared.set(Article(), for: "size")"#: stringTakesForKey,
  #"SecureVault.set("tok", for: "token")"#: stringTakesForKey,
  #"let a: Article? = try await DiskCache.fetch("k", expiry: .never) { old in old!.value }"#:
    "'fetch(_:expiry:staleIfFailing:keptFor:nilExpiry:timeout:cache:isolation:_:)' is unavailable: "
    + "The closure gets the old entry, so it returns .value(…), .unchanged or .gone.",
]

/// Statements that must not compile, besides ``wrongWrappers`` and ``wrongCalls``.
private let rejectedStatements = [
  #"Defaults[.fontSize] = "x""#,
  #"Defaults[.fontSize] = nil"#,
  #"let size: String = Defaults[.fontSize]"#,
  #"Defaults[.unknown] = 1"#,
  #"Defaults.update(.fontSize) { $0 = "x" }"#,
  #"Defaults.update(.frontPage) { $0.title = "x" }"#,
  #"let size: String = Defaults.update(.fontSize) { $0 += 1 }"#,
  #"if let size = Defaults.update(.fontSize, { $0 += 1 }) { print(size) }"#,
  #"Defaults.remove(.sealed)"#,
  #"func f() async { for await size: String in Defaults.changes(.fontSize) {} }"#,
  #"Defaults.update("size", default: 0) { $0 = "x" }"#,
  #"Defaults.update("size", default: 0) { _ in throw CancellationError() }"#,
  #"Defaults.set((1, 2), forKey: "pair")"#,
  #"Defaults.set(["a": 1] as [String: Any], forKey: "table")"#,
  #"Defaults.set({ 1 }, forKey: "closure")"#,
  #"Defaults.set(1, forKey: "size", suite: 3)"#,
  #"let size = Defaults.get("size")"#,
  #"let size: String = Defaults.get(.fontSize)"#,
  #"if let size = Defaults.get(.fontSize) { print(size) }"#,
  #"if Defaults.get("size") == nil {}"#,
  #"let keys = try Defaults.keys() as [Defaults.Key<Int>]"#,
  #"Defaults.suite("team").set(1, forKey: "size")"#,
  #"try? Defaults.shared.remove([.fontSize])"#,
  #"let size = Defaults.int("size", default: "x")"#,
  #"StorageSystem.withTemporarySynchronously { print("x") }"#,
  #"try? Defaults.shared.set("x", for: .fontSize)"#,
  #"try? Defaults.shared.update(.fontSize) { $0 = "x" }"#,
  #"func f() throws { let size: String = try Defaults.shared.get(.fontSize) }"#,
  #"func f() throws { if let size = try Defaults.shared.get(.fontSize) { print(size) } }"#,
  #"_ = Defaults.Key<Int>("size", default: "x")"#,
  #"_ = Defaults.Key<Int>("size")"#,
  #"_ = Defaults()"#,
  #"@Default("size", defaultValue: "x") var size: Int"#,
  #"@Default("size") var size: Int = "x""#,
  #"@Default("size") var size: Int?"#,
  #"@Default("value") var value = Opaque()"#,
  #"@DefaultOptional("date") var date: Date"#,
  #"@Default(.fontSize) var size: String"#,
  #"@Default(.fontSize) var size: Int?"#,
  #"@Default(.frontPage) var page: Article"#,
  #"@DefaultOptional(.fontSize) var size: Int?"#,
  #"enum Anywhere { @Default("size", defaultValue: 16) static var size: Int }"#,
  #"final class Shared: Sendable { @Default("size", defaultValue: 16) var size: Int }"#,
  #"DiskCache[.frontPage] = "x""#,
  #"DiskCache[.frontPage] = Data()"#,
  #"let title: String? = DiskCache[.frontPage]"#,
  #"let page: Article = DiskCache[.frontPage]"#,
  #"DiskCache[.unknown] = Article()"#,
  #"DiskCache[.fontSize] = 1"#,
  #"Defaults[.frontPage] = Article()"#,
  #"try? Defaults.shared.set(Article(), for: DiskCache.Key<Article>.frontPage)"#,
  #"try? DiskCache.shared.set("x", for: .frontPage)"#,
  #"DiskCache.set("x", for: .frontPage)"#,
  #"DiskCache.remove(.fontSize)"#,
  #"func f() throws { let page: String? = try DiskCache.shared.get(.frontPage) }"#,
  #"_ = DiskCache.Key<Opaque>("opaque")"#,
  #"_ = DiskCache.Key<Article>("article", default: Article())"#,
  #"_ = DiskCache.Key<Article>("article", suite: "team")"#,
  #"DiskCache.set(Opaque(), forKey: "k")"#,
  #"DiskCache.set((1, 2), forKey: "k")"#,
  #"DiskCache.set(["a": 1] as [String: Any], forKey: "k")"#,
  #"DiskCache.set(1, forKey: "k", cache: team)"#,
  #"DiskCache.set(1, forKey: "k", suite: "team")"#,
  #"DiskCache.set(1, forKey: "k", access: .whenUnlocked)"#,
  #"DiskCache.set(1, forKey: "k", expiry: 5)"#,
  #"DiskCache.set(1, forKey: "k", expiry: Date())"#,
  #"DiskCache.set(1, forKey: "k", expiry: .after(5))"#,
  #"DiskCache.set(1, forKey: "k", expiry: .idle(.never))"#,
  #"DiskCache.set(1, forKey: "k", expiry: .idle(.date(.now)))"#,
  #"DiskCache.set(1, forKey: "k", expiry: .idle(.idle(.days(1))))"#,
  #"DiskCache.set(1, forKey: "k", expiry: .idle(60))"#,
  #"let a: Article? = DiskCache.get("k")"#,
  #"let a: Article = DiskCache.model("k")"#,
  #"let a = DiskCache.model("k")"#,
  #"let d: Data = DiskCache.get("k")"#,
  #"let a: Article = DiskCache.get(.frontPage)"#,
  #"let a: Data? = DiskCache.get(.frontPage)"#,
  #"try? SecureVault.shared.removeRecovery()"#,
  #"try? SecureVault.shared.removeRecovery(nil)"#,
  #"DiskCache.totalSize = 0"#,
  #"DiskCache.shared.statistics.hits = 0"#,
  #"DiskCache.shared.statistics = .init()"#,
  #"DiskCache.named("x").totalSize = 0"#,
  #"DiskCache.shared.removeAll()"#,
  #"let size = DiskCache.shared.totalSize"#,
  #"_ = DiskCache()"#,
  #"_ = DiskCache.Store()"#,
  #"func f() async throws { let a: Article = await DiskCache.fetch("k") { Article() } }"#,
  #"func f() async throws { let a: Article = try DiskCache.fetch("k") { Article() } }"#,
  #"func f() async throws { let a: Article = try await DiskCache.fetch("k") { "x" } }"#,
  #"func f() async throws { let a: String = try await DiskCache.fetch(.frontPage) { "x" } }"#,
  #"func f() async throws { let a = try await DiskCache.fetch(.frontPage) { "x" } }"#,
  #"func f() async throws { let a = try await DiskCache.shared.fetch(.frontPage) { "x" } }"#,
  #"func f() async throws { let a = try await DiskCache.fetch(.fontSize) { 1 } }"#,
  #"func f() async throws { _ = try await DiskCache.fetch("k") { Opaque() } }"#,
  #"func f() async throws { _ = try await DiskCache.shared.perform { $0.keys() } }"#,
  #"func f() async throws { try await DiskCache.shared.perform { _ in downloads += 1 } }"#,
  #"func f() async { try? await cache.set(chunks: [Data()], forKey: "k") }"#,
  #"func f(_ s: AsyncStream<Int>) async { try? await cache.set(chunks: s, forKey: "k") }"#,
  #"func f(_ s: AsyncStream<Data>) { try? cache.set(chunks: s, forKey: "k") }"#,
  #"SecureVault[.sealed] = "x""#,
  #"SecureVault[.sealed] = Data()"#,
  #"let title: String? = SecureVault[.sealed]"#,
  #"let page: Article = SecureVault[.sealed]"#,
  #"SecureVault[.unknown] = Article()"#,
  #"SecureVault[.frontPage] = Article()"#,
  #"SecureVault[.fontSize] = 1"#,
  #"DiskCache[.sealed] = Article()"#,
  #"try? SecureVault.shared.set("x", for: .sealed)"#,
  #"SecureVault.set("x", for: .sealed)"#,
  #"SecureVault.remove(.frontPage)"#,
  #"let title: String? = SecureVault.get(.sealed)"#,
  #"func f() throws { let title: String? = try SecureVault.shared.get(.sealed) }"#,
  #"try? SecureVault.shared.set(Article(), for: .frontPage)"#,
  #"_ = SecureVault.Key<Opaque>("opaque")"#,
  #"_ = SecureVault.Key("key")"#,
  #"_ = SecureVault.Key<Article>("article", default: Article())"#,
  #"_ = SecureVault.Key<Article>("article", expiry: .days(1))"#,
  #"_ = SecureVault.Key<Article>("article", service: news)"#,
  #"SecureVault.set(Opaque(), forKey: "k")"#,
  #"SecureVault.set((1, 2), forKey: "k")"#,
  #"SecureVault.set(["a": 1] as [String: Any], forKey: "k")"#,
  #"SecureVault.set("x", "k")"#,
  #"SecureVault.set("x", forKey: .sealed)"#,
  #"SecureVault.set("x", forKey: "k", service: .memory)"#,
  #"SecureVault.set("x", forKey: "k", service: news)"#,
  #"SecureVault.set("x", forKey: "k", service: 3)"#,
  #"SecureVault.set("x", forKey: "k", cache: "news")"#,
  #"SecureVault.set("x", forKey: "k", expiry: .days(1))"#,
  #"SecureVault.set("x", forKey: "k", access: true)"#,
  #"SecureVault.set("x", forKey: "k", access: .biometry)"#,
  #"DiskCache.set("x", forKey: "k", cache: SecureVault.defaultService)"#,
  #"SecureVault.defaultService = team"#,
  #"let token: String = SecureVault.get("k")"#,
  #"let token: Data? = SecureVault.get("k")"#,
  #"let token: Article? = SecureVault.get("k")"#,
  #"let token = SecureVault.get("k", service: "auth", reason: "Sign")"#,
  #"let page = SecureVault.model("k")"#,
  #"let size = try? SecureVault.shared.entry("k")?.size"#,
  #"_ = SecureVault.protect(.keyFile)"#,
  #"_ = SecureVault.protect(with: "passphrase")"#,
  #"_ = SecureVault.protect(with: .passphrase)"#,
  #"_ = SecureVault.protect(with: .closure { Data() })"#,
  #"_ = SecureVault.protect(with: .closure("server") { "key" })"#,
  #"_ = SecureVault.protect(with: SecureVault.Protection.keyFile)"#,
  #"_ = SecureVault.unlock("passphrase")"#,
  #"SecureVault.isLocked = false"#,
  #"SecureVault.protection = .keyFile"#,
  #"SecureVault.shared.lock()"#,
  #"SecureVault.shared.set("x", forKey: "k")"#,
  #"let isLocked = SecureVault.shared.isLocked"#,
  #"_ = SecureVault()"#,
  #"_ = SecureVault.Store()"#,
  #"let bytes: RawSpan? = SecureVault.withSecret("k") { $0 }"#,
  #"SecureVault.withSecret("k") { _ in throw CancellationError() }"#,
  #"try? SecureVault.withSecret("k") { (bytes: String) in print(bytes) }"#,
  #"func f() async { await SecureVault.withSecret("k") { _ in await Task.yield() } }"#,
  #"_ = try? SecureVault.askTerminal("Unlock")"#,
  #"try? StorageSystem.bootstrap(app: "a", keySources: .keyFile)"#,
  #"try? StorageSystem.bootstrap(app: "a", authenticate: { _ in 3 })"#,
  #"try? StorageSystem.bootstrap(app: "a", authenticate: { _ in "\(downloads)" })"#,
]

/// Statements that must not compile because secret bytes outlive their closure.
private let escapingStatements = [
  #"var kept: RawSpan?; SecureVault.withSecret("k") { kept = $0 }; _ = kept"#,
  #"var kept = RawSpan(); try? SecureVault.shared.withSecret("k") { kept = $0 }; _ = kept"#,
]

/// The package Tests/Clients.
private enum ClientPackage {
  static let programs = [
    "Swift5", "Swift6MainActor", "Swift6Sendable", "Swift6DefaultMainActor", "ModelsUser",
  ]

  private static let path = Repository.file("Tests/Clients").path
  /// Not `.build`, which SwiftPM locks while tests run.
  private static let scratch = Repository.file(".build-clients")

  struct Build {
    let status: Int32
    let output: String
    /// The compiler's warnings and errors in the clients, without those in the library.
    let diagnostics: [Substring]
  }

  /// Builds all programs, once in a test run.
  static let build = Task {
    let result = try await Command.run(
      ["swift", "build", "--package-path", path, "--scratch-path", scratch.path])
    let diagnostics = result.output.split(separator: "\n").filter {
      $0.hasPrefix(path) && ($0.contains(": warning:") || $0.contains(": error:"))
    }
    return Build(status: result.status, output: result.output, diagnostics: diagnostics)
  }

  /// Runs a program with its own directories.
  static func run(_ program: String) async throws -> (status: Int32, output: String) {
    let directory = try TemporaryDirectory()
    return try await Command.run(
      [scratch.appending(path: "debug/\(program)").path],
      environment: [
        "XDG_CONFIG_HOME": directory.path + "/config", "CONFIGURATION_DIRECTORY": "",
        "XDG_CACHE_HOME": directory.path + "/cache", "CACHE_DIRECTORY": "",
        "XDG_DATA_HOME": directory.path + "/data", "XDG_STATE_HOME": directory.path + "/state",
        "STATE_DIRECTORY": "", "CREDENTIALS_DIRECTORY": "",
      ])
  }
}
