/// A command and its arguments, encoded as the server reads them: an array of bulk strings.
package struct Command: Sendable {
  let name: String
  /// Whether the command changes nothing, so that one whose reply is lost has done nothing.
  private(set) var isRead = false
  /// How long the server may wait before it answers. Commands behind this one wait with it.
  var waitTime = Duration.zero
  /// How many bulk strings there are.
  private var count = 0
  /// All bulk strings, without the header of the array.
  private var body: [UInt8] = []

  package init(_ name: String, _ arguments: String...) {
    self.name = name
    append(bulk: name.utf8)
    for argument in arguments { append(argument) }
  }

  /// A command that changes nothing.
  init(reading name: String, _ arguments: String...) {
    self.init(name)
    isRead = true
    for argument in arguments { append(argument) }
  }

  mutating func append(_ text: String) { append(bulk: text.utf8) }

  mutating func append(_ number: Int) { append(String(number)) }

  mutating func append(_ bytes: [UInt8]) { append(bulk: bytes) }

  private mutating func append(bulk bytes: some Collection<UInt8>) {
    count += 1
    body.append(UInt8(ascii: "$"))
    body.append(contentsOf: String(bytes.count).utf8)
    body.append(contentsOf: Self.lineEnd)
    body.append(contentsOf: bytes)
    body.append(contentsOf: Self.lineEnd)
  }

  private static let lineEnd: [UInt8] = [13, 10]

  /// How many bytes the command takes, about.
  var byteCount: Int { body.count + 16 }

  func encode(into output: inout [UInt8]) {
    output.append(UInt8(ascii: "*"))
    output.append(contentsOf: String(count).utf8)
    output.append(contentsOf: Self.lineEnd)
    output.append(contentsOf: body)
  }
}
