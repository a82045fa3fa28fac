internal import Keepsake
internal import Synchronization

extension TieredCache {
  /// What a fetch of this machine does about a value that must be produced.
  enum LeaseOutcome: Sendable {
    /// Produce it. If there is news, look again before: another machine has just done so.
    case granted(CacheLease, hasNews: Bool)
    /// Another machine produces it. Wait, but not longer than this, and look again.
    case busy(Duration)
    /// Produce it for this machine alone.
    case unavailable
  }

  /// How long a wait lasts if no message would end it.
  private static let pollInterval = Duration.milliseconds(200)

  /// How long a fetch waits for other machines altogether, before it produces the value for this
  /// machine alone.
  var longestWait: Duration { tier.leaseTime * 6 }

  /// Takes the lease of a key for all machines.
  ///
  /// - Parameter version: That of the entry that was found; nil if none was.
  func takeLease(_ key: String, knowing version: EntryVersion?) -> LeaseOutcome {
    // A forked child has no threads that end a wait.
    if ForkGuard.isForkedChild { return .unavailable }
    followOnce()
    let token = UInt64.random(in: 1 ... .max)
    let reply = ask(key, for: "fetch") { () throws(StorageError) in
      try tier.takeLease(key, token: token, headCount: SharedEntry.headCount)
    }
    switch reply {
    case nil: return .unavailable
    case .busy(let time):
      let longest =
        withKnown { $0.isFollowing } ? tier.leaseTime : min(tier.leaseTime, Self.pollInterval)
      return .busy(min(max(.nanoseconds(time), .milliseconds(1)), longest))
    case .granted(let production, let head):
      let lease = CacheLease(key: key, token: token, production: production)
      withState { _ = $0.leases.insert(lease) }
      releaseAtExitOnce()
      guard let head, let shared = try? SharedEntry(head), shared.content != .tooLarge else {
        return .granted(lease, hasNews: false)
      }
      return .granted(lease, hasNews: shared.version != version)
    }
  }

  /// Lets another machine produce the value, unless it was stored.
  func release(_ lease: CacheLease) {
    if noteEnd(of: lease) { tier.releaseLease(of: lease.key, token: lease.token, waits: false) }
  }

  /// The server has ended a lease, or is to end it. Returns whether it was held.
  @discardableResult
  func noteEnd(of lease: CacheLease) -> Bool { withState { $0.leases.remove(lease) != nil } }

  /// Whether a producer of this process has the lease of the key.
  func hasLease(of key: String) -> Bool {
    withState { $0.leases.contains { $0.key.utf8.elementsEqual(key.utf8) } }
  }

  /// Lets other machines produce what this process does not any more.
  func releaseAll() {
    let leases = withState { state in
      defer { state.leases = [] }
      return state.leases
    }
    for lease in leases {
      tier.releaseLease(of: lease.key, token: lease.token, waits: true)
    }
  }

  private func releaseAtExitOnce() {
    if releasesAtExit.exchange(true, ordering: .relaxed) { return }
    BackgroundWork.runAtExit { [weak self] in self?.releaseAll() }
  }
}
