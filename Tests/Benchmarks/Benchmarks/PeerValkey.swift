// Plain sockets to a server: the least that a round trip takes, and what programs use without a
// library that mirrors settings.
import Foundation
import Glibc

/// A connection that sends one command at a time.
final class PeerValkey {
  static let name = "GET for each read"

  private let descriptor: Int32
  private var output: [UInt8] = []
  /// Larger than every reply that is measured.
  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 1)
  /// The part of the buffer that has not been parsed.
  private var unread = 0..<0

  init(at path: String) throws {
    descriptor = try check(socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0))
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    try withUnsafeMutableBytes(of: &address.sun_path) { bytes in
      guard path.utf8.count < bytes.count else { throw Failure("\(path) is too long for a socket") }
      bytes.copyBytes(from: path.utf8)
    }
    let size = socklen_t(MemoryLayout<sockaddr_un>.size)
    try withUnsafePointer(to: address) { pointer in
      _ = try pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        try check(connect(descriptor, $0, size))
      }
    }
  }

  deinit {
    close(descriptor)
    buffer.deallocate()
  }

  /// Sends a command and returns the text of its reply.
  @discardableResult
  func perform(_ words: String...) throws -> String {
    try send(words)
    return try receive()
  }

  func get(_ key: String) throws -> String { try perform("GET", key) }

  func send(_ words: [String]) throws {
    output.removeAll(keepingCapacity: true)
    output.append(contentsOf: "*\(words.count)\r\n".utf8)
    for word in words {
      output.append(contentsOf: "$\(word.utf8.count)\r\n".utf8)
      output.append(contentsOf: word.utf8)
      output.append(contentsOf: "\r\n".utf8)
    }
    if write(descriptor, output, output.count) != output.count { throw SystemFailure(code: errno) }
  }

  /// The text of the next reply; of an array, that of its last element.
  func receive() throws -> String {
    let line = try take(count: nil)
    let text = UnsafeRawBufferPointer(rebasing: line.dropFirst())
    switch line.first {
    case UInt8(ascii: "$"):
      guard let count = Int(String(decoding: text, as: UTF8.self)), count >= 0 else { return "" }
      return String(decoding: try take(count: count), as: UTF8.self)
    case UInt8(ascii: "*"):
      var last = ""
      for _ in 0..<(Int(String(decoding: text, as: UTF8.self)) ?? 0) { last = try receive() }
      return last
    case UInt8(ascii: "-"): throw Failure(String(decoding: text, as: UTF8.self))
    default: return String(decoding: text, as: UTF8.self)
    }
  }

  /// The next line, or so many bytes, without the CRLF after it. Valid until the next call.
  private func take(count: Int?) throws -> UnsafeRawBufferPointer {
    while true {
      let bytes = UnsafeRawBufferPointer(rebasing: buffer[unread])
      if let end = count ?? bytes.firstIndex(of: 13), end + 2 <= bytes.count {
        unread = unread.lowerBound + end + 2..<unread.upperBound
        return UnsafeRawBufferPointer(rebasing: bytes[..<end])
      }
      try fill()
    }
  }

  private func fill() throws {
    buffer.copyBytes(from: UnsafeRawBufferPointer(rebasing: buffer[unread]))
    unread = 0..<unread.count
    let count = read(
      descriptor, buffer.baseAddress?.advanced(by: unread.count), buffer.count - unread.count)
    if count <= 0 { throw Failure("the server ended a connection") }
    unread = 0..<unread.count + count
  }
}

/// Settings in a hash, changed by a script like that of Keepsake. A change has been made when its
/// own message has come back on a second connection.
struct BareTable {
  private let commands: PeerValkey
  private let messages: PeerValkey
  private let digest: String
  private static let channel = "{bare}:c"

  init(at path: String) throws {
    commands = try PeerValkey(at: path)
    messages = try PeerValkey(at: path)
    try messages.perform("SUBSCRIBE", Self.channel)
    digest = try commands.perform(
      "SCRIPT", "LOAD",
      """
      local state = redis.call('HMGET', KEYS[2], 'format', 'id')
      local n = redis.call('HINCRBY', KEYS[2], 'n', 1)
      redis.call('PUBLISH', ARGV[1], n .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])
      redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
      return {1, n, state[2] or ''}
      """)
  }

  func set(_ value: String, forKey key: String) throws {
    try commands.perform("EVALSHA", digest, "2", "{bare}:v", "{bare}:s", Self.channel, key, value)
    sink &+= try messages.receive().utf8.count
  }

  /// Only publishes a text and receives it.
  func publish(_ text: String) throws {
    try commands.perform("PUBLISH", Self.channel, text)
    sink &+= try messages.receive().utf8.count
  }
}
