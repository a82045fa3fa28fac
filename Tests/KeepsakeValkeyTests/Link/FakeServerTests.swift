import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Servers that misbehave in ways in which a real one rarely does.
@Suite(.threadPerTest) struct FakeServerTests {
  private var options: LinkOptions {
    var options = LinkOptions.quick
    options.keepAlive = .seconds(600)  // its requests would be answered as others
    return options
  }

  private static let hello = "$5\r\nhello\r\n"

  private func waitUntilAnswered(_ link: Link, _ text: String) {
    waitUntil("there was no reply") { (try? link.perform(Command("GET", "k")).text) == text }
  }

  /// A reply that ends in the middle: at each of its bytes, and before the first one.
  @Test(arguments: 0..<9) func cutInTheMiddleOfAReply(_ count: Int) throws {
    let server = try FakeServer { connection, number in
      if number > 0 { return connection.answer(Self.hello) }
      if connection.command() != nil { connection.send(String(Self.hello.prefix(count))) }
    }
    let link = server.link(options: options)
    expectFailure(.outcomeUnknown, reason: "ended the connection") {
      _ = try link.perform(Command("GET", "k"))
    }
    waitUntilAnswered(link, "hello")
  }

  /// Of three commands of one call, the second one has no reply: all may have been carried out.
  @Test func cutBetweenReplies() throws {
    let server = try FakeServer { connection, _ in
      for _ in 0..<3 { _ = connection.command() }
      connection.send("+one\r\n")
    }
    expectFailure(.outcomeUnknown) {
      _ = try server.link(options: options).perform([
        Command("GET", "a"), Command("GET", "b"), Command("GET", "c"),
      ])
    }
  }

  /// A request that changes nothing has done nothing, whether its reply is cut or late.
  @Test(arguments: [true, false]) func lostReplyToARead(_ isCut: Bool) throws {
    let server = try FakeServer { connection, _ in
      guard connection.command() != nil else { return }
      if isCut { return connection.send("$5\r\nhel") }
      connection.waitForEnd()
    }
    let timeout: Duration = isCut ? .seconds(60) : .milliseconds(50)
    let read = Command(reading: "GET", "k")
    expectFailure(.unreachable, reason: isCut ? "ended the connection" : "did not answer") {
      _ = try server.connectedLink(options: options).perform(read, timeout: timeout)
    }
    let script = Script(isRead: true, "return 1")
    expectFailure(.unreachable) {
      let link = try server.connectedLink(options: options) { $0.requestTimeout = timeout }
      _ = try script.run(on: link, Script.Arguments(keys: []))
    }
    // One command that changes something is enough.
    expectFailure(.outcomeUnknown) {
      _ = try server.connectedLink(options: options).perform(
        [read, Command("DEL", "k")], timeout: timeout)
    }
  }

  // MARK: Requests of which nothing was sent

  /// The server ends the connection right after a reply, so that the next request is refused by
  /// the system.
  @Test func requestThatWasNotSentIsRepeated() throws {
    for _ in 0..<30 {
      let isEnded = Flag()
      let server = try FakeServer { connection, number in
        if number > 0 { return connection.echo() }
        _ = connection.command()
        connection.send("+first\r\n")
        connection.shutDown()
        isEnded.value = true
      }
      let link = server.link(options: options)
      #expect(try link.perform(Command("ECHO", "x")).text == "first")
      isEnded.wait("the connection was not ended")
      #expect(try link.perform(Command("ECHO", "second")).text == "second")
    }
  }

  /// No request waits for a reply when the link finds out that the server is silent.
  @Test func idleConnectionThatDiesIsReplaced() throws {
    // On a busy machine, the second connection may die too.
    try waitUntil("the connection was not replaced") { try isIdleConnectionReplaced() }
  }

  private func isIdleConnectionReplaced() throws -> Bool {
    let server = try FakeServer { connection, number in
      if number > 0 { connection.echo() } else { connection.waitForEnd() }
    }
    let events = Recorder<String>()
    var options = options
    options.keepAlive = .milliseconds(20)
    options.minimumBackoff = .seconds(600)
    options.maximumBackoff = .seconds(600)
    let handlers = LinkHandlers(onDisconnect: { events.append("\($0.code): \($0.reason ?? "")") })
    let link = server.link(options: options, handlers: handlers) {
      $0.requestTimeout = .milliseconds(50)
    }
    try link.connect()
    events.waitForCount(1, "the silence was not noticed")
    let reply = try? link.perform(Command("ECHO", "a"), timeout: .seconds(60))
    return reply?.text == "a"
      && events.all.first == "unreachable: the server did not answer within 0.05 seconds"
  }

  /// The link's thread is held up, as by a machine that was suspended: it has asked for no sign of
  /// life, and nobody has told it that the server is gone.
  @Test func connectionOfASuspendedMachineIsReplaced() throws {
    // On a busy machine, the new connection may be too slow.
    try waitUntil("the connection was not replaced") {
      try replyAfterASuspension()?.text == "b"
    }
  }

  private func replyAfterASuspension() throws -> Reply? {
    let isSilent = Flag()
    let server = try FakeServer { connection, number in
      while let words = connection.command() {
        if number > 0 || !isSilent.value { connection.send("+\(words.last ?? "")\r\n") }
      }
    }
    var options = options
    options.keepAlive = .milliseconds(500)
    // Also the time that the new connection has.
    let link = try server.connectedLink(options: options) { $0.requestTimeout = .seconds(1) }
    let (isHeld, release) = (Flag(), DispatchSemaphore(value: 0))
    link.submit([Command("ECHO", "a")], timeout: .seconds(60)) { _ in
      isSilent.value = true
      isHeld.value = true
      release.wait()
    }
    isHeld.wait("there was no reply")
    letTimePass(.seconds(3))
    let replies = Recorder<Reply>()
    onThreads(2) { thread in
      if thread == 0 {
        let reply = try? link.perform(Command("ECHO", "b"), timeout: .seconds(60))
        if let reply { replies.append(reply) }
      } else {
        letTimePass(.milliseconds(20))
        release.signal()
      }
    }
    return replies.all.first
  }

  /// A request that the system accepted only in part cannot be carried out.
  @Test func partOfARequest() throws {
    let server = try FakeServer { connection, number in
      // Reads nothing more, so that the buffers of the system fill up.
      if number == 0 { return connection.waitForShutdown() }
      connection.answer(Self.hello)
    }
    let link = try server.connectedLink(options: options)
    let large = Command("SET", "k", String(repeating: "0", count: 16 << 20))
    expectFailure(.unreachable) { _ = try link.perform(large, timeout: .milliseconds(100)) }
    waitUntilAnswered(link, "hello")
  }

  @Test func requestThatIsCutInPart() throws {
    let server = try FakeServer { connection, number in
      // The buffers of the system hold no more than a part of the request.
      if number == 0 { return connection.waitForInput() }
      connection.answer(Self.hello)
    }
    let link = server.link(options: options)
    let large = Command("SET", "k", String(repeating: "0", count: 16 << 20))
    expectFailure(.unreachable, reason: "ended") { _ = try link.perform(large) }
    waitUntilAnswered(link, "hello")
  }

  /// A server that answers too late: the request fails, and its reply is not taken for another's.
  @Test func lateReplyIsDropped() throws {
    let release = DispatchSemaphore(value: 0)
    let server = try FakeServer { connection, _ in
      guard let words = connection.command() else { return }
      release.wait()
      connection.send("+\(words.last ?? "")\r\n")
      connection.echo()
    }
    let link = try server.connectedLink(options: options)
    expectFailure(.outcomeUnknown, reason: "did not answer within 0.05 seconds") {
      _ = try link.perform(Command("ECHO", "late"), timeout: .milliseconds(50))
    }
    release.signal()
    // The timeout of that request was shorter than that of the link, so the connection stays.
    for text in ["a", "b"] { #expect(try link.perform(Command("ECHO", text)).text == text) }
    #expect(server.connectionCount == 1)
  }

  /// A server whose reply to `slow` takes so many times ten milliseconds.
  private func slowServer(_ count: Int, isSending: Flag) throws -> FakeServer {
    try FakeServer { connection, _ in
      while let words = connection.command() {
        guard words.last == "slow" else {
          connection.send("+\(words.last ?? "")\r\n")
          continue
        }
        connection.send("$\(count)\r\n")
        isSending.value = true
        for _ in 0..<count {
          if connection.hasEnded { return }
          connection.send("a")
          letTimePass(.milliseconds(10))
        }
        connection.send("\r\n")
      }
    }
  }

  /// A reply that takes longer than the timeout arrives as long as some of it does. So do those
  /// behind it, for a thread that waits and for a completion.
  @Test func slowReply() throws {
    let isSending = Flag()
    let server = try slowServer(100, isSending: isSending)
    let link = try server.connectedLink(options: options) { $0.requestTimeout = .milliseconds(600) }
    // On a busy machine, nothing may arrive for longer than that.
    waitUntil("there was no reply") {
      let texts = Recorder<String>()
      isSending.value = false
      onThreads(3) { thread in
        if thread == 0 {
          texts.append((try? link.perform(Command("ECHO", "slow")).text) ?? "no slow")
          // The others must not wait for a request that was not sent.
          isSending.value = true
          return
        }
        isSending.wait("the request was not sent")
        let command = Command("ECHO", "\(thread)")
        if thread == 1 { return texts.append((try? link.perform(command).text) ?? "no 1") }
        let done = DispatchSemaphore(value: 0)
        link.submit([command]) { result in
          texts.append((try? result.get())?.first?.text ?? "no 2")
          done.signal()
        }
        done.wait()
      }
      return texts.all.sorted() == ["1", "2", String(repeating: "a", count: 100)]
    }
  }

  /// There is a bound, and the connection is then given up.
  @Test func endlessReply() throws {
    var timeout = Duration.milliseconds(100)
    try waitUntil("the reply was not given up") {
      // On a busy machine, nothing may arrive for longer than that.
      defer { timeout *= 2 }
      return try isEndlessReplyGivenUp(timeout)
    }
  }

  private func isEndlessReplyGivenUp(_ timeout: Duration) throws -> Bool {
    let server = try slowServer(1_000_000, isSending: Flag())
    var options = options
    options.replyTime = .milliseconds(10)
    let link = try server.connectedLink(options: options) { $0.requestTimeout = timeout }
    let error = #expect(throws: StorageError.self) {
      try link.perform(Command("ECHO", "slow"))
    }
    waitUntil("there was no reply") { (try? link.perform(Command("ECHO", "a")).text) == "a" }
    let reason = "the server did not answer completely within \(timeout * 20)"
    return error?.code == .outcomeUnknown && error?.reason?.contains(reason) == true
      && server.connectionCount > 1
  }

  /// A server that does not answer at all is not waited for twice.
  @Test func silentServer() throws {
    let isSilent = Flag()
    let server = try FakeServer(greets: false) { connection, _ in
      while let words = connection.command() {
        if !isSilent.value { connection.send("+\(words.last ?? "")\r\n") }
      }
    }
    let link = try server.connectedLink(options: options) {
      $0.requestTimeout = .milliseconds(300)
      $0.connectTimeout = .milliseconds(300)
    }
    isSilent.value = true
    expectFailure(.outcomeUnknown) { _ = try link.perform(Command("GET", "k")) }
    for _ in 0..<10 { expectFailure(.unreachable) { _ = try link.perform(Command("GET", "k")) } }
    let count = server.connectionCount
    waitUntil("there were no more attempts") { server.connectionCount > count + 3 }
    expectFailure(.unreachable) { _ = try link.perform(Command("GET", "k")) }
    isSilent.value = false
    waitUntilAnswered(link, "k")
  }

  @Test func loadingServerIsAskedAgain() throws {
    let server = try FakeServer(greets: false) { connection, number in
      while number < 3, let words = connection.command() {
        let isPing = words.first == "PING"
        connection.send(isPing ? "-LOADING Redis is loading the dataset in memory\r\n" : "+OK\r\n")
      }
      if connection.greet() { connection.answer(Self.hello) }
    }
    let link = server.link(options: options)
    expectFailure(.unreachable, reason: "loading its data (LOADING)") {
      _ = try link.perform(Command("GET", "k"))
    }
    waitUntilAnswered(link, "hello")
    #expect(server.connectionCount == 4)
  }

  @Test(
    arguments: [
      ("LOADING x", .unreachable), ("MASTERDOWN x", .unreachable), ("CLUSTERDOWN x", .unreachable),
      ("TRYAGAIN x", .unreachable), ("BUSY x", .unreachable), ("READONLY x", .unreachable),
      ("MISCONF x", .unreachable), ("NOREPLICAS x", .unreachable), ("MOVED 1 a:1", .unreachable),
      ("ASK 1 a:1", .unreachable), ("OOM x", .diskFull), ("NOAUTH x", .accessDenied),
      ("NOPERM x", .accessDenied), ("ERR max number of clients reached", .unreachable),
      ("ERR The user executing the script can't run this", .accessDenied),
      ("@user_script: 39: The user executing the script can't run this", .accessDenied),
      (
        "ERR Error running script (call to f_0a): @user_script:39: @user_script: 39: "
          + "The user executing the script can't access x", .accessDenied
      ),
      ("ERR ACL failure in script: No permissions to access a key", .accessDenied),
    ] as [(String, StorageError.Code)])
  func refusalsHaveCodes(_ text: String, _ code: StorageError.Code) throws {
    let secret = "hunter2"
    let server = try FakeServer { connection, _ in
      connection.answer("-\(text) \(secret)\r\n")
    }
    let link = server.link(options: options)
    let error = #expect(throws: StorageError.self) { _ = try link.perform(Command("GET", "k")) }
    #expect(error?.code == code)
    #expect(!"\(String(describing: error))".contains(secret))
  }

  /// Bytes of something that is no server, before and after the connection was made.
  @Test(arguments: [
    "HTTP/1.1 400 Bad Request\r\n\r\n", "*2147483647\r\n", "$99999999999\r\n",
    "*1\r\n*1\r\n*1\r\n*1",
    "\u{0}\u{0}\u{0}\u{0}", "+" + String(repeating: "a", count: 100_000),
    String(repeating: "*1\r\n", count: 5_000),
  ])
  func hostileBytes(_ bytes: String) throws {
    let server = try FakeServer(greets: false) { connection, number in
      if number == 0 { return connection.send(bytes) }
      guard connection.greet() else { return }
      if number > 1 { return connection.answer(Self.hello) }
      if connection.command() != nil { connection.send(bytes) }
    }
    let link = server.link(options: options)
    expectFailure(.unreachable) { _ = try link.perform(Command("GET", "k")) }
    var codes: Set<StorageError.Code> = []
    waitUntil("there was no reply") {
      do {
        return try link.perform(Command("GET", "k")).text == "hello"
      } catch {
        codes.insert((error as? StorageError)?.code ?? .misuse)
        return false
      }
    }
    #expect(codes.contains(.outcomeUnknown))
    #expect(codes.isSubset(of: [.unreachable, .outcomeUnknown]))
  }

  // MARK: Limits

  /// Only the caller that asked is told that its reply was too large. Others may repeat their call.
  @Test func tooLargeReplyBesideOthers() throws {
    let server = try FakeServer { connection, number in
      guard number == 0 else { return connection.waitForEnd() }
      for _ in 0..<3 { _ = connection.command() }
      connection.send("$1000\r\n")
      connection.waitForEnd()
    }
    var options = options
    options.maximumReplySize = 500
    let link = try server.connectedLink(options: options)
    let errors = Recorder<StorageError>()
    let commands = [
      Command(reading: "GET", "large"), Command(reading: "GET", "k"), Command("SET", "k", "v"),
    ]
    for command in commands {
      link.submit([command]) { result in
        if case .failure(let error) = result { errors.append(error) }
      }
    }
    errors.waitForCount(3, "requests were not ended")
    #expect(errors.all.map(\.code) == [.engineFailed, .unreachable, .outcomeUnknown])
    #expect(errors.all.first?.reason == "the server's reply is larger than 500 bytes")
    #expect(errors.all.dropFirst().allSatisfy { $0.reason?.contains("too large") == true })
  }

  @Test func limitsRequestsThatWait() throws {
    let server = try FakeServer { connection, _ in connection.waitForEnd() }
    var options = options
    options.maximumCallCount = 10
    let link = server.link(options: options)
    let codes = Recorder<StorageError.Code>()
    for _ in 0..<10 {
      link.submit([Command("PING")]) { result in
        if case .failure(let error) = result { codes.append(error.code) }
      }
    }
    #expect(codes.all == [])
    expectFailure(.unreachable, reason: "too many requests") {
      _ = try link.perform(Command("PING"))
    }
    link.close()
    codes.waitForCount(10, "requests were not ended")
  }

  @Test func limitsBytesThatWait() throws {
    let server = try FakeServer { connection, _ in connection.waitForShutdown() }
    var options = options
    options.maximumUnsentByteCount = 8 << 20
    let link = server.link(options: options)
    let large = Command("SET", "k", String(repeating: "0", count: 1 << 20))
    let codes = Recorder<StorageError.Code>()
    for _ in 0..<40 {
      link.submit([large]) { result in
        if case .failure(let error) = result { codes.append(error.code) }
      }
    }
    // The buffers of the system take some; the rest is refused at once.
    #expect(codes.count >= 20)
    #expect(Set(codes.all) == [.unreachable])
    link.close()
    codes.waitForCount(40, "requests were not ended")
  }

  /// Requests that wait for a connection end with the reason for which there is none.
  @Test func requestsThatWaitForAConnectionFail() throws {
    let release = DispatchSemaphore(value: 0)
    let server = try FakeServer(greets: false) { _, _ in release.wait() }
    let link = server.link(options: options)
    let codes = Recorder<StorageError.Code>()
    for _ in 0..<5 {
      link.submit([Command("PING")]) { result in
        if case .failure(let error) = result { codes.append(error.code) }
      }
    }
    for _ in 0..<100 { release.signal() }
    codes.waitForCount(5, "requests were not ended")
    #expect(Set(codes.all) == [.unreachable])
  }

  /// A completion without a thread that waits for it is called in time, too.
  @Test func completionsTimeOut() throws {
    let server = try FakeServer { connection, _ in connection.waitForEnd() }
    let link = try server.connectedLink(options: options)
    let codes = Recorder<StorageError.Code>()
    for milliseconds in [200, 50, 100] {
      link.submit([Command("PING")], timeout: .milliseconds(milliseconds)) { result in
        if case .failure(let error) = result { codes.append(error.code) }
      }
    }
    codes.waitForCount(3, "requests did not time out")
    #expect(Set(codes.all) == [.outcomeUnknown])
  }
}
