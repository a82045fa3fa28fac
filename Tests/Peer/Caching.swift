// What the peer does with caches. The tests read this file too: both sides make and judge the same
// values, and a test works out by itself what a process that it killed was doing.
import Dispatch
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A value that says itself whose it is and how long, and all of whose bytes follow from that:
/// torn, mixed with another one or found under another key, it shows.
struct Certificate: Hashable, Sendable {
  var key: Int
  var writer: Int
  var number: Int
  var size: Int

  /// Shorter ones say only their key and their size.
  static let headerSize = 32
  private static let stride = 65_536
  /// What bodies are cut from: never the same twice.
  private static let noise: [UInt8] = {
    var generator = Sequence64(seed: 1)
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
      var generator = Sequence64(seed: state ^ UInt64(bitPattern: Int64(word)))
      state = generator.next()
    }
    let start = Int(state % UInt64(Self.stride))
    return Self.noise[start..<(start + Self.stride)]
  }

  /// nil unless `data` is whole and was made for the key.
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

/// The same random numbers each time (SplitMix64).
struct Sequence64: RandomNumberGenerator {
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

// MARK: - Everybody at the same keys

/// All that one can do with a cache, at random, on keys that all others use as well.
struct Storm: Sendable {
  var keyCount = 50
  /// Whether reads of several keys at once and sweeps are part of it.
  var sweeps = true
  var removes = true

  /// Small where all are at one key, for what takes place between two system calls.
  private var sizes: ClosedRange<Int> { keyCount == 1 ? 1...600 : 1...65_536 }

  /// What one thread saw.
  struct Tally: Sendable {
    var hits = 0
    var sets = 0
    /// What never may happen.
    var faults: [String] = []

    fileprivate mutating func judge(_ data: Data?, _ key: Int, _ how: String) {
      guard let data else { return }
      if Certificate(data, key: key) != nil || Storm.isText(data, key) {
        hits += 1
      } else {
        faults.append("\(how) of \(key) found \(data.count) bytes \(Array(data.prefix(32)))")
      }
    }
  }

  static func name(_ key: Int) -> String { "key\(key)" }

  /// Whether these are the bytes of a value that was stored as text.
  private static func isText(_ data: Data, _ key: Int) -> Bool {
    Data(base64Encoded: data).flatMap { Certificate($0, key: key) } != nil
  }

  func run(_ store: DiskCache.Store, writer: Int, for duration: Duration) -> Tally {
    let end = ContinuousClock.now + duration
    var tally = Tally()
    while ContinuousClock.now < end, tally.faults.count < 10 {
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
    case 0..<30: tally.judge(try store.get(name), key, "get")
    case 30..<45: try readTyped(store, key, &tally)
    case 45..<50:
      // The file of a value is never changed, at most it is gone by now.
      if let url = try store.fileURL(name) { tally.judge(try? Data(contentsOf: url), key, "file") }
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
    let value = Certificate(
      key: key, writer: writer, number: tally.sets, size: Int.random(in: sizes))
    // Which of the two it is only the sidecar tells: one that belongs to another payload shows.
    if value.size < 40_000, Bool.random() {
      try store.set(value.bytes.base64EncodedString(), forKey: Self.name(key), expiry: expiry)
    } else {
      try store.set(value.bytes, forKey: Self.name(key), expiry: expiry)
    }
  }

  /// Reads a value as what it was stored as.
  private func readTyped(
    _ store: DiskCache.Store, _ key: Int, _ tally: inout Tally
  ) throws(StorageError) {
    do throws(StorageError) {
      guard let text = try store.model(Self.name(key), type: String.self) else { return }
      tally.judge(Data(base64Encoded: text) ?? Data(), key, "text")
    } catch  where error.code == .wrongType {
      do throws(StorageError) {
        let data = try store.model(Self.name(key), type: Data.self)
        if let data, Certificate(data, key: key) == nil {
          tally.faults.append("data of \(key) is of another type")
        }
      } catch  where error.code == .wrongType {
        // By now it is a text.
      }
    }
  }
}

// MARK: - What is killed

/// What a writer does step by step with keys of its own, always the same for the same number.
struct KeptStep: Sendable {
  enum Action: Sendable {
    case set
    case setLasting
    /// Expires at once.
    case setFleeting
    case setFile
    case setChunks
    case remove
  }

  static let keyCount = 12

  let action: Action
  let value: Certificate

  init(writer: Int, number: Int) {
    var generator = Sequence64(seed: UInt64(writer) << 40 | UInt64(number))
    let key = Int.random(in: 0..<Self.keyCount, using: &generator)
    let isLarge = Int.random(in: 0..<4, using: &generator) == 0
    let size = Int.random(in: isLarge ? 10_000...200_000 : 32...2_000, using: &generator)
    action =
      switch Int.random(in: 0..<20, using: &generator) {
      case 0..<9: .set
      case 9..<11: .setLasting
      case 11..<13: .setFleeting
      case 13..<15: .setFile
      case 15..<17: .setChunks
      default: .remove
      }
    value = Certificate(
      key: writer * Self.keyCount + key, writer: writer, number: number, size: size)
  }

  func run(_ store: DiskCache.Store, source: URL) throws {
    let name = Storm.name(value.key)
    switch action {
    case .set: try store.set(value.bytes, forKey: name)
    case .setLasting: try store.set(value.bytes, forKey: name, expiry: .days(1))
    case .setFleeting: try store.set(value.bytes, forKey: name, expiry: .seconds(0.000_1))
    case .setFile:
      try value.bytes.write(to: source)
      try store.set(contentsOf: source, forKey: name)
    case .setChunks: try setChunks(value.bytes, store, name)
    case .remove: try store.remove(name)
    }
  }
}

/// Stores chunk by chunk, and waits for it.
private func setChunks(_ bytes: Data, _ store: DiskCache.Store, _ name: String) throws {
  let (chunks, continuation) = AsyncStream.makeStream(of: Data.self)
  var rest = bytes[...]
  while !rest.isEmpty {
    continuation.yield(rest.prefix(30_000))
    rest = rest.dropFirst(30_000)
  }
  continuation.finish()
  // Written before the semaphore is signalled, read after.
  nonisolated(unsafe) var failure: (any Error)?
  let done = DispatchSemaphore(value: 0)
  Task {
    do {
      try await store.set(chunks: chunks, forKey: name)
    } catch {
      failure = error
    }
    done.signal()
  }
  done.wait()
  if let failure { throw failure }
}

/// A little of all that a cache with a limit sees, on keys that all writers share.
private func churn(_ store: DiskCache.Store, writer: Int, number: Int, source: URL) throws {
  let key = Int.random(in: 0..<20)
  let name = Storm.name(key)
  let value = Certificate(
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
    if let data = try store.get(name), Certificate(data, key: key) == nil {
      say("wrong value of \(name)")
    }
  default: try store.set(value.bytes, forKey: name)
  }
}

// MARK: - The verbs

/// The cache of this name in the test's directory.
private func cache(_ name: String, _ directory: URL) -> DiskCache.Store {
  DiskCache.named(DiskCache.Name(name, in: directory))
}

/// What the arguments after the directory ask for; false when that has nothing to do with caches.
func runCaching(_ words: [String], in folder: URL) -> Bool {
  func number(_ index: Int) -> Int { words.indices.contains(index) ? Int(words[index]) ?? 0 : 0 }
  StorageSystem.onFailure = { say("error \($0)") }
  switch words[0] {
  case "cache-storm":  // WRITER MILLISECONDS LIMIT KEYS: all at once; with a limit of 0 only sets
    let store = cache("x", directory)
    if number(3) > 0 { store.sizeLimit = number(3) }
    let storm =
      number(3) > 0
      ? Storm(keyCount: number(4)) : Storm(keyCount: number(4), sweeps: false, removes: false)
    let tally = storm.run(store, writer: number(1), for: .milliseconds(number(2)))
    for fault in tally.faults { say(fault) }
  case "cache-acknowledge":  // WRITER START: step by step, and says the number of each that is done
    acknowledge(writer: number(1), from: number(2), directory)
  case "cache-fork":  // COUNT: a child and its parent write the same keys at once
    writeForked(number(1), cache("x", directory))
  case "cache-sweep":  // KEY: reads a key and removes what has expired, for ever
    let store = cache("x", directory)
    say("ready")
    while true {
      do {
        if let data = try store.get(words[1]), Certificate(data, key: 0) == nil { say("wrong") }
        if Int.random(in: 0..<20) == 0 { try store.removeExpired() }
      } catch {
        say("error \(error)")
      }
    }
  case "cache-clear":  // MILLISECONDS: removes all, again and again
    let store = cache("x", directory)
    let end = ContinuousClock.now + .milliseconds(number(1))
    while ContinuousClock.now < end {
      do {
        try store.removeAll()
      } catch {
        say("error \(error)")
      }
      usleep(UInt32.random(in: 0...5_000))
    }
  default: return false
  }
  return true
}

private func acknowledge(writer: Int, from start: Int, _ directory: URL) {
  let kept = cache("kept", directory)
  let churned = cache("churned", directory)
  churned.sizeLimit = 400_000
  let source = directory.appending(path: "source\(writer)")
  var index = start
  while true {
    index += 1
    do {
      try KeptStep(writer: writer, number: index).run(kept, source: source)
      say(String(index))
      try churn(churned, writer: writer, number: index, source: source)
    } catch {
      say("error \(error)")
    }
  }
}

private func writeForked(_ count: Int, _ store: DiskCache.Store) {
  do {
    try store.set(Certificate(key: 0, writer: 0, number: 0, size: 100).bytes, forKey: "key0")
  } catch {
    return say("error \(error)")
  }
  let child = forkedChild()
  let writer = child == 0 ? 1 : 2
  do {
    for number in 1...max(1, count) {
      let key = number % 3
      let value = Certificate(
        key: key, writer: writer, number: number, size: Int.random(in: 1...20_000))
      try store.set(value.bytes, forKey: Storm.name(key))
      if let data = try store.get(Storm.name(key)), Certificate(data, key: key) == nil {
        say("wrong value of \(key)")
      }
    }
  } catch {
    say("error \(error)")
  }
  if child == 0 { exit(0) }
  say("done \(ended(child))")
}
