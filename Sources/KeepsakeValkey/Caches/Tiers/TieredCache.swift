internal import FoundationEssentials
internal import Keepsake
internal import Synchronization

/// A cache with two tiers: files on this machine, and a server that several machines share.
///
/// Each value on the server has a version, which the entry on this machine has too. An entry is
/// used without asking the server as long as its version is known to be the one there: see
/// ``KeyOrder``. A value that is set or removed is changed on the server first, which tells all
/// machines; they remove their entries of earlier versions. While the server is away, entries of
/// this machine are used unless they are known to be outdated.
///
/// An entry whose version has the number 0 was set while the server was away, and has to be removed
/// there.
final class TieredCache: SharedCacheEngine {
  let files: FileCache
  let tier: any SharedTier
  let pending = PendingInvalidations()
  let waits = ProducerWaits()
  let leases = ActiveLeases()
  private let state = Locked(State(), afterFork: { State() })
  private let onFailure: @Sendable (StorageError) -> Void
  /// Whether the present outage was reported.
  private let isOutageReported = Atomic(false)
  /// Whether it was reported that the server refuses to tell of changes.
  private let isRefusalReported = Atomic(false)
  /// The seconds between a success and the next attempt to send what is pending.
  private let sendDelay = Atomic(1)
  /// Whether that attempt is scheduled.
  private let isSendingSoon = Atomic(false)
  /// Whether its leases end with a normal exit of the process.
  let releasesAtExit = Atomic(false)

  private struct State: Sendable {
    /// The process, as ``ForkGuard`` counts them: what a parent knows is not kept up to date in a
    /// forked child.
    let generation = ForkGuard.generation
    var hasBegunFollowing = false
    var order = KeyOrder()
  }

  init(
    _ files: FileCache, _ tier: any SharedTier,
    onFailure: @escaping @Sendable (StorageError) -> Void
  ) {
    self.files = files
    self.tier = tier
    self.onFailure = onFailure
  }

  func makeTurn(_ key: String) -> any FetchTurn { ProducerTurn(self, key) }

  var directory: String? { files.directory }
  var parentDirectory: String? { files.parentDirectory }
  var counts: CacheCounts { files.counts }

  var sizeLimit: Int? {
    get { files.sizeLimit }
    set { files.sizeLimit = newValue }
  }

  // MARK: The second tier

  private func withState<R>(_ body: (inout State) -> R) -> R {
    state.withLock { state in
      if state.generation != ForkGuard.generation { state = State() }
      return body(&state)
    }
  }

  /// Runs `body` with what is known, while no other thread does. It must not wait.
  func withOrder<R>(_ body: (inout KeyOrder) -> R) -> R { withState { body(&$0.order) } }

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
      // A forked child has no thread that sends the rest.
      if ForkGuard.isForkedChild { try pending.sendAll(to: tier, changeOrder) }
      try pending.send(to: tier, about: key, changeOrder)
      let answer = try question()
      noteSuccess()
      return answer
    } catch {
      noteFailure(error, of: call, key)
      return nil
    }
  }

  func noteSuccess() {
    sendPendingSoon(after: .seconds(sendDelay.load(ordering: .relaxed)))
    guard isOutageReported.load(ordering: .relaxed) else { return }
    isOutageReported.store(false, ordering: .relaxed)
  }

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

  /// Sends the removals that are pending, on another thread.
  private func sendPendingSoon(after delay: Duration? = nil) {
    // A forked child has no thread for that. Its next question sends them.
    if pending.isEmpty || ForkGuard.isForkedChild { return }
    if delay != nil, isSendingSoon.exchange(true, ordering: .relaxed) { return }
    let send: @Sendable () -> Void = { [weak self] in
      guard let self else { return }
      if delay != nil { isSendingSoon.store(false, ordering: .relaxed) }
      do throws(StorageError) {
        try pending.sendAll(to: tier, changeOrder)
        sendDelay.store(1, ordering: .relaxed)
      } catch {
        // A server that refuses changes may answer questions for long.
        let delay = sendDelay.load(ordering: .relaxed)
        sendDelay.store(min(delay * 2, 60), ordering: .relaxed)
        if delay == 1 { noteFailure(error, of: "set") }
      }
    }
    if let delay {
      BackgroundWork.run(after: delay, send)
    } else {
      BackgroundWork.run(send)
    }
  }

  /// Changes the order of the keys, and starts the removal of entries that have become outdated.
  func changeOrder(_ body: (inout KeyOrder) -> Bool) { removeOutdatedSoon(withOrder(body)) }

  /// Reports a failure that no caller can be told about.
  func report(_ error: StorageError) { onFailure(error) }

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

  /// Removes the entry of this machine unless it is the latest one.
  func removeSoon(_ key: String) { removeOutdatedSoon(withOrder { $0.queueRemoval(of: key) }) }

  /// Removes the entries of this machine that are known to be outdated.
  func removeOutdated() {
    while let call = withOrder({ $0.takeRemoval() }) {
      // An entry that cannot be removed is compared before it is used.
      try? removeOutdated(call)
    }
  }

  private func removeOutdated(_ call: KeyOrder.Call) throws(StorageError) {
    let key = call.key
    let present = try files.presentEntry(key)
    if let present {
      // One that the server was not told of is compared when it is used.
      if present.isPending, !withOrder({ $0.wasSent(key, present.version) }) { return }
      if withOrder({ $0.mayUse(key, present.version) }) {
        return withOrder { $0.noteNoOlderEntry(call, hasEntry: true) }
      }
    } else if withOrder({ $0.noteMissing(call) }) {
      return
    }
    // Another process may be about to store an older entry, unless it notices the removal.
    let isNoticed = try files.removeNoticeably(
      key, if: { [self] () throws(StorageError) in try isOutdated(key, present) },
      hook: { commit throws(StorageError) in try commit() })
    if isNoticed { withOrder { $0.noteNoOlderEntry(call, hasEntry: false) } }
  }

  /// Whether this machine still has an entry, which must not be used, or still none. The key must
  /// be locked.
  ///
  /// - Parameter wasCompared: Whether the server was found to have another version.
  func isOutdated(
    _ key: String, _ entry: PresentEntry?, wasCompared: Bool = false
  ) throws(StorageError) -> Bool {
    guard try files.presentEntry(key) == entry else { return false }
    guard let entry else { return true }
    return withOrder { order in
      // A server that has lost changes gives lower numbers.
      wasCompared ? !order.isLatest(key, entry.version) : !order.mayUse(key, entry.version)
    }
  }
}

extension PresentEntry {
  /// Whether the server was not told of it.
  var isPending: Bool { version?.number == 0 }
}

extension TieredCache: TierFollower {
  func tierIsFollowed() {
    withOrder { $0.setFollowing(true) }
    isRefusalReported.store(false, ordering: .relaxed)
    waits.wakeAll()
    sendPendingSoon()
  }

  func tierIsLost(_ error: StorageError) {
    withOrder { $0.setFollowing(false) }
    waits.wakeAll()
    // Calls find out by themselves that the server is away.
    if error.code == .unreachable || isRefusalReported.exchange(true, ordering: .relaxed) { return }
    let refusal = StorageError(
      error.code, operation: "get", path: error.path,
      reason: "the server does not tell of changes, so each read asks for them: "
        + (error.reason ?? error.code.description),
      remedy: error.remedy, underlyingError: error.underlyingError
    ).asWarning
    // Not on the link's thread, on which a handler that waits would stop all caches.
    BackgroundWork.run { [weak self] in self?.report(refusal) }
  }

  func tierDidSet(_ key: String, _ version: EntryVersion) {
    noteChange(of: key, .entry(version), version.number)
  }

  func tierDidRemove(_ key: String, number: UInt64) { noteChange(of: key, .nothing, number) }

  private func noteChange(of key: String, _ held: KeyOrder.Held, _ number: UInt64) {
    removeOutdatedSoon(withOrder { $0.noteMessage(key, held, number) })
    waits.wake(key)
  }

  func tierDidRemoveAll(number: UInt64) {
    changeOrder { $0.noteRemovalOfAll(number) }
    waits.wakeAll()
  }

  func tierDidChange() {
    withOrder { $0.setFollowing($0.isFollowing) }
    waits.wakeAll()
  }

  func tierDidRelease(_ key: String) { waits.wake(key) }
}
