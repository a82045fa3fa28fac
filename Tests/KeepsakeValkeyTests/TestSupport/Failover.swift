import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// A primary, a replica of it, and an address that leads to one of them.
final class Failover: Sendable {
  let primary: TestServer
  let replica: TestServer
  /// What clients connect to.
  let front: Forwarder
  /// Between the primary and the replica.
  let replication: Forwarder

  init(_ arguments: [String] = []) throws {
    let arguments = ["--repl-diskless-sync-delay", "0"] + arguments
    primary = try TestServer(arguments)
    replica = try TestServer(arguments)
    front = try Forwarder(to: primary.socketPath)
    replication = try Forwarder(to: primary.socketPath, usesPort: true)
    try replica.follow(replication)
    try primary.waitForReplica()
  }

  deinit {
    front.end()
    replication.end()
  }

  /// A process that reaches the server through ``front``.
  func client(
    confirm confirmation: ValkeyBacking.Confirmation = .primary
  ) -> TestClient {
    TestClient(primary, confirm: confirmation) { $0 = front.address }
  }

  /// Waits until the replica has what the primary has now.
  func waitUntilReplicated() throws {
    let version = try primary.version()
    try waitUntil("the replica does not follow") { try replica.version() == version }
  }

  /// Kills the primary as `kill -9` does, and lets the replica take its place.
  func failOver() throws {
    primary.kill()
    try promote()
    front.forward(to: replica.socketPath)
  }

  /// Makes the replica a primary, beside the old one.
  func promote() throws {
    replication.cut()
    try replica.command("REPLICAOF", "NO", "ONE")
  }

  /// Makes the old primary a replica of the new one.
  ///
  /// - Returns: What is between them.
  func demotePrimary() throws -> Forwarder {
    let back = try Forwarder(to: replica.socketPath, usesPort: true)
    try primary.follow(back)
    return back
  }

  /// Writes on three threads without pause. Meanwhile the replica begins to lag, and then takes the
  /// place of the primary.
  ///
  /// - Parameter write: Stores a value under a key, on the thread of that number.
  /// - Returns: The values of the writes that returned, by key, and the errors of all others.
  func failOver(
    during write: @escaping @Sendable (Int, _ key: String, _ value: String) throws -> Void
  ) -> (stored: [String: String], failed: [StorageError]) {
    let (stored, failed, isOver) = (Recorder<String>(), Recorder<StorageError>(), Flag())
    onThreads(4) { thread in
      if thread == 3 {
        stored.waitForCount(60, "nothing was stored")
        self.replication.hold(.toClient)
        failed.waitForCount(failed.count + 6, "no write failed")
        do {
          try self.failOver()
        } catch {
          Issue.record(error)
        }
        isOver.value = true
        return
      }
      var number = 0
      while !isOver.value {
        number += 1
        do {
          try write(thread, "\(thread).\(number)", "\(number)")
          stored.append("\(thread).\(number)")
        } catch let error as StorageError {
          failed.append(error)
        } catch {
          Issue.record(error)
        }
      }
    }
    #expect(stored.count >= 60 && failed.count >= 6)
    let values = stored.all.map { ($0, String($0.split(separator: ".")[1])) }
    return (Dictionary(uniqueKeysWithValues: values), failed.all)
  }
}

extension TestServer {
  /// Makes it a replica of the server behind a forwarder.
  func follow(_ forwarder: Forwarder) throws {
    try command("REPLICAOF", "127.0.0.1", "\(forwarder.port)")
  }

  /// Waits until a replica gets what is written. It may still have to load the data of before.
  func waitForReplica() throws {
    try waitUntil("the replica has no connection") {
      try command("INFO", "replication").text?.contains("state=online") == true
    }
  }

  /// The version of the table of ``TestClient``.
  func version() throws -> String? { try command("HGET", "keepsake:{app:suite}:s", "n").text }

  /// The values of the table of ``TestClient``.
  func values() throws -> [String: String] {
    guard case .array(let fields) = try command("HGETALL", "keepsake:{app:suite}:v")
    else { return [:] }
    var values: [String: String] = [:]
    for index in stride(from: 0, to: fields.count, by: 2) {
      // The marker of the table is not text.
      if fields[index] == .bytes([0xFF]) { continue }
      values[fields[index].text ?? ""] = fields[index + 1].text
    }
    return values
  }
}

extension TestClient {
  /// Expects the mirror to become equal to what a server has.
  func expectEventuallyEqual(
    to server: TestServer, sourceLocation: SourceLocation = #_sourceLocation
  ) {
    waitUntil("the mirror differs from the server", sourceLocation: sourceLocation) {
      guard let values = try? server.values() else { return false }
      return (try? all()) == values
    }
  }
}
