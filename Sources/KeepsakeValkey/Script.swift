internal import COpenSSLTLS
internal import Keepsake

/// A script that the server runs, all or nothing.
///
/// It is named by its digest. A server that does not know it, because it was restarted or is
/// another one after a failover, has run nothing and is given the source.
struct Script: Sendable {
  private let source: String
  /// The SHA-1 of the source in hexadecimal digits, as `EVALSHA` expects.
  let digest: String
  /// Whether the script changes nothing.
  let isRead: Bool

  init(isRead: Bool = false, _ source: String) {
    self.isRead = isRead
    self.source = source
    digest = Self.sha1(source)
  }

  private static func sha1(_ text: String) -> String {
    var digest = [UInt8](repeating: 0, count: 20)
    var bytes = Array(text.utf8)
    _ = EVP_Digest(&bytes, bytes.count, &digest, nil, EVP_sha1(), nil)
    let digits = Array("0123456789abcdef".utf8)
    return String(
      decoding: digest.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
  }

  /// The arguments of one run.
  struct Arguments: Sendable {
    let keys: [String]
    var values: [[UInt8]] = []

    var count: Int { keys.count + values.count }
  }

  private func command(_ name: String, _ script: String, _ arguments: Arguments) -> Command {
    var command = isRead ? Command(reading: name, script) : Command(name, script)
    command.append(arguments.keys.count)
    for key in arguments.keys { command.append(key) }
    for value in arguments.values { command.append(value) }
    return command
  }

  /// Runs the script and waits for its result, which may be an error of the script.
  func run(
    on link: Link, _ arguments: Arguments, timeout: Duration? = nil
  ) throws(StorageError) -> Reply {
    try run(on: link, arguments, followedBy: [], timeout: timeout).result
  }

  /// The same, with commands that are sent on the same connection right after the script. Their
  /// replies may be errors.
  func run(
    on link: Link, _ arguments: Arguments, followedBy others: [Command], timeout: Duration? = nil
  ) throws(StorageError) -> (result: Reply, others: [Reply]) {
    var attempt = 1
    while true {
      let commands = commands(arguments, attempt)
      let replies = try link.perform(commands + others, timeout: timeout)
      guard replies.count == commands.count + others.count else {
        throw .outcomeUnknown(link.server, "a reply is missing")
      }
      let result = replies[commands.count - 1]
      if attempt == Self.maximumAttempts || !Self.isUnknown(result) {
        return (try link.checked(result), Array(replies[commands.count...]))
      }
      attempt += 1
    }
  }

  /// Runs the script, and calls `completion` on the link's thread.
  func submit(
    on link: Link, _ arguments: Arguments, timeout: Duration? = nil, attempt: Int = 1,
    completion: @escaping @Sendable (Result<Reply, StorageError>) -> Void
  ) {
    let server = link.server
    // Weak, because a completion that has not been called must not keep a link open.
    link.submit(commands(arguments, attempt), timeout: timeout) { [weak link] result in
      let result = result.map { $0.last ?? .null }
      guard case .success(.error(let error)) = result else { return completion(result) }
      if let link, attempt < Self.maximumAttempts, Self.isUnknown(.error(error)) {
        return submit(
          on: link, arguments, timeout: timeout, attempt: attempt + 1, completion: completion)
      }
      completion(error.refusal(by: server).map { .failure($0) } ?? result)
    }
  }

  private static let maximumAttempts = 3

  /// What is sent for the first time, to a server that does not know the script, and to one that
  /// does not let the user load it.
  private func commands(_ arguments: Arguments, _ attempt: Int) -> [Command] {
    if attempt == Self.maximumAttempts { return [command("EVAL", source, arguments)] }
    let run = command("EVALSHA", digest, arguments)
    // A server evicts scripts that were not loaded, but only run (`EVAL`).
    return attempt == 1 ? [run] : [Command(reading: "SCRIPT", "LOAD", source), run]
  }

  private static func isUnknown(_ reply: Reply) -> Bool {
    if case .error(let error) = reply { return error.code == "NOSCRIPT" }
    return false
  }
}
