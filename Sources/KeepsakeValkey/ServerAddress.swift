/// Where a server is, and how to log in.
///
/// As text it is a URL:
///
/// - `valkey://host:6379/0`, `redis://…`: TCP, with the number of the database.
/// - `valkeys://host:6379/0`, `rediss://…`: with TLS. `?ca=/path/ca.pem` names a file of the
///   certificate authorities to trust instead of the system's.
///   `?cert=/path/client.pem&key=/path/client.key` names the client's own certificate.
/// - `unix:///run/valkey.sock?db=0`: a socket in the file system.
///
/// `user:password@`, percent-encoded, comes before the host or the path. `connect-timeout` and
/// `timeout` are parameters such as `500ms` or `2s`.
package struct ServerAddress: Hashable, Sendable {
  enum Endpoint: Hashable, Sendable {
    case tcp(host: String, port: UInt16)
    case unix(path: String)
  }

  var endpoint: Endpoint
  var isEncrypted = false
  var user: String?
  var password: String?
  var database = 0
  /// The file of the certificate authorities; nil for the system's.
  var authorities: String?
  /// The file of the client's certificate; nil if it has none.
  var certificate: String?
  /// The file of its key; nil if that is in the file of the certificate.
  var key: String?
  /// How long connecting may take, including all that is sent before the first request.
  var connectTimeout = Duration.seconds(2)
  /// How long a request waits for its reply.
  var requestTimeout = Duration.seconds(1)

  static let defaultPort: UInt16 = 6_379

  init(endpoint: Endpoint) { self.endpoint = endpoint }

  /// Whether what is sent does not leave this machine.
  var isOnThisMachine: Bool {
    switch endpoint {
    case .unix: true
    case .tcp(let host, _): host.lowercased() == "localhost" || SocketAddress.isLoopback(host)
    }
  }
}

extension ServerAddress: CustomStringConvertible, CustomDebugStringConvertible,
  CustomReflectable
{
  /// The URL without user, password and parameters.
  package var description: String {
    let suffix = database == 0 ? "" : "/\(database)"
    switch endpoint {
    case .tcp(let host, let port):
      let name = host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host
      return "\(isEncrypted ? "valkeys" : "valkey")://\(name):\(port)\(suffix)"
    case .unix(let path): return "unix://\(path)" + (database == 0 ? "" : "?db=\(database)")
    }
  }

  /// The same: no description contains the password.
  package var debugDescription: String { description }
  package var customMirror: Mirror { Mirror(self, children: ["url": description]) }
}
