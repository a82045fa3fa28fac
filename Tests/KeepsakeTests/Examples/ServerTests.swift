import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension OneAtATime {
  @Suite(.singleThreaded) struct ServerTests {
    private let server: Example
    private var directory: TemporaryDirectory { server.directory }

    init() throws { server = Example("keepsake-server", in: try TemporaryDirectory()) }

    /// Starts it, and returns the port that it listens on.
    private func start() throws -> (Child, UInt16) {
      let running = try server.start()
      let line = try #require(running.line())
      let port = try #require(line.wholeMatch(of: /Serving on http:\/\/localhost:(\d+)/)?.1)
      return (running, try #require(UInt16(port)))
    }

    /// Stops it as systemd does.
    private func stop(_ running: Child) throws {
      kill(running.identifier, SIGTERM)
      #expect(running.finish().hasSuffix("Stopped.\n") && running.exitStatus == 0)
    }

    @Test func servesManyClientsAndFollowsItsSettings() throws {
      let (running, port) = try start()
      let token = try server.run("token").text.trimmingCharacters(in: .newlines)
      let threadCount = 8
      let requestCount = Coverage.count(sample: 160, complete: 4_000)
      let answers = Answers()
      DispatchQueue.concurrentPerform(iterations: threadCount) { thread in
        for number in 0..<requestCount / threadCount {
          switch number % 4 {
          case 0: answers.add("greeting", try? HTTP.get("/", port))
          case 1: answers.add("status", try? HTTP.get("/status", port))
          case 2: answers.add("page", try? HTTP.get("/pages/\((thread + number) % 5)", port))
          default:
            answers.add("put", try? HTTP.put("Ahoy", at: "/greeting", token: token, port))
          }
        }
      }
      #expect(answers.statuses == [200: requestCount])
      #expect(answers.texts("greeting").isSubset(of: ["Hello, world!\n", "Ahoy, world!\n"]))
      #expect(answers.texts("page") == Set((0..<5).map { "This is /pages/\($0).\n" }))
      #expect(answers.texts("put") == ["stored\n"])
      // Each page was made once, however many clients asked for it.
      let status = try HTTP.get("/status", port).text
      let misses = try #require(status.firstMatch(of: /(\d+) misses/)?.1)
      #expect(try #require(Int(misses)) >= 5 && answers.count("page") == requestCount / 4)

      #expect(try HTTP.put("No", at: "/greeting", token: "wrong", port).status == 401)
      #expect(try HTTP.put("No", at: "/greeting", token: nil, port).status == 401)
      #expect(try HTTP.put("", at: "/greeting", token: token, port).status == 400)
      #expect(try HTTP.get("/nothing", port).status == 404)
      #expect(try HTTP.get("/", port).text == "Ahoy, world!\n")
      #expect(try server.run("set", "greeting", "Moin").status == 0)
      #expect(try HTTP.get("/", port).text == "Moin, world!\n")
      #expect(try server.run("set", "limit", "1000000").status == 0)
      #expect(running.line()?.hasPrefix("Now caching at most 1") == true)
      try stop(running)
    }

    /// Many more requests wait for another process than Swift's tasks have threads.
    @Test func servesWhileOtherRequestsWaitForAnotherProcess() throws {
      let (running, port) = try start()
      let token = try server.run("token").text.trimmingCharacters(in: .newlines)
      // Requests that wait fail after ten seconds, which may be over before the others are served.
      try waitUntil("the requests that waited failed") {
        try servesWhileRequestsWait(token, port).allSatisfy { $0 == "stored\n" }
      }
      #expect(try HTTP.get("/", port).text == "Ahoy, world!\n")
      try stop(running)
    }

    /// Expects other requests to be served, and returns the answers to those that waited.
    private func servesWhileRequestsWait(_ token: String, _ port: UInt16) throws -> [String] {
      #expect(try server.run("set", "greeting", "Moin").status == 0)
      let path = directory.file("config/keepsake-server/standard.jsonl").path
      let lock = open(path, O_RDWR | O_CLOEXEC)
      defer { close(lock) }
      try #require(lock >= 0 && flock(lock, LOCK_EX) == 0, "\(path)")
      let waiting = try (0..<12).map { _ in
        try HTTP.start("PUT", "/greeting", body: "Ahoy", token: token, port)
      }
      for number in 0..<4 {
        #expect(try HTTP.get("/", port).text == "Moin, world!\n")
        #expect(try HTTP.get("/pages/\(number % 2)", port).status == 200)
      }
      #expect(flock(lock, LOCK_UN) == 0)
      return try waiting.map { try HTTP.finish($0).text }
    }

    @Test func refusesPortsAndLimitsThatAreNone() throws {
      for arguments in [["--port", "70000"], ["set", "limit", "-1"], ["set", "limit", "much"]] {
        let run = try server.run(arguments)
        #expect(run.failed(64, "\"\(arguments.last ?? "")\" is not a"), "\(run)")
      }
      let (running, port) = try start()
      let second = try server.run("--port", "\(port)")
      #expect(second.failed(71, "bind: Address already in use"), "\(second)")
      try stop(running)
    }
  }
}

/// What the threads received.
private final class Answers: Sendable {
  private let all = Locked<[(kind: String, answer: HTTP.Answer?)]>([])

  private var elements: [(kind: String, answer: HTTP.Answer?)] { all.withLock { $0 } }
  func add(_ kind: String, _ answer: HTTP.Answer?) { all.withLock { $0.append((kind, answer)) } }

  /// How many answers had each status; 0 means none came.
  var statuses: [Int: Int] {
    Dictionary(grouping: elements) { $0.answer?.status ?? 0 }.mapValues(\.count)
  }

  func texts(_ kind: String) -> Set<String> {
    Set(elements.filter { $0.kind == kind }.compactMap { $0.answer?.text })
  }

  func count(_ kind: String) -> Int { elements.count { $0.kind == kind } }
}

/// The least of an HTTP client, which blocks its thread for at most ten minutes.
private enum HTTP {
  struct Answer {
    let status: Int
    let text: String
  }

  static func get(_ path: String, _ port: UInt16) throws -> Answer {
    try finish(start("GET", path, port))
  }

  static func put(
    _ body: String, at path: String, token: String?, _ port: UInt16
  ) throws -> Answer {
    try finish(start("PUT", path, body: body, token: token, port))
  }

  /// Sends a request; returns the socket from which to read the answer.
  static func start(
    _ method: String, _ path: String, body: String = "", token: String? = nil, _ port: UInt16
  ) throws -> Int32 {
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    var limit = timeval(tv_sec: 600, tv_usec: 0)
    setsockopt(
      descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let isConnected = withUnsafePointer(to: &address) { address in
      address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
      }
    }
    try #require(isConnected, "errno \(errno)")
    let secret = token.map { "Authorization: Bearer \($0)\r\n" } ?? ""
    let request =
      "\(method) \(path) HTTP/1.1\r\nHost: localhost\r\n\(secret)"
      + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)"
    let bytes = Array(request.utf8)
    let count = send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL))
    try #require(count == bytes.count)
    return descriptor
  }

  /// Reads the answer and closes the socket.
  static func finish(_ descriptor: Int32) throws -> Answer {
    let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
    let text = String(decoding: try file.readToEnd() ?? Data(), as: UTF8.self)
    let parts = try #require(text.firstRange(of: "\r\n\r\n"))
    let status = try #require(text.split(separator: " ").dropFirst().first.flatMap { Int($0) })
    return Answer(status: status, text: String(text[parts.upperBound...]))
  }
}
