internal import Keepsake

/// The entries of one cache on a server.
final class ServerCache: SharedTier {
  private struct WeakFollower: Sendable {
    weak let follower: (any TierFollower)?
  }

  let leaseTime: Duration
  var address: String { server.address.description }
  private let names: CacheKeys
  private let server: Server
  private let followers = Locked<[WeakFollower]>([], afterFork: { [] })
  private var link: Link { server.link }

  init(_ names: CacheKeys, on server: Server, leaseTime: Duration) {
    self.names = names
    self.server = server
    self.leaseTime = leaseTime
  }

  deinit { server.link.unsubscribe(from: names.channel) }

  // MARK: Reading

  /// Reads the state of the cache, and then the entry and its lifetime.
  ///
  /// A script would copy the value several times, and a full server refuses transactions before
  /// Redis 7.4. Between the commands, others may be carried out. What they change has a larger
  /// number than the state, and a message tells of it: the answer is the same as before these
  /// changes, or after them.
  func read(_ key: String, count: Int?) throws(StorageError) -> SharedAnswer {
    let entry = names.entry(key)
    let read =
      if let count {
        Command(reading: "GETRANGE", entry, "0", String(Self.stateSize + count - 1))
      } else {
        Command(reading: "GET", entry)
      }
    let replies = try link.perform([
      Command(reading: "GET", names.state), read, Command(reading: "PTTL", entry),
    ])
    for reply in replies {
      if case .error = try link.checked(reply) { throw server.invalidReply(read.name, reply) }
    }
    if let answer = Self.answer(in: replies) { return answer }
    throw server.invalidReply(read.name)
  }

  /// The answer that the replies contain: the state, the value and its lifetime. nil if their types
  /// are wrong.
  private static func answer(in replies: [Reply]) -> SharedAnswer? {
    guard replies.count == 3 else { return nil }
    let state: [UInt8]
    switch replies[0] {
    case .null: return .nothing(number: 0)
    case .bytes(let bytes): state = bytes
    default: return nil
    }
    // A state that is damaged is replaced by the next change.
    guard let number = ChangeNumber.parse(state.dropFirst(generationSize)) else {
      return .nothing(number: 0)
    }
    switch replies[1] {
    case .null: return .nothing(number: number)
    case .bytes(let bytes):
      // Otherwise it is of an earlier generation.
      guard bytes.starts(with: state.prefix(generationSize)) else {
        return .nothing(number: number)
      }
      guard case .integer(let remaining) = replies[2] else { return nil }
      return value(bytes, remaining).map { .bytes($0) }
    default: return nil
    }
  }

  /// nil if the bytes do not begin as a value does.
  private static func value(_ bytes: [UInt8], _ remaining: Int64) -> SharedBytes? {
    let rest = bytes.dropFirst(generationSize)
    guard let number = ChangeNumber.parse(rest.prefix(ChangeNumber.count)), number > 0 else {
      return nil
    }
    return SharedBytes(
      rest.dropFirst(ChangeNumber.count), number: number, remaining: nanoseconds(remaining))
  }

  // MARK: Writing

  func write(
    _ bytes: [UInt8], name: UInt64, lifetime: Int64, forKey key: String, production: UInt64?
  ) throws(StorageError) -> ChangeReply? {
    try change(
      CacheScripts.change, keys(of: key),
      [
        CacheMessage.suffix(key, name: name), Self.number(production), bytes,
        Self.milliseconds(lifetime),
      ], isConfirmed: production == nil)
  }

  func remove(_ key: String, production: UInt64?) throws(StorageError) -> ChangeReply? {
    try change(
      CacheScripts.change, keys(of: key), [CacheMessage.suffix(key), Self.number(production)],
      isConfirmed: production == nil)
  }

  func removeAll() throws(StorageError) -> ChangeReply {
    let reply = try change(CacheScripts.removeAll, [names.state], [], isConfirmed: true)
    guard let reply else { throw server.invalidReply("EVALSHA", .integer(0)) }
    return reply
  }

  func touch(
    _ key: String, name: UInt64, lifetime: Int64, onMissing: @escaping @Sendable () -> Void
  ) {
    var bytes: [UInt8] = []
    bytes.append(number: name)
    let arguments = Script.Arguments(
      keys: [names.state, names.entry(key)], values: [bytes, Self.milliseconds(lifetime)])
    CacheScripts.touch.submit(on: link, arguments) { result in
      if case .success(.integer(0)) = result { onMissing() }
    }
  }

  /// - Parameters:
  ///   - values: Those after the new state and the channel.
  ///   - isConfirmed: Whether to wait for the replicas that are to confirm changes. A value that
  ///     was produced can be produced again.
  private func change(
    _ script: Script, _ keys: [String], _ values: [[UInt8]], isConfirmed: Bool
  ) throws(StorageError) -> ChangeReply? {
    let arguments = Script.Arguments(
      keys: keys, values: [Self.makeState(), names.channel] + values)
    let (reply, failure) =
      isConfirmed
      ? try server.run(script, arguments) : (try script.run(on: link, arguments), nil)
    switch reply {
    case .integer(0): return nil
    case .integer(let integer):
      guard let number = UInt64(exactly: integer) else { break }
      return ChangeReply(number: number, failure: failure)
    case .array(let elements):
      guard elements.count == 2, case .integer(let integer) = elements[0],
        let number = UInt64(exactly: integer), number > 0, case .bytes(let text) = elements[1]
      else { break }
      let failure = ErrorReply(text).refusal(by: server.address)
      return ChangeReply(
        number: number, failure: failure ?? server.invalidReply("EVALSHA", reply), isStored: false)
    default: break
    }
    throw server.invalidReply("EVALSHA", reply)
  }

  /// The keys of the scripts that change an entry.
  private func keys(of key: String) -> [String] {
    [names.state, names.entry(key), names.lease(key), names.production(key)]
  }

  // MARK: Leases

  func takeLease(
    _ key: String, token: UInt64, headCount: Int
  ) throws(StorageError) -> LeaseReply {
    let arguments = Script.Arguments(
      keys: keys(of: key),
      values: [
        Self.makeState(), Self.digits(token), Self.milliseconds(of: leaseTime),
        Self.digits(headCount), Self.digits(UInt64.random(in: 1 ... .max)),
        Self.milliseconds(of: max(leaseTime * 6, Self.productionTime)),
      ])
    let reply = try CacheScripts.takeLease.run(on: link, arguments)
    guard case .array(let elements) = reply else { throw server.invalidReply("EVALSHA", reply) }
    switch (elements.count, elements.first) {
    case (2, .integer(0)):
      if case .integer(let time) = elements[1] { return .busy(Self.nanoseconds(time)) }
    case (2, .integer(1)):
      if let number = Self.number(elements[1]) { return .granted(production: number, nil) }
    case (4, .integer(1)):
      guard let number = Self.number(elements[1]), case .integer(let remaining) = elements[2],
        case .bytes(let head) = elements[3], let value = Self.value(head, remaining)
      else { break }
      return .granted(production: number, value)
    default: break
    }
    throw server.invalidReply("EVALSHA", reply)
  }

  func releaseLease(of key: String, token: UInt64, waits: Bool) {
    let arguments = Script.Arguments(
      keys: [names.lease(key)],
      values: [Self.digits(token), names.channel, CacheMessage.release(of: key)])
    // If this fails, the lease ends by itself.
    if waits {
      _ = try? CacheScripts.release.run(on: link, arguments)
    } else {
      CacheScripts.release.submit(on: link, arguments) { _ in }
    }
  }

  /// How long a producer may take whose value is stored on the server.
  private static let productionTime = Duration.seconds(3_600)

  // MARK: Following

  func follow(_ follower: any TierFollower) throws(StorageError) {
    followers.withLock { followers in
      followers.removeAll { $0.follower == nil || $0.follower === follower }
      followers.append(WeakFollower(follower: follower))
    }
    // For each follower, because all are told when the subscription is confirmed.
    try link.subscribe(
      to: names.channel,
      ChannelHandler(
        onSubscribed: { [weak self] in self?.tell { $0.tierIsFollowed() } },
        onMessage: { [weak self] bytes in
          let message = CacheMessage(bytes)
          self?.tell { $0.tierDidSend(message) }
        },
        onLost: { [weak self] error in self?.tell { $0.tierIsLost(error) } }))
  }

  private func tell(_ body: (any TierFollower) -> Void) {
    for follower in followers.withLock({ $0.compactMap(\.follower) }) { body(follower) }
  }

  // MARK: Arguments and replies

  private static let generationSize = 8
  private static let stateSize = generationSize + ChangeNumber.count

  /// The state of a cache that the server does not have.
  private static func makeState() -> [UInt8] {
    withUnsafeBytes(of: UInt64.random(in: .min ... .max)) { Array($0) } + ChangeNumber.first
  }

  private static func number(_ number: UInt64?) -> [UInt8] { number.map { digits($0) } ?? [] }

  private static func number(_ reply: Reply) -> UInt64? {
    guard case .bytes(let digits) = reply else { return nil }
    return UInt64(String(decoding: digits, as: UTF8.self))
  }

  private static func digits(_ number: some BinaryInteger) -> [UInt8] {
    Array(String(number).utf8)
  }

  private static func milliseconds(of duration: Duration) -> [UInt8] {
    digits(max(1, Int(duration / .milliseconds(1))))
  }

  private static func milliseconds(_ nanoseconds: Int64) -> [UInt8] {
    digits(max(1, nanoseconds / 1_000_000))
  }

  /// The server replies -1 for a value that never expires, which this library does not store.
  private static func nanoseconds(_ milliseconds: Int64) -> Int64 {
    let longest: Int64 = 3_650 * 86_400_000
    return (milliseconds < 0 ? 0 : min(milliseconds, longest)) * 1_000_000
  }
}
