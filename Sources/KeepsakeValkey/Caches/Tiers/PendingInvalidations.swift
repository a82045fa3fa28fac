internal import Keepsake
internal import Synchronization

/// The keys that this process has changed while the second tier was away, where they may have old
/// values.
///
/// They are removed there before this process asks for them again, once it is followed again, or a
/// second after another call has succeeded.
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

  /// Runs its argument with exclusive access to the order of the keys. The argument returns whether
  /// to start the removal of outdated entries.
  typealias OrderAccess = ((inout KeyOrder) -> Bool) -> Void

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
  func removeAll(
    on tier: any SharedTier, _ access: OrderAccess
  ) throws(StorageError) -> ChangeReply {
    try sending.withLock { _ throws(StorageError) in
      try removeAllWhileSending(on: tier, access)
    }
  }

  private func removeAllWhileSending(
    on tier: any SharedTier, _ access: OrderAccess
  ) throws(StorageError) -> ChangeReply {
    var call: KeyOrder.Call?
    var last: UInt64 = 0
    access { order in
      call = order.begin("")
      last = change { $0.lastNumber }
      return false
    }
    let reply = try tier.removeAll()
    access { order in
      change { $0.removeAll(until: last) }
      return reply.made.map { order.noteRemovalOfAll($0.number, call) } ?? false
    }
    return reply
  }

  /// Removes keys on the server, each with the number of its last change.
  private func removeWhileSending(
    _ keys: [ExactString: UInt64], on tier: any SharedTier, _ access: OrderAccess
  ) throws(StorageError) {
    let reply = try tier.remove(keys.keys.map(\.text))
    access { order in
      let sent = change { state in
        keys.compactMap { key, number -> String? in
          guard state.keys[key] == number else { return nil }
          state.remove(key)
          return key.text
        }
      }
      guard let made = reply.made else { return false }
      return sent.reduce(false) { order.noteSent($1, made.number) || $0 }
    }
  }

  /// Removes the key on the server if its removal is pending, or waits until it is removed: a
  /// change that is made before would be undone.
  func send(
    to tier: any SharedTier, about key: String, _ access: OrderAccess
  ) throws(StorageError) {
    if isEmpty { return }
    try sendRemovalOfAll(to: tier, access)
    let key = ExactString(key)
    guard change({ $0.keys[key] != nil }) else { return }
    try sending.withLock { _ throws(StorageError) in
      // Another thread may have removed it.
      guard let number = change({ $0.keys[key] }) else { return }
      try removeWhileSending([key: number], on: tier, access)
    }
  }

  /// Empties the cache on the server if that is pending.
  private func sendRemovalOfAll(
    to tier: any SharedTier, _ access: OrderAccess
  ) throws(StorageError) {
    guard !isEmpty, change({ $0.all != nil }) else { return }
    try sending.withLock { _ throws(StorageError) in
      guard change({ $0.all != nil }) else { return }
      _ = try removeAllWhileSending(on: tier, access)
    }
  }

  /// Sends everything that is pending.
  func sendAll(to tier: any SharedTier, _ access: OrderAccess) throws(StorageError) {
    while !isEmpty {
      try sendRemovalOfAll(to: tier, access)
      let isDone = try sending.withLock { _ throws(StorageError) -> Bool in
        let batch = change { state in
          Dictionary(uniqueKeysWithValues: state.keys.prefix(Self.batchCount).map { ($0, $1) })
        }
        if batch.isEmpty { return change { $0.all == nil } }
        try removeWhileSending(batch, on: tier, access)
        return false
      }
      if isDone { return }
    }
  }
}
