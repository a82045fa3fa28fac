import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// They follow each other on a thread that waits for the program.
@Suite(.singleThreaded, .multiprocess, .serialized, .ownThread, .startsFirst)
struct KeepsakectlTests {
  let directory: TemporaryDirectory
  let app = "com.example.notes"

  let inspector: Example

  init() throws {
    directory = try TemporaryDirectory(isQuick: true)
    inspector = Example("keepsakectl", in: directory)
  }

  // MARK: Running it

  func run(
    _ arguments: String..., input: String? = nil, environment changes: [String: String] = [:]
  ) throws -> Example.Run {
    try inspector.run(arguments, input: input, environment: changes)
  }

  /// Runs it at a terminal, with all standard streams, and answers its questions.
  func type(
    _ arguments: String..., columns: UInt16 = 80,
    answers: [(prompt: String, line: String)] = [], environment changes: [String: String] = [:]
  ) throws -> Example.Run {
    try inspector.type(
      arguments, answers: answers, columns: columns, showsOutput: true, environment: changes)
  }

  /// Expects that it fails with one line on standard error.
  func expectFailure(
    _ status: Int32, _ message: String, _ arguments: String...,
    sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let run = try inspector.run(arguments)
    #expect(run.failed(status, message), "\(run)", sourceLocation: sourceLocation)
    #expect(run.errors.split(separator: "\n").count == 1, sourceLocation: sourceLocation)
  }

  // MARK: Test data

  /// The stores of an app, in the directories where the program finds them.
  func stores(
    of app: String? = nil, on machine: Example? = nil, environment changes: [String: String] = [:],
    vaultOptions: VaultOptions = VaultOptions(), failures: Failures? = nil
  ) -> StorageScope {
    let variables = (machine ?? inspector).environment.merging(changes) { $1 }
    return StorageScope(
      finder: DirectoryFinder(app: app ?? self.app, environment: { variables[$0] }),
      vaultOptions: vaultOptions, handler: failures?.append)
  }

  /// Makes a vault whose secret `pin` is `7734`. Its passphrase takes little time.
  func makeVault(passphrase: String) throws {
    let scope = stores()
    defer { scope.close() }
    try scope.vault(.standard).set("7734", forKey: "pin")
    try scope.vault(.standard).protect(with: .passphrase(passphrase, logN: 10))
  }

  func fill() throws {
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

  func path(_ name: String) -> String { "\(directory.path)/\(name)" }
  var keyFile: String { path("state/\(app)/vault.key") }
  var journal: String { path("config/\(app)/standard.jsonl") }
  var header: String { path("data/\(app)/vault/vault.hdr") }

  func payload(_ key: String) throws -> String {
    let scope = stores()
    defer { scope.close() }
    return try #require(try scope.cache("Images").fileURL(key)).path
  }

  /// The file of the secret `pin`.
  func pinFile() throws -> String {
    let scope = stores()
    defer { scope.close() }
    let session = try #require(try scope.vault(.standard).vault.currentSession())
    return try session.entryPath(service: "standard", key: "pin").path
  }

  func flipBit(of path: String, at position: Int) throws {
    let byte = try Bytes.read(path)[position]
    try Bytes.write(byte ^ 1, at: position, of: path)
  }
}
