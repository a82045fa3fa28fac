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
    fileprivate let keys: [[UInt8]]
    fileprivate var values: [[UInt8]]

    init(keys: [[UInt8]], values: [[UInt8]] = []) {
      self.keys = keys
      self.values = values
    }

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
    on link: Link, _ arguments: Arguments, replyLimit: Int? = nil, timeout: Duration? = nil
  ) throws(StorageError) -> Reply {
    try run(
      on: link, arguments, followedBy: [], replyLimit: replyLimit, timeout: timeout
    ).result
  }

  /// The same, with commands that are sent on the same connection right after the script. Their
  /// replies may be errors.
  func run(
    on link: Link, _ arguments: Arguments, followedBy others: [Command], replyLimit: Int? = nil,
    timeout: Duration? = nil
  ) throws(StorageError) -> (result: Reply, others: [Reply]) {
    func send(_ commands: [Command]) throws(StorageError) -> (result: Reply, others: [Reply]) {
      let replies = try link.perform(commands + others, replyLimit: replyLimit, timeout: timeout)
      guard replies.count == commands.count + others.count else {
        throw .outcomeUnknown(link.server, "a reply is missing")
      }
      return (replies[commands.count - 1], Array(replies[commands.count...]))
    }
    let run = command("EVALSHA", digest, arguments)
    var replies = try send([run])
    if Self.isUnknown(replies.result) { replies = try send(loading(run)) }
    // A user may have no right to load scripts.
    if Self.isUnknown(replies.result) { replies = try send([command("EVAL", source, arguments)]) }
    _ = try link.checked(replies.result)
    return replies
  }

  /// Runs the script, and calls `completion` on the link's thread.
  func submit(
    on link: Link, _ arguments: Arguments, replyLimit: Int? = nil, timeout: Duration? = nil,
    completion: @escaping @Sendable (Result<Reply, StorageError>) -> Void
  ) {
    let run = command("EVALSHA", digest, arguments)
    let load = loading(run)
    let last = command("EVAL", source, arguments)
    // Weak, because a completion that has not been called must not keep a link open.
    link.submit([run], replyLimit: replyLimit, timeout: timeout) { [weak link] result in
      guard let link, Self.isUnknown(result) else { return completion(Self.last(result, link)) }
      link.submit(load, replyLimit: replyLimit, timeout: timeout) { [weak link] result in
        guard let link, Self.isUnknown(result) else { return completion(Self.last(result, link)) }
        link.submit([last], replyLimit: replyLimit, timeout: timeout) { [weak link] result in
          completion(Self.last(result, link))
        }
      }
    }
  }

  /// A server evicts scripts that were not loaded, but only run (`EVAL`).
  private func loading(_ run: Command) -> [Command] {
    [Command(reading: "SCRIPT", "LOAD", source), run]
  }

  private static func isUnknown(_ reply: Reply) -> Bool {
    if case .error(let error) = reply { return error.code == "NOSCRIPT" }
    return false
  }

  private static func isUnknown(_ result: Result<[Reply], StorageError>) -> Bool {
    if case .success(let replies) = result, let reply = replies.last { return isUnknown(reply) }
    return false
  }

  private static func last(
    _ result: Result<[Reply], StorageError>, _ link: Link?
  ) -> Result<Reply, StorageError> {
    result.flatMap { replies in
      let reply = replies.last ?? .null
      guard let link, case .error(let error) = reply,
        let refusal = error.refusal(by: link.server)
      else { return .success(reply) }
      return .failure(refusal)
    }
  }
}
