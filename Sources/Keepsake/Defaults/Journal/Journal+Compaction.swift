internal import KeepsakeLibc

/// Replacing the file: the first one, after damage, and without its dead records. A file is never
/// truncated and never written anywhere but at its end.
extension Journal {
  /// Writes what the table holds, or nothing, to a new file, durably, in place of the old. Under
  /// the lock.
  func rewrite(asEmpty isEmpty: Bool = false) throws(StorageError) {
    try FileSystem.removeStaleTemporaryFiles(for: location.path)
    let id = UInt64.random(in: .min ... .max)
    var bytes = JournalFormat.header(id: id)
    state.withLock { state in
      for (key, entry) in state.table.entries.elements where !isEmpty {
        JournalFormat.append(entry.value, key: key, seed: id, to: &bytes)
      }
    }
    let temporary = try TemporaryFile.make(
      beside: location.path, .createAndAppend, mode: location.fileMode())
    try temporary.file.writeAll(bytes)
    try temporary.file.synchronize()
    try install(temporary, seed: id, size: bytes.count, isEmpty: isEmpty)
    try synchronizeDirectory()
  }

  /// Gives a written and synced file the journal's name, goes on with it and tells the others.
  private func install(
    _ temporary: consuming TemporaryFile, seed: UInt64, size: Int, isEmpty: Bool = false
  ) throws(StorageError) {
    // Whatever can fail comes before the new file has the name.
    let file = try temporary.file.duplicate(as: location.path)
    let status = try file.status()
    try temporary.moveToDestination()
    try state.withLock { state throws(StorageError) in
      state.adopt(file, status, seed: seed, size: size, isEmpty: isEmpty)
      try state.publish(replaced: true)
    }
  }

  /// Makes the journal's name survive a power cut.
  func synchronizeDirectory() throws(StorageError) {
    let file = state.withLock { $0.file }
    try FileSystem.synchronizeDirectory(location.directory)
    // Another file may have come under the name meanwhile.
    state.withLock { if $0.file === file { $0.isDirectoryUnsynced = false } }
  }

  // MARK: Damage

  /// Keeps the damaged file aside and replaces it by one with all its intact records. Under the
  /// lock. Returns what to report when it is released; a failure is not thrown: what is intact can
  /// be read and added to all the same.
  func repair() -> StorageError? {
    do throws(StorageError) {
      let copy = try keepAside()
      try rewrite()
      return damageReport(.success(copy))
    } catch {
      return damageReport(.failure(error))
    }
  }

  private func keepAside() throws(StorageError) -> String {
    let damaged = try File(location.path, .read)
    let bytes = try damaged.read(from: 0, count: damaged.status().size)
    let stem = "\(location.path).damaged-\(time(nil))"
    var path = stem
    var number = 1
    while try FileSystem.status(path) != nil {
      number += 1
      path = "\(stem)-\(number)"
    }
    try FileSystem.replace(path, with: bytes, mode: location.fileMode(), durable: true)
    return path
  }

  /// Repairs damage that came after the file had been read: the table still has all of it.
  private func repairFromMemory() throws(StorageError) {
    state.withLock { $0.damage = $0.damage ?? 1 }
    try maintained { _ throws(StorageError) in }  // repairs on its way
  }

  /// What to say of damage, once.
  func damageReport(_ repair: Result<String, StorageError>) -> StorageError? {
    let places = state.withLock { state in
      defer { state.damage = nil }
      return state.damage
    }
    guard let places else { return nil }
    let remedy: String
    var underlying: StorageError?
    switch repair {
    case .success(let copy):
      remedy = "The damaged file was kept as \(copy); a key in it may show its previous value."
    case .failure(let error):
      underlying = error
      remedy =
        "A key may show its previous value. The file could not be replaced: \(error.description)"
    }
    return StorageError(
      .damaged, operation: "open", path: location.path,
      reason: "\(places) \(places == 1 ? "place does" : "places do") not read as written; "
        + "all other records are intact",
      remedy: remedy, underlyingError: underlying)
  }

  // MARK: Compaction

  /// Starts a compaction that `takeDueCompaction` has announced. Under no lock.
  func start(_ compaction: JournalFile.Compaction) {
    switch compaction {
    case .inBackground: BackgroundWork.run { [weak self] in self?.compactAndReport() }
    case .atOnce: compactAndReport()
    }
  }

  private func compactAndReport() {
    do throws(StorageError) {
      try compact()
    } catch  where error.code == .notFound {
      // Deleted meanwhile, as a temporary scope's directory is: nothing to do.
    } catch {
      report(error.inContext(of: "compact"))
    }
    state.withLock { state in
      state.isCompacting = false
      state.lastCompaction = .now
      // A file that is still mostly dead could not be replaced: again when it has doubled.
      if state.isMostlyDead { state.compactionFloor = state.size * 2 }
    }
  }

  /// Writes the live records to a new file while others go on, then adds under the lock what came
  /// since, and puts it in place of the old one.
  func compact() throws(StorageError) {
    try FileSystem.removeStaleTemporaryFiles(for: location.path)
    let source = try File(location.path, .read)
    let identity = try source.status()
    let bytes = try source.read(from: 0, count: identity.size)
    guard
      case .valid(let oldID, isIntact: true) = bytes.withUnsafeBytes({
        JournalFormat.header(of: $0)
      })
    else { return try repairFromMemory() }

    let id = UInt64.random(in: .min ... .max)
    var output = JournalFormat.header(id: id)
    guard
      let end = Self.copyLive(
        bytes, from: JournalFormat.headerSize, seed: oldID, newSeed: id, to: &output)
    else { return try repairFromMemory() }
    let temporary = try TemporaryFile.make(
      beside: location.path, .createAndAppend, mode: location.fileMode())
    try temporary.file.writeAll(output)
    try temporary.file.synchronize()

    try install(
      temporary, madeFrom: source, identity, upTo: end, oldID: oldID, id: id, size: output.count)
  }

  private func install(
    _ temporary: consuming TemporaryFile, madeFrom source: File, _ identity: FileStatus,
    upTo end: Int, oldID: UInt64, id: UInt64, size: Int
  ) throws(StorageError) {
    var waiting: TemporaryFile? = consume temporary
    var isInstalled = false
    try maintained { journal throws(StorageError) in
      guard let temporary = waiting.take(), journal.state.withLock({ $0.isReading(identity) })
      else { return }  // another process was faster
      let rest = try source.read(from: end, count: max(0, source.status().size - end))
      var added: [UInt8] = []
      guard Self.copyAll(rest, seed: oldID, newSeed: id, to: &added) else { return }  // damage
      if !added.isEmpty {
        try temporary.file.writeAll(added)
        try temporary.file.synchronize()
      }
      try journal.install(temporary, seed: id, size: size + added.count)
      isInstalled = true
    }
    if isInstalled { try synchronizeDirectory() }
  }

  /// Appends the last record of each key, under another seed; returns where the next record will
  /// be, nil after damage.
  private static func copyLive(
    _ bytes: [UInt8], from start: Int, seed: UInt64, newSeed: UInt64, to output: inout [UInt8]
  ) -> Int? {
    bytes.withUnsafeBytes { bytes in
      var live = ByteKeyedDictionary<JournalFormat.Record>()
      let parsed = JournalFormat.parse(bytes, from: start, seed: seed) { record in
        switch record.kind {
        case .cleared: live = ByteKeyedDictionary()
        case .removed: live.remove(record.key)
        default: live.set(record.key, record)
        }
      }
      guard parsed.damage == 0 else { return nil }
      for (key, record) in live.elements {
        JournalFormat.append(
          record.kind, key: key, value: Array(bytes[record.value]), seed: newSeed, to: &output)
      }
      return parsed.end
    }
  }

  /// Appends all records as they are, under another seed; false after damage.
  private static func copyAll(
    _ bytes: [UInt8], seed: UInt64, newSeed: UInt64, to output: inout [UInt8]
  ) -> Bool {
    bytes.withUnsafeBytes { bytes in
      JournalFormat.parse(bytes, from: 0, seed: seed) { record in
        JournalFormat.append(
          record.kind, key: record.key, value: Array(bytes[record.value]), seed: newSeed,
          to: &output)
      }.damage == 0
    }
  }
}
