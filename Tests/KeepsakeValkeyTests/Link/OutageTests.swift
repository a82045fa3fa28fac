import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What happens while a real server is away, and afterwards.
@Suite(.server, .threadPerTest) struct OutageTests {
  private let server: TestServer

  init() throws { server = try TestServer() }

  /// Expects requests to succeed again.
  private func waitUntilReachable(
    _ link: Link, sourceLocation: SourceLocation = #_sourceLocation
  ) {
    waitUntil("the server was not reached again", sourceLocation: sourceLocation) {
      (try? link.perform(Command("PING")).text) == "PONG"
    }
  }

  @Test func nothingListens() throws {
    server.kill()
    let link = server.link(options: .quick)
    for _ in 0..<3 {
      expectFailure(.unreachable, reason: "no connection can be made (connect: ") {
        _ = try link.perform(Command("PING"))
      }
    }
    try server.start()
    waitUntilReachable(link)
  }

  @Test(arguments: [
    ("unix:/nonexistent/keepsake/s", "connect: No such file"),
    // RFC 2606 reserves the name.
    ("valkey://keepsake.invalid", "cannot be resolved"),
  ])
  func addressLeadsNowhere(_ url: String, _ reason: String) throws {
    let link = Link(try ServerAddress(url).patient)
    expectFailure(.unreachable, reason: reason) { _ = try link.perform(Command("PING")) }
  }

  /// Threads that never stop asking see errors of two codes, and then replies again.
  @Test func busyThreadsSurviveAKill() throws {
    let link = server.link(options: .quick)
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

  @Test func idleConnectionStays() throws {
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
      let link = server.link(options: .quick) { $0.password = password }
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
    try server.command("ACL", "SETUSER", "ann", "on", ">pässwörd", "~allowed:*", "+get", "+ping")
    let link = server.link { $0.logIn(as: "ann", "pässwörd") }
    #expect(try link.perform(Command("GET", "allowed:k")) == .null)
    expectFailure(.accessDenied, reason: "may not use") {
      _ = try link.perform(Command("GET", "other"))
    }
    expectFailure(.accessDenied, reason: "may not use") {
      _ = try link.perform(Command("SET", "allowed:k", "v"))
    }
    let stranger = server.link(options: .quick) { $0.logIn(as: "bob", "pässwörd") }
    expectFailure(.accessDenied, reason: "refused the user or the password") {
      _ = try stranger.perform(Command("PING"))
    }
  }

  @Test func passwordOfTheCallerMayBeMissing() throws {
    struct Unreadable: Error {}
    var options = LinkOptions.quick
    options.password = { throw Unreadable() }
    let link = server.link(options: options)
    expectFailure(.accessDenied, reason: "password for the server cannot be read") {
      _ = try link.perform(Command("PING"))
    }
    let userOnly = server.link(options: .quick) { $0.user = "ann" }
    expectFailure(.misuse, reason: "a user without a password") {
      _ = try userOnly.perform(Command("PING"))
    }
  }

  /// A server that became a replica refuses a write, and the link looks for the primary.
  @Test func replicaIsLeft() throws {
    let events = Recorder<String>()
    let link = server.link(
      options: .quick,
      handlers: LinkHandlers(onDisconnect: { events.append($0.reason ?? "") }))
    let administrator = server.link()
    #expect(try link.perform(Command("SET", "k", "v")).text == "OK")
    _ = try administrator.perform(Command("REPLICAOF", "127.0.0.1", "1"))
    expectFailure(.unreachable, reason: "replica") {
      _ = try link.perform(Command("SET", "k", "w"))
    }
    events.waitForCount(1, "the replica was not left")
    let script = Script("return redis.call('SET', KEYS[1], 'w')")
    waitForFailure(.unreachable, reason: "READONLY") {
      _ = try script.run(on: link, Script.Arguments(keys: ["k"]))
    }
    _ = try administrator.perform(Command("REPLICAOF", "NO", "ONE"))
    waitUntil("the primary was not reached") {
      (try? link.perform(Command("SET", "k", "x")).text) == "OK"
    }
  }
}
