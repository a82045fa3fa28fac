import Foundation

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What the machines of a test share: a server in this process, with a clock of its own.
final class FakeTierServer: Sendable {
  struct Stored: Sendable {
    var bytes: [UInt8]
    var number: UInt64
    var expires: Int64
  }

  struct State: Sendable {
    var now: Int64 = 0
    /// Of the changes.
    var lastNumber: UInt64 = 0
    var entries: [String: Stored] = [:]
    /// The tokens of those that produce the values of keys.
    var leases: [String: UInt64] = [:]
    var productions: [String: UInt64] = [:]
    var tiers: [FakeTier] = []
  }

  let state = Locked(State())
  /// Held during a change and its message, so that all messages are in the order of the changes.
  fileprivate let order = Locked(())

  /// Lets all leases end, as when their time is over.
  func endLeases() { state.withLock { $0.leases = [:] } }

  /// Lets the clock go on.
  func advance(by seconds: Int64) { state.withLock { $0.now += seconds * WallClock.second } }

  /// Replaces bytes without a change of the cache.
  func put(_ bytes: [UInt8], forKey key: String) {
    state.withLock { state in
      let number = state.entries[key]?.number ?? state.lastNumber
      state.entries[key] = Stored(bytes: bytes, number: number, expires: .max)
    }
  }

  var entries: [String: Stored] { state.withLock { $0.entries } }

  fileprivate func tell(_ message: @escaping @Sendable (any TierFollower) -> Void) {
    for tier in state.withLock({ $0.tiers }) { tier.receive(message) }
  }
}

/// The connection of one machine to the server.
final class FakeTier: SharedTier {
  typealias Message = @Sendable (any TierFollower) -> Void

  private struct WeakFollower: Sendable {
    weak let follower: (any TierFollower)?
  }

  private struct State: Sendable {
    var weakFollower = WeakFollower(follower: nil)
    var follower: (any TierFollower)? { weakFollower.follower }
    var isAway = false
    var isHolding = false
    var held: [Message] = []
    var failure: StorageError.Code?
    var calls: [String] = []
    /// What happens in a call, before the server makes it.
    var beforeRequest: [String: @Sendable () -> Void] = [:]
    /// What happens after a call, and before its caller has the reply.
    var beforeReply: [String: @Sendable () -> Void] = [:]
    /// The calls of which the next one fails, and those whose next reply is lost.
    var failures: Set<String> = []
    var lostReplies: Set<String> = []
    var hasSlowReplies = false
  }

  let address = "server"
  let leaseTime: Duration
  private let server: FakeTierServer
  private let state = Locked(State())
  /// Held while an outage begins or ends, so that the follower is told in the same order.
  private let outage = Locked(())
  /// Held while messages are delivered, so that they arrive in their order.
  private let delivery = Locked(())

  init(_ server: FakeTierServer, leaseTime: Duration = .seconds(600)) {
    self.server = server
    self.leaseTime = leaseTime
    server.state.withLock { $0.tiers.append(self) }
  }

  // MARK: What a test changes

  func goAway() {
    outage.withLock { _ in
      let follower = state.withLock { state in
        state.isAway = true
        state.held = []
        return state.follower
      }
      follower?.tierIsLost(StorageError(.unreachable, operation: "connect", remedy: ""))
    }
  }

  func comeBack() {
    outage.withLock { _ in
      let follower = state.withLock { state in
        state.isAway = false
        return state.follower
      }
      follower?.tierIsFollowed()
    }
  }

  /// Lets the server refuse all values with this code, but no removal.
  func fail(with code: StorageError.Code?) { state.withLock { $0.failure = code } }

  /// Keeps messages until ``deliver()``.
  func hold() { state.withLock { $0.isHolding = true } }

  func deliver() {
    state.withLock { $0.isHolding = false }
    deliverHeld()
  }

  /// Delivers the first message that is held.
  func deliverOne() {
    delivery.withLock { _ in
      let first = state.withLock { state in
        state.held.isEmpty ? nil : (message: state.held.removeFirst(), follower: state.follower)
      }
      if let first, let follower = first.follower { first.message(follower) }
    }
  }

  private func deliverHeld() {
    delivery.withLock { _ in
      while let (message, follower) = state.withLock({ state -> (Message, any TierFollower)? in
        guard !state.isHolding, !state.held.isEmpty, let follower = state.follower else {
          return nil
        }
        return (state.held.removeFirst(), follower)
      }) {
        message(follower)
      }
    }
  }

  /// Runs `action` once, when the next call of this name is about to reach the server.
  func beforeRequest(to call: String, _ action: @escaping @Sendable () -> Void) {
    state.withLock { $0.beforeRequest[call] = action }
  }

  /// Runs `action` once, between the next call of this name and its reply.
  func beforeReply(to call: String, _ action: @escaping @Sendable () -> Void) {
    state.withLock { $0.beforeReply[call] = action }
  }

  /// Lets some replies take up to 20 ms: outdated entries are removed after 10 ms.
  func slowDown() { state.withLock { $0.hasSlowReplies = true } }

  /// Lets the server refuse the next call of this name.
  func fail(call: String) { state.withLock { _ = $0.failures.insert(call) } }

  /// Lets the server make the next call of this name, whose caller does not get the reply.
  func loseReply(to call: String) { state.withLock { _ = $0.lostReplies.insert(call) } }

  /// Forgets the actions that have not run, which may hold a cache that holds this tier.
  func forgetActions() {
    // They are released outside the lock.
    _ = state.withLock { state in
      defer { (state.beforeRequest, state.beforeReply) = ([:], [:]) }
      return (state.beforeRequest, state.beforeReply)
    }
  }

  /// The calls since the last time that this was asked.
  func takeCalls() -> [String] {
    state.withLock { state in
      defer { state.calls = [] }
      return state.calls
    }
  }

  fileprivate func receive(_ message: @escaping Message) {
    state.withLock { state in
      if !state.isAway, state.follower != nil { state.held.append(message) }
    }
    deliverHeld()
  }

  // MARK: The tier

  /// - Parameter message: Of the change; nil if there was none.
  private func call<R>(
    _ name: String, _ body: (inout FakeTierServer.State) -> R,
    message: (R) -> Message? = { _ in nil }
  ) throws(StorageError) -> R {
    state.withLock { state in
      state.calls.append(name)
      return state.beforeRequest.removeValue(forKey: name)
    }?()
    if state.withLock({ $0.isAway }) {
      throw StorageError(.unreachable, operation: "connect", remedy: "Start the server.")
    }
    if state.withLock({ $0.failures.remove(name) }) != nil {
      throw StorageError(.unreachable, operation: "request", remedy: "Try again.")
    }
    let result = server.order.withLock { _ in
      let result = server.state.withLock { server in
        server.entries = server.entries.filter { $0.value.expires > server.now }
        return body(&server)
      }
      if let message = message(result) { server.tell(message) }
      return result
    }
    state.withLock { $0.beforeReply.removeValue(forKey: name) }?()
    if state.withLock({ $0.hasSlowReplies }), Int.random(in: 0..<20) == 0 {
      letTimePass(.microseconds(Int.random(in: 0..<20_000)))
    }
    if state.withLock({ $0.lostReplies.remove(name) }) != nil {
      throw StorageError(.outcomeUnknown, operation: "request", remedy: "Try again.")
    }
    return result
  }

  private func bytes(
    _ key: String, _ server: FakeTierServer.State, count: Int = .max
  ) -> SharedBytes? {
    server.entries[key].map { stored in
      SharedBytes(
        stored.bytes.prefix(count), number: stored.number, remaining: stored.expires - server.now)
    }
  }

  func read(_ key: String, count: Int?) throws(StorageError) -> SharedAnswer {
    try call(count == nil ? "read" : "readHead") { server in
      bytes(key, server, count: count ?? .max).map { .bytes($0) }
        ?? .nothing(number: server.lastNumber)
    }
  }

  func write(
    _ bytes: [UInt8], name: UInt64, lifetime: Int64, forKey key: String, production: UInt64?
  ) throws(StorageError) -> ChangeReply? {
    let refusal = state.withLock { $0.failure }.map {
      StorageError($0, operation: "request", remedy: "Raise maxmemory.")
    }
    let number = try change("write", key, production) { server in
      if refusal != nil { return }
      server.entries[key] = .init(
        bytes: bytes, number: server.lastNumber, expires: server.now.addingSaturated(lifetime))
    } message: { number in
      { $0.tierDidSend(.set(key, EntryVersion(number: number, name: name))) }
    }
    return number.map { ChangeReply(number: $0, failure: refusal, isStored: refusal == nil) }
  }

  func remove(_ key: String, production: UInt64?) throws(StorageError) -> ChangeReply? {
    let number = try change("remove", key, production) { _ in
    } message: { number in
      { $0.tierDidSend(.removed(key, number: number)) }
    }
    return number.map { ChangeReply(number: $0) }
  }

  /// Returns the number of the change; nil if the production has ended.
  private func change(
    _ name: String, _ key: String, _ production: UInt64?,
    _ body: (inout FakeTierServer.State) -> Void, message: (UInt64) -> Message
  ) throws(StorageError) -> UInt64? {
    try call(name) { server -> UInt64? in
      if let production, server.productions[key] != production { return nil }
      server.lastNumber += 1
      server.entries[key] = nil
      server.leases[key] = nil
      server.productions[key] = nil
      body(&server)
      return server.lastNumber
    } message: {
      $0.map(message)
    }
  }

  func removeAll() throws(StorageError) -> ChangeReply {
    let number = try call("removeAll") { server in
      server.lastNumber += 1
      server.entries = [:]
      server.leases = [:]
      server.productions = [:]
      return server.lastNumber
    } message: { number -> Message? in
      let removed: Message = { $0.tierDidSend(.removedAll(number: number)) }
      return removed
    }
    return ChangeReply(number: number)
  }

  func touch(
    _ key: String, name: UInt64, lifetime: Int64, onMissing: @escaping @Sendable () -> Void
  ) {
    let isThere = try? call("touch") { server in
      guard let stored = bytes(key, server), (try? SharedEntry(stored))?.version.name == name
      else { return false }
      server.entries[key]?.expires = server.now.addingSaturated(lifetime)
      return true
    }
    if isThere == false { onMissing() }
  }

  func takeLease(
    _ key: String, token: UInt64, headCount: Int
  ) throws(StorageError) -> LeaseReply {
    try call("takeLease") { server in
      if server.leases[key] != nil { return .busy(600 * WallClock.second) }
      server.leases[key] = token
      let production = server.productions[key] ?? token
      server.productions[key] = production
      return .granted(production: production, bytes(key, server, count: headCount))
    }
  }

  func releaseLease(of key: String, token: UInt64, waits: Bool) {
    _ = try? call("release") { server in
      guard server.leases[key] == token else { return false }
      server.leases[key] = nil
      return true
    } message: { isReleased -> Message? in
      let released: Message = { $0.tierDidSend(.released(key)) }
      return isReleased ? released : nil
    }
  }

  func follow(_ follower: any TierFollower) {
    outage.withLock { _ in
      let isAway = state.withLock { state in
        state.weakFollower = WeakFollower(follower: follower)
        return state.isAway
      }
      if !isAway { follower.tierIsFollowed() }
    }
  }
}

extension FaultPlan {
  /// Lets entries neither be replaced nor removed.
  static var unchangeable: FaultPlan {
    FaultPlan(decide: { event in
      [.exchange, .rename, .unlink, .rmdir].contains(event.call) ? .fail(EIO) : .proceed
    })
  }
}

/// A machine with a cache in a directory of its own, whose second tier is the server.
final class TierMachine: Sendable {
  private struct Backing: CacheBacking {
    let tier: FakeTier
    let directory: TemporaryDirectory

    func engine(for suite: Defaults.Suite, app: String) -> (any StorageEngines.Engine)? { nil }
    func suites(app: String) -> [Defaults.Suite] { [] }
    func cacheEngine(
      over files: FileCache, of cache: DiskCache.Name, app: String,
      onFailure: @escaping @Sendable (StorageError) -> Void
    ) -> (any CacheEngine)? {
      // A removal in the background opens the cache again, and creates it if it is missing. So the
      // directory is there for as long as any of its tiered caches.
      return TieredCache(files, tier) { [directory] error in
        withExtendedLifetime(directory) { onFailure(error) }
      }
    }
  }

  let directory: TemporaryDirectory
  let tier: FakeTier
  let failures = Failures()
  private let scope: StorageScope

  /// - Parameter directory: That of another process of the same machine.
  init(
    _ server: FakeTierServer, in directory: TemporaryDirectory? = nil,
    leaseTime: Duration = .seconds(600)
  ) throws {
    self.directory = try directory ?? TemporaryDirectory(isQuick: true)
    tier = FakeTier(server, leaseTime: leaseTime)
    scope = StorageScope(
      finder: .temporary(app: "app", in: self.directory.path),
      backing: Backing(tier: tier, directory: self.directory), handler: failures.append)
  }

  deinit {
    tier.forgetActions()
    scope.close()
  }

  func cache(_ name: DiskCache.Name = "pages") -> DiskCache.Store { scope.cache(name) }

  /// Its cache in a new process.
  func restarted(_ server: FakeTierServer) throws -> TierMachine {
    try TierMachine(server, in: directory)
  }
}
