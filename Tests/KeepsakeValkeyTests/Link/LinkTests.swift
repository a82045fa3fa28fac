import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Requests and replies.
@Suite(.server, .threadPerTest) struct LinkTests {
  private let server: TestServer
  private let link: Link

  init() throws {
    server = try TestServer()
    link = server.link()
  }

  /// Bytes that end lines, zeros, and values that need many calls of `send` and `recv`.
  @Test(arguments: [0, 1, 65_535, 65_536, 65_537, 9_000_000]) func movesAnyBytes(
    _ count: Int
  ) throws {
    let bytes = randomBytes(count)
    var command = Command("SET", "k")
    command.append(bytes)
    _ = try link.perform(command)
    #expect(try link.perform(Command("GET", "k")) == .bytes(bytes))
    #expect(try link.perform(Command("STRLEN", "k")) == .integer(Int64(count)))
  }

  @Test func repliesToOneCallKeepTheirOrder() throws {
    let commands = (0..<1_000).map { Command("ECHO", "\($0)") }
    let replies = try link.perform(commands)
    #expect(replies.map(\.text) == (0..<1_000).map { "\($0)" })
    #expect(try link.perform([]) == [])
  }

  /// Errors are values, in their place among the replies.
  @Test func errorsAreReplies() throws {
    let replies = try link.perform([
      Command("SET", "k", "text"), Command("INCR", "k"), Command("LPUSH", "k", "x"),
      Command("GET", "k"),
    ])
    #expect(replies.count == 4)
    #expect(replies[1].errorCode == "ERR")
    #expect(replies[2].errorCode == "WRONGTYPE")
    #expect(replies[3].text == "text")
    #expect(try link.perform(Command("NOSUCHCOMMAND")).errorCode == "ERR")
  }

  /// Threads, tasks and pipelines at once: each gets its own replies, and each in its order.
  @Test func repliesOfManyThreadsAreNotMixedUp() throws {
    let mistakes = Recorder<String>()
    onThreads(16) { thread in
      do {
        for number in 0..<300 {
          let text = "\(thread).\(number)"
          switch number % 3 {
          case 0:
            let reply = try link.perform(Command("ECHO", text))
            if reply.text != text { mistakes.append(text) }
          case 1:
            let commands = (0..<5).map { Command("ECHO", "\(text).\($0)") }
            let replies = try link.perform(commands)
            if replies.map(\.text) != (0..<5).map({ "\(text).\($0)" }) { mistakes.append(text) }
          default:
            let done = DispatchSemaphore(value: 0)
            link.submit([Command("ECHO", text)]) { result in
              if (try? result.get().first?.text) != text { mistakes.append(text) }
              done.signal()
            }
            done.wait()
          }
        }
      } catch {
        mistakes.append("\(error)")
      }
    }
    #expect(mistakes.all == [])
  }

  /// Completions come in the order of the requests, however many are sent ahead.
  @Test func completionsKeepTheirOrder() throws {
    let numbers = Recorder<Int>()
    for number in 0..<2_000 { link.submit([Command("PING")]) { _ in numbers.append(number) } }
    numbers.waitForCount(2_000, "completions are missing")
    #expect(numbers.all == Array(0..<2_000))
  }

  @Test func selectsADatabase() throws {
    let (first, second) = (server.link { $0.database = 1 }, server.link { $0.database = 2 })
    _ = try first.perform(Command("SET", "k", "1"))
    #expect(try second.perform(Command("GET", "k")) == .null)
    #expect(try first.perform(Command("GET", "k")).text == "1")
    let third = server.link { $0.database = 9_999 }
    expectFailure(.misuse, reason: "no database") { _ = try third.perform(Command("PING")) }
  }

  @Test func limitsReplies() throws {
    var options = LinkOptions()
    options.maximumReplySize = 99_999
    let link = server.link(options: options)
    _ = try link.perform(Command("SET", "k", String(repeating: "a", count: 100_000)))
    expectFailure(.outcomeUnknown, reason: "larger than 99999 bytes") {
      _ = try link.perform(Command("GET", "k"))
    }
    expectFailure(.engineFailed, reason: "larger than 99999 bytes") {
      _ = try link.perform(Command(reading: "GET", "k"))
    }
    // After two connections that did not last, the link waits a moment.
    waitUntil("the server was not reached again") {
      (try? link.perform(Command("STRLEN", "k"))) == .integer(100_000)
    }
    options.maximumReplySize = 110_000
    #expect(
      try server.link(options: options).perform(Command("GET", "k")).text?.count == 100_000)
  }

  @Test func closedLinkRefusesRequests() throws {
    _ = try link.perform(Command("PING"))
    link.close()
    link.close()
    expectFailure(.unreachable, reason: "the link is closed") {
      _ = try link.perform(Command("PING"))
    }
    let outcomes = Recorder<StorageError.Code?>()
    link.submit([Command("PING")]) { result in
      if case .failure(let error) = result { outcomes.append(error.code) }
    }
    #expect(outcomes.all == [.unreachable])
  }

  /// The thread, and the connections as the server counts them.
  @Test func releasedLinkLeavesNothing() throws {
    func clientCount() throws -> Int {
      let text = try link.perform(Command("CLIENT", "LIST")).text ?? ""
      return text.split(separator: "\n").count
    }
    // The server may not have closed the connection yet that found out whether it had started.
    try waitUntil("there is another connection") { try clientCount() == 1 }
    var links: [Link] = []
    for _ in 0..<10 {
      let other = server.link()
      _ = try other.perform(Command("PING"))
      try other.subscribe(to: Array("c".utf8), ChannelHandler())
      links.append(other)
    }
    try waitUntil("the subscriptions were not made") { try clientCount() == 21 }
    links = []
    try waitUntil("the connections were not closed") { try clientCount() == 1 }
  }

  @Test func saysItsName() throws {
    var options = LinkOptions()
    options.clientName = "keepsake-test"
    let link = server.link(options: options)
    #expect(try link.perform(Command("CLIENT", "GETNAME")).text == "keepsake-test")
  }
}
