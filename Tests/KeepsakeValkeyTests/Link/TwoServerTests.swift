import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// A name with the addresses of two servers, as during a failover.
@Suite(.threadPerTest) struct TwoServerTests {
  private let events = Recorder<String>()
  private var handler: ChannelHandler {
    ChannelHandler(
      onSubscribed: { [events] in events.append("subscribed") },
      onLost: { [events] _ in events.append("lost") })
  }

  /// The first server comes back while the link connects to the second one.
  @Test func subscribesWhereTheCommandsGo() throws {
    let directory = try ServerDirectory()
    let path = directory.path + "/first"
    let first = try FakeServer { connection, _ in connection.subscribe() }
    let names = Recorder<String>()
    let second = try FakeServer(greets: false) {
      [firstPath = first.socketPath] connection, number in
      if number == 0 { symlink(firstPath, path) }
      guard connection.greet() else { return }
      connection.subscribe { name in
        names.append(name)
        return true
      }
    }
    defer { withExtendedLifetime((directory, first, second)) {} }
    var options = LinkOptions()
    options.keepAlive = .seconds(600)  // its requests would be recorded, too
    let addresses = [path, second.socketPath].compactMap { SocketAddress(path: $0) }
    options.resolve = { _ in addresses }
    let link = Link(second.address, options: options)
    try link.subscribe(to: Array("c".utf8), handler)
    events.waitForCount(1, "there was no subscription")
    #expect(events.all == ["subscribed"])
    #expect(names.all == ["SUBSCRIBE"])
    #expect(first.connectionCount == 0)
  }

  /// The commands lose their connection and find another server, while the first one still serves
  /// the subscription.
  @Test func subscriptionMovesWithTheCommands() throws {
    let hasMoved = Flag()
    let old = try FakeServer { connection, _ in
      connection.subscribe { name in
        if name == "GET" { hasMoved.value = true }
        return name != "GET"
      }
    }
    let names = Recorder<String>()
    let new = try FakeServer { connection, _ in
      connection.subscribe { name in
        names.append(name)
        return true
      }
    }
    defer { withExtendedLifetime((old, new)) {} }
    var options = LinkOptions.quick
    options.keepAlive = .seconds(600)  // its requests would be recorded, too
    let addresses = [old, new].compactMap { SocketAddress(path: $0.socketPath) }
    options.resolve = { _ in hasMoved.value ? [addresses[1]] : [addresses[0]] }
    let link = Link(old.address, options: options)
    try link.subscribe(to: Array("c".utf8), handler)
    events.waitForCount(1, "there was no subscription")
    expectFailure(.outcomeUnknown) { _ = try link.perform(Command("GET", "k")) }
    waitUntil("the subscription did not move") { names.all == ["SUBSCRIBE"] }
    waitUntil("there was no other subscription") {
      events.all.contains("lost") && events.all.last == "subscribed"
    }
    #expect(events.all.first == "subscribed")
  }
}
