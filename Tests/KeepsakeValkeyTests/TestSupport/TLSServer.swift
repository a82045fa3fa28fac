import Foundation
import Testing

@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// A server that speaks TLS on a port of 127.0.0.1, and its certificates.
struct TLSServer {
  let certificates: Certificates
  let server: TestServer
  let port: Int
  let plainPort: Int
  /// Also while the server is started again.
  private let reserved: (ReservedPort, ReservedPort)

  /// - Parameter arguments: More settings.
  init(
    hosts: String, by authority: String = "authority", subject: String? = nil,
    _ arguments: [String] = []
  ) throws {
    let certificates = try Certificates()
    try certificates.issue("server", for: hosts, by: authority, subject: subject)
    self.certificates = certificates
    let port = try ReservedPort()
    let plainPort = try ReservedPort()
    server = try TestServer(
      [
        "--tls-port", "\(port.number)", "--port", "\(plainPort.number)", "--bind", "127.0.0.1",
        "--tls-cert-file", certificates.path("server.pem"),
        "--tls-key-file", certificates.path("server.key"),
        "--tls-ca-cert-file", certificates.path("authority.pem"), "--tls-auth-clients", "no",
      ] + arguments)
    // Valkey listens on the socket in the directory before it does on this port.
    waitUntil("the server does not listen") { port.acceptsConnections }
    (self.port, self.plainPort) = (port.number, plainPort.number)
    reserved = (port, plainPort)
  }

  func address(
    _ url: String, authorities: String? = "authority.pem"
  ) throws -> ServerAddress {
    var address = try ServerAddress(url).patient
    if let authorities { address.authorities = certificates.path(authorities) }
    return address
  }

  func link(
    _ url: String, authorities: String? = "authority.pem", options: LinkOptions = LinkOptions(),
    _ change: (inout ServerAddress) -> Void = { _ in }
  ) throws -> Link {
    var address = try address(url, authorities: authorities)
    change(&address)
    let kept = (server, certificates.directory)
    return Link(
      address, options: options,
      handlers: LinkHandlers(onConnect: { withExtendedLifetime(kept) {} }))
  }
}

/// A port of 127.0.0.1 that no other program gets. A server can bind it nevertheless, because
/// servers allow that for ports on which nobody listens (`SO_REUSEADDR`).
final class ReservedPort: Sendable {
  private let descriptor: Int32
  private let address: [UInt8]

  init() throws {
    descriptor = socket(AF_INET, Socket.streamType, 0)
    var yes = Int32(1)
    setsockopt(
      descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
    address = try Loopback.bind(descriptor, to: Loopback.anyPort)
  }

  var number: Int { Loopback.port(address) }

  /// Whether the server listens on it.
  var acceptsConnections: Bool {
    let client = socket(AF_INET, Socket.streamType, 0)
    defer { close(client) }
    return Loopback.connect(client, to: address)
  }

  deinit { close(descriptor) }
}
