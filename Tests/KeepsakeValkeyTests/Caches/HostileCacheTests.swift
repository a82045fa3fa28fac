import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What a server may reply that is no server of caches, or is hostile.
@Suite(.threadPerTest) struct HostileCacheTests {
  private static let replies = [
    ":0\r\n", ":5\r\n", ":-1\r\n", "+OK\r\n", "$-1\r\n", "$0\r\n\r\n", "$5\r\nhello\r\n", "*0\r\n",
    "*-1\r\n", "*1\r\n:1\r\n", "*1\r\n:0\r\n", "*2\r\n:0\r\n:-5\r\n",
    "*2\r\n:0\r\n:9223372036854775807\r\n", "*2\r\n:0\r\n$1\r\nx\r\n",
    "*2\r\n$3\r\nabc\r\n:5\r\n", "*2\r\n$8\r\nabcdefgh\r\n:9223372036854775807\r\n",
    "*2\r\n$9\r\nabcdefgh\u{1}\r\n:-9223372036854775808\r\n", "*2\r\n$8\r\nabcdefgh\r\n$1\r\n5\r\n",
    "*3\r\n:1\r\n:5\r\n$2\r\nab\r\n", "*3\r\n:1\r\n:9223372036854775807\r\n$8\r\nabcdefgh\r\n",
    "*3\r\n:1\r\n$1\r\nx\r\n:5\r\n", "$16\r\n0000000000000005\r\n",
    "$16\r\n000000000000000x\r\n", "$16\r\n-000000000000005\r\n",
    "*2\r\n:9\r\n$3\r\nOOM\r\n", "*2\r\n:-9\r\n$3\r\nOOM\r\n", "-ERR no\r\n", "-WRONGTYPE no\r\n",
    "-NOSCRIPT no\r\n",
  ]

  /// - Parameter replies: Sent in turn, and from the first one on again.
  private func tier(_ replies: String...) throws -> (tier: ServerCache, server: FakeServer) {
    let server = try FakeServer { connection, _ in
      var count = 0
      while connection.command() != nil {
        connection.send(replies[count % replies.count])
        count += 1
      }
    }
    let names = CacheKeys(app: "app", cache: "pages")
    var options = LinkOptions()
    options.keepAlive = .seconds(600)  // its requests would get replies, too
    let connection = Server(server.address, options: options)
    return (ServerCache(names, on: connection, leaseTime: .seconds(5)), server)
  }

  @Test(arguments: replies) func oddReplyIsAFailureOrAMiss(_ reply: String) throws {
    let (tier, server) = try tier(reply)
    defer { withExtendedLifetime(server) {} }
    let calls: [() throws -> Void] = [
      {
        if case .bytes(let bytes) = try tier.read("k", count: nil) { _ = try? SharedEntry(bytes) }
      },
      { if case .bytes(let bytes) = try tier.read("k", count: 5) { _ = try? SharedEntry(bytes) } },
      { _ = try tier.write([1], name: 1, lifetime: 5, forKey: "k", production: nil) },
      { _ = try tier.write([1], name: 1, lifetime: .max, forKey: "k", production: 7) },
      { _ = try tier.remove("k", production: nil) }, { _ = try tier.removeAll() },
      {
        if case .busy(let time) = try tier.takeLease("k", token: 1, headCount: 5) {
          #expect(time >= 0)
        }
      },
    ]
    for call in calls {
      do {
        try call()
      } catch {
        #expect((error as? StorageError)?.code == .engineFailed, "\(error)")
      }
    }
    for time in [Int64.min, -1, 0, .max] { tier.touch("k", name: 1, lifetime: time) {} }
  }

  /// What reads ask for: the state of the cache, the entry and its lifetime.
  enum Answer: Equatable, Sendable {
    case nothing(UInt64)
    case bytes(UInt64, Int64)
    case failure
  }

  private static let state = "$24\r\nabcdefgh0000000000000005\r\n"
  private static let entry = "$25\r\nabcdefgh0000000000000003x\r\n"

  @Test(arguments: [
    (state, entry, ":7\r\n", Answer.bytes(3, 7_000_000)),
    (state, entry, ":-1\r\n", .bytes(3, 0)), (state, entry, ":-2\r\n", .bytes(3, 0)),
    (state, entry, ":-9223372036854775808\r\n", .bytes(3, 0)),
    (state, entry, "$1\r\n7\r\n", .failure), (state, entry, "-ERR no\r\n", .failure),
    (state, "$-1\r\n", ":-2\r\n", .nothing(5)), (state, "$0\r\n\r\n", ":-2\r\n", .nothing(5)),
    (state, "$25\r\nABCDEFGH0000000000000009x\r\n", ":7\r\n", .nothing(5)),
    (state, "$8\r\nabcdefgh\r\n", ":7\r\n", .failure),
    (state, "$25\r\nabcdefgh000000000000000-x\r\n", ":7\r\n", .failure),
    (state, "-WRONGTYPE no\r\n", ":7\r\n", .failure), (state, ":7\r\n", ":7\r\n", .failure),
    ("$-1\r\n", entry, ":7\r\n", .nothing(0)), ("$5\r\nhello\r\n", entry, ":7\r\n", .nothing(0)),
    ("$24\r\nabcdefgh000000000000000x\r\n", entry, ":7\r\n", .nothing(0)),
    ("-WRONGTYPE no\r\n", entry, ":7\r\n", .failure), (":5\r\n", entry, ":7\r\n", .failure),
  ])
  func answerToARead(_ state: String, _ entry: String, _ time: String, _ expected: Answer) throws {
    let (tier, server) = try tier(state, entry, time)
    defer { withExtendedLifetime(server) {} }
    for count in [nil, 1] {
      var answer = Answer.failure
      do {
        switch try tier.read("k", count: count) {
        case .nothing(let number): answer = .nothing(number)
        case .bytes(let bytes): answer = .bytes(bytes.number, bytes.remaining)
        }
      } catch {
        #expect(error.code == .engineFailed, "\(error)")
      }
      #expect(answer == expected)
    }
  }

  /// A reply to each command through a cache, which goes on without the server.
  @Test(arguments: replies) func cacheGoesOn(_ reply: String) async throws {
    let (tier, server) = try tier(reply)
    defer { withExtendedLifetime(server) {} }
    let directory = try ServerDirectory()
    let store = StorageScope(finder: .temporary(app: "app", in: directory.path))
    defer { store.close() }
    let files = try #require(try store.cache("pages").engine as? FileCache)
    let cache = TieredCache(files, tier) { _ in }
    let options = WriteOptions(expiry: .idle(5_000_000_000_000), isDurable: false)
    let payload = Payload(bytes: Data([1]), kind: .data)
    for _ in 0..<3 {
      try cache.write(payload, forKey: "k", options) { commit throws(StorageError) in
        try commit()
      }
      // 0 means that another machine has changed the key.
      if reply != ":0\r\n" { #expect(try cache.read("k")?.bytes == payload.bytes) }
      _ = try cache.find("k", noValue: true, tags: false)
      _ = try cache.entry("k")
      _ = try? cache.remove("k", by: nil) { commit throws(StorageError) in try commit() }
      _ = cache.takeLease("k", knowing: EntryVersion(number: 5, name: 5))
    }
  }
}
