import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What happens while a real server is away, and afterwards.
@Suite(.server, .threadPerTest) struct OutageTests {
  private func quickOptions() -> LinkOptions {
    var options = LinkOptions()
    options.minimumBackoff = .milliseconds(5)
    options.maximumBackoff = .milliseconds(50)
    return options
  }

  /// Expects requests to succeed again.
  private func waitUntilReachable(
    _ link: Link, sourceLocation: SourceLocation = #_sourceLocation
  ) {
    waitUntil("the server was not reached again", sourceLocation: sourceLocation) {
      (try? link.perform(Command("PING")).text) == "PONG"
    }
  }

  @Test func nothingListens() throws {
    let server = try TestServer()
    server.kill()
    let link = server.link(options: quickOptions())
    for _ in 0..<3 {
      expectFailure(.unreachable, reason: "no connection can be made (connect: ") {
        _ = try link.perform(Command("PING"))
      }
    }
    try server.start()
    waitUntilReachable(link)
  }

  @Test func directoryOfTheSocketIsMissing() throws {
    let link = Link(
      try ServerAddress("unix:/nonexistent/keepsake/s?timeout=60s&connect-timeout=60s"))
    expectFailure(.unreachable, reason: "connect: No such file") {
      _ = try link.perform(Command("PING"))
    }
  }

  @Test func hostHasNoAddress() throws {
    // RFC 2606 reserves the name.
    let link = Link(try ServerAddress("valkey://keepsake.invalid?timeout=60s&connect-timeout=60s"))
    expectFailure(.unreachable, reason: "cannot be resolved") {
      _ = try link.perform(Command("PING"))
    }
  }

  /// Killed with `kill -9` and restarted, several times.
  @Test func killedServerIsReachedAgain() throws {
    let server = try TestServer()
    let link = server.link(options: quickOptions())
    #expect(try link.perform(Command("PING")).text == "PONG")
    for _ in 0..<3 {
      server.kill()
      // It was idle, so that nothing can have been sent.
      waitUntil("the loss was not noticed") {
        do {
          _ = try link.perform(Command("SET", "k", "v"))
          return false
        } catch {
          return (error as? StorageError)?.code == .unreachable
        }
      }
      try server.start()
      waitUntilReachable(link)
      #expect(try link.perform(Command("GET", "k")) == .null)
      #expect(try link.perform(Command("SET", "k", "v")).text == "OK")
    }
  }

  /// Threads that never stop asking see errors of two codes, and then replies again.
  @Test func busyThreadsSurviveAKill() throws {
    let server = try TestServer()
    let link = server.link(options: quickOptions())
    _ = try link.perform(Command("PING"))
    let codes = Locked<Set<StorageError.Code>>([])
    let (early, wrong) = (Recorder<Int>(), Recorder<String>())
    let (isNoticed, isOver) = (Flag(), Flag())
    onThreads(5) { thread in
      if thread == 0 {
        // After that, all others are in the middle of requests.
        early.waitForCount(4, "there were no replies")
        server.kill()
        isNoticed.wait("the outage was not noticed")
        try? server.start()
        isOver.value = true
        return
      }
      // Until the outage is over, and after that 100 replies. It may run at no time during it.
      var (replies, number) = (0, 0)
      while replies < 100 {
        number += 1
        do {
          let text = try link.perform(Command("ECHO", "\(thread).\(number)")).text
          if text != "\(thread).\(number)" { wrong.append(text ?? "nil") }
          if number % 100 == 0 { early.append(thread) }
          if isOver.value { replies += 1 }
        } catch {
          codes.withLock { _ = $0.insert((error as? StorageError)?.code ?? .misuse) }
          isNoticed.value = true
        }
      }
    }
    #expect(wrong.all == [])
    #expect(codes.withLock { $0 }.isSubset(of: [.unreachable, .outcomeUnknown]))
  }

  /// The first request waits for the timeout, and later ones fail at once.
  @Test func frozenServer() throws {
    let server = try TestServer()
    var options = quickOptions()
    options.keepAlive = .seconds(600)
    // The attempt to connect again goes on until the end of the test.
    let link = server.link(options: options) {
      $0.requestTimeout = .milliseconds(500)
      $0.connectTimeout = .seconds(600)
    }
    waitUntilReachable(link)
    server.freeze()
    expectFailure(.outcomeUnknown, reason: "did not answer within 0.5 seconds") {
      _ = try link.perform(Command("SET", "k", "v"))
    }
    // Each has the reason of the first one. A request that waits for a connection has another one.
    for _ in 0..<200 {
      expectFailure(.unreachable, reason: "did not answer within 0.5 seconds") {
        _ = try link.perform(Command("SET", "k", "v"))
      }
    }
    server.unfreeze()
    waitUntilReachable(link)
  }

  /// A frozen server is noticed although nothing is asked.
  @Test func frozenServerIsNoticedWhileIdle() throws {
    let server = try TestServer()
    let events = Recorder<String>()
    var options = quickOptions()
    options.keepAlive = .milliseconds(50)
    let handlers = LinkHandlers(
      onConnect: { events.append("connected") },
      onDisconnect: { events.append("\($0.code): \($0.reason ?? "")") })
    let link = server.link(options: options, handlers: handlers) {
      $0.requestTimeout = .milliseconds(500)
      $0.connectTimeout = .milliseconds(500)
    }
    try link.connect()
    events.waitForCount(1, "there was no connection")
    server.freeze()
    waitUntil("the server's state was not noticed") {
      events.all.last?.hasPrefix("unreachable") == true
    }
    server.unfreeze()
    waitUntil("there was no other connection") { events.all.last == "connected" }
    // A busy machine may freeze it again.
    #expect(
      Set(events.all) == [
        "connected", "unreachable: the server did not answer within 0.5 seconds",
      ])
  }

  @Test func idleConnectionStays() throws {
    let server = try TestServer()
    var options = LinkOptions()
    options.keepAlive = .milliseconds(5)
    let link = server.link(options: options)
    let observer = server.link()
    let identifier = try link.perform(Command("CLIENT", "ID"))
    let pings = #/cmdstat_ping:calls=(\d+)/#
    try waitUntil("there was no sign of life") {
      let text = try observer.perform(Command("INFO", "commandstats")).text ?? ""
      return text.firstMatch(of: pings).flatMap { Int($0.output.1) } ?? 0 > 20
    }
    #expect(try link.perform(Command("CLIENT", "ID")) == identifier)
  }

  /// The server ends the connection between two requests: neither fails.
  @Test func cutConnectionIsReplaced() throws {
    let server = try TestServer()
    let events = Recorder<String>()
    // Not noticed because a timeout has ended, either.
    let link = server.link(
      handlers: LinkHandlers(onDisconnect: { _ in events.append("disconnected") })
    ) { $0.requestTimeout = .seconds(600) }
    let observer = server.link()
    for number in 1...5 {
      let identifier = try link.perform(Command("CLIENT", "ID"))
      guard case .integer(let client) = identifier else {
        Issue.record("the server did not say the client's number")
        return
      }
      let kill = try observer.perform(Command("CLIENT", "KILL", "ID", "\(client)"))
      #expect(kill == .integer(1))
      events.waitForCount(number, "the cut was not noticed")
      #expect(events.count == number)
      // Cut again and again, the link waits between attempts.
      waitUntilReachable(link)
      #expect(try link.perform(Command("CLIENT", "ID")) != identifier)
    }
  }

  // MARK: Refusals

  @Test func wrongPasswordIsRefused() throws {
    let server = try TestServer(["--requirepass", "right"])
    for password in ["wrong", nil, "", "hunter2"] {
      let link = server.link(options: quickOptions()) { $0.password = password }
      for _ in 0..<2 {
        let error = #expect(throws: StorageError.self) { _ = try link.perform(Command("PING")) }
        #expect(error?.code == .accessDenied)
        if let password, !password.isEmpty {
          #expect(!"\(String(describing: error))".contains(password))
        }
      }
    }
    #expect(try server.link { $0.password = "right" }.perform(Command("PING")).text == "PONG")
    var options = LinkOptions()
    options.password = { "right" }
    #expect(try server.link(options: options).perform(Command("PING")).text == "PONG")
  }

  @Test func usersLogIn() throws {
    let server = try TestServer()
    let administrator = server.link()
    var command = Command("ACL", "SETUSER", "ann", "on", ">pässwörd")
    for rule in ["~allowed:*", "+get", "+ping"] { command.append(rule) }
    _ = try administrator.perform(command)
    let link = server.link {
      $0.user = "ann"
      $0.password = "pässwörd"
    }
    #expect(try link.perform(Command("GET", "allowed:k")) == .null)
    expectFailure(.accessDenied, reason: "may not use") {
      _ = try link.perform(Command("GET", "other"))
    }
    expectFailure(.accessDenied, reason: "may not use") {
      _ = try link.perform(Command("SET", "allowed:k", "v"))
    }
    let stranger = server.link(options: quickOptions()) {
      $0.user = "bob"
      $0.password = "pässwörd"
    }
    expectFailure(.accessDenied, reason: "refused the user or the password") {
      _ = try stranger.perform(Command("PING"))
    }
  }

  @Test func passwordOfTheCallerMayBeMissing() throws {
    struct Unreadable: Error {}
    var options = quickOptions()
    options.password = { throw Unreadable() }
    let link = try TestServer().link(options: options)
    expectFailure(.accessDenied, reason: "password for the server cannot be read") {
      _ = try link.perform(Command("PING"))
    }
    let userOnly = try TestServer().link(options: quickOptions()) { $0.user = "ann" }
    expectFailure(.misuse, reason: "a user without a password") {
      _ = try userOnly.perform(Command("PING"))
    }
  }

  @Test func fullServerRefusesWrites() throws {
    let server = try TestServer(["--maxmemory-policy", "noeviction"])
    let link = server.link()
    #expect(try link.perform(Command("SET", "k", "v")).text == "OK")
    _ = try link.perform(Command("CONFIG", "SET", "maxmemory", "1"))
    expectFailure(.diskFull, reason: "memory is full") {
      _ = try link.perform(Command("SET", "k", "w"))
    }
    let script = Script("return redis.call('SET', KEYS[1], 'w')")
    expectFailure(.diskFull, reason: "memory is full") {
      _ = try script.run(on: link, Script.Arguments(keys: ["k"]))
    }
    #expect(try link.perform(Command("GET", "k")).text == "v")
    _ = try link.perform(Command("CONFIG", "SET", "maxmemory", "0"))
    #expect(try link.perform(Command("SET", "k", "w")).text == "OK")
  }

  /// A server that became a replica refuses a write, and the link looks for the primary.
  @Test func replicaIsLeft() throws {
    let server = try TestServer()
    let events = Recorder<String>()
    let link = server.link(
      options: quickOptions(),
      handlers: LinkHandlers(onDisconnect: { events.append($0.reason ?? "") }))
    let administrator = server.link()
    #expect(try link.perform(Command("SET", "k", "v")).text == "OK")
    _ = try administrator.perform(Command("REPLICAOF", "127.0.0.1", "1"))
    expectFailure(.unreachable, reason: "replica") {
      _ = try link.perform(Command("SET", "k", "w"))
    }
    events.waitForCount(1, "the replica was not left")
    let script = Script("return redis.call('SET', KEYS[1], 'w')")
    waitUntil("the replica was not reached again") {
      do {
        _ = try script.run(on: link, Script.Arguments(keys: ["k"]))
        return false
      } catch {
        return (error as? StorageError)?.reason?.contains("READONLY") == true
      }
    }
    _ = try administrator.perform(Command("REPLICAOF", "NO", "ONE"))
    waitUntil("the primary was not reached") {
      (try? link.perform(Command("SET", "k", "x")).text) == "OK"
    }
  }
}
