// Commands on caches. The tests also use this file: both processes make and verify the same values,
// and a test computes what a process that it killed was doing.
import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// A value whose header names its key, writer, number and size, from which all its bytes follow: a
/// value that is torn, mixed with another one, or stored under another key is recognized.
struct SelfCheckingValue: Hashable, Sendable {
  var key: Int
  var writer: Int
  var number: Int
  var size: Int

  /// Shorter values have no header, and depend only on their key and size.
  static let headerSize = 32
  private static let stride = 65_536
  /// Random bytes, of which bodies are slices.
  private static let noise: [UInt8] = {
    var generator = SplitMix64(seed: 1)
    let words = (0..<(2 * stride / 8)).map { _ in generator.next() }
    return words.withUnsafeBytes { Array($0) }
  }()

  init(key: Int, writer: Int, number: Int, size: Int) {
    (self.key, self.writer, self.number, self.size) = (key, writer, number, size)
  }

  var bytes: Data {
    guard size >= Self.headerSize else {
      return Data([UInt8(truncatingIfNeeded: key)]) + piece(0, seed: (key, 0, 0)).prefix(size - 1)
    }
    var bytes = Data(capacity: size + Self.stride)
    for word in [key, writer, number, size] {
      withUnsafeBytes(of: word.littleEndian) { bytes.append(contentsOf: $0) }
    }
    var index = 0
    while bytes.count < size {
      let rest = size - bytes.count
      bytes.append(contentsOf: piece(index, seed: (key, writer, number)).prefix(rest))
      index += 1
    }
    return bytes
  }

  private func piece(_ index: Int, seed: (Int, Int, Int)) -> ArraySlice<UInt8> {
    var state: UInt64 = 0
    for word in [seed.0, seed.1, seed.2, size, index] {
      var generator = SplitMix64(seed: state ^ UInt64(bitPattern: Int64(word)))
      state = generator.next()
    }
    let start = Int(state % UInt64(Self.stride))
    return Self.noise[start..<(start + Self.stride)]
  }

  /// Nil unless `data` is a whole value for the key.
  init?(_ data: Data, key: Int) {
    var words = [key, 0, 0, data.count]
    if data.count >= Self.headerSize {
      words = data.withUnsafeBytes { bytes in
        (0..<4).map {
          Int(littleEndian: bytes.loadUnaligned(fromByteOffset: $0 * 8, as: Int.self))
        }
      }
    }
    guard words[0] == key, words[3] == data.count, !data.isEmpty else { return nil }
    self.init(key: key, writer: words[1], number: words[2], size: words[3])
    guard data == bytes else { return nil }
  }
}

/// A generator of random numbers that are the same for the same seed.
struct SplitMix64: RandomNumberGenerator {
  private var state: UInt64

  init(seed: UInt64) { state = seed }

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
    return mixed ^ mixed >> 31
  }
}

// MARK: - Stress on shared keys

/// Random calls of all kinds on a cache, with keys that all threads and processes share.
struct CacheStress: Sendable {
  var keyCount = 50
  /// Whether to make calls on all entries: sweeps, listings, the total.
  var sweeps = true
  var removes = true

  /// Small values if there is a single key, so that more calls coincide.
  private var sizes: ClosedRange<Int> { keyCount == 1 ? 1...600 : 1...65_536 }

  /// The results of one thread.
  struct Tally: Sendable {
    var hits = 0
    var sets = 0
    /// Descriptions of wrong results.
    var faults: [String] = []

    fileprivate mutating func check(_ data: Data?, of key: Int, readBy call: String) {
      guard let data else { return }
      if SelfCheckingValue(data, key: key) != nil || CacheStress.isText(data, key) {
        hits += 1
      } else {
        faults.append("\(call) of \(key) found \(data.count) bytes \(Array(data.prefix(32)))")
      }
    }
  }

  static func name(_ key: Int) -> String { "key\(key)" }

  /// Whether the bytes belong to a value that was stored as text.
  private static func isText(_ data: Data, _ key: Int) -> Bool {
    Data(base64Encoded: data).flatMap { SelfCheckingValue($0, key: key) } != nil
  }

  /// Makes calls for the duration, and until there was a hit and a set: a busy machine may not run
  /// the thread before.
  func run(_ store: DiskCache.Store, writer: Int, for duration: Duration) -> Tally {
    let end = ContinuousClock.now + duration
    var tally = Tally()
    while ContinuousClock.now < end || tally.hits == 0 || tally.sets == 0, tally.faults.count < 10 {
      do throws(StorageError) {
        try step(store, writer, &tally)
      } catch {
        tally.faults.append("error \(error)")
      }
    }
    return tally
  }

  private func step(
    _ store: DiskCache.Store, _ writer: Int, _ tally: inout Tally
  ) throws(StorageError) {
    let key = Int.random(in: 0..<keyCount)
    let name = Self.name(key)
    switch Int.random(in: 0..<100) {
    case 0..<30: tally.check(try store.get(name), of: key, readBy: "get")
    case 30..<45: try readTyped(store, key, &tally)
    case 45..<50:
      // The file of a value is never changed; it may have been removed by now.
      if let url = try store.fileURL(name) {
        tally.check(try? Data(contentsOf: url), of: key, readBy: "fileURL")
      }
    case 50..<55:
      _ = try store.contains(name)
      _ = try store.entry(name)
    case 55..<60 where removes: try store.remove(name)
    case 60 where sweeps: try store.removeExpired()
    case 61 where sweeps:
      _ = try store.keys()
      _ = try store.totalSize
    case 62..<80 where removes:
      let lifetime = Double.random(in: 0.001...0.05)
      let expiry = Bool.random() ? DiskCache.Expiry.seconds(lifetime) : .idle(.seconds(lifetime))
      try set(store, key, writer, &tally, expiry)
    default: try set(store, key, writer, &tally, .never)
    }
  }

  private func set(
    _ store: DiskCache.Store, _ key: Int, _ writer: Int, _ tally: inout Tally,
    _ expiry: DiskCache.Expiry
  ) throws(StorageError) {
    tally.sets += 1
    let value = SelfCheckingValue(
      key: key, writer: writer, number: tally.sets, size: Int.random(in: sizes))
    // Only the sidecar knows the type, so a sidecar of another payload is recognized.
    if value.size < 40_000, Bool.random() {
      try store.set(value.bytes.base64EncodedString(), forKey: Self.name(key), expiry: expiry)
    } else {
      try store.set(value.bytes, forKey: Self.name(key), expiry: expiry)
    }
  }

  /// Reads a value with the type that it was stored as.
  private func readTyped(
    _ store: DiskCache.Store, _ key: Int, _ tally: inout Tally
  ) throws(StorageError) {
    do throws(StorageError) {
      guard let text = try store.model(Self.name(key), type: String.self) else { return }
      tally.check(Data(base64Encoded: text) ?? Data(), of: key, readBy: "model")
    } catch  where error.code == .wrongType {
      do throws(StorageError) {
        let data = try store.model(Self.name(key), type: Data.self)
        if let data, SelfCheckingValue(data, key: key) == nil {
          tally.faults.append("data of \(key) is of another type")
        }
      } catch  where error.code == .wrongType {
        // Replaced by a text in the meantime.
      }
    }
  }
}

// MARK: - Steps of a process that is killed

/// A step of a writer, which has keys of its own. It follows from the writer and the number.
struct CacheStep: Sendable {
  enum Action: Sendable {
    case set
    case setLasting
    /// Expires immediately.
    case setFleeting
    case setFile
    case setChunks
    case setTagged
    /// Stores the value with a fetch that finds it unchanged.
    case revalidate
    /// Records that there is no value.
    case setGone
    case remove
  }

  static let keyCount = 12

  let action: Action
  let value: SelfCheckingValue

  init(writer: Int, number: Int) {
    var generator = SplitMix64(seed: UInt64(writer) << 40 | UInt64(number))
    let key = Int.random(in: 0..<Self.keyCount, using: &generator)
    let isLarge = Int.random(in: 0..<4, using: &generator) == 0
    let size = Int.random(in: isLarge ? 10_000...200_000 : 32...2_000, using: &generator)
    action =
      switch Int.random(in: 0..<20, using: &generator) {
      case 0..<9: .set
      case 9..<11: .setLasting
      case 11..<13: .setFleeting
      case 13..<15: .setFile
      case 15: .setChunks
      case 16: .setTagged
      case 17: .revalidate
      case 18: .setGone
      default: .remove
      }
    value = SelfCheckingValue(
      key: writer * Self.keyCount + key, writer: writer, number: number, size: size)
  }

  func run(_ store: DiskCache.Store, source: URL) throws {
    let name = CacheStress.name(value.key)
    switch action {
    case .set: try store.set(value.bytes, forKey: name)
    case .setLasting: try store.set(value.bytes, forKey: name, expiry: .days(1))
    case .setFleeting: try store.set(value.bytes, forKey: name, expiry: .seconds(0.000_1))
    case .setFile:
      try value.bytes.write(to: source)
      try store.set(contentsOf: source, forKey: name)
    case .setChunks: try setChunks(value.bytes, store, name)
    case .setTagged:
      let tags = ["tag": String(repeating: "t", count: value.bytes.count % 900)]
      try store.set(value.bytes, forKey: name, expiry: .days(1), tags: tags)
    case .revalidate: try fetchAgain(store, name, .unchanged)
    case .setGone: try fetchAgain(store, name, .gone)
    case .remove: try store.remove(name)
    }
  }

  /// Stores the value so that it is only kept, and then fetches it with that result.
  private func fetchAgain(
    _ store: DiskCache.Store, _ name: String, _ result: DiskCache.FetchResult<Data>
  ) throws {
    try store.set(
      value.bytes, forKey: name, expiry: .seconds(0), keptFor: .days(1), tags: ["tag": "t"])
    try blocking {
      _ = try await store.fetch(name, expiry: .days(1), nilExpiry: .days(1)) {
        (_: DiskCache.CachedValue<Data>?) in result
      }
    }
  }
}

/// Stores the bytes chunk by chunk and waits for the end.
private func setChunks(_ bytes: Data, _ store: DiskCache.Store, _ name: String) throws {
  let (chunks, continuation) = AsyncStream.makeStream(of: Data.self)
  var rest = bytes[...]
  while !rest.isEmpty {
    continuation.yield(rest.prefix(30_000))
    rest = rest.dropFirst(30_000)
  }
  continuation.finish()
  try blocking { try await store.set(chunks: chunks, forKey: name) }
}

/// A random call on a cache with a limit, with keys that all writers share.
private func churn(_ store: DiskCache.Store, writer: Int, number: Int, source: URL) throws {
  let key = Int.random(in: 0..<20)
  let name = CacheStress.name(key)
  let value = SelfCheckingValue(
    key: key, writer: writer, number: number, size: Int.random(in: 1...60_000))
  switch Int.random(in: 0..<200) {
  case 0: try store.removeAll()
  case 1..<3: try store.removeExpired()
  case 3..<20: try store.remove(name)
  case 20..<40: try store.set(value.bytes, forKey: name, expiry: .seconds(0.005))
  case 40..<50:
    try value.bytes.write(to: source)
    try store.set(contentsOf: source, forKey: name)
  case 50..<60: try setChunks(value.bytes, store, name)
  case 60..<100:
    if let data = try store.get(name), SelfCheckingValue(data, key: key) == nil {
      printLine("wrong value of \(name)")
    }
  default: try store.set(value.bytes, forKey: name)
  }
}

// MARK: - The commands

/// The cache of this name in the test's directory.
private func cache(_ name: String, _ directory: URL) -> DiskCache.Store {
  DiskCache.named(DiskCache.Name(name, in: directory))
}

/// Runs the command if it belongs to caches; false otherwise.
func runCacheCommand(_ words: [String], in folder: URL) -> Bool {
  switch words[0] {
  case "cache-stress":  // WRITER MILLISECONDS LIMIT KEYS: with LIMIT 0 only sets and reads
    let store = cache("x", directory)
    if number(3) > 0 { store.sizeLimit = number(3) }
    let stress =
      number(3) > 0
      ? CacheStress(keyCount: number(4))
      : CacheStress(keyCount: number(4), sweeps: false, removes: false)
    let tally = stress.run(store, writer: number(1), for: .milliseconds(number(2)))
    for fault in tally.faults { printLine(fault) }
  case "cache-acknowledge":  // WRITER START: runs step after step, and prints the number of each
    let (kept, churned) = (cache("kept", directory), cache("churned", directory))
    churned.sizeLimit = 400_000
    let source = directory.appending(path: "source\(number(1))")
    acknowledge(from: number(2)) { index in
      try churn(churned, writer: number(1), number: index, source: source)
      try CacheStep(writer: number(1), number: index).run(kept, source: source)
    }
  case "cache-fork":  // COUNT: a child and its parent write the same keys
    writeForked(number(1), cache("x", directory))
  case "cache-read-chunks":  // KEY: prints by how many bytes the memory grows while a value is read
    printingErrors {
      printLine("\(try blocking { try await memoryGrowth(reading: words[1], directory) })")
    }
  case "cache-sweep":  // KEY: reads a key and removes expired entries until it is killed
    let store = cache("x", directory)
    printLine("ready")
    while true {
      printingErrors {
        if let data = try store.get(words[1]), SelfCheckingValue(data, key: 0) == nil {
          printLine("wrong")
        }
        if Int.random(in: 0..<20) == 0 { try store.removeExpired() }
      }
    }
  case "cache-set":  // KEY …: stores a value for each key
    for key in words.dropFirst() {
      printingErrors { try cache("x", directory).set("value", forKey: key) }
    }
  case "cache-clear":  // MILLISECONDS: removes all entries, repeatedly for so long
    let store = cache("x", directory)
    let end = ContinuousClock.now + .milliseconds(number(1))
    repeat {
      printingErrors { try store.removeAll() }
      // Let the processes that set values run in between.
      for _ in 0..<Int.random(in: 0...1_000) { sched_yield() }
    } while ContinuousClock.now < end
  default: return false
  }
  return true
}

private func writeForked(_ count: Int, _ store: DiskCache.Store) {
  printingErrors {
    try store.set(SelfCheckingValue(key: 0, writer: 0, number: 0, size: 100).bytes, forKey: "key0")
  }
  let child = forkedChild()
  let writer = child == 0 ? 1 : 2
  printingErrors {
    for number in 1...max(1, count) {
      let key = number % 3
      let value = SelfCheckingValue(
        key: key, writer: writer, number: number, size: Int.random(in: 1...20_000))
      try store.set(value.bytes, forKey: CacheStress.name(key))
      if let data = try store.get(CacheStress.name(key)), SelfCheckingValue(data, key: key) == nil {
        printLine("wrong value of \(key)")
      }
    }
  }
  if child == 0 { exit(0) }
  printLine("done \(waitForExit(of: child))")
}

/// By how many bytes the resident memory grows at most while all pieces of a value are read: while
/// they are verified, and then without.
private func memoryGrowth(reading key: String, _ directory: URL) async throws -> Int {
  let store = cache("x", directory)
  try store.set(Data(count: 100), forKey: "small")
  func read(_ key: String) async throws {
    guard let chunks = try store.chunks(key) else { throw Missing() }
    for try await piece in chunks { _ = piece.first }
  }
  try await read("small")
  // Resets the highest value; see proc_pid_clear_refs(5).
  try Data("5".utf8).write(to: URL(filePath: "/proc/self/clear_refs"))
  let before = try memory("VmRSS")
  for _ in 0..<2 { try await read(key) }
  return try memory("VmHWM") - before
}

private struct Missing: Error {}

/// A line of proc_pid_status(5), in bytes.
private func memory(_ name: String) throws -> Int {
  let status = try String(contentsOf: URL(filePath: "/proc/self/status"), encoding: .utf8)
  guard let line = status.split(separator: "\n").first(where: { $0.hasPrefix(name + ":") }),
    let kilobytes = line.split(whereSeparator: { !$0.isNumber }).first.flatMap({ Int($0) })
  else { throw Missing() }
  return kilobytes * 1_024
}
