import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeValkey

/// A server that does what a test says, on a socket in a temporary directory.
final class FakeServer: SocketServer, @unchecked Sendable {
  private let directory: ServerDirectory
  private let listener: Int32
  private let lock = NSLock()
  private var connections: [Int32] = []
  private var count = 0
  private var isClosed = false

  /// - Parameter serve: Called on a thread of its own for each connection, with its number from 0.
  ///   The connection is closed when it returns.
  init(_ serve: @escaping @Sendable (FakeConnection, Int) -> Void) throws {
    directory = try ServerDirectory()
    listener = socket(AF_UNIX, Socket.streamType, 0)
    try #require(listener >= 0)
    let address = try #require(SocketAddress(path: directory.path + "/s"))
    let result = address.bytes.withUnsafeBytes { bytes in
      bind(
        listener, bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self),
        socklen_t(bytes.count))
    }
    try #require(result == 0 && listen(listener, 64) == 0)
    Thread.detachNewThread { [weak self, listener] in
      while true {
        let descriptor = accept(listener, nil, nil)
        if descriptor < 0, errno == EINTR { continue }
        guard descriptor >= 0, let number = self?.add(descriptor) else {
          if descriptor >= 0 { close(descriptor) }
          return
        }
        Thread.detachNewThread { [weak self] in
          serve(FakeConnection(descriptor), number)
          shutdown(descriptor, Int32(SHUT_RDWR))
          if let self { self.remove(descriptor) } else { close(descriptor) }
        }
      }
    }
  }

  deinit {
    // Ends the threads, which close their connections.
    lock.withLock {
      for descriptor in connections { shutdown(descriptor, Int32(SHUT_RDWR)) }
    }
    shutdown(listener, Int32(SHUT_RDWR))
    close(listener)
  }

  private func add(_ descriptor: Int32) -> Int {
    lock.withLock {
      connections.append(descriptor)
      defer { count += 1 }
      return count
    }
  }

  private func remove(_ descriptor: Int32) {
    lock.withLock {
      connections.removeAll { $0 == descriptor }
      close(descriptor)
    }
  }

  var connectionCount: Int { lock.withLock { count } }

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
      guard count > 0 else { return nil }
      input = Array(buffer[..<count])
    }
  }

  func send(_ text: String) { send(Array(text.utf8)) }

  func send(_ bytes: [UInt8]) {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes {
        KeepsakeValkeyTests.send(descriptor, $0.baseAddress, $0.count)
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

  /// Greets, and confirms all subscriptions to the channel `c`.
  ///
  /// - Parameter note: Called with the name of each command. The connection ends if it returns
  ///   false.
  func subscribe(_ note: (String) -> Bool) {
    guard greet() else { return }
    while let words = command(), note(words[0]) {
      send(words[0] == "SUBSCRIBE" ? "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n" : "+OK\r\n")
    }
  }

  /// Waits until the other side ends the connection, without reading.
  func waitForShutdown() {
    var entry = pollfd(fd: descriptor, events: 0, revents: 0)
    // Also when the other side still writes: it ends both directions.
    while poll(&entry, 1, 60_000) == -1 || entry.revents & Int16(POLLHUP | POLLERR) == 0 {
      if entry.revents & Int16(POLLNVAL) != 0 { return }
    }
  }

  /// Reads until the other side ends the connection.
  func waitForEnd() { while command() != nil {} }
}

private func send(_ descriptor: Int32, _ bytes: UnsafeRawPointer?, _ count: Int) -> Int {
  send(descriptor, bytes, count, Socket.noSignal)
}
