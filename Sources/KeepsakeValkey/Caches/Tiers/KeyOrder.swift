internal import Keepsake

/// What this process knows of the order in which the keys of a shared cache were changed.
///
/// The server numbers all changes. A reply or a message tells a fact: as of this number, the key
/// had this version, or none. A value counts with its own number, because no later change of its
/// key has been made; the absence of one counts with the number of the last change of any key. For
/// each key, the latest fact is kept:
///
/// - A fact of a smaller number is older, unless the call that learned it began after the other one
///   was noted. Then the server has lost changes, as in a failover.
/// - A fact is current while messages tell of all later changes: the call that learned it began
///   after the subscription was confirmed, and that has not been lost since.
/// - A change that the server was not told of is later than all facts of calls that began before.
///   When the server is told, it removes its value.
///
/// A fact is noted before its call returns. Therefore no call returns an older value than one that
/// began after another call had returned a newer one.
///
/// This is a value without locks and without I/O, so that a test can run all interleavings.
struct KeyOrder: Sendable {
  /// A call that asks the server about a key, or changes it.
  struct Call: Sendable {
    let key: String
    let began: UInt64
    fileprivate var isChange = false
    /// The name of the version that a change stores.
    fileprivate var name: UInt64?
    /// nil if what it learns is not current.
    fileprivate var period: UInt64?

    init(_ key: String, began: UInt64) {
      self.key = key
      self.began = began
    }
  }

  /// What a key has.
  enum Held: Equatable, Sendable {
    case nothing
    /// nil for a value that was produced for this machine alone.
    case entry(EntryVersion?)
  }

  private struct Fact: Sendable {
    var number: UInt64
    var held: Held
    /// When it was noted, and when a change to it was.
    var notedAt: UInt64
    var changedAt: UInt64
    /// When this process began the change that made it; 0 if another process made it.
    var madeAt: UInt64 = 0
    /// When a message came whose number is not larger, although its change may be later. Facts of
    /// calls that began before are not current.
    var contradictedAt: UInt64
    /// The period in which it is current; nil if it has to be compared.
    var period: UInt64?
    /// Whether the server was not told.
    var isUnsent = false
    /// The entry of this machine that was stored without the server, which was told of it later.
    var sent: EntryVersion?
    /// Whether only messages have told of the key, so that no call has returned anything of it.
    var isUnseen = false
    /// Whether this machine is known to have no older entry.
    var hasNoOlderEntry = false
    /// The entry of this machine that has this version; nil if it was not seen yet.
    var stamp: EntryStamp?
    /// nil if uses do not matter.
    var use: EntryUse?
  }

  private var facts = ExactKeyDictionary<Fact>()
  /// The least number that a fact of any other key has.
  private var baseNumber: UInt64 = 0
  /// When the last one of those that were forgotten was noted…
  private var baseNotedAt: UInt64 = 0
  /// …and when any was forgotten.
  private var forgottenAt: UInt64 = 0
  /// Facts of calls that began before do not count.
  private var barrier: UInt64 = 0
  /// Entries of other keys up to this number are outdated; 0 if none are.
  private var outdatedNumber: UInt64 = 0
  /// The number of the last removal of all keys.
  private var removalNumber: UInt64 = 0

  /// The changes of this process that are running.
  private var changes = RunningCalls()
  /// The numbers of running changes that store a version, by the version's name; 0 until a message
  /// tells the number.
  private var numbersOfChanges: [UInt64: UInt64] = [:]
  /// The questions that are running, and store what they learn.
  private var questions = RunningCalls()
  /// The keys of which this machine may have an outdated entry that is to be removed.
  private var outdated: Set<ExactString> = []
  private var outdatedByteCount = 0

  /// Counts what happens in this process.
  private var clock: UInt64 = 0
  /// Counts the confirmations and losses of the subscription.
  private var period: UInt64 = 0
  private(set) var isFollowing = false

  /// More would take too much memory. What is forgotten is asked for again.
  static let capacity = 100_000
  /// In bytes.
  static let keyCapacity = 16 << 20

  private mutating func tick() -> UInt64 {
    clock += 1
    return clock
  }

  mutating func setFollowing(_ isFollowing: Bool) {
    self.isFollowing = isFollowing
    period += 1
  }

  // MARK: Calls

  mutating func begin(_ key: String) -> Call {
    var call = Call(key, began: tick())
    call.period = period
    return call
  }

  /// The caller has to end it with ``endChange(_:)``.
  ///
  /// - Parameter name: That of the version that the change stores, if any.
  mutating func beginChange(_ key: String, storing name: UInt64? = nil) -> Call {
    changes.add(key)
    if let name { numbersOfChanges[name] = 0 }
    var call = begin(key)
    call.isChange = true
    call.name = name
    return call
  }

  mutating func endChange(_ call: Call) {
    changes.remove(call.key)
    if let name = call.name { numbersOfChanges[name] = nil }
  }

  /// Begins a call that stores what it learns. The caller has to end it with ``endQuestion(_:)``.
  mutating func beginQuestion(_ key: String) -> Call {
    questions.add(key)
    return begin(key)
  }

  mutating func endQuestion(_ call: Call) { questions.remove(call.key) }

  // MARK: Facts

  /// Notes what a call has learned from the server.
  ///
  /// - Parameters:
  ///   - number: That of the change; without a value, that of the last change of any key.
  ///   - stamp: The entry of this machine that has this version, if it was seen.
  ///   - use: What the server is told of the uses of the entry.
  /// - Returns: Whether it is the latest fact.
  mutating func note(
    _ held: Held, _ number: UInt64, _ call: Call, stamp: EntryStamp? = nil, use: EntryUse? = nil
  ) -> Bool {
    guard isLatest(held, number, call) else {
      noteReturned(number, call.key)
      return false
    }
    var fact = makeFact(held, number, after: facts[call.key])
    let isCurrent = isFollowing && call.period == period && call.began > fact.contradictedAt
    fact.period = isCurrent ? period : nil
    fact.isUnseen = false
    if call.isChange { fact.madeAt = call.began }
    fact.use = use ?? fact.use
    if let stamp {
      fact.stamp = stamp
      fact.hasNoOlderEntry = true
    }
    set(call.key, fact)
    return true
  }

  /// Notes that a call returns something of a key that is not the latest fact. From now on, older
  /// entries of this machine are outdated.
  private mutating func noteReturned(_ number: UInt64, _ key: String) {
    if facts[key] == nil { set(key, makeChange(.nothing, max(number, baseNumber), after: nil)) }
    facts.modify(key) { $0.isUnseen = false }
  }

  private func isLatest(_ held: Held, _ number: UInt64, _ call: Call) -> Bool {
    guard call.began > barrier else { return false }
    guard let last = facts[call.key] else {
      return call.began > baseNotedAt || number > baseNumber
    }
    if call.began > last.notedAt { return true }
    if last.isUnsent || number < last.number { return false }
    // A value that has been evicted since has the same number as its absence.
    return number > last.number || last.held != .nothing || held == .nothing
  }

  /// Notes a change of this process that the server could not be told of.
  ///
  /// - Returns: Whether it counts. It does not if this process has made a change that began later.
  ///   A change of another machine that was noted meanwhile may have been made earlier.
  @discardableResult
  mutating func noteUnsent(_ held: Held, _ call: Call) -> Bool {
    let last = facts[call.key]
    if let last, last.madeAt > call.began { return false }
    var fact = makeChange(held, last?.number ?? baseNumber, after: last)
    fact.isUnsent = true
    set(call.key, fact)
    return true
  }

  /// Notes that the server has removed a value because it had not been told of a change.
  ///
  /// - Returns: Whether the caller has to start the removal of outdated entries.
  mutating func noteSent(_ key: String, _ number: UInt64) -> Bool {
    guard let last = facts[key], last.isUnsent else { return false }
    return noteRemoval(of: key, number, last)
  }

  /// Replaces a fact about a key. This machine may still have an entry that was stored without the
  /// server.
  private mutating func noteRemoval(of key: String, _ number: UInt64, _ last: Fact) -> Bool {
    // It is not current: a message about a later change may have come already.
    var fact = makeChange(.nothing, number, after: last)
    if last.number > number { fact.contradictedAt = fact.changedAt }
    if last.isUnsent, case .entry(let version) = last.held { fact.sent = version }
    set(key, fact)
    return queueRemoval(of: key)
  }

  /// Whether the server was told of an entry that was stored without it. If so, any value that the
  /// server has now is later.
  func wasSent(_ key: String, _ version: EntryVersion?) -> Bool {
    if let version, let fact = facts[key] { fact.sent == version } else { false }
  }

  /// The number that a message has told of a running change; nil if no message has come.
  func number(of change: Call) -> UInt64? {
    guard let name = change.name, let number = numbersOfChanges[name] else { return nil }
    return number > 0 ? number : nil
  }

  /// Notes that a value was produced for this machine alone, or none, unless the key was changed
  /// since.
  ///
  /// - Parameters:
  ///   - call: Began before the producer.
  ///   - change: The attempt to tell the server, if there was one.
  /// - Returns: Whether it was noted.
  mutating func noteProduced(_ held: Held, _ call: Call, after change: Call? = nil) -> Bool {
    guard isUnchanged(since: call, besides: change == nil ? 0 : 1) else { return false }
    let last = facts[call.key]
    set(call.key, makeChange(held, last?.number ?? baseNumber, after: last))
    return true
  }

  /// Takes note of a message that a key was changed.
  ///
  /// - Returns: Whether the caller has to start the removal of outdated entries.
  mutating func noteMessage(_ key: String, _ held: Held, _ number: UInt64) -> Bool {
    if case .entry(let version?) = held, numbersOfChanges[version.name] != nil {
      numbersOfChanges[version.name] = version.number
    }
    let last = facts[key]
    if let last, last.isUnsent {
      // It may have been earlier or later. The key will be removed on the server in any case.
      facts.modify(key) { $0.number = max($0.number, number) }
      return false
    }
    if let last, number <= last.number {
      // A late message, or a new one of a server that has lost changes. Removals have no name, so
      // that each may be a new one.
      if held != .nothing, last.held == held { return false }
      let now = tick()
      facts.modify(key) { fact in
        fact.period = nil
        fact.contradictedAt = now
      }
      return false
    }
    // It may be older than a fact of the key that was forgotten.
    let isLate = number < baseNumber
    var fact = makeFact(isLate ? .nothing : held, max(number, baseNumber), after: last)
    fact.period = isFollowing && !isLate ? period : nil
    fact.isUnseen = last?.isUnseen ?? true
    set(key, fact)
    return queueRemoval(of: key)
  }

  /// Notes that all keys were removed, as a message or the reply to this process's own call tells.
  ///
  /// - Parameter call: The own one.
  /// - Returns: Whether the caller has to start the removal of outdated entries.
  @discardableResult
  mutating func noteRemovalOfAll(_ number: UInt64, _ call: Call? = nil) -> Bool {
    // If the server has lost changes, facts of larger numbers, and calls that are running, may be
    // earlier.
    period += 1
    if number == removalNumber, call == nil { return false }
    removalNumber = max(removalNumber, number)
    let began = call?.began ?? 0
    let sent = facts.elements.filter { _, fact in
      if fact.isUnsent { return fact.notedAt < began }
      return fact.number <= number && fact.sent != nil && !fact.hasNoOlderEntry
    }
    forget { $0.number <= number && !$0.isUnsent }
    baseNumber = max(baseNumber, number)
    outdatedNumber = max(outdatedNumber, number)
    return sent.reduce(false) { noteRemoval(of: $1.key, number, $1.value) || $0 }
  }

  /// Notes that this process removes all keys, and could not tell the server.
  mutating func noteUnsentRemovalOfAll() { forgetAll() }

  /// Notes that the entries of this machine could not be removed.
  mutating func outdateAll() { outdatedNumber = .max }

  /// The server does not have the version that was known.
  mutating func expire(_ key: String, _ version: EntryVersion) {
    if facts[key]?.held == .entry(version) { facts.modify(key) { $0.period = nil } }
  }

  private mutating func makeFact(_ held: Held, _ number: UInt64, after last: Fact?) -> Fact {
    if var same = last, same.held == held, !same.isUnsent {
      same.number = number
      same.notedAt = tick()
      return same
    }
    return makeChange(held, number, after: last)
  }

  private mutating func makeChange(_ held: Held, _ number: UInt64, after last: Fact?) -> Fact {
    let now = tick()
    return Fact(
      number: number, held: held, notedAt: now, changedAt: now,
      contradictedAt: last?.contradictedAt ?? 0, sent: last?.sent)
  }

  private mutating func set(_ key: String, _ fact: Fact) {
    if isFull(with: key, Self.capacity, Self.keyCapacity) {
      forget { $0.hasNoOlderEntry && !$0.isUnsent }
      if isFull(with: key, Self.capacity / 2, Self.keyCapacity / 2) { forgetAll() }
    }
    facts.set(key, fact)
  }

  private func isFull(with key: String, _ capacity: Int, _ keyCapacity: Int) -> Bool {
    facts.count >= capacity || facts.keyByteCount + key.utf8.count > keyCapacity
  }

  /// Forgets facts. Calls that are running do not learn older ones in their place.
  private mutating func forget(where isForgotten: (Fact) -> Bool) {
    var kept = ExactKeyDictionary<Fact>()
    for (key, fact) in facts.elements {
      if isForgotten(fact) {
        baseNumber = max(baseNumber, fact.number)
      } else {
        kept.set(key, fact)
      }
    }
    facts = kept
    baseNotedAt = tick()
    forgottenAt = baseNotedAt
  }

  /// Forgets all facts. Entries that may be outdated are not used without the server.
  private mutating func forgetAll() {
    for (_, fact) in facts.elements where !fact.hasNoOlderEntry {
      outdatedNumber = max(outdatedNumber, fact.number)
    }
    forget { _ in true }
    barrier = tick()
    outdated = []
    outdatedByteCount = 0
  }

  // MARK: Entries of this machine

  /// Whether an entry may be used without the server. If not, it is outdated.
  ///
  /// - Parameters:
  ///   - version: nil if the entry was produced for this machine alone.
  ///   - call: Began before the entry was read. Not needed while the key is locked.
  func mayUse(_ key: String, _ version: EntryVersion?, since call: Call? = nil) -> Bool {
    let number = version?.number ?? 0
    guard let fact = facts[key] else {
      // It may have been removed since, and that forgotten.
      if let call, call.began < forgottenAt { return false }
      return outdatedNumber == 0 || number > outdatedNumber
    }
    if fact.held == .entry(version) { return true }
    // Another process of this machine has stored it.
    return !fact.isUnsent && number > fact.number
  }

  /// Uses an entry without the server, unless it is outdated. Calls that are running do not learn
  /// an older one.
  ///
  /// - Parameter call: Began before the entry was read.
  /// - Returns: Whether it may be used.
  mutating func use(_ key: String, _ version: EntryVersion?, since call: Call) -> Bool {
    guard mayUse(key, version, since: call) else { return false }
    let last = facts[key]
    if last?.held == .entry(version) {
      facts.modify(key) { $0.isUnseen = false }
      return true
    }
    // Another process of this machine has stored it.
    let number = max(version?.number ?? 0, last?.number ?? baseNumber)
    var fact = makeFact(.entry(version), number, after: last)
    // The server may have made a change that is running, so that the entry is older than that.
    fact.isUnsent = version?.number == 0 && changes.count(key) == 0
    fact.isUnseen = false
    set(key, fact)
    return true
  }

  /// Whether a version is the latest that is known. Asked while the key is locked, before a value
  /// is stored.
  func isLatest(_ key: String, _ version: EntryVersion?) -> Bool {
    facts[key]?.held == .entry(version)
  }

  /// Whether the server was not told of the latest change.
  func isUnsent(_ key: String) -> Bool { facts[key]?.isUnsent == true }

  /// Whether this process does not change the key, and no change was noted since the call began.
  ///
  /// - Parameter count: How many changes do not count.
  func isUnchanged(since call: Call, besides count: Int = 0) -> Bool {
    guard call.began > barrier, changes.count(call.key) <= count else { return false }
    return facts[call.key]?.changedAt ?? baseNotedAt < call.began
  }

  enum State: Equatable {
    /// The server has this version. With the lifetime that it is to be told, if any.
    case current(EntryVersion, tell: Int64?)
    case unknown
  }

  /// What is known of an entry that was seen before.
  mutating func state(of key: String, _ stamp: EntryStamp, isUse: Bool) -> State {
    guard let fact = facts[key], fact.stamp == stamp else { return .unknown }
    return state(of: key, fact, isUse: isUse)
  }

  /// What is known of an entry of this version.
  ///
  /// - Parameter stamp: The entry; nil for a record that there is no value.
  mutating func state(
    of key: String, _ version: EntryVersion, _ stamp: EntryStamp?, isUse: Bool
  ) -> State {
    guard let fact = facts[key], fact.held == .entry(version) else { return .unknown }
    facts.modify(key) { fact in
      fact.stamp = stamp
      fact.hasNoOlderEntry = true
      fact.isUnseen = false
    }
    return state(of: key, fact, isUse: isUse)
  }

  private mutating func state(of key: String, _ fact: Fact, isUse: Bool) -> State {
    guard isFollowing, fact.period == period, case .entry(let version?) = fact.held else {
      return .unknown
    }
    guard isUse, let use = fact.use else { return .current(version, tell: nil) }
    let now = WallClock.now
    guard use.isDue(at: now) else { return .current(version, tell: nil) }
    facts.modify(key) { $0.use?.lastTold = now }
    return .current(version, tell: use.lifetime)
  }

  // MARK: Outdated entries

  /// Returns whether the caller has to start the removal of outdated entries.
  mutating func queueRemoval(of key: String) -> Bool {
    let isFirst = outdated.isEmpty
    if outdated.insert(ExactString(key)).inserted { outdatedByteCount += key.utf8.count }
    if outdated.count <= Self.capacity, outdatedByteCount <= Self.keyCapacity { return isFirst }
    // Too many to remove one by one. They are not used, and stay until they expire.
    outdated = []
    outdatedByteCount = 0
    return false
  }

  /// A key of which this machine may have an outdated entry; nil if there is none.
  mutating func takeRemoval() -> Call? {
    guard let key = outdated.popFirst() else { return nil }
    outdatedByteCount -= key.text.utf8.count
    return begin(key.text)
  }

  /// Notes that this machine has stored the version.
  mutating func noteStored(_ key: String, _ version: EntryVersion) {
    if isLatest(key, version) { facts.modify(key) { $0.hasNoOlderEntry = true } }
  }

  /// Notes that this machine has no outdated entry of the key.
  ///
  /// - Parameters:
  ///   - call: Began before the caller looked for one.
  ///   - hasEntry: Whether it has an entry at all. If not, and if no other process of this machine
  ///     stores an older one, the fact need not be remembered.
  mutating func noteNoOlderEntry(_ call: Call, hasEntry: Bool) {
    guard let fact = facts[call.key], fact.changedAt < call.began, !fact.isUnsent else { return }
    facts.modify(call.key) { $0.hasNoOlderEntry = true }
    if hasEntry || isInUse(call.key) { return }
    facts.remove(call.key)
    // Calls that began before it was noted must not learn an older one.
    baseNumber = max(baseNumber, fact.number)
    baseNotedAt = max(baseNotedAt, fact.notedAt, fact.contradictedAt)
    forgottenAt = tick()
  }

  /// Notes that this machine has no entry of a key, if no call has returned anything of the key:
  /// then it does no harm if another process of this machine is about to store an older one.
  ///
  /// - Parameter call: Began before the caller looked for one.
  /// - Returns: Whether that is so.
  mutating func noteMissing(_ call: Call) -> Bool {
    guard facts[call.key]?.isUnseen ?? true else { return false }
    if !isInUse(call.key) { noteNoOlderEntry(call, hasEntry: false) }
    return true
  }

  /// Whether a call of this process changes the key, or may store a value of it.
  private func isInUse(_ key: String) -> Bool { changes.count(key) + questions.count(key) > 0 }
}

/// How many calls about each key are running.
private struct RunningCalls: Sendable {
  private var counts: [ExactString: Int] = [:]

  mutating func add(_ key: String) { counts[ExactString(key), default: 0] += 1 }

  mutating func remove(_ key: String) {
    let count = count(key)
    counts[ExactString(key)] = count > 1 ? count - 1 : nil
  }

  func count(_ key: String) -> Int { counts[ExactString(key)] ?? 0 }
}
