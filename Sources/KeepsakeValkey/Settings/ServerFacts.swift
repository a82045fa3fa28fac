/// What a server says about itself, and how this process reaches it.
package struct ServerFacts: Sendable {
  /// The fields of `INFO`; empty if the user may not ask for them.
  package var information: [String: String] = [:]
  /// Settings by their names. Those that the user may not ask for are missing.
  package var settings: [String: String] = [:]
  /// The least possible difference, in seconds, between the server's clock and this machine's:
  /// positive if the server is ahead. Nil if the user may not ask for the time.
  package var clockDifference: Double?
  package let isEncrypted: Bool
  package let usesPassword: Bool
  /// Whether the server answers a connection that names no user and no password. Asked only of a
  /// server on another machine.
  package var answersWithoutPassword = false
  /// Whether what is sent does not leave this machine.
  package let isOnThisMachine: Bool

  /// The settings that `INFO` does not have.
  package static let settingNames = ["appendfsync", "client-output-buffer-limit"]

  init(_ address: ServerAddress) {
    isEncrypted = address.isEncrypted
    usesPassword = address.password != nil
    isOnThisMachine = address.isOnThisMachine
  }

  /// The fields of a reply to `INFO`.
  static func fields(of text: String) -> [String: String] {
    var fields: [String: String] = [:]
    for line in text.split(whereSeparator: \.isNewline) {
      let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
      if parts.count == 2 { fields[String(parts[0])] = String(parts[1]) }
    }
    return fields
  }

  /// The least possible difference of the clocks, from a reply to `TIME` that the server made
  /// between two times of this machine's clock.
  static func clockDifference(
    _ reply: Reply?, between start: Double, and end: Double
  ) -> Double? {
    guard case .array(let parts) = reply, parts.count == 2,
      case .bytes(let seconds) = parts[0], let seconds = ReplyParser.integer(seconds[...]),
      case .bytes(let microseconds) = parts[1],
      let microseconds = ReplyParser.integer(microseconds[...])
    else { return nil }
    let time = Double(seconds) + Double(microseconds) / 1e6
    return time < start ? time - start : max(0, time - end)
  }
}
