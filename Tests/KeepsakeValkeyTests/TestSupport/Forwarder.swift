import Foundation
import Testing

@testable import KeepsakeValkey

/// Passes bytes between clients and the server that is current, as a load balancer does. It can
/// hold bytes back, and cut connections after so many of them.
final class Forwarder: @unchecked Sendable {
  enum Direction: CaseIterable {
    case toServer
    case toClient
  }

  /// A connection of a client, and the one to the server that belongs to it.
  private struct Pair {
    let client: Int32
    let server: Int32
    /// How many bytes may still pass; nil for any number.
    var limits: [Direction: Int] = [:]
    /// How many of its two threads run.
    var threadCount = 2
  }

  /// The file of the socket; nil for a port.
  private let directory: ServerDirectory?
  private let listener: ListeningSocket
  private let state = NSCondition()
  private var target: String?
  private var pairs: [Int: Pair] = [:]
  private var lastNumber = 0
  private var held: Set<Direction> = []
  private var pause = Duration.zero
  private var isClosed = false

  /// - Parameters:
  ///   - target: The path of the server's socket; nil if there is no server yet.
  ///   - usesPort: Whether it listens on a port of 127.0.0.1, which the system chooses.
  init(to target: String?, usesPort: Bool = false) throws {
    self.target = target
    directory = usesPort ? nil : try ServerDirectory()
    listener = try ListeningSocket(path: directory.map { $0.path + "/f" })
    Thread.detachNewThread { [weak self, listener] in
      while let client = listener.nextConnection() {
        guard let self else {
          close(client)
          return
        }
        add(client)
      }
    }
  }

  deinit { listener.end() }

  /// Ends all connections, and accepts no others.
  func end() {
    state.withLock {
      isClosed = true
      held = []
    }
    listener.end()
    cut()
  }

  /// The port of 127.0.0.1 that it listens on.
  var port: Int { listener.port }

  var address: ServerAddress {
    ServerAddress(endpoint: .unix(path: (directory?.path ?? "") + "/f")).patient
  }

  // MARK: What a test changes

  /// Passes new connections to another server; nil ends them. Those that exist stay.
  func forward(to path: String?) { state.withLock { target = path } }

  /// Ends all connections. What is held back is lost.
  func cut() {
    state.withLock {
      for pair in pairs.values { end(pair) }
      state.broadcast()
    }
  }

  /// Ends each connection that exists after so many more bytes.
  func cut(after count: Int, _ direction: Direction) {
    state.withLock {
      for (number, pair) in pairs {
        pairs[number]?.limits[direction] = count
        if count == 0, direction == .toClient { end(pair) }
      }
      state.broadcast()
    }
  }

  /// Holds back all bytes of this direction, or passes them on again.
  func hold(_ direction: Direction, _ isHeld: Bool = true) {
    state.withLock {
      if isHeld { held.insert(direction) } else { held.remove(direction) }
      state.broadcast()
    }
  }

  /// Waits this long before each 64 KiB, or fewer, are passed to the server.
  func slowDown(by pause: Duration) { state.withLock { self.pause = pause } }

  var connectionCount: Int { state.withLock { pairs.count } }

  // MARK: Its threads

  private func end(_ pair: Pair) {
    shutdown(pair.client, Int32(SHUT_RDWR))
    shutdown(pair.server, Int32(SHUT_RDWR))
  }

  private func add(_ client: Int32) {
    let server = socket(AF_UNIX, Socket.streamType, 0)
    let path = state.withLock { isClosed ? nil : target }
    guard server >= 0, let path, let address = SocketAddress(path: path),
      Loopback.connect(server, to: address.bytes)
    else {
      close(client)
      close(server)
      return
    }
    let number = state.withLock {
      lastNumber += 1
      pairs[lastNumber] = Pair(client: client, server: server)
      if isClosed { shutdown(client, Int32(SHUT_RDWR)) }
      return lastNumber
    }
    for direction in Direction.allCases {
      Thread.detachNewThread { [self] in
        let isToServer = direction == .toServer
        pass(isToServer ? client : server, isToServer ? server : client, number, direction)
        state.withLock {
          guard let pair = pairs[number] else { return }
          end(pair)
          state.broadcast()
          pairs[number]?.threadCount -= 1
          guard pairs[number]?.threadCount == 0 else { return }
          pairs[number] = nil
          close(client)
          close(server)
        }
      }
    }
  }

  private func pass(_ source: Int32, _ sink: Int32, _ number: Int, _ direction: Direction) {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while true {
      let count = recv(source, &buffer, buffer.count, 0)
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { return }
      if direction == .toServer { letTimePass(state.withLock { pause }) }
      let allowed: Int = state.withLock {
        while held.contains(direction), !isEnded(source), !isEnded(sink) {
          // Not only when it is woken: the other side may end the connection meanwhile.
          _ = state.wait(until: Date(timeIntervalSinceNow: 0.01))
        }
        if held.contains(direction) { return 0 }
        guard let limit = pairs[number]?.limits[direction] else { return count }
        pairs[number]?.limits[direction] = max(0, limit - count)
        return min(limit, count)
      }
      var start = 0
      while start < allowed {
        let sent = buffer[start..<allowed].withUnsafeBytes {
          send(sink, $0.baseAddress, $0.count, Socket.noSignal)
        }
        if sent < 0, errno == EINTR { continue }
        guard sent > 0 else { return }
        start += sent
      }
      if allowed < count { return }
    }
  }

  /// Whether no more can be written to a socket.
  private func isEnded(_ descriptor: Int32) -> Bool {
    var entry = pollfd(fd: descriptor, events: 0, revents: 0)
    return poll(&entry, 1, 0) > 0 && entry.revents & Int16(POLLHUP | POLLERR) != 0
  }
}
