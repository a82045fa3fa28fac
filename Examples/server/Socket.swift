// As much of HTTP and sockets as the example needs. A real server uses a framework.

import Dispatch

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

struct Request {
  var method = ""
  var path = ""
  /// By names in lowercase.
  var headers: [String: String] = [:]
  var body: [UInt8] = []
}

struct Response {
  var status = "200 OK"
  var text = ""

  var bytes: [UInt8] {
    let headers = "Content-Type: text/plain; charset=utf-8\r\nConnection: close"
    return Array(
      "HTTP/1.1 \(status)\r\nContent-Length: \(text.utf8.count)\r\n\(headers)\r\n\r\n\(text)".utf8)
  }
}

struct SocketError: Error, CustomStringConvertible {
  let call: String
  let code: Int32

  init(_ call: String) {
    self.call = call
    code = errno
  }

  var description: String { "\(call): \(String(cString: strerror(code)))" }
}

/// A socket. While a task waits for it, Dispatch watches it, so no thread is blocked.
final class Socket: Sendable {
  private static let queue = DispatchQueue(label: "sockets")
  private static let timeout = Duration.seconds(10)
  private static let maximumSize = 65_536

  private let descriptor: Int32

  private init(_ descriptor: Int32) {
    self.descriptor = descriptor
    _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
    _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
  }

  deinit { close(descriptor) }

  // MARK: Listening

  /// Listens on a port of this machine, which other machines cannot reach; 0 for any free one.
  static func listen(port: UInt16) throws -> Socket {
    #if canImport(Glibc)
    let type = Int32(SOCK_STREAM.rawValue)
    #else
    let type = SOCK_STREAM
    #endif
    let socket = Socket(socket(AF_INET, type, 0))
    var isReused: Int32 = 1
    setsockopt(
      socket.descriptor, SOL_SOCKET, SO_REUSEADDR, &isReused,
      socklen_t(MemoryLayout.size(ofValue: isReused)))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let isBound = withUnsafePointer(to: &address) { address in
      address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(socket.descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
      }
    }
    guard isBound else { throw SocketError("bind") }
    #if canImport(Glibc)
    guard Glibc.listen(socket.descriptor, 128) == 0 else { throw SocketError("listen") }
    #elseif canImport(Musl)
    guard Musl.listen(socket.descriptor, 128) == 0 else { throw SocketError("listen") }
    #endif
    return socket
  }

  var port: UInt16 {
    get throws {
      var address = sockaddr_in()
      var size = socklen_t(MemoryLayout<sockaddr_in>.size)
      let isKnown = withUnsafeMutablePointer(to: &address) { address in
        address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          getsockname(descriptor, $0, &size) == 0
        }
      }
      guard isKnown else { throw SocketError("getsockname") }
      return UInt16(bigEndian: address.sin_port)
    }
  }

  /// The next connection; nil after ``shutDown()``.
  func accept() async -> Socket? {
    while true {
      #if canImport(Glibc)
      let connection = Glibc.accept(descriptor, nil, nil)
      #elseif canImport(Musl)
      let connection = Musl.accept(descriptor, nil, nil)
      #endif
      if connection >= 0 { return Socket(connection) }
      switch errno {
      case EINVAL, EBADF: return nil
      case EAGAIN: await wait(until: .canRead)
      // Such as too many open files: try again when some connections have ended.
      default: try? await Task.sleep(for: .milliseconds(10))
      }
    }
  }

  /// Ends the connection, or the listening, for tasks that wait for it.
  func shutDown() { _ = shutdown(descriptor, Int32(SHUT_RDWR)) }

  // MARK: Serving a connection

  /// Reads a request and writes the answer, within a limited time.
  func serve(_ answer: @escaping @Sendable (Request) async throws -> Response) async {
    await withTaskGroup(of: Void.self) { group in
      group.addTask {
        guard let request = try? await self.readRequest() else { return }
        let response: Response
        do {
          response = try await answer(request)
        } catch {
          fputs("\(request.method) \(request.path): \(error)\n", stderr)
          response = Response(status: "500 Internal Server Error")
        }
        try? await self.write(response.bytes)
      }
      group.addTask {
        try? await Task.sleep(for: Self.timeout)
        if !Task.isCancelled { self.shutDown() }
      }
      await group.next()
      group.cancelAll()
    }
  }

  /// nil if it is not a request, is too large, or does not arrive.
  private func readRequest() async throws -> Request? {
    let end = Array("\r\n\r\n".utf8)
    var bytes: [UInt8] = []
    while true {
      if let head = bytes.indices.first(where: { bytes[$0...].starts(with: end) }) {
        guard var request = Self.parse(bytes[..<head]) else { return nil }
        let count = request.headers["content-length"].flatMap { Int($0) } ?? 0
        guard 0...Self.maximumSize ~= count else { return nil }
        request.body = Array(bytes[(head + end.count)...])
        while request.body.count < count, let more = try await read() { request.body += more }
        return request.body.count == count ? request : nil
      }
      guard bytes.count < Self.maximumSize, let more = try await read() else { return nil }
      bytes += more
    }
  }

  private static func parse(_ head: ArraySlice<UInt8>) -> Request? {
    guard let text = String(validating: head, as: UTF8.self) else { return nil }
    let lines = text.split(separator: "\r\n")
    let words = lines.first?.split(separator: " ") ?? []
    guard words.count == 3 else { return nil }
    var request = Request(method: String(words[0]), path: String(words[1]))
    for line in lines.dropFirst() {
      guard let colon = line.firstIndex(of: ":") else { return nil }
      let value = line[line.index(after: colon)...].drop { $0 == " " }
      request.headers[line[..<colon].lowercased()] = String(value)
    }
    return request
  }

  /// Bytes that have arrived; nil at the end.
  private func read() async throws -> [UInt8]? {
    var buffer = [UInt8](repeating: 0, count: 4_096)
    while true {
      let count = recv(descriptor, &buffer, buffer.count, 0)
      if count >= 0 { return count == 0 ? nil : Array(buffer[..<count]) }
      guard errno == EAGAIN || errno == EINTR else { throw SocketError("recv") }
      await wait(until: .canRead)
    }
  }

  private func write(_ bytes: [UInt8]) async throws {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { send(descriptor, $0.baseAddress, $0.count, 0) }
      if count >= 0 {
        rest = rest.dropFirst(count)
      } else if errno == EAGAIN || errno == EINTR {
        await wait(until: .canWrite)
      } else {
        throw SocketError("send")
      }
    }
  }

  /// What a task waits for.
  private enum Event { case canRead, canWrite }

  /// Waits until the socket can be read or written, or was shut down.
  private func wait(until event: Event) async {
    await withCheckedContinuation { continuation in
      let source: any DispatchSourceProtocol =
        switch event {
        case .canRead: DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: Self.queue)
        case .canWrite:
          DispatchSource.makeWriteSource(fileDescriptor: descriptor, queue: Self.queue)
        }
      source.setEventHandler { source.cancel() }
      source.setCancelHandler { continuation.resume() }
      source.activate()
    }
  }
}
