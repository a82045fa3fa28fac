import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

@Suite(.server, .threadPerTest) struct SubscriptionTests {
  private let name = "keepsake:{app:suite}:c"
  private var channel: [UInt8] { Array(name.utf8) }
  private let server: TestServer

  init() throws { server = try TestServer() }

  private func publish(_ link: Link, _ text: String) throws -> Reply {
    try link.perform(Command("PUBLISH", name, text))
  }

  private func recording(_ events: Recorder<String>) -> ChannelHandler {
    ChannelHandler(
      onSubscribed: { events.append("subscribed") },
      onMessage: { events.append(String(decoding: $0, as: UTF8.self)) },
      onLost: { events.append("lost: \($0.code)") })
  }

  @Test func messagesKeepTheirOrder() throws {
    let (link, publisher) = (server.link(), server.link())
    let events = Recorder<String>()
    try link.subscribe(to: channel, recording(events))
    waitUntil("there was no subscription") { events.all == ["subscribed"] }
    let count = 3_000
    for start in stride(from: 0, to: count, by: 100) {
      _ = try publisher.perform(
        (start..<(start + 100)).map { Command("PUBLISH", name, "\($0)") })
    }
    events.waitForCount(count + 1, "messages are missing")
    #expect(events.all == ["subscribed"] + (0..<count).map { "\($0)" })
  }

  /// A script that publishes: its message arrives, also at the link that ran it.
  @Test func ownMessagesArrive() throws {
    let link = server.link()
    let events = Recorder<String>()
    try link.subscribe(to: channel, recording(events))
    events.waitForCount(1, "there was no subscription")
    let script = Script("return redis.call('PUBLISH', KEYS[1], ARGV[1])")
    for number in 1...20 {
      let reply = try script.run(
        on: link, Script.Arguments(keys: [name], values: [Array("\(number)".utf8)]))
      #expect(reply == .integer(1))
    }
    events.waitForCount(21, "messages are missing")
    #expect(events.all.dropFirst() == (1...20).map { "\($0)" }[...])
  }

  @Test func channelsHaveTheirOwnHandlers() throws {
    let (link, publisher) = (server.link(), server.link())
    let recorders = (0..<20).map { _ in Recorder<String>() }
    for (number, recorder) in recorders.enumerated() {
      try link.subscribe(to: Array("c\(number)".utf8), recording(recorder))
    }
    waitUntil("there was no subscription") { recorders.allSatisfy { $0.count == 1 } }
    for number in recorders.indices {
      #expect(try publisher.perform(Command("PUBLISH", "c\(number)", "m\(number)")) == .integer(1))
    }
    waitUntil("messages are missing") { recorders.allSatisfy { $0.count == 2 } }
    for (number, recorder) in recorders.enumerated() { #expect(recorder.all.last == "m\(number)") }
  }

  /// A message beyond the limit ends the connection, and the handler is told.
  @Test func messagesAreLimited() throws {
    var options = LinkOptions()
    options.maximumReplySize = 1_000
    let (link, publisher) = (server.link(options: options), server.link())
    let events = Recorder<String>()
    try link.subscribe(to: channel, recording(events))
    events.waitForCount(1, "there was no subscription")
    _ = try publish(publisher, String(repeating: "a", count: 2_000))
    events.waitForCount(3, "there was no other subscription")
    #expect(events.all == ["subscribed", "lost: unreachable", "subscribed"])
    #expect(try publish(publisher, "small") == .integer(1))
    waitUntil("the message is missing") { events.all.last == "small" }
  }

  @Test func endsASubscription() throws {
    let (link, publisher) = (server.link(), server.link())
    let events = Recorder<String>()
    try link.subscribe(to: channel, recording(events))
    events.waitForCount(1, "there was no subscription")
    link.unsubscribe(from: channel)
    try waitUntil("the subscription was not ended") {
      try publish(publisher, "m") == .integer(0)
    }
    // Another subscription works as before.
    try link.subscribe(to: channel, recording(events))
    waitUntil("there was no subscription") { events.all.last == "subscribed" && events.count > 1 }
    #expect(try publish(publisher, "n") == .integer(1))
    waitUntil("the message is missing") { events.all.last == "n" }
  }

  /// The server is killed and started again.
  @Test func subscribesAgainAfterAKill() throws {
    let events = Recorder<String>()
    let link = server.link()
    try link.subscribe(to: channel, recording(events))
    events.waitForCount(1, "there was no subscription")
    server.kill()
    events.waitForCount(2, "the loss was not noticed")
    try server.start()
    // It may be lost once more, when the end of the other connection is noticed.
    let publisher = server.link()
    try waitUntil("the message is missing") {
      _ = try publish(publisher, "m")
      return events.all.contains("m")
    }
    // Each attempt that fails is told.
    #expect(Set(events.all) == ["subscribed", "lost: unreachable", "m"])
    #expect(events.all.count { $0 == "subscribed" } >= 2)
  }

  /// The server cuts only subscribers that fall behind: requests go on.
  @Test func losesOnlyTheSubscription() throws {
    let events = Recorder<String>()
    let link = server.link(
      handlers: LinkHandlers(onDisconnect: { _ in events.append("disconnected") }))
    try link.subscribe(to: channel, recording(events))
    events.waitForCount(1, "there was no subscription")
    let identifier = try link.perform(Command("CLIENT", "ID"))
    #expect(try server.link().perform(Command("CLIENT", "KILL", "TYPE", "pubsub")) == .integer(1))
    events.waitForCount(3, "there was no other subscription")
    #expect(events.all == ["subscribed", "lost: unreachable", "subscribed"])
    #expect(try link.perform(Command("CLIENT", "ID")) == identifier)
  }

  /// A server that accepts only the first connection of a link.
  @Test func saysWhyItCannotSubscribe() throws {
    let link = server.link(options: .quick)
    #expect(try link.perform(Command("CONFIG", "SET", "maxclients", "1")).text == "OK")
    let events = Recorder<String>()
    let handler = ChannelHandler(
      onSubscribed: { events.append("subscribed") }, onLost: { events.append($0.reason ?? "") })
    try link.subscribe(to: channel, handler)
    events.waitForCount(2, "the reason was not told")
    #expect(Set(events.all) == ["the server has too many clients (ERR)"])
    #expect(try link.perform(Command("CONFIG", "SET", "maxclients", "100")).text == "OK")
    waitUntil("there was no subscription") { events.all.last == "subscribed" }
  }

  /// Another client's script takes long, and the server refuses everything else meanwhile.
  @Test func subscribesOnceTheServerIsNotBusy() throws {
    let (link, other) = (server.link(options: .quick), server.link())
    let (early, late) = (Recorder<String>(), Recorder<String>())
    try link.subscribe(to: channel, recording(early))
    early.waitForCount(1, "there was no subscription")
    #expect(try other.perform(Command("CONFIG", "SET", "lua-time-limit", "1")).text == "OK")
    other.submit([Command("EVAL", "while true do end", "0")]) { _ in }
    waitForFailure(.unreachable, reason: "BUSY") { _ = try link.perform(Command("PING")) }
    try link.subscribe(to: Array("late".utf8), recording(late))
    late.waitForCount(1, "the refusal was not told")
    #expect(late.all.first == "lost: unreachable")
    #expect(try link.perform(Command("SCRIPT", "KILL")).text == "OK")
    waitUntil("there was no subscription") {
      early.all.last == "subscribed" && late.all.last == "subscribed"
    }
    #expect(try other.perform(Command("PUBLISH", "late", "m")) == .integer(1))
    waitUntil("the message is missing") { late.all.last == "m" }
  }

  @Test func userMayHaveNoRightToAChannel() throws {
    try server.command(
      "ACL", "SETUSER", "ann", "on", ">pw", "~*", "resetchannels", "&allowed", "+@all")
    let link = server.link { $0.logIn(as: "ann", "pw") }
    let (refused, allowed) = (Recorder<String>(), Recorder<String>())
    try link.subscribe(to: channel, recording(refused))
    try link.subscribe(to: Array("allowed".utf8), recording(allowed))
    waitUntil("there was no answer") { refused.count == 1 && allowed.count == 1 }
    #expect(refused.all == ["lost: access denied"])
    #expect(allowed.all == ["subscribed"])
    #expect(try server.link().perform(Command("PUBLISH", "allowed", "m")) == .integer(1))
    waitUntil("the message is missing") { allowed.all.last == "m" }
  }
}
