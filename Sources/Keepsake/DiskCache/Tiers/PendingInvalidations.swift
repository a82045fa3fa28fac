internal import Synchronization

/// The keys that this process has changed while the second tier was away, where they may have old
/// values.
///
/// They are removed there before this process asks for them again, or once it is followed again.
final class PendingInvalidations: Sendable {
  private struct State: Sendable {
    /// The process, as ``ForkGuard`` counts them: those of a parent are not a forked child's.
    var generation = ForkGuard.generation
    /// Each with the number of its last change, which tells it from a later one.
    var keys: [ExactString: UInt64] = [:]
    var byteCount = 0
    /// The number of the change that removed all keys.
    var all: UInt64?
    var lastNumber: UInt64 = 0

    var isEmpty: Bool { keys.isEmpty && all == nil }

    mutating func makeNumber() -> UInt64 {
      lastNumber += 1
      return lastNumber
    }

    mutating func addAll() {
      keys = [:]
      byteCount = 0
      all = makeNumber()
    }

    /// Forgets all changes up to this number.
    mutating func removeAll(until number: UInt64) {
      if let all, all <= number { self.all = nil }
      for (key, added) in keys where added <= number { remove(key) }
    }

    mutating func remove(_ key: ExactString) {
      if keys.removeValue(forKey: key) != nil { byteCount -= key.text.utf8.count }
    }
  }

  private let state = Locked(State(), afterFork: { State() })
  /// Held while keys are removed on the server: a key that is removed twice could have a new value
  /// by then.
  private let sending = Locked(())
  /// Lets most calls skip the lock.
  private let hasNone = Atomic(true)
  /// If more keys are pending, the whole cache is emptied.
  private static let capacity = 100_000
  /// In bytes.
  private static let keyCapacity = 16 << 20
  /// How many keys are removed in one round trip.
  private static let batchCount = 500

  var isEmpty: Bool { hasNone.load(ordering: .relaxed) }

  private func change<R>(_ body: (inout State) -> R) -> R {
    state.withLock { state in
      if state.generation != ForkGuard.generation { state = State() }
      defer { hasNone.store(state.isEmpty, ordering: .relaxed) }
      return body(&state)
    }
  }

  func add(_ key: String) {
    change { state in
      // All of them will be removed, but not by a call that has begun before.
      if state.all != nil { return state.addAll() }
      let key = ExactString(key)
      if state.keys.updateValue(state.makeNumber(), forKey: key) == nil {
        state.byteCount += key.text.utf8.count
      }
      if state.keys.count > Self.capacity || state.byteCount > Self.keyCapacity { state.addAll() }
    }
  }

  func addAll() { change { $0.addAll() } }

  /// The tier has a newer value of the key, or none.
  func remove(_ key: String) {
    if isEmpty { return }
    change { $0.remove(ExactString(key)) }
  }

  /// Removes all keys on the server, with those that are pending.
  func removeAll(on tier: any SharedTier) throws(StorageError) -> ChangeReply {
    try sending.withLock { _ throws(StorageError) in
      let last = change { $0.lastNumber }
      let reply = try tier.removeAll()
      change { $0.removeAll(until: last) }
      return reply
    }
  }

  /// Removes the key on the server if its removal is pending, or waits until it is removed: a
  /// change that is made before would be undone.
  func send(to tier: any SharedTier, about key: String) throws(StorageError) {
    if isEmpty { return }
    try sendRemovalOfAll(to: tier)
    let key = ExactString(key)
    guard change({ $0.keys[key] != nil }) else { return }
    try sending.withLock { _ throws(StorageError) in
      // Another thread may have removed it.
      guard let number = change({ $0.keys[key] }) else { return }
      try tier.remove([key.text])
      change { if $0.keys[key] == number { $0.remove(key) } }
    }
  }

  /// Empties the cache on the server if that is pending.
  func sendRemovalOfAll(to tier: any SharedTier) throws(StorageError) {
    guard !isEmpty, change({ $0.all != nil }) else { return }
    try sending.withLock { _ throws(StorageError) in
      guard change({ $0.all != nil }) else { return }
      let last = change { $0.lastNumber }
      _ = try tier.removeAll()
      change { $0.removeAll(until: last) }
    }
  }

  /// Sends everything that is pending.
  func sendAll(to tier: any SharedTier) throws(StorageError) {
    while !isEmpty {
      try sendRemovalOfAll(to: tier)
      let isDone = try sending.withLock { _ throws(StorageError) -> Bool in
        let batch = change { Array($0.keys.prefix(Self.batchCount)) }
        if batch.isEmpty { return change { $0.all == nil } }
        try tier.remove(batch.map(\.key.text))
        change { state in
          for (key, number) in batch where state.keys[key] == number { state.remove(key) }
        }
        return false
      }
      if isDone { return }
    }
  }
}
