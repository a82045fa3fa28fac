package import Keepsake

extension ServerAddress {
  /// Parses a URL.
  ///
  /// No error quotes any part of it: where a password is not percent-encoded, any part may be one.
  package init(_ url: String) throws(StorageError) {
    let bytes = Array(url.utf8)
    guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")) else {
      throw .invalidAddress(.scheme)
    }
    var rest = bytes[(colon + 1)...]
    if rest.contains(UInt8(ascii: "#")) { throw .invalidAddress(.reserved) }
    var parameters = ArraySlice<UInt8>()
    if let mark = rest.firstIndex(of: UInt8(ascii: "?")) {
      parameters = rest[(mark + 1)...]
      if parameters.contains(UInt8(ascii: "@")) { throw .invalidAddress(.reserved) }
      rest = rest[..<mark]
    }
    let scheme = String(decoding: bytes[..<colon], as: UTF8.self).lowercased()
    switch scheme {
    case "valkey", "redis", "valkeys", "rediss":
      guard rest.starts(with: "//".utf8) else { throw .invalidAddress(.host) }
      let (login, host, path) = try Self.split(rest)
      self.init(endpoint: try Self.endpoint(host))
      if path.count > 1 { database = try Self.database(path.dropFirst()) }
      try apply(login: login)
      isEncrypted = scheme == "valkeys" || scheme == "rediss"
    case "unix":
      let (login, host, path) = try Self.split(rest)
      guard host.isEmpty else { throw .invalidAddress(.socketPath) }
      self.init(endpoint: .unix(path: try Self.socketPath(path)))
      try apply(login: login)
    default: throw .invalidAddress(.scheme)
    }
    try apply(parameters)
    if key != nil, certificate == nil { throw .invalidAddress(.certificate) }
    guard user == nil || user?.isEmpty == false else { throw .invalidAddress(.user) }
  }

  /// The parts of `//user:password@host:port/path` or `/path`. A path begins with its slash.
  private static func split(
    _ text: ArraySlice<UInt8>
  ) throws(StorageError) -> (
    login: ArraySlice<UInt8>?, host: ArraySlice<UInt8>, path: ArraySlice<UInt8>
  ) {
    let authority =
      text.starts(with: "//".utf8)
      ? text.dropFirst(2).prefix { $0 != UInt8(ascii: "/") } : text.prefix(0)
    let path = text[authority.endIndex...]
    let parts = authority.split(separator: UInt8(ascii: "@"), omittingEmptySubsequences: false)
    guard parts.count <= 2, !path.contains(UInt8(ascii: "@")), let host = parts.last else {
      throw .invalidAddress(.reserved)
    }
    return (parts.count == 2 ? parts[0] : nil, host, path)
  }

  private static func socketPath(_ text: ArraySlice<UInt8>) throws(StorageError) -> String {
    let path = try decode(text)
    guard path.utf8.first == UInt8(ascii: "/"), !path.utf8.contains(0),
      path.utf8.count <= SocketAddress.maximumPathLength
    else { throw .invalidAddress(.socketPath) }
    return path
  }

  private mutating func apply(login: ArraySlice<UInt8>?) throws(StorageError) {
    guard let login else { return }
    let colon = login.firstIndex(of: UInt8(ascii: ":"))
    let name = try Self.decode(login[..<(colon ?? login.endIndex)])
    if let colon {
      password = try Self.decode(login[(colon + 1)...])
      user = name.isEmpty ? nil : name
    } else {
      user = name
    }
  }

  private static func endpoint(_ text: ArraySlice<UInt8>) throws(StorageError) -> Endpoint {
    var (host, port) = (text, ArraySlice<UInt8>?.none)
    if text.first == UInt8(ascii: "[") {
      guard let end = text.firstIndex(of: UInt8(ascii: "]")) else { throw .invalidAddress(.host) }
      host = text[..<end].dropFirst()
      let rest = text[(end + 1)...]
      guard rest.isEmpty || rest.first == UInt8(ascii: ":") else { throw .invalidAddress(.host) }
      if !rest.isEmpty { port = rest.dropFirst() }
    } else if let colon = text.firstIndex(of: UInt8(ascii: ":")) {
      (host, port) = (text[..<colon], text[(colon + 1)...])
    }
    let isAddress = text.first == UInt8(ascii: "[")
    guard !host.isEmpty, host.count <= 255, host.allSatisfy({ isHost($0, isAddress) }) else {
      throw .invalidAddress(.host)
    }
    let number = port.map { digits($0).flatMap { UInt16(exactly: $0) } } ?? defaultPort
    guard let number, number > 0 else { throw .invalidAddress(.port) }
    return .tcp(host: String(decoding: host, as: UTF8.self), port: number)
  }

  private static func isHost(_ byte: UInt8, _ isAddress: Bool) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"),
      UInt8(ascii: "_"):
      true
    case UInt8(ascii: ":"), UInt8(ascii: "%"): isAddress
    default: false
    }
  }

  private static func database(_ text: ArraySlice<UInt8>) throws(StorageError) -> Int {
    guard let number = digits(text), let database = Int32(exactly: number) else {
      throw .invalidAddress(.database)
    }
    return Int(database)
  }

  private static func digits(_ text: ArraySlice<UInt8>) -> Int64? {
    guard let first = text.first, first >= UInt8(ascii: "0") else { return nil }
    return ReplyParser.integer(text)
  }

  private mutating func apply(_ parameters: ArraySlice<UInt8>) throws(StorageError) {
    for parameter in parameters.split(separator: UInt8(ascii: "&")) {
      guard let sign = parameter.firstIndex(of: UInt8(ascii: "=")) else {
        throw .invalidAddress(.parameter)
      }
      let value = parameter[(sign + 1)...]
      switch String(decoding: parameter[..<sign], as: UTF8.self) {
      case "ca": authorities = try path(value, orElse: .authorities)
      case "cert": certificate = try path(value, orElse: .certificate)
      case "key": key = try path(value, orElse: .certificate)
      case "db": database = try Self.database(value)
      case "timeout": requestTimeout = try Self.duration(value)
      case "connect-timeout": connectTimeout = try Self.duration(value)
      default: throw .invalidAddress(.parameter)
      }
    }
  }

  /// The absolute path of a file that TLS needs.
  private func path(
    _ text: ArraySlice<UInt8>, orElse problem: AddressProblem
  ) throws(StorageError) -> String {
    let path = try Self.decode(text)
    guard isEncrypted, path.utf8.first == UInt8(ascii: "/"), !path.utf8.contains(0) else {
      throw .invalidAddress(problem)
    }
    return path
  }

  /// `500ms` or `2s`: from a millisecond to an hour.
  private static func duration(_ text: ArraySlice<UInt8>) throws(StorageError) -> Duration {
    let number = text.prefix { $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") }
    let unit: Int64? =
      switch String(decoding: text[number.endIndex...], as: UTF8.self) {
      case "ms": 1
      case "s": 1_000
      default: nil
      }
    guard let unit, let value = digits(number), value <= 3_600_000 else {
      throw .invalidAddress(.timeout)
    }
    guard (1...3_600_000).contains(value * unit) else { throw .invalidAddress(.timeout) }
    return .milliseconds(value * unit)
  }

  private static func decode(_ text: ArraySlice<UInt8>) throws(StorageError) -> String {
    guard let decoded = PercentEncoding.decode(text) else { throw .invalidAddress(.encoding) }
    return decoded
  }
}

/// What is wrong with the URL of a server, and what to do about it.
enum AddressProblem: String, Sendable {
  case scheme = "the URL does not begin with the scheme of a server"
  case host = "the URL names no valid host"
  case port = "the port in the URL is not a number from 1 to 65535"
  case database = "the database in the URL is not a number"
  case user = "the user in the URL is empty"
  case socketPath = "the URL names no valid path of a socket"
  case authorities = "the parameter ca is not the absolute path of a file, or there is no TLS"
  case certificate =
    "cert or key is not the absolute path of a file, there is no TLS, or a key has no certificate"
  case timeout = "a timeout in the URL is not a duration"
  case parameter = "the URL has an unknown parameter"
  case reserved = "a reserved character is in the wrong part of the URL"
  case encoding = "the URL has an invalid percent encoding"

  var remedy: String {
    switch self {
    case .scheme: "Begin it with valkey://, valkeys://, redis://, rediss:// or unix:///."
    case .host: "Write it as valkey://host:6379, with an IPv6 address in brackets."
    case .port: "Write it as valkey://host:6379."
    case .database: "Write it as valkey://host:6379/0, or as ?db=0 after the path of a socket."
    case .user: "Write it as valkey://user:password@host, or as valkey://:password@host."
    case .socketPath:
      "Write it as unix:///run/valkey.sock, with at most \(SocketAddress.maximumPathLength) bytes."
    case .authorities: "Write it as valkeys://host?ca=/path/ca.pem."
    case .certificate: "Write it as valkeys://host?cert=/path/client.pem&key=/path/client.key."
    case .timeout: "Write it as 500ms or 2s, up to an hour."
    case .parameter: "Use only ca, cert, key, db, timeout and connect-timeout."
    case .reserved: "Percent-encode @, /, ?, # and : in the user, the password and paths."
    case .encoding: "Write % as %25, and other bytes of UTF-8 as % with two hexadecimal digits."
    }
  }
}

extension StorageError {
  static func invalidAddress(_ problem: AddressProblem) -> StorageError {
    StorageError(
      .misuse, operation: "connect", reason: problem.rawValue, remedy: problem.remedy)
  }
}
