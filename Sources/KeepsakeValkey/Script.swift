internal import COpenSSLTLS
internal import Keepsake

/// A script that the server runs, all or nothing.
///
/// It is named by its digest. A server that does not know it, because it was restarted, is another
/// one after a failover or has evicted it, has run nothing and is given the source.
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
    return Hexadecimal.text(digest[...])
  }

  /// The arguments of one run.
  struct Arguments: Sendable {
    let keys: [String]
    var values: [[UInt8]] = []

    var count: Int { keys.count + values.count }
  }

  private func command(_ arguments: Arguments, sendsSource: Bool = false) -> Command {
    let (name, script) = sendsSource ? ("EVAL", source) : ("EVALSHA", digest)
    var command = isRead ? Command(reading: name, script) : Command(name, script)
    command.append(arguments.keys.count)
    for key in arguments.keys { command.append(key) }
    for value in arguments.values { command.append(value) }
    return command
  }

  /// Runs the script and waits for its result, which may be an error of the script.
  func run(on link: Link, _ arguments: Arguments) throws(StorageError) -> Reply {
    try run(on: link, arguments, followedBy: []).result
  }

  /// The same, with commands that are sent on the same connection right after the script. Their
  /// replies may be errors.
  func run(
    on link: Link, _ arguments: Arguments, followedBy others: [Command]
  ) throws(StorageError) -> (result: Reply, others: [Reply]) {
    var replies = try link.perform([command(arguments)] + others)
    if case .error(let error) = replies.first, error.isOfUnknownScript {
      replies = try link.perform([command(arguments, sendsSource: true)] + others)
    }
    return (try link.checked(replies[0]), Array(replies.dropFirst()))
  }

  /// Runs the script, and calls `completion` on the link's thread.
  func submit(
    on link: Link, _ arguments: Arguments, timeout: Duration? = nil, sendsSource: Bool = false,
    completion: @escaping @Sendable (Result<Reply, StorageError>) -> Void
  ) {
    let server = link.server
    let command = command(arguments, sendsSource: sendsSource)
    // Weak, because a completion that has not been called must not keep a link open.
    link.submit([command], timeout: timeout) { [weak link] result in
      let result = result.map { $0.first ?? .null }
      guard case .success(.error(let error)) = result else { return completion(result) }
      if let link, !sendsSource, error.isOfUnknownScript {
        return submit(
          on: link, arguments, timeout: timeout, sendsSource: true, completion: completion)
      }
      completion(error.refusal(by: server).map { .failure($0) } ?? result)
    }
  }
}

extension ErrorReply {
  /// Whether the server needs the source of the script.
  fileprivate var isOfUnknownScript: Bool { code == "NOSCRIPT" }
}
