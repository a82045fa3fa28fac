// Web pages that are downloaded once. After that, the program asks the server whether they have
// changed.
//
//   swift run keepsake-pages serve DIRECTORY                  serves its files until Control-C
//   swift run keepsake-pages get http://localhost:PORT/FILE   prints a page, or its copy
//
// The server logs each answer. The first `get` logs `200` and the size of the page, each later one
// `304` and no byte, until the file changes. Stop the server, and `get` still prints the old page.

import Dispatch
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

// MARK: The cache

struct UnexpectedStatus: Error {
  var status: Int
}

/// A page, which is downloaded only if the server has a different version than the cache.
func page(_ address: Address) async throws -> Data? {
  // A page that the server does not allow to be reused expires at once, but is kept for
  // revalidation.
  let page = try await DiskCache.fetch(
    address.text, expiry: .seconds(0), staleIfFailing: .days(1), cache: "Pages"
  ) { (old: DiskCache.CachedValue<Data>?) in
    let response = try await HTTP.get(address, ifNoneMatch: old?.tags["etag"])
    let expiry = DiskCache.Expiry.seconds(response.maximumAge)
    switch response.status {
    case 200:
      let tags = response.headers["etag"].map { ["etag": $0] } ?? [:]
      return .value(response.body, tags: tags, expiry: expiry)
    case 304: return .unchanged(expiry: expiry)
    case 404, 410: return .gone
    default: throw UnexpectedStatus(status: response.status)
    }
  }
  return page?.value
}

/// Prints a page. With a count, that many tasks fetch it at the same time.
func get(_ text: String, count: Int) async throws {
  guard let address = Address(text) else {
    throw Exit(message: "\"\(text)\" is no address such as http://localhost:80/a.", status: 64)
  }
  let pages = try await withThrowingTaskGroup(of: Data?.self) { group in
    for _ in 0..<count { group.addTask { try await page(address) } }
    return try await group.reduce(into: [Data?]()) { $0.append($1) }
  }
  guard let page = pages[0] else { throw Exit(message: "There is no \(text).", status: 66) }
  page.withUnsafeBytes { _ = fwrite($0.baseAddress, 1, $0.count, stdout) }
}

// MARK: A small web server

/// Serves the files of a directory, each with a tag that changes with it.
func serve(_ path: String) throws {
  let folder = Folder(URL(filePath: path, directoryHint: .isDirectory))
  let listener = try HTTP.listen()
  print("Serving on http://localhost:\(try HTTP.port(of: listener))")
  fflush(stdout)
  while true {
    let connection = accept(listener, nil, nil)
    guard connection >= 0 else { continue }
    DispatchQueue.global().async {
      defer { close(connection) }
      guard let (line, headers, _) = try? HTTP.receive(from: connection) else { return }
      let words = line.split(separator: " ")
      let name = words.count > 1 ? String(words[1].dropFirst()) : ""
      var (status, tag, body) = ("404 Not Found", "", Data())
      if let data: Data = try? folder.load(name) {
        // A real server uses a hash that no two contents share.
        tag = "\"\(data.count)-\(data.reduce(UInt64(5_381)) { $0 &* 33 &+ UInt64($1) })\""
        (status, body) =
          headers["if-none-match"] == tag ? ("304 Not Modified", Data()) : ("200 OK", data)
      }
      print("\(status.prefix(3)) /\(name) \(body.count)")
      fflush(stdout)
      let head =
        "HTTP/1.1 \(status)\r\nETag: \(tag)\r\nCache-Control: max-age=0\r\n"
        + "Content-Length: \(body.count)\r\nConnection: close\r\n\r\n"
      try? HTTP.send(Data(head.utf8) + body, to: connection)
    }
  }
}

// MARK: As much of HTTP as this needs

/// The address of a page of this machine.
struct Address: Sendable {
  let text: String
  let port: UInt16
  let path: String

  init?(_ text: String) {
    let prefix = "http://localhost:"
    guard text.hasPrefix(prefix) else { return nil }
    let rest = text.dropFirst(prefix.count)
    guard let slash = rest.firstIndex(of: "/"), let port = UInt16(rest[..<slash]) else {
      return nil
    }
    (self.text, self.port, path) = (text, port, String(rest[slash...]))
  }
}

struct SocketError: Error, CustomStringConvertible {
  let call: String
  let code = errno

  var description: String { "\(call): \(String(cString: strerror(code)))" }
}

struct Response: Sendable {
  var status: Int
  /// By names in lowercase.
  var headers: [String: String]
  var body: Data

  /// For how many seconds the server lets others reuse the page.
  var maximumAge: Int {
    let rule = headers["cache-control"]?.split(separator: "max-age=").last
    return rule.flatMap { Int($0.prefix { $0.isNumber }) } ?? 0
  }
}

enum HTTP {
  static func get(_ address: Address, ifNoneMatch tag: String?) async throws -> Response {
    try await withCheckedThrowingContinuation { continuation in
      // Calls that wait for the network, on a thread that tasks do not need.
      DispatchQueue.global().async {
        continuation.resume(with: Result { try request(address, tag) })
      }
    }
  }

  private static func request(_ address: Address, _ tag: String?) throws -> Response {
    let socket = makeSocket()
    defer { close(socket) }
    var local = loopback(address.port)
    guard withAddress(&local, { connect(socket, $0, $1) }) == 0 else {
      throw SocketError(call: "connect")
    }
    let condition = tag.map { "If-None-Match: \($0)\r\n" } ?? ""
    try send(
      Data("GET \(address.path) HTTP/1.1\r\nHost: localhost\r\n\(condition)\r\n".utf8), to: socket)
    let (line, headers, body) = try receive(from: socket)
    let words = line.split(separator: " ")
    guard words.count > 1, let status = Int(words[1]) else { throw SocketError(call: "HTTP") }
    return Response(status: status, headers: headers, body: body)
  }

  /// The first line, the headers and the body of a message.
  static func receive(from socket: Int32) throws -> (String, [String: String], Data) {
    var bytes = Data()
    var buffer = [UInt8](repeating: 0, count: 65_536)
    func more() throws -> Bool {
      let count = recv(socket, &buffer, buffer.count, 0)
      if count < 0 { throw SocketError(call: "recv") }
      bytes.append(contentsOf: buffer[..<count])
      return count > 0
    }
    var end: Range<Data.Index>?
    repeat {
      guard try more() else { throw SocketError(call: "recv") }
      end = bytes.firstRange(of: Data("\r\n\r\n".utf8))
    } while end == nil
    let head = end.map { bytes[..<$0.lowerBound] } ?? Data()
    let lines = String(decoding: head, as: UTF8.self).split(separator: "\r\n")
    var headers: [String: String] = [:]
    for line in lines.dropFirst() {
      let parts = line.split(separator: ": ", maxSplits: 1)
      if parts.count == 2 { headers[parts[0].lowercased()] = String(parts[1]) }
    }
    let length = headers["content-length"].flatMap { Int($0) } ?? 0
    let start = end?.upperBound ?? bytes.endIndex
    while bytes.endIndex - start < length, try more() {}
    // A body that ended early must not be stored.
    guard bytes.endIndex - start == length else { throw SocketError(call: "recv") }
    return (lines.first.map(String.init) ?? "", headers, Data(bytes[start...]))
  }

  static func send(_ data: Data, to socket: Int32) throws {
    var rest = data[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes {
        write(socket, $0.baseAddress, $0.count)
      }
      if count <= 0 { throw SocketError(call: "write") }
      rest = rest.dropFirst(count)
    }
  }

  /// Listens on a free port of this machine, which other machines cannot reach.
  static func listen() throws -> Int32 {
    let socket = makeSocket()
    var local = loopback(0)
    guard withAddress(&local, { bind(socket, $0, $1) }) == 0 else {
      throw SocketError(call: "bind")
    }
    #if canImport(Glibc)
    guard Glibc.listen(socket, 128) == 0 else { throw SocketError(call: "listen") }
    #elseif canImport(Musl)
    guard Musl.listen(socket, 128) == 0 else { throw SocketError(call: "listen") }
    #endif
    return socket
  }

  static func port(of socket: Int32) throws -> UInt16 {
    var local = sockaddr_in()
    let result = withAddress(&local) { address, size in
      var size = size
      return getsockname(socket, UnsafeMutablePointer(mutating: address), &size)
    }
    guard result == 0 else { throw SocketError(call: "getsockname") }
    return UInt16(bigEndian: local.sin_port)
  }

  private static func makeSocket() -> Int32 {
    #if canImport(Glibc)
    socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    #else
    socket(AF_INET, SOCK_STREAM, 0)
    #endif
  }

  private static func loopback(_ port: UInt16) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    return address
  }

  private static func withAddress(
    _ address: inout sockaddr_in, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
  ) -> Int32 {
    withUnsafeMutablePointer(to: &address) { address in
      address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
  }
}

// MARK: The command line

/// Ends the program with a line on standard error and an exit code from sysexits.h.
struct Exit: Error {
  var message: String
  var status: Int32
}

let usage = """
  usage: keepsake-pages serve DIRECTORY    serve its files until Control-C
         keepsake-pages get URL [COUNT]    print a page, for so many tasks at a time
  """

func run(_ arguments: [String]) async throws {
  switch (arguments.first, arguments.count) {
  case ("serve", 2): try serve(arguments[1])
  case ("get", 2): try await get(arguments[1], count: 1)
  case ("get", 3):
    guard let count = Int(arguments[2]), 1...10_000 ~= count else {
      throw Exit(message: "\"\(arguments[2])\" is not a count.", status: 64)
    }
    try await get(arguments[1], count: count)
  case ("--help", 1), ("-h", 1): print(usage)
  default: throw Exit(message: usage, status: 64)
  }
}

func fail(_ message: String, status: Int32) -> Never {
  fputs("\(message)\n", stderr)
  exit(status)
}

do {
  // Writing to a peer that is gone is an error, and does not end the program.
  signal(SIGPIPE, SIG_IGN)
  try StorageSystem.bootstrap(app: "keepsake-pages")
  try await run(Array(CommandLine.arguments.dropFirst()))
} catch let exit as Exit {
  fail(exit.message, status: exit.status)
} catch {
  fail("\(error)", status: 69)
}
if fflush(stdout) != 0 { fail("The output cannot be written.", status: 74) }
