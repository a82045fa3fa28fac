/// A reply of the server, as RESP2 has them.
package enum Reply: Hashable, Sendable {
  /// A simple string, such as `OK`.
  case status([UInt8])
  case error(ErrorReply)
  case integer(Int64)
  /// A bulk string.
  case bytes([UInt8])
  /// A null bulk string or a null array: a missing key, for example.
  case null
  case array([Reply])
}

/// The error that a server replies with instead of a result.
///
/// Errors of the library quote only its first word. The rest may quote the arguments of the
/// command, which are values.
package struct ErrorReply: Hashable, Sendable {
  private let text: [UInt8]

  init(_ text: some Sequence<UInt8>) { self.text = Array(text) }

  /// The first word, such as `NOSCRIPT`; `ERR` if the server replied with none.
  var code: String {
    let word = text.prefix { $0 != UInt8(ascii: " ") }
    let isCode =
      (1...32).contains(word.count)
      && word.allSatisfy { $0 >= UInt8(ascii: "A") && $0 <= UInt8(ascii: "Z") }
    return isCode ? String(decoding: word, as: UTF8.self) : "ERR"
  }

  /// The first word of the error that ended a script, or otherwise ``code``.
  ///
  /// Before Redis 7, the error of a command in a script is quoted in one of the script: `ERR Error
  /// running script (call to f_…): @user_script:1: -OOM command not allowed`. A script that catches
  /// it gets the part from the `@` on.
  var effectiveCode: String {
    guard code == "ERR", begins(with: "ERR Error running script") || begins(with: "@user_script"),
      let mark = text.firstRange(of: Array(": -".utf8))
    else { return code }
    return ErrorReply(text[mark.upperBound...]).code
  }

  /// Whether the text begins with these words, which the caller knows.
  func begins(with words: String) -> Bool { text.starts(with: words.utf8) }

  /// Whether the text has these words anywhere.
  func contains(_ words: String) -> Bool { text.contains(Array(words.utf8)) }
}

extension ErrorReply: CustomStringConvertible {
  package var description: String { code }
}
