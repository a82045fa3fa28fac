import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What is asked of a server, and what a hostile one may answer.
@Suite(.threadPerTest) struct ServerTests {
  /// Whatever a caller asks for, the server waits at least a millisecond and at most an hour: zero
  /// would mean without end.
  @Test(
    arguments: [
      (.seconds(Int64.max), "3600000"), (.seconds(7_200), "3600000"), (.seconds(2), "2000"),
      (.microseconds(1), "1"), (.zero, "1"), (.seconds(Int64.min), "1"),
    ] as [(Duration, String)])
  func waitForReplicasIsBounded(_ timeout: Duration, _ milliseconds: String) throws {
    let waits = Recorder<[String]>()
    let fake = try FakeServer { connection, _ in
      while let words = connection.command() {
        if words.first == "WAIT" { waits.append(words) }
        connection.send(":1\r\n")
      }
    }
    defer { withExtendedLifetime(fake) {} }
    let server = Server(fake.address, confirm: .replicas(1, timeout: timeout))
    let (reply, failure) = try server.run(Script("return 1"), Script.Arguments(keys: []))
    #expect(reply == .integer(1) && failure == nil)
    #expect(waits.all == [["WAIT", "1", milliseconds]])
  }

  @Test func refusedWaitForReplicasSaysWhy() throws {
    let fake = try FakeServer { connection, _ in
      while let words = connection.command() {
        connection.send(words[0] == "WAIT" ? "-NOPERM no permissions\r\n" : ":1\r\n")
      }
    }
    defer { withExtendedLifetime(fake) {} }
    let server = Server(fake.address, confirm: .replicas(1))
    let (_, failure) = try server.run(Script("return 1"), Script.Arguments(keys: []))
    #expect(failure?.code == .outcomeUnknown)
    #expect(failure?.reason?.contains("may not use this command") == true)
    #expect(failure?.remedy.contains("ACL SETUSER") == true)
  }

  /// Other calls go on waiting while the server waits for its replicas, longer than their timeout.
  @Test func callsWaitBehindAConfirmation() throws {
    // On a busy machine, the other call may expire before the link knows that the server waits.
    try waitUntil("the other call did not wait") {
      try resultsOfACallBehindAConfirmation() == ["confirmed: true", "reply: other"]
    }
  }

  private func resultsOfACallBehindAConfirmation() throws -> [String] {
    let isWaiting = Flag()
    let fake = try FakeServer { connection, _ in
      while let words = connection.command() {
        guard words[0] == "WAIT" else {
          connection.send(":1\r\n")
          continue
        }
        isWaiting.value = true
        _ = connection.command()
        // Longer than the timeout of that command, which began before.
        letTimePass(.milliseconds(200))
        // At once, so that its time does not begin again before its reply is there.
        connection.send(":1\r\n+other\r\n")
      }
    }
    defer { withExtendedLifetime(fake) {} }
    let server = Server(fake.address, confirm: .replicas(1, timeout: .seconds(60)))
    let results = Recorder<String>()
    onThreads(2) { thread in
      do {
        if thread == 0 {
          let result = try server.run(Script("return 1"), Script.Arguments(keys: []))
          results.append("confirmed: \(result.failure == nil)")
        } else {
          isWaiting.wait("there was no wait for replicas")
          let other = try server.link.perform(Command("ECHO"), timeout: .milliseconds(50))
          results.append("reply: \(other.text ?? "")")
        }
      } catch {
        results.append("\(error)")
      }
    }
    return results.all.sorted()
  }

  /// A server that does not even run the script is noticed after the timeout of any call, although
  /// the wait for replicas would be longer.
  @Test func silentServerIsNoticedBeforeTheReplicasAreDue() throws {
    let (isSilent, isSent) = (Flag(), Flag())
    let fake = try FakeServer(greets: false) { connection, _ in
      while let words = connection.command() {
        if !isSilent.value { connection.send("+OK\r\n") }
        if words[0] == "WAIT" { isSent.value = true }
      }
    }
    defer { withExtendedLifetime(fake) {} }
    var address = fake.address
    address.requestTimeout = .milliseconds(300)
    var options = LinkOptions()
    options.keepAlive = .seconds(600)
    let server = Server(
      address, options: options, confirm: .replicas(1, timeout: .seconds(60)))
    waitUntil("there was no connection") { (try? server.link.perform(Command("PING"))) != nil }
    isSilent.value = true
    let codes = Recorder<StorageError.Code?>()
    onThreads(2) { thread in
      if thread == 0 {
        _ = try? server.run(Script("return 1"), Script.Arguments(keys: []))
        return
      }
      isSent.wait("the script was not sent")
      for _ in 0..<2 {
        do {
          _ = try server.link.perform(Command("SET", "k", "v"))
          codes.append(nil)
        } catch {
          codes.append((error as? StorageError)?.code)
        }
      }
    }
    // The first one may be sent before that. The second one fails at once.
    #expect(codes.all.count == 2 && codes.all.last == .unreachable)
  }

  /// A snapshot that is too large to receive is not asked for at once on the connection after the
  /// one that it has ended: the link has time to ask for signs of life.
  @Test func tooLargeSnapshotIsNotAskedForAtOnce() throws {
    let pingCounts = Recorder<Int>()
    let fake = try FakeServer { connection, _ in
      var pingCount = 0
      while let words = connection.command() {
        switch words[0] {
        case "PING":
          pingCount += 1
          connection.send("+PONG\r\n")
        case "SUBSCRIBE":
          let channel = words[1]
          connection.send(
            "*3\r\n$9\r\nsubscribe\r\n$\(channel.utf8.count)\r\n\(channel)\r\n:1\r\n")
        case "EVALSHA":
          pingCounts.append(pingCount)
          connection.send("$1000\r\n")
        default: connection.send("+OK\r\n")
        }
      }
    }
    defer { withExtendedLifetime(fake) {} }
    var options = LinkOptions.quick
    options.maximumReplySize = 500
    options.keepAlive = .milliseconds(10)
    let table = SettingsTable(
      TableName(app: "app", suite: "suite"), on: Server(fake.address, options: options),
      cache: DiskCache.named(.memory), report: { _ in })
    let mirror = StorageEngines.Mirror(table, report: { _ in })
    expectFailure(.engineFailed, reason: "larger than 500 bytes") { _ = try mirror.keys() }
    // The time before the next one doubles, so that even a busy machine is quick enough at last.
    waitUntil("the snapshot was not asked for again") {
      pingCounts.all.dropFirst().contains { $0 > 20 } || pingCounts.count == 10
    }
    #expect(pingCounts.all.dropFirst().contains { $0 > 20 }, "\(pingCounts.all)")
    waitUntil("there was no other connection") { fake.connectionCount > 4 }
  }

  /// The server writes its data to the disk, and that is not what this process knows.
  @Test(arguments: [(-1, .notFound), (-2, .unsupportedVersion)] as [(Int, StorageError.Code)])
  func synchronizeNoticesALoss(_ result: Int, _ code: StorageError.Code) throws {
    let ids = Recorder<String>()
    let fake = try FakeServer { connection, _ in
      while let words = connection.command() {
        switch words[0] {
        case "SUBSCRIBE":
          let channel = words[1]
          connection.send(
            "*3\r\n$9\r\nsubscribe\r\n$\(channel.utf8.count)\r\n\(channel)\r\n:1\r\n")
        case "EVALSHA" where words[1] == TableScripts.snapshot.digest:
          ids.append("i\(ids.count)")
          connection.send(
            "*6\r\n:1\r\n:1\r\n$2\r\ni\(ids.count)\r\n$1\r\nc\r\n$0\r\n\r\n"
              + "*2\r\n$1\r\na\r\n$1\r\n1\r\n")
        case "EVALSHA": connection.send("*3\r\n:\(result)\r\n:0\r\n$0\r\n\r\n")
        case "WAITAOF": connection.send("*2\r\n:1\r\n:0\r\n")
        default: connection.send("+OK\r\n")
        }
      }
    }
    defer { withExtendedLifetime(fake) {} }
    let table = SettingsTable(
      TableName(app: "app", suite: "suite"), on: Server(fake.address, options: .quick),
      cache: DiskCache.named(.memory), report: { _ in })
    let mirror = StorageEngines.Mirror(table, report: { _ in })
    #expect(try mirror.keys() == ["a"])
    expectFailure(code) { try mirror.synchronize() }
    #expect(try mirror.keys() == ["a"])
  }

  /// With `appendfsync everysec`, a sync begins a second after the one before.
  @Test(arguments: [(.seconds(1), "10000"), (.seconds(60), "60000")] as [(Duration, String)])
  func synchronizeLeavesTimeForASync(_ timeout: Duration, _ milliseconds: String) throws {
    let waits = Recorder<[String]>()
    let fake = try FakeServer { connection, _ in
      while let words = connection.command() {
        if words[0] == "WAITAOF" { waits.append(words) }
        connection.send(words[0] == "WAITAOF" ? "*2\r\n:1\r\n:0\r\n" : ":1\r\n")
      }
    }
    defer { withExtendedLifetime(fake) {} }
    var address = fake.address
    address.requestTimeout = timeout
    let server = Server(address)
    let arguments = Script.Arguments(keys: [])
    waitUntil("the marker was not run") {
      (try? server.synchronize(Script("return 1"), arguments)) == .integer(1)
    }
    #expect(waits.all.last == ["WAITAOF", "1", "0", milliseconds])
  }

  /// A server whose search never comes to its end.
  @Test func endlessSearchTimesOut() throws {
    let fake = try FakeServer { connection, _ in connection.answer("*2\r\n$1\r\n7\r\n*0\r\n") }
    defer { withExtendedLifetime(fake) {} }
    let backing = ValkeyBacking(Server(fake.address))
    expectFailure(.timedOut, reason: "did not finish the search") {
      _ = try backing.suites(app: "app", timeout: .milliseconds(50))
    }
  }
}
