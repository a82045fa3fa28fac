internal import FoundationEssentials
internal import Keepsake
internal import Synchronization

extension TieredCache {
  func read(_ key: String) throws(StorageError) -> Payload? {
    let result = try find(key, noValue: false, tags: false)
    counts.add(result)
    if case .fresh(let entry) = result.found { return entry.payload }
    return nil
  }

  func find(_ key: String, noValue: Bool, tags: Bool) throws(StorageError) -> CacheLookup {
    let result = try lookUp(key, tags: tags)
    if case .noValue = result.found, !noValue {
      return CacheLookup(.missing, isFromServer: result.isFromServer)
    }
    return result
  }

  func contains(_ key: String) throws(StorageError) -> Bool {
    if case .missing = try location(of: key, isUse: false) { return false }
    return true
  }

  func entry(_ key: String) throws(StorageError) -> DiskCache.Entry? {
    try openCurrent(key) { () throws(StorageError) in
      switch try location(of: key, isUse: false) {
      case .missing: return (nil, nil)
      case .here(let found): return (try files.entry(key), found)
      case .onServer(let shared, let remaining):
        let now = WallClock.now
        let expires = shared.localOptions(remaining: remaining).expiry
          .time(created: now, lastUsed: now)
        let entry = DiskCache.Entry(
          size: shared.size, created: now, expires: expires, shared.details)
        return (entry, nil)
      }
    }
  }

  func path(_ key: String) throws(StorageError) -> String? {
    try openCurrent(key) { () throws(StorageError) in
      switch try location(of: key, isUse: true) {
      case .missing: return (nil, nil)
      case .here(let found): return (try files.path(key), found)
      case .onServer:
        // Copies it, if this machine's size limit allows one.
        guard case .fresh = try lookUp(key, tags: false).found else { return (nil, nil) }
        return (try files.path(key), nil)
      }
    }
  }

  func openChunks(_ key: String) throws(StorageError) -> ChunkSource? {
    var isFromServer = false
    let source = try openCurrent(key) {
      () throws(StorageError) -> (ChunkSource?, PresentEntry?) in
      switch try location(of: key, isUse: true) {
      case .missing(let isShared):
        isFromServer = isShared
        return (nil, nil)
      case .here(let found):
        isFromServer = false
        return (try files.findChunks(key), found)
      case .onServer:
        let result = try lookUp(key, tags: false)
        isFromServer = result.isFromServer
        guard case .fresh(let entry) = result.found else { return (nil, nil) }
        // Not from its file: this machine's size limit may not allow one.
        let bytes = entry.payload.bytes
        return (ChunkSource(contents: .data(bytes), size: bytes.count), nil)
      }
    }
    counts.add(isHit: source != nil, isFromServer: isFromServer)
    return source
  }

  /// Opens the current entry of a key, and does so again if it was replaced after it was found to
  /// be current.
  ///
  /// - Parameter open: Returns what it has opened, and the entry of this machine that was found.
  private func openCurrent<R>(
    _ key: String, _ open: () throws(StorageError) -> (R?, PresentEntry?)
  ) throws(StorageError) -> R? {
    for _ in 0..<2 {
      let (result, found) = try open()
      guard let found, try files.freshEntry(key)?.stamp != found.stamp else { return result }
    }
    return try open().0
  }

  // MARK: Both tiers

  private func lookUp(_ key: String, tags: Bool) throws(StorageError) -> CacheLookup {
    followOnce()
    let (found, present) = try files.lookUp(key, noValue: true, tags: tags)
    switch found {
    case .fresh, .noValue:
      if let present, try isCurrent(key, present, isUse: true) { return CacheLookup(found) }
    case .stale, .missing: break
    }
    return try compare(key, found, present, tags: tags)
  }

  /// Whether an entry of this machine is known to be current.
  private func isCurrent(
    _ key: String, _ present: PresentEntry, isUse: Bool
  ) throws(StorageError) -> Bool {
    var state = KnownVersions.State.unknown
    if let stamp = present.stamp { state = withKnown { $0.state(of: key, stamp, isUse: isUse) } }
    if state == .unknown {
      // Stored by this process, or by another one of this machine, since it was last seen.
      guard let version = try files.withVersion(present, key).version else { return false }
      state = withKnown { $0.state(of: key, version, present.stamp, isUse: isUse) }
    }
    guard case .current(let version, let lifetime) = state else { return false }
    if let lifetime { sendUse(of: key, version, lifetime) }
    return true
  }

  private func sendUse(of key: String, _ version: EntryVersion, _ lifetime: Int64) {
    tier.touch(key, name: version.name, lifetime: lifetime) { [weak self] in
      self?.withKnown { $0.expire(key, version) }
    }
  }

  /// How the server learns of the uses of an entry; nil if they do not matter.
  ///
  /// - Parameter isUse: Whether to tell it of one now, if that changes much.
  private func use(
    of key: String, _ shared: SharedEntry, _ remaining: Int64, tells isUse: Bool
  ) -> EntryUse? {
    guard var use = shared.use(remaining: remaining) else { return nil }
    let now = WallClock.now
    if isUse, use.isDue(at: now) {
      sendUse(of: key, shared.version, use.lifetime)
      use.lastTold = now
    }
    return use
  }

  /// Compares what this machine has with what the server has. The server's entry wins unless the
  /// server is unreachable.
  private func compare(
    _ key: String, _ local: FoundEntry, _ found: PresentEntry?, tags: Bool
  ) throws(StorageError) -> CacheLookup {
    let call = withKnown { $0.begin(key) }
    defer { withKnown { $0.end(call) } }
    let present = try identify(found, key)
    var isWhole = present == nil
    while true {
      let reply = ask(key, for: "get") { () throws(StorageError) -> SharedAnswer in
        try tier.read(key, count: isWhole ? nil : SharedEntry.headCount)
      }
      let shared: SharedEntry
      let bytes: SharedBytes
      switch reply.map({ note($0, call, present, isUse: true) }) {
      case .entry(let entry, let answer): (shared, bytes) = (entry, answer)
      case .nothing:
        removeOutdated(key, present)
        return CacheLookup(.missing, isFromServer: true)
      case nil, .overtaken: return CacheLookup(try usableEntry(key, local, present, tags: tags))
      }
      let isFresh = shared.isFresh(remaining: bytes.remaining)
      if let present, shared.version == present.version {
        switch local {
        case .fresh where isFresh, .noValue where isFresh: return CacheLookup(local)
        case .stale(let entry):
          if !isFresh { return CacheLookup(local, isFromServer: true) }
          // Other machines have used it, which keeps it from expiring.
          store(entry.payload, shared, bytes.remaining, key, present)
          return CacheLookup(.fresh(entry))
        case .fresh, .noValue, .missing: break
        }
      }
      switch shared.content {
      case .payload:
        if let payload = shared.payload(in: bytes.bytes) {
          store(payload, shared, bytes.remaining, key, present)
          let entry = shared.cached(payload, bytes.remaining)
          return CacheLookup(isFresh ? .fresh(entry) : .stale(entry), isFromServer: true)
        }
        if !isWhole, bytes.bytes.count >= SharedEntry.headCount {
          isWhole = true
          continue
        }
        reportDamage(key)
      case .noValue:
        if isFresh {
          store(nil, shared, bytes.remaining, key, present)
          return CacheLookup(.noValue, isFromServer: true)
        }
      case .tooLarge: break
      }
      removeOutdated(key, present)
      return CacheLookup(.missing, isFromServer: true)
    }
  }

  /// The entry that was found, with its version. One that was set while the server was away is
  /// noted: the process that did so may have ended.
  private func identify(
    _ found: PresentEntry?, _ key: String
  ) throws(StorageError) -> PresentEntry? {
    guard let found else { return nil }
    let present = try files.withVersion(found, key)
    if present.isUnsent, let version = present.version {
      withKnown { $0.noteUnsentEntry(key, version) }
    }
    return present
  }

  /// What an answer of the server says.
  private enum Noted {
    /// With the bytes of the entry, or their beginning.
    case entry(SharedEntry, SharedBytes)
    case nothing
    /// Nothing that counts: this process has changed the key since, without the server.
    case overtaken
  }

  /// Notes an answer of the server.
  ///
  /// - Parameters:
  ///   - present: The entry that is compared.
  ///   - isUse: Whether this is a use of the entry.
  private func note(
    _ answer: SharedAnswer, _ call: KnownVersions.Call, _ present: PresentEntry?, isUse: Bool
  ) -> Noted {
    let number: UInt64
    switch answer {
    case .nothing(let last): number = last
    case .bytes(let bytes):
      guard let shared = header(of: bytes, call.key) else {
        number = bytes.number
        break
      }
      let isFresh = shared.isFresh(remaining: bytes.remaining)
      // Reading an expired entry does not count as a use.
      let use = isFresh ? self.use(of: call.key, shared, bytes.remaining, tells: isUse) : nil
      let stamp = present?.version == shared.version ? present?.stamp : nil
      return withKnown { known in
        let isNoted = known.note(
          .entry(shared.version), bytes.number, call, stamp: stamp, use: use)
        // The machine's clock may say otherwise.
        if !isFresh { known.expire(call.key, shared.version) }
        return isNoted || !known.isUnsent(call.key) ? .entry(shared, bytes) : .overtaken
      }
    }
    return withKnown { known in
      let isNoted = known.note(.nothing, number, call)
      return isNoted || !known.isUnsent(call.key) ? .nothing : .overtaken
    }
  }

  /// What can be used of this machine without the server.
  ///
  /// - Parameter present: What was found.
  private func usableEntry(
    _ key: String, _ local: FoundEntry, _ present: PresentEntry?, tags: Bool
  ) throws(StorageError) -> FoundEntry {
    guard let now = try files.presentEntry(key) else { return .missing }
    if now == present {
      return withKnown { $0.use(key, now.version) } ? local : .missing
    }
    // It has been replaced since it was found.
    let (found, next) = try files.lookUp(key, noValue: true, tags: tags)
    guard let next else { return .missing }
    let version = try files.withVersion(next, key).version
    return withKnown { $0.use(key, version) } ? found : .missing
  }

  /// Where the current entry of a key is.
  private enum Location {
    /// And whether the server was asked for it.
    case missing(isFromServer: Bool)
    case here(PresentEntry)
    case onServer(SharedEntry, remaining: Int64)
  }

  /// Finds an entry without reading its value, which may be large.
  private func location(of key: String, isUse: Bool) throws(StorageError) -> Location {
    followOnce()
    let found = try files.freshEntry(key)
    if let found, try isCurrent(key, found, isUse: isUse) { return .here(found) }
    let call = withKnown { $0.begin(key) }
    defer { withKnown { $0.end(call) } }
    let present = try identify(found, key)
    let reply = ask(key, for: "get") { () throws(StorageError) -> SharedAnswer in
      try tier.read(key, count: SharedEntry.headCount)
    }
    switch reply.map({ note($0, call, present, isUse: isUse) }) {
    case nil, .overtaken:
      // It may have been replaced since it was found.
      guard let found = try files.freshEntry(key) else { return .missing(isFromServer: false) }
      let version = try files.withVersion(found, key).version
      let isUsable = withKnown { $0.use(key, version) }
      return isUsable ? .here(found) : .missing(isFromServer: false)
    case .nothing:
      removeOutdated(key, present)
      return .missing(isFromServer: true)
    case .entry(let shared, let bytes):
      let same = present.flatMap { $0.version == shared.version ? $0 : nil }
      if same == nil { removeOutdated(key, present) }
      guard shared.isFresh(remaining: bytes.remaining) else { return .missing(isFromServer: true) }
      if let same { return .here(same) }
      if case .payload = shared.content { return .onServer(shared, remaining: bytes.remaining) }
      return .missing(isFromServer: true)
    }
  }

  // MARK: Changing this machine's tier

  /// Stores what the server has, unless a newer version is known.
  ///
  /// - Parameters:
  ///   - payload: nil for a record that there is no value.
  ///   - present: The entry that was compared.
  private func store(
    _ payload: Payload?, _ shared: SharedEntry, _ remaining: Int64, _ key: String,
    _ present: PresentEntry?
  ) {
    var isStored = false
    func storeNewest(_ commit: () throws(StorageError) -> Void) throws(StorageError) {
      guard withKnown({ $0.isNewest(key, .entry(shared.version)) }) else { return }
      try commit()
      isStored = true
    }
    let options = shared.localOptions(remaining: remaining)
    do throws(StorageError) {
      if let payload {
        try files.write(payload, forKey: key, options, hook: storeNewest)
      } else {
        try files.writeNoValue(forKey: key, options, hook: storeNewest)
      }
    } catch {
      // A value that exceeds this machine's size limit is only on the server.
      if error.code != .misuse { report(error.inContext(of: "get", key: key, path: directory)) }
    }
    if !isStored { removeOutdated(key, present) }
  }

  /// Removes the entry that was compared with another version, unless it has become the latest one.
  private func removeOutdated(_ key: String, _ present: PresentEntry?) {
    guard let present else { return }
    do throws(StorageError) {
      try files.remove(key, by: nil) { commit throws(StorageError) in
        if try isOutdated(key, present, wasCompared: true) { try commit() }
      }
    } catch {
      removeSoon(key)
      // It is compared again the next time.
      report(error.inContext(of: "get", key: key, path: directory))
    }
  }

  // MARK: Bytes of the server

  /// The header of bytes from the server; nil if they are no entry, which is reported.
  func header(of answer: SharedBytes, _ key: String) -> SharedEntry? {
    do throws(SharedEntry.Failure) {
      return try SharedEntry(answer)
    } catch .newerFormat {
      report(
        StorageError(
          .unsupportedVersion, operation: "get", key: key, path: tier.address,
          reason: "a newer version of Keepsake stored this entry on the server",
          remedy: "Update the library in this program."))
    } catch {
      reportDamage(key)
    }
    return nil
  }

  private func reportDamage(_ key: String) {
    counts.damaged.add(1, ordering: .relaxed)
    report(
      StorageError(
        .damaged, operation: "get", key: key, path: tier.address,
        reason: "the server's bytes are not an entry that this library stored",
        remedy: "Check that no other program uses the same keys, and store the value again."))
  }
}

extension SharedEntry {
  fileprivate func cached(_ payload: Payload, _ remaining: Int64) -> CachedEntry {
    CachedEntry(
      payload: payload, created: created,
      expires: WallClock.now.addingSaturated(min(remaining, lifetime).subtractingSaturated(kept)),
      tags: details?.tags ?? [:], version: version)
  }
}
