import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What a link needs before it can connect: addresses and the password. Both may take long.
@Suite(.threadPerTest) struct PreparationTests {
  private let channel = Array("c".utf8)

  /// Passwords that are valid for a short time: each connection has its own.
  @Test func asksForAPasswordBeforeEachConnection() throws {
    let passwords = Recorder<String>()
    let server = try FakeServer(greets: false) { connection, _ in
      guard let login = connection.command(), login.first == "AUTH" else { return }
      passwords.append(login.last ?? "")
      connection.send("+OK\r\n")
      if connection.greet() { connection.subscribe { $0 != "QUIT" } }
    }
    let count = Recorder<Int>()
    var options = LinkOptions.quick
    options.password = {
      count.append(0)
      return "token \(count.count)"
    }
    let subscribed = Recorder<Int>()
    let link = server.link(options: options)
    try link.subscribe(to: channel, ChannelHandler(onSubscribed: { subscribed.append(0) }))
    subscribed.waitForCount(1, "there was no subscription")
    expectFailure(.outcomeUnknown) { _ = try link.perform(Command("QUIT")) }
    subscribed.waitForCount(2, "there was no other subscription")
    #expect(passwords.all == (1...4).map { "token \($0)" })
  }

  /// The server refuses the password of the second connection.
  @Test func refusedSubscriptionIsTold() throws {
    let server = try FakeServer(greets: false) { connection, number in
      _ = connection.command()
      connection.send(number == 0 ? "+OK\r\n" : "-WRONGPASS no\r\n")
      if connection.greet() { connection.subscribe() }
    }
    var options = LinkOptions.quick
    options.password = { "token" }
    let errors = Recorder<StorageError>()
    let link = server.link(options: options)
    try link.subscribe(to: channel, ChannelHandler(onLost: { errors.append($0) }))
    errors.waitForCount(2, "the refusal was not told")
    #expect(Set(errors.all.map(\.code)) == [.accessDenied])
    #expect(try link.perform(Command("GET", "k")).text == "OK")
  }

  /// A resolver that does not answer: callers learn it in time, and later answers are used.
  @Test func slowResolver() throws {
    let server = try FakeServer { connection, _ in connection.subscribe() }
    let release = DispatchSemaphore(value: 0)
    defer {
      release.signal()
      withExtendedLifetime(server) {}
    }
    let calls = Recorder<Int>()
    var options = LinkOptions.quick
    let address = try #require(SocketAddress(path: server.socketPath))
    options.resolve = { _ in
      calls.append(0)
      release.wait()
      release.signal()
      return [address]
    }
    let link = server.link(options: options) { $0.connectTimeout = .milliseconds(50) }
    for _ in 0..<5 {
      expectFailure(.unreachable, reason: "address or the password was not known") {
        _ = try link.perform(Command("GET", "k"))
      }
    }
    // However many attempts fail meanwhile, one thread waits.
    let failures = Recorder<Int>()
    waitUntil("requests did not fail") {
      link.submit([Command("GET", "k")]) { _ in failures.append(0) }
      return failures.count > 20
    }
    calls.waitForCount(1, "the resolver was not asked")
    #expect(calls.count == 1)
    release.signal()
    waitUntil("the server was not reached") {
      (try? link.perform(Command("GET", "k")).text) == "OK"
    }
  }

  /// While a password is being found for the second connection, the first one is used: its
  /// completions are called and expire.
  @Test func requestsGoOnMeanwhile() throws {
    let server = try FakeServer { connection, _ in
      connection.subscribe { name in
        // No reply in time.
        if name == "DEL" { connection.waitForEnd() }
        return true
      }
    }
    let release = DispatchSemaphore(value: 0)
    let count = Recorder<Int>()
    var options = LinkOptions.quick
    options.password = {
      count.append(0)
      if count.count > 1 { release.wait() }
      return "token"
    }
    let link = try server.connectedLink(options: options)
    defer { for _ in 0..<100 { release.signal() } }
    let subscribed = Flag()
    try link.subscribe(to: channel, ChannelHandler(onSubscribed: { subscribed.value = true }))
    count.waitForCount(2, "the password was not asked for")
    let codes = Recorder<StorageError.Code?>()
    for (name, timeout) in [("GET", Duration.seconds(60)), ("DEL", .milliseconds(50))] {
      link.submit([Command(name)], timeout: timeout) { result in
        if case .failure(let error) = result { codes.append(error.code) } else { codes.append(nil) }
      }
    }
    codes.waitForCount(2, "completions were not called")
    #expect(Set(codes.all) == [nil, .outcomeUnknown])
    #expect(!subscribed.value)
    release.signal()
    subscribed.wait("there was no subscription")
  }

  /// A closure that reads the password from a store on the same server cannot have it. It fails in
  /// time, and does not stop the link.
  @Test func passwordFromTheServerItself() throws {
    let server = try FakeServer { connection, _ in connection.subscribe() }
    final class Holder: @unchecked Sendable { weak var link: Link? }
    let holder = Holder()
    var options = LinkOptions.quick
    options.password = {
      _ = try? holder.link?.perform(Command("GET", "password"), timeout: .milliseconds(50))
      return "token"
    }
    let link = server.link(options: options)
    holder.link = link
    #expect(try link.perform(Command("GET", "k")).text == "OK")
  }
}
