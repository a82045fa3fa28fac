internal import Keepsake

/// What a process knows of a table, and the mirrors that show it.
///
/// It follows the table in three steps: the channel is subscribed; a snapshot is read; from then on
/// each message is the next version. A gap between two versions, or another table of the same name,
/// means that the snapshot is read again. Messages that arrive in the meantime are kept.
struct TableState {
  enum Phase {
    /// Nothing arrives: the channel is not subscribed, the server is away, or it has another table.
    case apart
    /// A snapshot is being read.
    case loading
    /// Every change arrives.
    case current
  }

  /// The number of an attempt to read a snapshot. The results of earlier attempts are ignored:
  /// messages may have been missed since.
  typealias Load = Int

  /// What was known when a change was sent to the server.
  struct Baseline {
    let id: String
    let version: Int64
    let name: String
    fileprivate let lossCount: Int
  }

  /// Work for after the lock is released.
  struct NextSteps {
    var load: Load?
    var report: StorageError?
  }

  private struct Change {
    var version: Int64 = 0
    var name = ""
  }

  private struct WeakMirror: Sendable {
    weak let mirror: StorageEngines.Mirror?
  }

  private let table: String
  private let content: TableName.Content
  /// Messages may not let the values grow beyond this.
  private let maximumByteCount: Int
  private(set) var phase = Phase.apart
  private(set) var contents = TableContents()
  /// Whether `contents` were read from the server, or from the copy on disk.
  private(set) var isKnown = false
  /// The newest change that this process knows to have been made.
  private var newest = Change()
  /// How often the server was found to have lost changes.
  private var lossCount = 0
  /// Why the server's table is not shown: it is not the one that this process knows.
  private(set) var conflict: StorageError?
  /// Why the last snapshot could not be read, or why the channel cannot be subscribed.
  private(set) var failure: StorageError?
  /// Why the table stopped being followed.
  private var outage: StorageError?
  private var outageNumber = 1
  /// The last outages for which a report was planned, and made.
  private var plannedReport = 0
  private var lastReport = 0
  private var mirrors: [WeakMirror] = []
  /// The threads that wait for the phase or the version to change.
  private var waiting: [Condition] = []

  /// The process that follows the table, as ``ForkGuard`` counts them; 0 for none.
  private var followingGeneration: UInt64 = 0
  private(set) var isSubscribed = false
  /// Whether it has been since the process began to follow the table.
  private var wasSubscribed = false
  /// The version of the last message since the last snapshot.
  private var lastMessage: Int64 = 0

  private var lastLoad: Load = 0
  /// The last snapshot that was taken.
  private(set) var finishedLoad: Load = 0
  /// What was ``newest``, and the identity of the table, when the snapshot was asked for.
  private var asked = Change()
  private var askedID = ""
  private var isRetryPlanned = false
  /// Whether the last snapshot was too large to receive, and no retry is due yet. Such a reply ends
  /// the connection, so the next one is not asked for it at once: it would end, too.
  private var isTooLarge = false
  private var retryDelay = Self.minimumRetryDelay
  private static let minimumRetryDelay = Duration.milliseconds(500)
  private static let maximumRetryDelay = Duration.seconds(30)
  /// Whether the snapshot that is being read will be too old.
  private var needsAnother = false
  /// Whether this process is giving up its table, so that it need not be told.
  var isAdopting = false
  /// Messages that arrived while a snapshot is being read.
  private var kept: [TableMessage] = []
  private var keptByteCount = 0
  /// More would take too much memory. A snapshot is read again instead.
  private static let maximumKeptByteCount = 16 << 20

  /// The names of this process's changes are a random prefix and a number.
  private var namePrefix = ""
  private var namingGeneration: UInt64 = 0
  private var nameCount = 0

  /// The versions of the changes that are shown before those that precede them, by key.
  private var early: [[UInt8]: Int64] = [:]
  /// The version of the last such change that removed all values.
  private var earlyRemoval: Int64 = 0

  /// - Parameters:
  ///   - table: Names the table in errors.
  ///   - maximumByteCount: How much a process may store, as ``TableContents/byteCount`` counts it.
  init(
    table: String, of content: TableName.Content = .settings, maximumByteCount: Int = 32 << 20
  ) {
    self.table = table
    self.content = content
    // Several processes may store at the same time. A larger snapshot would not be received either.
    self.maximumByteCount = 2 * maximumByteCount
  }

  // MARK: Mirrors

  /// Shows the table in a mirror from now on.
  mutating func add(_ mirror: StorageEngines.Mirror) {
    mirrors.removeAll { $0.mirror == nil || $0.mirror === mirror }
    mirrors.append(WeakMirror(mirror: mirror))
    mirror.replaceAll(with: contents.entries)
  }

  private func show(_ changes: TableChanges) {
    for case let mirror? in mirrors.lazy.map(\.mirror) {
      if changes.removesAll {
        mirror.replaceAll(with: changes.entries.filter { $0.data != nil })
      } else {
        mirror.apply(changes.entries)
      }
    }
  }

  private mutating func replaceContents(with contents: TableContents) {
    self.contents = contents
    newest = Change(version: contents.version, name: contents.name)
    isKnown = true
    early = [:]
    earlyRemoval = 0
    let entries = contents.entries
    for case let mirror? in mirrors.lazy.map(\.mirror) { mirror.replaceAll(with: entries) }
  }

  // MARK: Waiting

  /// Wakes the threads that wait, which look at the state again.
  private mutating func wake() {
    for condition in waiting { condition.signal() }
    waiting = []
  }

  mutating func wait(with condition: Condition) {
    stopWaiting(condition)
    waiting.append(condition)
  }

  mutating func stopWaiting(_ condition: Condition) { waiting.removeAll { $0 === condition } }

  // MARK: Following

  /// A forked child has no subscription, and its copy of the values may be old.
  private var isFollowing: Bool { followingGeneration == ForkGuard.generation }

  /// Returns whether the caller is to subscribe to the channel.
  mutating func beginFollowing() -> Bool {
    if isFollowing { return false }
    followingGeneration = ForkGuard.generation
    phase = .apart
    isSubscribed = false
    wasSubscribed = false
    failure = nil
    // What the parent has planned does not come in a forked child.
    isRetryPlanned = false
    isTooLarge = false
    waiting = []
    return true
  }

  mutating func stopFollowing() { followingGeneration = 0 }

  /// Uses the copy on disk until the server's table has been read.
  mutating func restore(_ copy: TableContents) {
    if !isKnown { replaceContents(with: copy) }
  }

  /// All messages arrive from now on.
  mutating func beginReceiving() -> Load? {
    isSubscribed = true
    wasSubscribed = true
    return isTooLarge ? nil : beginLoading()
  }

  /// Messages may be missing from now on.
  mutating func lose(_ error: StorageError) {
    isSubscribed = false
    phase = .apart
    // A server that was there may soon be there again, so that it is worth waiting.
    if !isTooLarge { failure = error.code == .accessDenied || !wasSubscribed ? error : nil }
    outage = error
    wake()
  }

  // MARK: Outages

  /// The number of an outage for which the caller is to call ``reportOutage(_:)`` later; nil if
  /// that is planned.
  mutating func planOutageReport() -> Int? {
    if plannedReport == outageNumber { return nil }
    plannedReport = outageNumber
    return outageNumber
  }

  /// Why the table is still not followed; nil if it is followed again, or if that was reported
  /// before.
  mutating func reportOutage(_ number: Int) -> StorageError? {
    guard number == outageNumber, lastReport != number, phase != .current, conflict == nil, isKnown
    else { return nil }
    lastReport = number
    return outage
  }

  /// The caller has reported that the table cannot be followed.
  mutating func noteOutageReport() { lastReport = outageNumber }

  private mutating func becomeCurrent() {
    phase = .current
    outage = nil
    outageNumber += 1
    retryDelay = Self.minimumRetryDelay
  }

  // MARK: Snapshots

  /// The number of the snapshot that the caller is to read; nil if one will be read anyway.
  mutating func beginLoading() -> Load? {
    if phase == .loading {
      needsAnother = true
      return nil
    }
    return beginLoad()
  }

  private mutating func beginLoad() -> Load {
    phase = .loading
    failure = nil
    isTooLarge = false
    needsAnother = false
    discardKept()
    lastMessage = 0
    asked = newest
    askedID = contents.id
    lastLoad += 1
    return lastLoad
  }

  private mutating func discardKept() {
    kept = []
    keptByteCount = 0
  }

  /// What the snapshot that is being read is asked about.
  var request: (id: String, version: Int64) { (askedID, asked.version) }

  /// Takes a snapshot, unless it is not of the table that is known.
  ///
  /// - Parameters:
  ///   - askedName: The name that the server has for the change of the version that was asked
  ///     about; empty if it does not know.
  ///   - isReplacement: Whether the table that was asked about was given up for this one.
  mutating func finishLoading(
    _ load: Load, _ snapshot: TableContents, askedName: String = "", isReplacement: Bool = false
  ) -> NextSteps {
    guard phase == .loading, load == lastLoad else { return NextSteps() }
    defer { wake() }
    let isOther = snapshot.id != contents.id
    var report: StorageError?
    if isKnown, isOther, !contents.id.isEmpty, !contents.isEmpty {
      guard isReplacement, askedID == contents.id else {
        if needsAnother || askedID != contents.id
          || kept.contains(where: { $0.id == contents.id || $0.isRestored })
        {
          return NextSteps(load: beginLoad())
        }
        phase = .apart
        discardKept()
        defer { conflict = lost(isEmpty: snapshot.id.isEmpty) }
        return NextSteps(report: conflict == nil ? lost(isEmpty: snapshot.id.isEmpty) : nil)
      }
      report = isAdopting ? nil : replaced
    }
    if isKnown, !isOther {
      // A change was made since it was asked for. To show an older version would undo that.
      if snapshot.version < newest.version, newest.version > asked.version {
        return NextSteps(load: beginLoad())
      }
      if snapshot.version < asked.version {
        report = lostChanges(asked.version - snapshot.version)
      } else if Self.differ(askedName, asked.name) {
        report = lostChanges()
      }
    }
    if report != nil { lossCount += 1 }
    conflict = nil
    finishedLoad = load
    replaceContents(with: snapshot)
    let messages = kept
    discardKept()
    for message in messages where !needsAnother {
      if !apply(message) { needsAnother = true }
    }
    if needsAnother { return NextSteps(load: beginLoad(), report: report) }
    if isSubscribed { becomeCurrent() } else { phase = .apart }
    return NextSteps(report: report)
  }

  /// Returns after how long to call ``retryLoading()``; nil if that is planned, or if another
  /// snapshot is being read.
  mutating func failLoading(
    _ load: Load, _ error: StorageError, isTooLarge: Bool = false
  ) -> Duration? {
    guard phase == .loading, load == lastLoad else { return nil }
    phase = .apart
    failure = error
    self.isTooLarge = isTooLarge
    outage = error
    discardKept()
    wake()
    // A forked child has no thread for that. The next message is its next attempt.
    if isRetryPlanned || ForkGuard.isForkedChild { return nil }
    isRetryPlanned = true
    defer { retryDelay = min(retryDelay * 2, Self.maximumRetryDelay) }
    return retryDelay
  }

  /// The number of the snapshot to read if the last one could not be read.
  mutating func retryLoading() -> Load? {
    isRetryPlanned = false
    isTooLarge = false
    return isSubscribed && phase == .apart && failure != nil ? beginLoad() : nil
  }

  // MARK: Changes

  var baseline: Baseline {
    Baseline(id: contents.id, version: contents.version, name: contents.name, lossCount: lossCount)
  }

  /// The name of the next change of this process. That of the first change is also the identity of
  /// the table.
  mutating func nextName() -> String {
    if namePrefix.isEmpty || namingGeneration != ForkGuard.generation {
      namePrefix = String(UInt64.random(in: .min ... .max), radix: 36)
      namingGeneration = ForkGuard.generation
    }
    nameCount += 1
    return "\(namePrefix).\(nameCount)"
  }

  /// Whether two names of changes of the same version are known, and differ.
  private static func differ(_ one: String, _ other: String) -> Bool {
    !one.isEmpty && !other.isEmpty && one != other
  }

  /// Takes note of the version that the server had when it received a change of this process. If
  /// it is older than what the process knew, or was made by another change, the server has lost
  /// changes.
  mutating func noteServerVersion(
    _ version: Int64, name: String, since baseline: Baseline
  ) -> NextSteps {
    // Each loss is reported once, although several threads may notice it.
    guard baseline.lossCount == lossCount, baseline.id == contents.id else { return NextSteps() }
    if version == baseline.version, Self.differ(name, baseline.name) {
      return NextSteps(load: phase == .apart ? nil : beginLoading())
    }
    guard version < baseline.version else { return NextSteps() }
    let report = lostChanges(max(baseline.version, contents.version) - version)
    lossCount += 1
    contents.version = version
    contents.name = ""
    newest = Change(version: version)
    asked = newest
    return NextSteps(load: phase == .apart ? nil : beginLoading(), report: report)
  }

  /// Takes a message, or keeps it; nil is one that cannot be understood. Returns the number of the
  /// snapshot that is to be read.
  mutating func receive(_ message: TableMessage?, byteCount: Int) -> Load? {
    switch phase {
    case .apart:
      guard isSubscribed, !isRetryPlanned else { return nil }
      // The server answers again, or has the known table again, or one that may take its place.
      if conflict == nil || message?.id == contents.id || message?.isRestored == true {
        return beginLoad()
      }
      conflict = lost(isEmpty: false)
      return nil
    case .loading:
      keptByteCount += byteCount + 64
      if let message, keptByteCount <= Self.maximumKeptByteCount {
        kept.append(message)
      } else {
        kept = []
        needsAnother = true
      }
      return nil
    case .current:
      defer { wake() }
      if let message, apply(message) { return nil }
      return beginLoad()
    }
  }

  /// Returns false if a snapshot is to be read, because the message does not follow, or because the
  /// values have become too large: there is a limit for snapshots, and none for all messages.
  private mutating func apply(_ message: TableMessage) -> Bool {
    let isFirst = contents.id.isEmpty && message.version == 1
    if message.isRestored { return false }
    // Messages only go back if the server has lost changes.
    guard message.id == contents.id || isFirst, message.version > lastMessage else { return false }
    lastMessage = message.version
    if message.version <= contents.version { return true }
    // A server that has become a replica of another one goes on with the changes of that one.
    guard message.version == contents.version + 1, let changes = message.changes,
      !Self.differ(message.previous, contents.name)
    else { return false }
    advance(to: message.version, name: message.name, of: message.id, with: changes)
    return contents.byteCount <= maximumByteCount
  }

  private mutating func advance(
    to version: Int64, name: String, of id: String, with changes: TableChanges
  ) {
    contents.id = id
    contents.version = version
    contents.name = name
    if version >= newest.version { newest = Change(version: version, name: name) }
    contents.apply(changes)
    show(changes)
  }

  /// Takes a change of this process, which has made a version of the table.
  ///
  /// - Parameter changes: nil if a condition was not met: then the mirrors need the version that
  ///   was looked at.
  /// - Returns: Whether the mirrors have it. If not, earlier changes of other processes have not
  ///   arrived yet.
  mutating func note(
    _ changes: TableChanges?, version: Int64, name: String, id: String
  ) -> Bool {
    guard isFollowing, phase != .apart else {
      if let changes { showEarly(changes, version: version, name: name) }
      return true
    }
    guard phase == .current, contents.id == id || contents.id.isEmpty else { return false }
    if version <= contents.version { return true }
    guard let changes, version == contents.version + 1 else { return false }
    advance(to: version, name: name, of: id, with: changes)
    wake()
    return true
  }

  /// Shows a change of this process although earlier ones have not arrived, and returns the number
  /// of the snapshot that is to be read.
  mutating func noteEarly(_ changes: TableChanges?, version: Int64, name: String) -> Load? {
    defer { wake() }
    let load = phase == .apart ? nil : beginLoading()
    if let changes { showEarly(changes, version: version, name: name) }
    return load
  }

  /// Shows a change of this process that does not follow what is known, unless that is newer. The
  /// next snapshot has it.
  private mutating func showEarly(_ changes: TableChanges, version: Int64, name: String) {
    // Without a name, the version is one to which the server has gone back, and the values are not.
    guard isKnown, version > contents.version || contents.name.isEmpty else { return }
    if version > newest.version { newest = Change(version: version, name: name) }
    var entries = changes.entries
    if changes.removesAll {
      entries += contents.keys.map { StorageEngines.Entry(key: $0, data: nil) }
      earlyRemoval = max(earlyRemoval, version)
    }
    // Two threads may come here in another order than the server.
    entries.removeAll { entry in
      let key = Array(entry.key.utf8)
      if max(early[key] ?? 0, changes.removesAll ? 0 : earlyRemoval) > version { return true }
      early[key] = version
      return false
    }
    let changes = TableChanges(entries)
    contents.apply(changes)
    show(changes)
  }

  // MARK: Errors

  /// - Parameter count: nil if others were made since.
  private func lostChanges(_ count: Int64? = nil) -> StorageError {
    StorageError(
      .damaged, operation: "changes", path: table,
      reason: "the server has lost \(count.map { "the last \($0)" } ?? "some") changes, as after a"
        + " failover",
      remedy: "Make important changes with confirm: .replicas(1).")
  }

  private func lost(isEmpty: Bool) -> StorageError {
    StorageError(
      .notFound, operation: "changes", path: table,
      reason: isEmpty
        ? "the server has lost the \(content) that this process knows"
        : "the server has other \(content) than those that this process knows",
      remedy: content == .settings
        ? "Call push on the ValkeyBacking, or run `keepsakectl push` on this machine, to store "
          + "those again; adopt uses the server's."
        : "Call pushSecrets on the ValkeyBacking, or run `keepsakectl push --vault` on this "
          + "machine, to store those again; adoptSecrets and `adopt --vault` use the server's.")
  }

  /// The known table was given up for the server's.
  private var replaced: StorageError {
    StorageError(
      .damaged, operation: "changes", path: table,
      reason: "push or adopt has replaced the \(content) that this process knew",
      remedy: content == .settings
        ? "If they are still needed, import a file made with `keepsakectl settings export`."
        : "Restore a backup of the server if they are still needed.")
  }
}
