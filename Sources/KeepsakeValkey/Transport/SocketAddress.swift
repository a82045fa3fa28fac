internal import Keepsake
internal import KeepsakeLibc

/// An address that a socket connects to, as the system has it.
struct SocketAddress: Sendable {
  let family: Int32
  /// A `sockaddr` of that family.
  let bytes: [UInt8]

  /// The longest path that fits with the zero that ends it.
  static let maximumPathLength = MemoryLayout.size(ofValue: sockaddr_un().sun_path) - 1

  /// A socket in the file system.
  init?(path: String) {
    let name = Array(path.utf8)
    guard !name.isEmpty, name.count <= Self.maximumPathLength, !name.contains(0) else { return nil }
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: name) }
    family = AF_UNIX
    bytes = withUnsafeBytes(of: &address) { Array($0) }
  }

  /// Whether a host is a literal address of this machine alone.
  static func isLoopback(_ host: String) -> Bool {
    var (short, long) = (in_addr(), in6_addr())
    if inet_pton(AF_INET, host, &short) == 1 { return withUnsafeBytes(of: short) { $0[0] == 127 } }
    guard inet_pton(AF_INET6, host, &long) == 1 else { return false }
    return withUnsafeBytes(of: long) { bytes in
      let zeros = bytes.prefix { $0 == 0 }.count
      // The second is an address of IPv4 in one of IPv6.
      return zeros == 15 && bytes[15] == 1
        || zeros == 10 && bytes[10] == 0xFF && bytes[11] == 0xFF && bytes[12] == 127
    }
  }

  private init(_ information: addrinfo) {
    family = information.ai_family
    bytes = Array(
      UnsafeRawBufferPointer(start: information.ai_addr, count: Int(information.ai_addrlen)))
  }

  /// All addresses of a server, in the order in which they are to be tried. Waits for the system's
  /// resolver.
  static func resolve(_ server: ServerAddress) throws(StorageError) -> [SocketAddress] {
    switch server.endpoint {
    case .unix(let path): return SocketAddress(path: path).map { [$0] } ?? []
    case .tcp(let host, let port):
      var hints = addrinfo()
      hints.ai_family = AF_UNSPEC
      #if canImport(Glibc)
      hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
      #else
      hints.ai_socktype = SOCK_STREAM
      #endif
      hints.ai_flags = AI_NUMERICSERV
      var first: UnsafeMutablePointer<addrinfo>?
      let code = getaddrinfo(host, String(port), &hints, &first)
      guard code == 0 else {
        throw StorageError(
          .unreachable, operation: "connect", path: server.description,
          reason: "the host's name cannot be resolved (getaddrinfo: "
            + "\(String(cString: gai_strerror(code))))",
          remedy: "Check the host's name and the resolver of this machine.")
      }
      defer { freeaddrinfo(first) }
      var addresses: [SocketAddress] = []
      var next = first
      while let current = next {
        addresses.append(SocketAddress(current.pointee))
        next = current.pointee.ai_next
      }
      return addresses
    }
  }
}
