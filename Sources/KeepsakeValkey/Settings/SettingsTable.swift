internal import FoundationEssentials
internal import Keepsake

/// The settings of one suite, or the sealed secrets of an app, on a server, mirrored in memory.
///
/// The server decides about each change: a script checks the conditions, writes, and publishes the
/// change with its version. This process follows the channel: see ``TableState``.
final class SettingsTable: StorageEngines.MirroredEngine {
  private let name: TableName
  private let server: Server
  private let copy: TableCopy
  private let report: @Sendable (StorageError) -> Void
  private let maximumByteCount: Int
  private let state: Locked<TableState>

  /// - Parameters:
  ///   - cache: Holds the copy on disk.
  ///   - maximumByteCount: How much all values and their keys may take, as
  ///     ``TableContents/byteCount`` counts it. A server sends them in one reply, whose size
  ///     ``LinkOptions/maximumReplySize`` limits.
  init(
    _ name: TableName, on server: Server, cache: DiskCache.Store,
    maximumByteCount: Int = 32 << 20, report: @escaping @Sendable (StorageError) -> Void
  ) {
    self.maximumByteCount = maximumByteCount
    self.name = name
    self.server = server
    // On another thread: a handler may use the table, which the reporting call may have locked, and
    // on the link's thread it would stop all tables.
    let reportSoon: @Sendable (StorageError) -> Void = { error in
      StorageEngines.Mirror.report(error, to: report)
    }
    self.report = reportSoon
    copy = TableCopy(of: name, on: server, in: cache, report: reportSoon)
    let table = "\(server.address) \(name.values)"
    let content = name.content
    let newState: @Sendable () -> TableState = {
      TableState(table: table, of: content, maximumByteCount: maximumByteCount)
    }
    state = Locked(newState(), afterFork: newState)
  }

  deinit { server.link.unsubscribe(from: Array(name.channel.utf8)) }

  private func scriptArguments(_ values: [[UInt8]]) -> Script.Arguments {
    Script.Arguments(keys: [name.values, name.state], values: values)
  }

  private static let format = Array(String(TableScripts.format).utf8)

  // MARK: Reading

  func data(forKey key: String) throws -> Data? {
    var fields = Command(reading: "HMGET", name.values)
    fields.append(TableScripts.marker)
    fields.append(key)
    return try read { () throws(StorageError) in
      guard case .array(let found) = try server.perform(fields), found.count == 2 else {
        throw server.invalidReply("HMGET")
      }
      if case .bytes(let bytes) = found[1] { return (Data(bytes), found[0]) }
      return (nil, found[0])
    }
  }

  func keys() throws -> [String] {
    var marker = Command(reading: "HGET", name.values)
    marker.append(TableScripts.marker)
    return try read { () throws(StorageError) in
      let id = try server.perform(marker)
      guard case .array(let names) = try server.perform(Command(reading: "HKEYS", name.values))
      else { throw server.invalidReply("HKEYS") }
      let keys = names.compactMap { name in
        if case .bytes(let bytes) = name { String(validating: bytes, as: UTF8.self) } else { nil }
      }
      return (keys, names.contains(.bytes(TableScripts.marker)) ? id : .null)
    }
  }

  /// Reads from the server's values, unless they belong to another table than the one that this
  /// process knows: what is missing from a table that was lost must not be taken for removed.
  ///
  /// - Parameter body: Returns what was read, and the marker of the table that it was read from.
  private func read<R>(
    _ body: () throws(StorageError) -> (R, marker: Reply)
  ) throws(StorageError) -> R {
    for _ in 0..<3 {
      let id = state.withLock { $0.contents.id }
      let (result, marker) = try body()
      if id.isEmpty || marker == .bytes(Array(id.utf8)) { return result }
      try load()
    }
    throw isBeingReplaced
  }

  /// The server had another table again and again, although each one was read.
  private var isBeingReplaced: StorageError {
    .unreachable(
      server.address, "the \(name.content) are being replaced on the server",
      remedy: "Repeat the call.")
  }

  // MARK: Writing

  func set(_ data: Data?, forKey key: String) throws {
    _ = try change(TableChanges([StorageEngines.Entry(key: key, data: data)]))
  }

  func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool {
    try apply(
      [StorageEngines.Entry(key: key, data: new)],
      ifCurrent: [StorageEngines.Entry(key: key, data: old)])
  }

  func apply(_ changes: [StorageEngines.Entry], ifCurrent conditions: [StorageEngines.Entry]) throws
    -> Bool
  {
    try change(TableChanges(changes), ifCurrent: conditions)
  }

  func removeAll() throws { _ = try change(TableChanges([], removesAll: true)) }

  func synchronize() throws {
    try readBeforeFirstChange()
    for _ in 0..<3 {
      let (name, id, conflict) = state.withLock { ($0.nextName(), $0.contents.id, $0.conflict) }
      if let conflict { throw conflict }
      let nothing = arguments(of: TableChanges([]), named: name, id: id)
      guard let reply = try server.synchronize(TableScripts.change, nothing),
        try result(of: reply).code != 1
      else { return }
      // The server has another table. Reading it tells whether that is a conflict.
      try load()
    }
    throw isBeingReplaced
  }

  private func change(
    _ changes: TableChanges, ifCurrent conditions: [StorageEngines.Entry] = []
  ) throws(StorageError) -> Bool {
    try server.check()
    try readBeforeFirstChange()
    for _ in 0..<3 {
      let (baseline, conflict, byteCount, name) = state.withLock { state in
        let byteCount = state.contents.byteCount(after: changes)
        return (state.baseline, state.conflict, byteCount, state.nextName())
      }
      if let conflict { throw conflict }
      guard byteCount <= maximumByteCount || !changes.sets else { throw tooLarge }
      let (reply, failure) = try server.run(
        TableScripts.change,
        arguments(of: changes, ifCurrent: conditions, named: name, id: baseline.id))
      let result = try result(of: reply)
      switch result.code {
      case 1:
        noteServerVersion(result.version - 1, result.name, since: baseline)
        show(changes, named: name, result)
        // What was removed does not stay on this machine.
        if changes.removesAll { copy.replace(by: self) }
        if let failure { throw failure }
        return true
      case 0:
        noteServerVersion(result.version, result.name, since: baseline)
        show(nil, named: "", result)
        return false
      default:
        // The server has another table. Reading it tells whether that is a conflict.
        try load()
      }
    }
    throw isBeingReplaced
  }

  private var tooLarge: StorageError {
    StorageError(
      .misuse, operation: "request", path: server.address.description,
      reason: name.content == .settings
        ? "the settings of the suite would take more than \(maximumByteCount) bytes"
        : "the secrets would take more than \(maximumByteCount) bytes",
      remedy: name.content == .settings
        ? "Store large values in a cache or in files, or use several suites."
        : "Encrypt large values in separate files, and store the keys to them here.")
  }

  private func arguments(
    of changes: TableChanges, ifCurrent conditions: [StorageEngines.Entry] = [], named name: String,
    id: String
  ) -> Script.Arguments {
    var values: [[UInt8]] = [
      Self.format, Array((id.isEmpty ? "*" : id).utf8), Array(name.utf8),
      Array(self.name.channel.utf8), TableMessage.payload(of: changes),
      Array(String(conditions.count).utf8),
    ]
    func append(_ entry: StorageEngines.Entry) {
      values.append(Array(entry.key.utf8))
      values.append([UInt8(ascii: entry.data == nil ? "-" : "+")])
      values.append(entry.data.map { Array($0) } ?? [])
    }
    for condition in conditions { append(condition) }
    values.append([UInt8(ascii: changes.removesAll ? "1" : "0")])
    for entry in changes.entries { append(entry) }
    return scriptArguments(values)
  }

  private struct ScriptResult {
    let code: Int64
    let version: Int64
    let id: String
    /// The name of the last change, before the one that the script has made; empty if the server
    /// does not know it.
    let name: String
  }

  private func result(of reply: Reply) throws(StorageError) -> ScriptResult {
    guard case .array(let elements) = reply, elements.count >= 3,
      case .integer(let code) = elements[0], case .integer(let version) = elements[1],
      version == 0 || TableMessage.versions.contains(version), let id = Self.word(elements[2])
    else { throw server.invalidReply("EVALSHA", reply) }
    if code == -2 {
      throw StorageError(
        .unsupportedVersion, operation: "request", path: server.address.description,
        reason: "the \(name.content) on the server have a newer format",
        remedy: "Update the library in this program.")
    }
    let name = elements.count > 3 ? Self.word(elements[3]) : nil
    return ScriptResult(code: code, version: version, id: id, name: name ?? "")
  }

  /// An identity or a name; nil if it cannot be a word of a message.
  private static func word(_ reply: Reply) -> String? {
    guard case .bytes(let bytes) = reply, !bytes.contains(UInt8(ascii: " ")) else { return nil }
    return String(validating: bytes, as: UTF8.self)
  }

  private func noteServerVersion(
    _ version: Int64, _ name: String, since baseline: TableState.Baseline
  ) {
    let next = state.withLock { $0.noteServerVersion(version, name: name, since: baseline) }
    submit(next.load)
    if let error = next.report { report(error) }
  }

  /// Returns once the mirrors have a change of this process, or the one because of which its
  /// condition was not met.
  private func show(_ changes: TableChanges?, named name: String, _ result: ScriptResult) {
    func note(_ state: inout TableState) -> Bool {
      state.note(changes, version: result.version, name: name, id: result.id)
    }
    if !state.withLock({ note(&$0) }) {
      let isInTime = wait(atMost: server.address.requestTimeout) { note(&$0) ? true : nil }
      if isInTime == nil {
        submit(state.withLock { $0.noteEarly(changes, version: result.version, name: name) })
      }
    }
    copy.saveSoon(of: self)
  }

  // MARK: Mirroring

  func fill(_ mirror: StorageEngines.Mirror) throws {
    restoreCopy()
    do throws(StorageError) {
      try server.check()
      if name.content == .secrets { server.checkDurability(report) }
      try follow()
      try waitUntilCurrent()
      state.withLock { $0.add(mirror) }
      // Here, because a process that ends after its first read waits for this.
      copy.saveFirst(of: self)
    } catch {
      // Reads go on from what is known. The failure is reported, because that may be old.
      let isKnown = state.withLock { state in
        if state.isKnown {
          state.add(mirror)
          state.noteOutageReport()
        }
        return state.isKnown
      }
      guard isKnown else { throw error }
      report(copy.describe(error, isShown: true))
      try follow()
    }
  }

  /// Reads the values before this process makes its first change, so that it can read what it has
  /// set however soon an outage begins, and changes nothing in the place of a table that was lost.
  private func readBeforeFirstChange() throws(StorageError) {
    if state.withLock({ $0.isKnown }) { return }
    restoreCopy()
    try follow()
    do throws(StorageError) {
      try waitUntilCurrent()
    } catch {
      guard state.withLock({ $0.isKnown }) else { throw error }
    }
  }

  private func restoreCopy() {
    guard !state.withLock({ $0.isKnown }), let contents = copy.load() else { return }
    state.withLock { $0.restore(contents) }
  }

  private func follow() throws(StorageError) {
    guard state.withLock({ $0.beginFollowing() }) else { return }
    do throws(StorageError) {
      try server.link.subscribe(
        to: Array(name.channel.utf8),
        ChannelHandler(
          onSubscribed: { [weak self] in
            guard let self else { return }
            submit(state.withLock { $0.beginReceiving() })
          },
          onMessage: { [weak self] in self?.receive($0) },
          onLost: { [weak self] in self?.lose($0) }))
    } catch {
      state.withLock { $0.stopFollowing() }
      throw error
    }
  }

  private func lose(_ error: StorageError) {
    state.withLock { $0.lose(error) }
    reportOutageSoon()
  }

  /// A short outage is not worth a report, for example a restart of the server.
  private func reportOutageSoon() {
    guard !ForkGuard.isForkedChild, let number = state.withLock({ $0.planOutageReport() }) else {
      return
    }
    BackgroundWork.run(after: .seconds(1)) { [weak self] in
      guard let self, let error = state.withLock({ $0.reportOutage(number) }) else { return }
      report(copy.describe(error, isShown: false))
    }
  }

  private func receive(_ bytes: [UInt8]) {
    let message = TableMessage(bytes)
    submit(state.withLock { $0.receive(message, byteCount: bytes.count) })
    copy.saveSoon(of: self)
  }

  /// Reads a snapshot, or waits for the one that is being read and for the next one.
  private func load() throws(StorageError) {
    let (load, finished) = state.withLock { ($0.beginLoading(), $0.finishedLoad) }
    submit(load)
    try waitUntilLoaded(after: finished)
  }

  private var loadTimeout: Duration {
    server.address.connectTimeout + server.address.requestTimeout
  }

  private func submit(_ load: TableState.Load?) {
    guard let load else { return }
    let (id, version) = state.withLock { $0.request }
    let arguments = scriptArguments([
      Self.format, Array(id.utf8), Array(String(version).utf8),
    ])
    TableScripts.snapshot.submit(on: server.link, arguments, timeout: loadTimeout) { [weak self] in
      self?.finish(load, $0)
    }
  }

  private func finish(_ load: TableState.Load, _ reply: Result<Reply, StorageError>) {
    do throws(StorageError) {
      let (snapshot, askedName, isReplacement) = try contents(of: reply.get())
      let next = state.withLock {
        $0.finishLoading(load, snapshot, askedName: askedName, isReplacement: isReplacement)
      }
      submit(next.load)
      if let error = next.report { report(error) }
      copy.saveSoon(of: self)
    } catch {
      // The link fails a call that reads with this code only for the size of its reply.
      let isTooLarge = if case .failure = reply { error.code == .engineFailed } else { false }
      // The link tells when it is back, but not when the server accepts requests again.
      let delay = state.withLock { $0.failLoading(load, error, isTooLarge: isTooLarge) }
      if let delay {
        BackgroundWork.run(after: delay) { [weak self] in
          guard let self else { return }
          submit(state.withLock { $0.retryLoading() })
        }
      }
      reportOutageSoon()
    }
  }

  /// The values in a reply to ``TableScripts/snapshot``, the name of the change that was asked
  /// about, and whether the table that was asked about was given up for this one.
  func contents(
    of reply: Reply
  ) throws(StorageError) -> (TableContents, askedName: String, isReplacement: Bool) {
    let result = try result(of: reply)
    guard case .array(let elements) = reply, elements.count == 6,
      let askedName = Self.word(elements[4]), case .array(let fields) = elements[5],
      fields.count.isMultiple(of: 2), result.id.isEmpty == (result.version == 0)
    else { throw server.invalidReply("EVALSHA") }
    var entries: [StorageEngines.Entry] = []
    for index in stride(from: 0, to: fields.count, by: 2) {
      guard case .bytes(let key) = fields[index], case .bytes(let data) = fields[index + 1] else {
        throw server.invalidReply("EVALSHA")
      }
      // The marker is not text, and another program may have set such a field.
      guard let key = String(validating: key, as: UTF8.self) else { continue }
      entries.append(StorageEngines.Entry(key: key, data: Data(data)))
    }
    let contents = TableContents(
      id: result.id, version: result.version, name: result.name, entries: entries)
    return (contents, askedName, result.code == 2)
  }

  // MARK: Waiting

  /// Waits until every change arrives.
  ///
  /// - Throws: The reason why the table cannot be followed now.
  private func waitUntilCurrent() throws(StorageError) {
    try outcome { state in
      if case .current = state.phase { return .success(()) }
      return state.phase == .apart ? (state.conflict ?? state.failure).map { .failure($0) } : nil
    }
  }

  /// Waits until no snapshot is being read, and one has been since `finished`.
  ///
  /// - Throws: The reason why it could not be read or is not shown.
  private func waitUntilLoaded(after finished: TableState.Load) throws(StorageError) {
    try outcome { state in
      if case .loading = state.phase { return nil }
      if let error = state.conflict ?? state.failure { return .failure(error) }
      return state.finishedLoad > finished ? .success(()) : nil
    }
  }

  private func outcome(
    _ body: (inout TableState) -> Result<Void, StorageError>?
  ) throws(StorageError) {
    guard let result = wait(atMost: loadTimeout, body) else {
      throw .unreachable(server.address, "the \(name.content) have not arrived in time")
    }
    try result.get()
  }

  /// What `body` returns as soon as it returns something; nil if it does not in time.
  private func wait<R>(atMost duration: Duration, _ body: (inout TableState) -> R?) -> R? {
    let condition = Condition()
    let end = ContinuousClock.now + duration
    return state.wait(for: condition, timeout: duration) { state, isTimedOut -> R?? in
      let result = body(&state)
      if result != nil || isTimedOut || ContinuousClock.now >= end {
        state.stopWaiting(condition)
        return .some(result)
      }
      state.wait(with: condition)
      return nil
    }
  }

  // MARK: Decisions

  /// Whether this process, or the copy on this machine, has read a table.
  var isKnown: Bool {
    restoreCopy()
    return state.withLock { !$0.contents.id.isEmpty }
  }

  /// Whether the server has neither the table that this process knows nor one for which that was
  /// given up.
  func isLost() throws(StorageError) -> Bool {
    restoreCopy()
    let known = state.withLock { $0.contents }
    if known.id.isEmpty || known.isEmpty { return false }
    var marker = Command(reading: "HGET", name.values)
    marker.append(TableScripts.marker)
    let id = try server.perform(marker)
    let fields = Command(reading: "HMGET", name.state, "id", "r" + known.id)
    guard case .array(let found) = try server.perform(fields), found.count == 2 else {
      throw server.invalidReply("HMGET")
    }
    if id == .null || id != found[0] { return true }
    return id != .bytes(Array(known.id.utf8)) && found[1] == .null
  }

  /// Stores what this process knows on the server, instead of what is there, if that is another
  /// table or none.
  ///
  /// - Returns: Whether it was stored; false if the server has that table.
  func push() throws(StorageError) -> Bool {
    restoreCopy()
    try server.check()
    let (known, name) = state.withLock { ($0.contents, $0.nextName()) }
    guard !known.id.isEmpty else {
      throw StorageError(
        .notFound, operation: "push", path: self.name.values,
        reason: "this process knows no \(self.name.content)",
        remedy: "Call this in a process that has read them.")
    }
    var values: [[UInt8]] = [
      Self.format, Array(known.id.utf8), Array(String(known.version + 1).utf8),
      Array(self.name.channel.utf8), Array(name.utf8), Array(known.name.utf8),
    ]
    for entry in known.entries {
      guard let data = entry.data else { continue }
      values.append(Array(entry.key.utf8))
      values.append(Array(data))
    }
    return try decide(by: TableScripts.restore, values)
  }

  /// Makes all processes that know the same table as this one use what is on the server.
  ///
  /// - Returns: Whether that is another table than the one that this process knew.
  func adopt() throws(StorageError) -> Bool {
    restoreCopy()
    try server.check()
    let (id, name) = state.withLock { state in
      state.isAdopting = true
      return (state.contents.id, state.nextName())
    }
    defer { state.withLock { $0.isAdopting = false } }
    if !id.isEmpty {
      let words = [id, self.name.channel, name].map { Array($0.utf8) }
      return try decide(by: TableScripts.adopt, [Self.format] + words)
    }
    try follow()
    try load()
    return false
  }

  /// Decides which table the server has, and then reads it: not earlier, because it may differ from
  /// the known one until then, which would be reported.
  ///
  /// - Returns: Whether there was something to decide.
  private func decide(
    by script: Script, _ values: [[UInt8]]
  ) throws(StorageError) -> Bool {
    let (reply, failure) = try server.run(script, scriptArguments(values))
    let result = try result(of: reply)
    if result.code == -3 {
      throw StorageError(
        .misuse, operation: "push", path: server.address.description,
        reason: "these \(name.content) were given up for the server's, with push or adopt",
        remedy: name.content == .settings
          ? "Import a file made with `keepsakectl settings export`."
          : "Restore a backup of the server.")
    }
    try follow()
    try load()
    if result.code == 0 { return false }
    if let failure { throw failure }
    return true
  }

  // MARK: The copy on disk

  /// nil if what the table has is not known.
  var currentContents: TableContents? {
    state.withLock { $0.phase == .current ? $0.contents : nil }
  }
}
