internal import FoundationEssentials
internal import Keepsake
internal import Synchronization

/// A cache with two tiers: files on this machine, and a server that several machines share.
///
/// Each value on the server has a version, which the entry on this machine has too. An entry is
/// used without asking the server as long as its version is known to be the server's: see
/// ``KnownVersions``. A value that is set or removed is changed on the server first, which tells
/// all machines; they remove their entries of earlier versions. While the server is away, entries
/// of this machine are used unless they are known to be outdated.
///
/// An entry whose version has the number 0 was set while the server was away. Before the server is
/// asked about its key again, the key is removed there.
final class TieredCache: CacheEngine {
  let files: FileCache
  let tier: any SharedTier
  let waits = ProducerWaits()
  private let state = Locked(State(), afterFork: { State() })
  /// Reports a failure that no caller can be told about.
  let report: @Sendable (StorageError) -> Void
  /// Whether the present outage was reported.
  private let isOutageReported = Atomic(false)
  /// Whether it was reported that the server refuses to send messages about changes.
  private let isRefusalReported = Atomic(false)
  /// Held while keys whose changes did not reach the server are removed there.
  let sending = Locked(())
  /// Whether its leases end with a normal exit of the process.
  let releasesAtExit = Atomic(false)

  struct State: Sendable {
    /// The process, as ``ForkGuard`` counts them: what a parent knows is not kept up to date in a
    /// forked child.
    let generation = ForkGuard.generation
    var hasBegunFollowing = false
    var known = KnownVersions()
    /// The leases that this process holds.
    var leases: Set<CacheLease> = []
  }

  init(
    _ files: FileCache, _ tier: any SharedTier,
    onFailure: @escaping @Sendable (StorageError) -> Void
  ) {
    self.files = files
    self.tier = tier
    report = onFailure
  }

  func makeTurn(_ key: String) -> (any FetchTurn)? { ProducerTurn(self, key) }

  var directory: String? { files.directory }
  var counts: CacheCounts { files.counts }

  var sizeLimit: Int? {
    get { files.sizeLimit }
    set { files.sizeLimit = newValue }
  }

  // MARK: The second tier

  func withState<R>(_ body: (inout State) -> R) -> R {
    state.withLock { state in
      if state.generation != ForkGuard.generation { state = State() }
      return body(&state)
    }
  }

  /// Runs `body` with what is known, while no other thread does. It must not wait.
  func withKnown<R>(_ body: (inout KnownVersions) -> R) -> R { withState { body(&$0.known) } }

  /// Follows the second tier from the first call on.
  func followOnce() {
    let isFirst = withState { state in
      defer { state.hasBegunFollowing = true }
      return !state.hasBegunFollowing
    }
    guard isFirst else { return }
    do throws(StorageError) {
      try tier.follow(self)
    } catch {
      withState { $0.hasBegunFollowing = false }
      noteFailure(error, of: "get")
    }
  }

  /// The answer of the second tier; nil if it gave none, which is reported as a failure of `call`.
  func ask<R>(
    _ key: String, for call: String, _ question: () throws(StorageError) -> R
  ) -> R? {
    do throws(StorageError) {
      try sendUnsent(about: key)
      let answer = try question()
      noteSuccess()
      return answer
    } catch {
      noteFailure(error, of: call, key)
      return nil
    }
  }

  /// Removes the key on the server if a change of it did not reach the server: an older value there
  /// must not be read again. Other keys stay there until they expire.
  func sendUnsent(about key: String) throws(StorageError) {
    guard withKnown({ $0.isUnsent(key) }) else { return }
    try sending.withLock { _ throws(StorageError) in
      if withKnown({ $0.isAllUnsent }) { try removeAllOnServer() }
      // Another thread may have removed it.
      guard withKnown({ $0.isUnsent(key) }) else { return }
      let call = withKnown { $0.begin(key) }
      defer { withKnown { $0.end(call) } }
      guard let reply = try tier.remove(key, production: nil) else { return }
      let isFirst = withKnown { known in
        known.noteChange(.nothing, reply.number, call) && known.queueRemoval(of: key)
      }
      removeOutdatedSoon(isFirst)
    }
  }

  /// - Returns: The failure of a removal that was made.
  @discardableResult
  func removeAllOnServer() throws(StorageError) -> StorageError? {
    let time = withKnown { $0.now() }
    let reply = try tier.removeAll()
    withKnown { $0.noteRemovalOfAll(reply.number, since: time) }
    return reply.failure
  }

  func noteSuccess() { isOutageReported.store(false, ordering: .relaxed) }

  /// Reports a failure of a call that goes on without the server. An outage is reported once.
  func noteFailure(_ error: StorageError, of call: String, _ key: String? = nil) {
    let isOutage = error.code == .unreachable || error.code == .outcomeUnknown
    if isOutage, isOutageReported.exchange(true, ordering: .relaxed) { return }
    report(
      StorageError(
        error.code, operation: call, key: isOutage ? nil : key, path: error.path,
        reason: "the cache goes on without the server: \(error.reason ?? error.code.description)",
        remedy: error.remedy, underlyingError: error.underlyingError
      ).asWarning)
  }

  // MARK: This machine

  func keys() throws(StorageError) -> [String] { try files.keys() }
  func totalSize() throws(StorageError) -> Int { try files.totalSize() }
  func removeExpired() throws(StorageError) -> Int { try files.removeExpired() }

  /// How long messages are collected before the entries that they are about are removed.
  private static let removalDelay = Duration.milliseconds(10)

  /// Removes outdated entries, not on the link's thread, which must not wait for the disk.
  ///
  /// - Parameter isFirst: Whether there were none before.
  private func removeOutdatedSoon(_ isFirst: Bool) {
    // A forked child has no thread for that. It does not use outdated entries in any case.
    guard isFirst, !ForkGuard.isForkedChild else { return }
    BackgroundWork.run(after: Self.removalDelay) { [weak self] in self?.removeOutdated() }
  }

  /// Removes the entry of this machine unless it is the newest one.
  func removeSoon(_ key: String) { removeOutdatedSoon(withKnown { $0.queueRemoval(of: key) }) }

  /// Removes the entries of this machine that are known to be outdated.
  func removeOutdated() {
    while let key = withKnown({ $0.takeRemoval() }) {
      // An entry that cannot be removed is compared before it is used.
      try? removeOutdated(key)
    }
  }

  private func removeOutdated(_ key: String) throws(StorageError) {
    guard let held = withKnown({ $0.held(key) }) else { return }
    let present = try files.presentEntry(key)
    // That of another process, which is compared when it is used.
    if present?.isUnsent == true { return }
    let isUsable = present.map { present in withKnown { $0.mayUse(key, present.version) } }
    if isUsable == false {
      try files.remove(key, by: nil) { commit throws(StorageError) in
        if try isOutdated(key, present) { try commit() }
      }
    }
    if isUsable != true { withKnown { $0.forgetUnlessSeen(key, held) } }
  }

  /// Whether this machine still has an entry that must not be used. The key must be locked.
  ///
  /// - Parameter wasCompared: Whether the server was found to have another version.
  func isOutdated(
    _ key: String, _ entry: PresentEntry?, wasCompared: Bool = false
  ) throws(StorageError) -> Bool {
    guard let entry, try files.presentEntry(key) == entry else { return false }
    return withKnown { known in
      // A server that has lost changes gives smaller numbers.
      wasCompared
        ? !known.isNewest(key, .entry(entry.version)) : !known.mayUse(key, entry.version)
    }
  }
}

extension PresentEntry {
  /// Whether it did not reach the server.
  var isUnsent: Bool { version?.number == 0 }
}

extension TieredCache: TierFollower {
  func tierIsFollowed() {
    withKnown { $0.setFollowing(true) }
    isRefusalReported.store(false, ordering: .relaxed)
    waits.wakeAll()
  }

  func tierIsLost(_ error: StorageError) {
    withKnown { $0.setFollowing(false) }
    waits.wakeAll()
    // Calls find out by themselves that the server is away.
    if error.code == .unreachable || isRefusalReported.exchange(true, ordering: .relaxed) { return }
    let refusal = StorageError(
      error.code, operation: "get", path: error.path,
      reason: "the server does not send messages about changes, so each read asks it: "
        + (error.reason ?? error.code.description),
      remedy: error.remedy, underlyingError: error.underlyingError
    ).asWarning
    // Not on the link's thread, on which a handler that waits would stop all caches.
    BackgroundWork.run { [weak self] in self?.report(refusal) }
  }

  func tierDidSend(_ message: CacheMessage?) {
    switch message {
    case .set(let key, let version): noteChange(of: key, .entry(version), version.number)
    case .removed(let key, let number): noteChange(of: key, .nothing, number)
    case .removedAll(let number):
      withKnown { $0.noteRemovalOfAll(number) }
      waits.wakeAll()
    case .released(let key): waits.wake(key)
    case nil:
      withKnown { $0.setFollowing($0.isFollowing) }
      waits.wakeAll()
    }
  }

  private func noteChange(of key: String, _ held: KnownVersions.Held, _ number: UInt64) {
    removeOutdatedSoon(withKnown { $0.noteMessage(key, held, number) })
    waits.wake(key)
  }

}
