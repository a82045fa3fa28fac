internal import Keepsake

/// The newest version of each key that this process has seen in a shared cache.
///
/// The server numbers all changes, and every reply and message carries the number of its change.
/// One rule decides everything: nothing older than the newest known change of a key is stored or
/// used.
///
/// - The absence of a value has the number of the last change of any key.
/// - An entry of this machine counts without a question if its version is the newest known one and
///   messages have reported all changes since. After a gap in the messages, the server is asked
///   once.
/// - A change that did not reach the server is newer than all others. Before the server is asked
///   about its key again, the key is removed there.
/// - A smaller number than one that was known before the call began means that the server has lost
///   changes, as in a failover. Then everything is forgotten.
///
/// This is a value without locks and I/O.
struct KnownVersions: Sendable {
  /// A call that asks the server about a key, or changes it.
  struct Call: Sendable {
    let key: String
    fileprivate let began: UInt64
    fileprivate let period: UInt64
  }

  /// What is stored under a key.
  enum Held: Equatable, Sendable {
    case nothing
    /// nil for a value that was produced for this machine alone.
    case entry(EntryVersion?)
  }

  private struct Fact: Sendable {
    /// The number of the newest change.
    var number: UInt64
    var held: Held
    /// When it was noted, by ``clock``.
    var notedAt: UInt64
    /// The period in which the entry counts without a question; nil if the server must be asked.
    var period: UInt64?
    /// Whether a call has returned it or an older one. If not, the key is only known from messages.
    var isSeen = false
    /// The entry of this machine that has this version; nil if it was not seen yet.
    var stamp: EntryStamp?
    /// nil if uses do not matter.
    var use: EntryUse?
  }

  private var facts = ExactKeyDictionary<Fact>()
  /// The number of the last removal of all keys, and when that was noted.
  private var removal: (number: UInt64, notedAt: UInt64) = (0, 0)
  /// When facts were last forgotten. Calls that began before are not noted in their place.
  private var forgottenAt: UInt64 = 0
  /// The largest number that was forgotten. Without a fact, entries of this machine up to it are
  /// not used unless the server was asked; 0 if all are.
  private var outdatedNumber: UInt64 = 0

  /// When a change of each key could not reach the server…
  private var unsent: [ExactString: UInt64] = [:]
  /// …and of one of all keys.
  private var allUnsent: UInt64?

  /// How many calls about each key are running. Their facts are not forgotten.
  private var running: [ExactString: Int] = [:]

  /// The keys with a possibly outdated entry on this machine, which is to be removed.
  private var outdated: Set<ExactString> = []

  /// Counts what happens in this process.
  private var clock: UInt64 = 0
  /// Counts the confirmations and losses of the subscription.
  private var period: UInt64 = 0
  private(set) var isFollowing = false

  /// More keys would take too much memory.
  static let capacity = 100_000
  /// In bytes.
  static let keyCapacity = 16 << 20

  mutating func setFollowing(_ isFollowing: Bool) {
    self.isFollowing = isFollowing
    period += 1
  }

  // MARK: Calls

  /// The time now: whatever is noted later is newer.
  mutating func now() -> UInt64 {
    clock += 1
    return clock
  }

  /// The caller must end the call with ``end(_:)``.
  mutating func begin(_ key: String) -> Call {
    running[ExactString(key), default: 0] += 1
    return Call(key: key, began: now(), period: period)
  }

  mutating func end(_ call: Call) {
    let key = ExactString(call.key)
    let count = running[key] ?? 0
    running[key] = count > 1 ? count - 1 : nil
  }

  // MARK: Replies

  /// Notes what the server has answered to a question, or to a change that it has made.
  ///
  /// - Parameters:
  ///   - number: The number of the change; without a value, the number of the last change of any
  ///     key.
  ///   - stamp: The entry of this machine that has this version, if it was seen.
  ///   - use: How the server learns of the uses of the entry.
  /// - Returns: Whether nothing newer is known.
  mutating func note(
    _ held: Held, _ number: UInt64, _ call: Call, stamp: EntryStamp? = nil, use: EntryUse? = nil
  ) -> Bool {
    // The call returns what it has learned in any case.
    facts[call.key]?.isSeen = true
    if isUnsent(call.key) { return false }
    var last = facts[call.key]
    if last == nil, call.began <= forgottenAt {
      // The caller does not replace its entry.
      outdatedNumber = max(outdatedNumber, number)
      return false
    }
    if number < last?.number ?? removal.number {
      guard call.began > last?.notedAt ?? removal.notedAt else { return false }
      forgetLostChanges()
      last = nil
    }
    var fact = Fact(number: number, held: held, notedAt: now())
    if let last, last.held == held {
      fact = last
      fact.number = number
    }
    fact.isSeen = true
    if isFollowing, call.period == period { fact.period = period }
    fact.use = use ?? fact.use
    fact.stamp = stamp ?? fact.stamp
    set(call.key, fact)
    return true
  }

  /// Notes that this process has changed a key on the server. An earlier change that did not reach
  /// the server no longer matters.
  mutating func noteChange(_ held: Held, _ number: UInt64, _ call: Call, use: EntryUse? = nil)
    -> Bool
  {
    if let mark = unsent[ExactString(call.key)], mark < call.began {
      unsent[ExactString(call.key)] = nil
    }
    return note(held, number, call, use: use)
  }

  /// Notes that the server has removed all keys for this process.
  ///
  /// - Parameter time: When the removal began.
  mutating func noteRemovalOfAll(_ number: UInt64, since time: UInt64) {
    if let mark = allUnsent, mark < time { allUnsent = nil }
    unsent = unsent.filter { $0.value > time }
    if number <= removal.number, removal.notedAt < time { forgetLostChanges() }
    noteRemovalOfAll(number)
  }

  // MARK: Messages

  /// Notes a message that a key was changed.
  ///
  /// - Returns: Whether the caller must start the removal of outdated entries.
  mutating func noteMessage(_ key: String, _ held: Held, _ number: UInt64) -> Bool {
    let last = facts[key]
    if isUnsent(key) {
      // Unless this tells of the own change, whose reply was lost.
      guard allUnsent == nil, case .entry(let version?) = held, case .entry(let own?) = last?.held,
        own.name == version.name
      else { return false }
      unsent[ExactString(key)] = nil
    }
    if number <= last?.number ?? removal.number {
      // A late message, or a new one of a server that has lost changes.
      if let last, number < last.number || last.held != held { facts[key]?.period = nil }
      return false
    }
    var fact = Fact(number: number, held: held, notedAt: now(), isSeen: last?.isSeen ?? false)
    if isFollowing, number > outdatedNumber { fact.period = period }
    set(key, fact)
    return queueRemoval(of: key)
  }

  /// Notes a message that all keys were removed.
  mutating func noteRemovalOfAll(_ number: UInt64) {
    // If the server has lost changes, facts of larger numbers may be older.
    period += 1
    guard number > removal.number else { return }
    removal = (number, now())
    outdatedNumber = max(outdatedNumber, number)
    facts = facts.filter { key, fact in fact.number > number || isUnsent(key) }
  }

  /// The version that this process has stored under a name, if a message has reported it: then only
  /// the reply was lost.
  func version(named name: UInt64, of key: String) -> EntryVersion? {
    guard case .entry(let version?) = facts[key]?.held, version.name == name else { return nil }
    return version
  }

  // MARK: Changes on this machine alone

  /// Notes a change of this process that could not reach the server.
  mutating func noteUnsent(_ held: Held, _ key: String) {
    set(key, Fact(number: number(of: key), held: held, notedAt: now(), isSeen: true))
    unsent[ExactString(key)] = now()
  }

  /// Notes that the server could not be told that all keys are removed, or changed.
  mutating func noteAllUnsent() {
    unsent = [:]
    allUnsent = now()
    forget()
  }

  /// Notes that a process of this machine has stored an entry that did not reach the server.
  mutating func noteUnsentEntry(_ key: String, _ version: EntryVersion) {
    if !isUnsent(key), mayUse(key, version) { noteUnsent(.entry(version), key) }
  }

  /// Whether the newest change of a key did not reach the server.
  func isUnsent(_ key: String) -> Bool {
    allUnsent != nil || !unsent.isEmpty && unsent[ExactString(key)] != nil
  }

  /// Whether the server must remove all keys before it is asked about one.
  var isAllUnsent: Bool { allUnsent != nil }

  /// Notes that a value was produced for this machine alone, or none, unless the key was changed
  /// since.
  ///
  /// - Parameter time: When the producer began.
  /// - Returns: Whether it was noted.
  mutating func noteProduced(_ held: Held, _ key: String, since time: UInt64) -> Bool {
    guard facts[key]?.notedAt ?? max(forgottenAt, removal.notedAt) < time else { return false }
    set(key, Fact(number: number(of: key), held: held, notedAt: now(), isSeen: true))
    return true
  }

  private func number(of key: String) -> UInt64 { facts[key]?.number ?? removal.number }

  // MARK: Entries of this machine

  /// Whether an entry may be used without the server. If not, it is outdated.
  ///
  /// - Parameter version: nil if the entry was produced for this machine alone.
  func mayUse(_ key: String, _ version: EntryVersion?) -> Bool {
    let number = version?.number ?? 0
    guard let fact = facts[key] else {
      return allUnsent == nil && (outdatedNumber == 0 || number > outdatedNumber)
    }
    if fact.held == .entry(version) { return true }
    // Another process of this machine has stored it.
    return !isUnsent(key) && number > fact.number
  }

  /// Uses an entry without the server, unless it is outdated.
  ///
  /// - Returns: Whether it may be used.
  mutating func use(_ key: String, _ version: EntryVersion?) -> Bool {
    guard mayUse(key, version) else { return false }
    if facts[key]?.held == .entry(version) {
      facts[key]?.isSeen = true
    } else {
      let number = max(version?.number ?? 0, number(of: key))
      set(key, Fact(number: number, held: .entry(version), notedAt: now(), isSeen: true))
    }
    return true
  }

  /// Whether this is the newest known state of a key. Asked while the key is locked, before it is
  /// stored.
  func isNewest(_ key: String, _ held: Held) -> Bool { facts[key]?.held == held }

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
    facts[key]?.stamp = stamp
    facts[key]?.isSeen = true
    return state(of: key, fact, isUse: isUse)
  }

  private mutating func state(of key: String, _ fact: Fact, isUse: Bool) -> State {
    guard isFollowing, fact.period == period, case .entry(let version?) = fact.held else {
      return .unknown
    }
    guard isUse, let use = fact.use else { return .current(version, tell: nil) }
    let now = WallClock.now
    guard use.isDue(at: now) else { return .current(version, tell: nil) }
    facts[key]?.use?.lastTold = now
    return .current(version, tell: use.lifetime)
  }

  /// The server does not have the version that was known.
  mutating func expire(_ key: String, _ version: EntryVersion) {
    if facts[key]?.held == .entry(version) { facts[key]?.period = nil }
  }

  // MARK: Outdated entries

  /// Returns whether the caller must start the removal of outdated entries.
  mutating func queueRemoval(of key: String) -> Bool {
    // More than these are not used, and stay until they expire.
    guard outdated.count < Self.capacity else { return false }
    return outdated.insert(ExactString(key)).inserted && outdated.count == 1
  }

  /// A key with a possibly outdated entry on this machine; nil if there is none.
  mutating func takeRemoval() -> String? { outdated.popFirst()?.text }

  /// Forgets a fact from a message about a key that this process does not use, and of which this
  /// machine has no entry: it would only take memory.
  mutating func forgetUnlessSeen(_ key: String, _ held: Held) {
    guard let fact = facts[key], fact.held == held, !fact.isSeen else { return }
    if running[ExactString(key)] == nil { facts[key] = nil }
  }

  /// The newest known state of a key; nil if nothing is known.
  func held(_ key: String) -> Held? { facts[key]?.held }

  // MARK: Forgetting

  private mutating func set(_ key: String, _ fact: Fact) {
    if isFull(with: key, Self.capacity, Self.keyCapacity) {
      forget()
      if isFull(with: key, Self.capacity / 2, Self.keyCapacity / 2) { noteAllUnsent() }
    }
    facts[key] = fact
  }

  private func isFull(with key: String, _ capacity: Int, _ keyCapacity: Int) -> Bool {
    facts.count >= capacity || facts.keyByteCount + key.utf8.count > keyCapacity
  }

  /// Forgets what the server can be asked for again.
  private mutating func forget() {
    for (_, fact) in facts.elements { outdatedNumber = max(outdatedNumber, fact.number) }
    facts = facts.filter { key, _ in isInUse(key) }
    outdated = []
    forgottenAt = now()
  }

  /// Whether a call about the key is running, or its newest change did not reach the server.
  private func isInUse(_ key: String) -> Bool {
    unsent[ExactString(key)] != nil || running[ExactString(key)] != nil
  }

  /// Notes that the entries of this machine could not be removed.
  mutating func outdateAll() { outdatedNumber = .max }

  /// Forgets the numbers of changes that the server does not have any more.
  private mutating func forgetLostChanges() {
    facts = facts.filter { key, _ in isInUse(key) }
    for (key, _) in facts.elements { facts[key]?.number = 0 }
    removal = (0, now())
    outdatedNumber = 0
    forgottenAt = clock
    period += 1
  }
}
