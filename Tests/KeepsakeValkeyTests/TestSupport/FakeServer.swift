import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeValkey

/// A server that does what a test says, on a socket in a temporary directory.
final class FakeServer: SocketServer, Sendable {
  private let directory: ServerDirectory
  private let listener: ListeningSocket
  private let connections = Connections()

  /// The sockets of the connections, which may outlive the server. Each is closed by the thread
  /// that serves it, and shut down only before that: another server may have its number afterwards.
  private final class Connections: Sendable {
    private struct State: Sendable {
      var descriptors: [Int32] = []
      var count = 0
      var isClosed = false
    }

    private let state = Locked(State())

    var count: Int { state.withLock { $0.count } }

    /// The number of a new connection from 0; nil if the server has ended.
    func add(_ descriptor: Int32) -> Int? {
      state.withLock { state in
        if state.isClosed { return nil }
        state.descriptors.append(descriptor)
        defer { state.count += 1 }
        return state.count
      }
    }

    func end(_ descriptor: Int32) {
      state.withLock { state in
        state.descriptors.removeAll { $0 == descriptor }
        shutdown(descriptor, Int32(SHUT_RDWR))
        close(descriptor)
      }
    }

    /// Ends the threads that serve.
    func shutDown() {
      state.withLock { state in
        state.isClosed = true
        for descriptor in state.descriptors { shutdown(descriptor, Int32(SHUT_RDWR)) }
      }
    }
  }

  /// - Parameters:
  ///   - greets: Whether it answers the commands with which a connection begins.
  ///   - serve: Called on a thread of its own for each connection, with its number from 0. The
  ///     connection is closed when it returns.
  init(
    greets: Bool = true, _ serve: @escaping @Sendable (FakeConnection, Int) -> Void
  ) throws {
    directory = try ServerDirectory()
    listener = try ListeningSocket(path: directory.path + "/s")
    Thread.detachNewThread { [connections, listener] in
      while let descriptor = listener.nextConnection() {
        guard let number = connections.add(descriptor) else {
          close(descriptor)
          return
        }
        Thread.detachNewThread {
          let connection = FakeConnection(descriptor)
          if !greets || connection.greet() { serve(connection, number) }
          connections.end(descriptor)
        }
      }
    }
  }

  deinit {
    // First, because clients connect again at once.
    listener.end()
    connections.shutDown()
  }

  var connectionCount: Int { connections.count }

  var socketPath: String { directory.path + "/s" }
}

extension FakeServer {
  /// A link that is connected: what a busy machine takes for that counts towards no timeout.
  func connectedLink(
    options: LinkOptions = LinkOptions(), _ change: (inout ServerAddress) -> Void = { _ in }
  ) throws -> Link {
    let connected = DispatchSemaphore(value: 0)
    let handlers = LinkHandlers(onConnect: { connected.signal() })
    let link = link(options: options, handlers: handlers, change)
    try link.connect()
    connected.wait()
    return link
  }
}

/// The server's end of one connection.
final class FakeConnection {
  private let descriptor: Int32
  private var parser = ReplyParser(limit: 1 << 30)
  private var input: [UInt8] = []

  init(_ descriptor: Int32) { self.descriptor = descriptor }

  /// The next command; nil at the end.
  func command() -> [String]? {
    while true {
      let (reply, rest) = input.withUnsafeBytes { bytes -> (Reply?, [UInt8]) in
        var rest = bytes
        // Commands are arrays of bulk strings, as replies may be.
        let reply = try? parser.next(&rest)
        return (reply, Array(rest))
      }
      input = rest
      if case .array(let words) = reply {
        return words.map { word in
          if case .bytes(let bytes) = word { String(decoding: bytes, as: UTF8.self) } else { "" }
        }
      }
      var buffer = [UInt8](repeating: 0, count: 65_536)
      let count = recv(descriptor, &buffer, buffer.count, 0)
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { return nil }
      input = Array(buffer[..<count])
    }
  }

  func send(_ text: String) { send(Array(text.utf8)) }

  func send(_ bytes: [UInt8]) {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes {
        Foundation.send(descriptor, $0.baseAddress, $0.count, Socket.noSignal)
      }
      guard count > 0 else { return }
      rest = rest.dropFirst(count)
    }
  }

  /// Answers the commands with which a connection begins. False if it ends before.
  func greet() -> Bool {
    while let words = command() {
      if words.first == "PING" {
        send("+PONG\r\n")
        return true
      }
      send("+OK\r\n")
    }
    return false
  }

  /// Gives this reply to all commands.
  func answer(_ reply: String) { while command() != nil { send(reply) } }

  /// Answers each command with its last word.
  func echo() { while let words = command() { send("+\(words.last ?? "")\r\n") } }

  /// Confirms all subscriptions to the channel `c`.
  ///
  /// - Parameter note: Called with the name of each command. The connection ends if it returns
  ///   false.
  func subscribe(_ note: (String) -> Bool = { _ in true }) {
    while let words = command(), note(words[0]) {
      send(words[0] == "SUBSCRIBE" ? "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n" : "+OK\r\n")
    }
  }

  func shutDown() { shutdown(descriptor, Int32(SHUT_RDWR)) }

  /// Waits until input has arrived, without reading it.
  func waitForInput() {
    var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    while poll(&entry, 1, -1) == -1, errno == EINTR {}
  }

  /// Waits until the other side ends the connection, without reading.
  func waitForShutdown() {
    var entry = pollfd(fd: descriptor, events: 0, revents: 0)
    // Also when the other side still writes: it ends both directions.
    while poll(&entry, 1, 60_000) == -1 || entry.revents & Int16(POLLHUP | POLLERR) == 0 {
      if entry.revents & Int16(POLLNVAL) != 0 { return }
    }
  }

  /// Whether the other side has ended the connection.
  var hasEnded: Bool {
    var entry = pollfd(fd: descriptor, events: 0, revents: 0)
    return poll(&entry, 1, 0) > 0
  }

  /// Reads until the other side ends the connection.
  func waitForEnd() { while command() != nil {} }
}
