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
    let descriptor = socket(path == nil ? AF_INET : AF_UNIX, Socket.streamType, 0)
    self.descriptor = descriptor
    var loopback = sockaddr_in()
    loopback.sin_family = sa_family_t(AF_INET)
    loopback.sin_addr.s_addr = inet_addr("127.0.0.1")
    var bytes = withUnsafeBytes(of: &loopback) { Array($0) }
    if let path { bytes = try #require(SocketAddress(path: path)).bytes }
    let isListening = bytes.withUnsafeMutableBytes { bytes in
      let address = bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self)
      var length = socklen_t(bytes.count)
      return bind(descriptor, address, length) == 0 && listen(descriptor, 64) == 0
        && getsockname(descriptor, address, &length) == 0
    }
    try #require(isListening)
    port = path == nil ? Int(bytes[2]) << 8 | Int(bytes[3]) : 0
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
