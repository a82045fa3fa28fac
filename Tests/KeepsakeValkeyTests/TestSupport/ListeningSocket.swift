import Foundation
import Testing

@testable import KeepsakeValkey

/// A socket that accepts connections.
///
/// Closed only when neither its server nor its thread uses it: to shut down the number of a closed
/// one would end whatever has got that number since, such as a connection of another test.
final class ListeningSocket: Sendable {
  private let descriptor: Int32
  /// The port of 127.0.0.1; 0 for a path.
  let port: Int

  /// - Parameter path: Where to make the socket; nil for a port that the system chooses.
  init(path: String?) throws {
    descriptor = socket(path == nil ? AF_INET : AF_UNIX, Socket.streamType, 0)
    let address = try path.map { try #require(SocketAddress(path: $0)).bytes } ?? Loopback.anyPort
    let bytes = try Loopback.bind(descriptor, to: address)
    port = path == nil ? Loopback.port(bytes) : 0
    try #require(listen(descriptor, 64) == 0)
  }

  deinit { close(descriptor) }

  /// Waits for the next connection; nil after ``end()``.
  func nextConnection() -> Int32? {
    while true {
      let connection = accept(descriptor, nil, nil)
      if connection >= 0 { return connection }
      if errno == EINTR || errno == ECONNABORTED { continue }
      // Shut down.
      if errno != EINVAL { Issue.record("accept: \(String(cString: strerror(errno)))") }
      return nil
    }
  }

  /// Refuses connections from now on, and ends the wait for them.
  func end() { shutdown(descriptor, Int32(SHUT_RDWR)) }
}

/// Addresses of this machine, as the system has them.
enum Loopback {
  /// A port of 127.0.0.1 that the system chooses.
  static var anyPort: [UInt8] {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = inet_addr("127.0.0.1")
    return withUnsafeBytes(of: &address) { Array($0) }
  }

  static func port(_ address: [UInt8]) -> Int { Int(address[2]) << 8 | Int(address[3]) }

  /// Binds a socket, and returns the address that it has got.
  static func bind(_ descriptor: Int32, to address: [UInt8]) throws -> [UInt8] {
    var bytes = address
    let isBound = bytes.withUnsafeMutableBytes { bytes in
      let address = bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self)
      var length = socklen_t(bytes.count)
      return Foundation.bind(descriptor, address, length) == 0
        && getsockname(descriptor, address, &length) == 0
    }
    try #require(isBound)
    return bytes
  }

  /// Connects a socket, and returns whether somebody listens there.
  static func connect(_ descriptor: Int32, to address: [UInt8]) -> Bool {
    address.withUnsafeBytes { bytes in
      let address = bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self)
      return Foundation.connect(descriptor, address, socklen_t(bytes.count)) == 0
    }
  }
}
