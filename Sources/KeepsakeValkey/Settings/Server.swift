internal import Keepsake
internal import Synchronization

/// The server of a backing: the link to it, and what every table asks of it.
final class Server: Sendable {
  let link: Link
  private let confirmation: ValkeyBacking.Confirmation
  private let checksDurability: Bool
  private let facts: Facts

  /// What was found out about the server. Apart from ``Server``, because the link's handlers must
  /// not own the link.
  private final class Facts: Sendable {
    /// Whether the server was checked since the last connection was made.
    let isChecked = Atomic(false)
    let isDurabilityChecked = Atomic(false)
    let isEncryptionChecked = Atomic(false)
  }

  init(
    _ address: ServerAddress, options: LinkOptions = LinkOptions(),
    confirm confirmation: ValkeyBacking.Confirmation = .primary, checksDurability: Bool = true,
    // Asked for at the report: the server is made before the app is named.
    report: @escaping @Sendable (StorageError) -> Void = {
      StorageSystem.makeReporter(for: "StorageSystem")($0)
    }
  ) {
    let facts = Facts()
    self.facts = facts
    self.confirmation = confirmation
    self.checksDurability = checksDurability
    link = Link(
      address, options: options,
      handlers: LinkHandlers(
        onConnect: {
          facts.isChecked.store(false, ordering: .releasing)
          guard checksDurability, !address.isEncrypted, !address.isOnThisMachine,
            !facts.isEncryptionChecked.exchange(true, ordering: .relaxed)
          else { return }
          BackgroundWork.run { report(Self.plainConnection(address)) }
        },
        onDisconnect: { _ in facts.isChecked.store(false, ordering: .releasing) }))
  }

  var address: ServerAddress { link.server }

  /// Sends a command and waits for the reply.
  ///
  /// - Throws: The server's error, too.
  func perform(_ command: Command) throws(StorageError) -> Reply {
    let reply = try link.perform(command)
    if case .error = reply { throw invalidReply(command.name, reply) }
    return reply
  }

  /// The reply to a question; nil if the user may not ask it, or the server does not know it.
  func ask(_ command: Command) throws(StorageError) -> Reply? {
    let reply = try link.perform([command]).first
    guard case .error(let error) = reply else { return reply }
    if let refusal = error.refusal(by: address), refusal.code != .accessDenied { throw refusal }
    return nil
  }

  /// Runs a script that writes, and waits for the replicas that are to confirm it.
  ///
  /// - Returns: The result of the script, and what to throw if it has made a change that fewer
  ///   replicas have confirmed than asked.
  func run(
    _ script: Script, _ arguments: Script.Arguments
  ) throws(StorageError) -> (reply: Reply, failure: StorageError?) {
    guard arguments.count <= Self.maximumArgumentCount else {
      throw StorageError(
        .misuse, operation: "request", path: address.description,
        reason: "the server does not accept this many values in one step",
        remedy: "Store fewer values at a time.")
    }
    guard confirmation.replicaCount > 0 else {
      return (try script.run(on: link, arguments), nil)
    }
    // 0 means no timeout.
    let timeout = min(
      max(confirmation.timeout ?? address.requestTimeout / 2, .milliseconds(1)), .seconds(3_600))
    var wait = Command("WAIT")
    wait.append(confirmation.replicaCount)
    wait.append(Int(timeout / .milliseconds(1)))
    wait.waitTime = timeout
    let (reply, others) = try script.run(on: link, arguments, followedBy: [wait])
    if case .integer(let count) = others.first, count >= confirmation.replicaCount {
      return (reply, nil)
    }
    return (reply, unconfirmed(others.first))
  }

  /// A server ends the connection after more than about a million arguments.
  private static let maximumArgumentCount = 1_000_000

  // MARK: What the server is like

  /// Refuses a server that may delete settings when its memory is full. Asks each connection once.
  func check() throws(StorageError) {
    if facts.isChecked.load(ordering: .acquiring) { return }
    // If the user may not ask, the server is not checked.
    if case .bytes(let text) = try ask(Command(reading: "INFO", "memory")) {
      try check(String(decoding: text, as: UTF8.self))
    }
    facts.isChecked.store(true, ordering: .releasing)
  }

  private func check(_ information: String) throws(StorageError) {
    let fields = ServerFacts.fields(of: information)
    guard let limit = fields["maxmemory"], limit != "0",
      let policy = fields["maxmemory_policy"], policy.hasPrefix("allkeys-")
    else { return }
    throw StorageError(
      .misuse, operation: "connect", path: address.description,
      reason: "the server deletes any keys when its memory is full (maxmemory-policy \(policy))",
      remedy: "Set maxmemory-policy on the server to noeviction or volatile-lru.")
  }

  /// Reports once if a secret that was stored may be lost with the server, as far as the user may
  /// ask.
  func checkDurability(_ report: (StorageError) -> Void) {
    guard checksDurability, confirmation.replicaCount == 0,
      !facts.isDurabilityChecked.load(ordering: .relaxed)
    else { return }
    guard case .bytes(let text)? = try? link.perform(Command(reading: "INFO", "persistence"))
    else { return }
    if facts.isDurabilityChecked.exchange(true, ordering: .relaxed) { return }
    var problem = "when it ends: it does not log changes on its disk (appendonly no)"
    if !text.contains("aof_enabled:0\r\n".utf8) {
      let reply = try? link.perform(Command(reading: "CONFIG", "GET", "appendfsync"))
      guard case .array(let values)? = reply, values.count == 2,
        case .bytes(let policy) = values[1], !policy.elementsEqual("always".utf8)
      else { return }
      problem =
        "in a power cut: it writes them to its disk a moment after it has accepted them "
        + "(appendfsync \(String(decoding: policy, as: UTF8.self)))"
    }
    report(
      StorageError(
        .misuse, operation: "open", path: address.description,
        reason: "the server may lose secrets \(problem)",
        remedy: "Set appendonly to yes and appendfsync to always on the server, or wait for its "
          + "replicas with confirm: .replicas(1)."
      ).asWarning)
  }

  /// Waits until the server has written everything to its disk. `marker` is a write, because a
  /// server waits for those of the same connection.
  ///
  /// A server older than Redis 7.2 cannot be asked for that: then this returns at once. With
  /// appendfsync everysec, Redis 7.4 and Valkey 8 may reply before the sync.
  ///
  /// - Returns: The result of `marker`; nil if it was not run.
  /// - Throws: `misuse` if the server writes nothing to a disk.
  func synchronize(
    _ marker: Script, _ arguments: Script.Arguments
  ) throws(StorageError) -> Reply? {
    // Waits for nothing, and so tells whether the server knows the command.
    if case .error(let error) = try link.perform(Command(reading: "WAITAOF", "0", "0", "1")),
      error.begins(with: "ERR unknown command")
    {
      // A user may have no right to ask.
      guard case .bytes(let text) = try link.perform(Command(reading: "INFO", "persistence"))
      else { return nil }
      if text.contains("aof_enabled:0\r\n".utf8) { throw keepsNothing }
      return nil
    }
    // With appendfsync everysec, the sync may begin only a second after the one before.
    let timeout = max(address.requestTimeout, .seconds(10))
    var wait = Command("WAITAOF", "1", "0")
    wait.append(Int(timeout / .milliseconds(1)))
    wait.waitTime = timeout
    let (reply, others) = try marker.run(on: link, arguments, followedBy: [wait])
    switch others.first {
    case .array(let counts) where counts.first == .integer(1): return reply
    case .array:
      throw StorageError(
        .timedOut, operation: "synchronize", path: address.description,
        reason: "the server did not write its data to the disk within \(timeout)",
        remedy: "Check the disk of the server and its setting appendfsync.")
    case .error(let error) where error.begins(with: "ERR WAITAOF"):
      throw keepsNothing
    default: throw invalidReply("WAITAOF", others.first)
    }
  }

  // MARK: Errors

  /// Reported once, when the first connection has been made.
  static func plainConnection(_ address: ServerAddress) -> StorageError {
    StorageError(
      .misuse, operation: "connect", path: address.description,
      reason: "the connection to another machine is not encrypted, so others may read settings and "
        + "passwords on the network",
      remedy: "Set up TLS on the server, and begin the URL with valkeys://.")
  }

  private var keepsNothing: StorageError {
    StorageError(
      .misuse, operation: "synchronize", path: address.description,
      reason: "the server does not write its data to the disk",
      remedy: "Set appendonly on the server to yes.")
  }

  /// The error for a reply that the command should not have. Its text may quote values, so only its
  /// first word is shown.
  func invalidReply(_ command: String, _ reply: Reply? = nil) -> StorageError {
    var code = ""
    if case .error(let error) = reply { code = " (\(error.effectiveCode))" }
    return StorageError(
      .engineFailed, operation: "request", path: address.description,
      reason: "the server's reply to \(command) is not the expected one\(code)",
      remedy: "Check that no other program uses the same keys, and that the server is Valkey or "
        + "Redis 6.2 or newer.")
  }

  /// A change that was made, and that fewer replicas have confirmed than were asked for.
  private func unconfirmed(_ reply: Reply?) -> StorageError {
    var reason = "fewer than \(confirmation.replicaCount) replicas confirmed it in time"
    var remedy = "Check the replicas of the server. A failover may lose the change."
    if case .error(let error) = reply, let refusal = error.refusal(by: address) {
      reason = "the server refused to wait for replicas: \(refusal.reason ?? error.code)"
      remedy = refusal.remedy
    }
    return StorageError(
      .outcomeUnknown, operation: "request", path: address.description,
      reason: "the change was made, but \(reason)", remedy: remedy)
  }
}
