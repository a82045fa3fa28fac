import Foundation

@testable import KeepsakeValkey

extension Reply {
  /// What a bulk string or a status says.
  var text: String? {
    switch self {
    case .bytes(let bytes), .status(let bytes): String(decoding: bytes, as: UTF8.self)
    default: nil
    }
  }

  var errorCode: String? {
    if case .error(let error) = self { return error.code }
    return nil
  }
}

extension Command {
  init(words: [String]) {
    self.init(words[0])
    for word in words.dropFirst() { append(word) }
  }
}

/// Bytes that no other call has returned.
func randomBytes(_ count: Int) -> [UInt8] {
  let source = FileHandle(forReadingAtPath: "/dev/urandom")
  return Array((try? source?.read(upToCount: count)) ?? Data())
}
