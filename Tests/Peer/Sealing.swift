// What the peer does with vaults. The tests read this file too: both sides make and judge the same
// values, and a test works out by itself what a process that it killed was doing.
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A moment as all processes of the machine count it, in nanoseconds.
func monotonicNow() -> Int {
  var time = timespec()
  clock_gettime(CLOCK_MONOTONIC, &time)
  return Int(time.tv_sec) * 1_000_000_000 + Int(time.tv_nsec)
}

// MARK: - Everybody at the same keys

/// Sets and gets on a process's own keys and on keys that all processes write.
///
/// What each saw, and when, is put together by the test: only there it shows whether a value was
/// old.
struct VaultStorm: Sendable {
  static let sharedKeys = 0..<3
  static let ownCount = 5

  /// One call that has come to an end.
  struct Event: Sendable {
    enum Kind: String, Sendable { case set, get, miss }

    let kind: Kind
    let key: Int
    let start: Int
    let end: Int
    /// Whose value it is and which one; 0 for a miss.
    let writer: Int
    let number: Int

    var line: String { "\(kind.rawValue) \(key) \(start) \(end) \(writer) \(number)" }

    init(_ kind: Kind, _ key: Int, from start: Int, _ writer: Int, _ number: Int) {
      (self.kind, self.key, self.writer, self.number) = (kind, key, writer, number)
      (self.start, end) = (start, monotonicNow())
    }

    init?(_ line: some StringProtocol) {
      let words = line.split(separator: " ")
      let numbers = words.dropFirst().compactMap { Int($0) }
      guard let kind = words.first.flatMap({ Kind(rawValue: String($0)) }), numbers.count == 5
      else { return nil }
      self.kind = kind
      (key, start, end) = (numbers[0], numbers[1], numbers[2])
      (writer, number) = (numbers[3], numbers[4])
    }
  }

  /// What never may happen, in words.
  struct Fault: Error {
    let text: String
  }

  static func ownKeys(_ writer: Int) -> Range<Int> {
    let start = sharedKeys.upperBound + writer * ownCount
    return start..<(start + ownCount)
  }

  /// Keys lie in two services.
  static func store(_ key: Int) -> SecureVault.Store {
    SecureVault.service(service(key))
  }

  static func service(_ key: Int) -> SecureVault.Service { key.isMultiple(of: 2) ? "even" : "odd" }

  static func get(_ key: Int, from store: SecureVault.Store) throws -> Event {
    let start = monotonicNow()
    guard let data = try store.getData(Storm.name(key)) else {
      return Event(.miss, key, from: start, 0, 0)
    }
    guard let value = Certificate(data, key: key) else {
      throw Fault(text: "\(data.count) bytes that fit no key at \(key)")
    }
    return Event(.get, key, from: start, value.writer, value.number)
  }

  /// Sets a value and reads the key again, so many times.
  static func run(writer: Int, count: Int) -> [String] {
    var lines: [String] = []
    let own = ownKeys(writer)
    for number in 1...max(1, count) {
      let isShared = Int.random(in: 0..<5) < 2
      let key = isShared ? Int.random(in: sharedKeys) : Int.random(in: own)
      // Some are read in pieces.
      let isLarge = Int.random(in: 0..<10) == 0
      let size = Int.random(in: isLarge ? 4_000...150_000 : 32...2_000)
      let value = Certificate(key: key, writer: writer, number: number, size: size)
      do {
        let bytes = value.bytes
        let start = monotonicNow()
        try store(key).set(bytes, forKey: Storm.name(key))
        lines.append(Event(.set, key, from: start, writer, number).line)
        let event = try get(key, from: store(key))
        lines.append(event.line)
        // Nobody else writes these.
        if !isShared, (event.writer, event.number) != (writer, number) {
          lines.append("fault: \(event.line) after number \(number) was set")
        }
      } catch {
        lines.append("fault: \(error)")
      }
    }
    return lines
  }
}

// MARK: - What is killed

/// What a writer does step by step with a vault, always the same for the same number.
struct VaultStep: Sendable {
  enum Action: Sendable {
    case set, rotate, protect, erase
  }

  static let keyCount = 6

  let action: Action
  let value: Certificate

  /// - Parameter part: Whether the writer only sets, sets and rotates, sets and protects, or sets
  ///   and erases everything, which none but it may use then.
  init(_ part: String, writer: Int, number: Int) {
    var generator = Sequence64(seed: UInt64(writer) << 40 | UInt64(number))
    let key = Int.random(in: 0..<Self.keyCount, using: &generator)
    let isLarge = Int.random(in: 0..<6, using: &generator) == 0
    let size = Int.random(in: isLarge ? 4_000...150_000 : 32...2_000, using: &generator)
    let isOther = Int.random(in: 0..<4, using: &generator) == 0
    action =
      switch part {
      case "rotate" where isOther: .rotate
      case "protect" where isOther: .protect
      case "erase" where isOther: .erase
      default: .set
      }
    value = Certificate(
      key: writer * Self.keyCount + key, writer: writer, number: number, size: size)
  }

  func run() throws {
    let store = VaultStorm.store(value.key)
    switch action {
    case .set: try store.set(value.bytes, forKey: Storm.name(value.key))
    case .rotate: try store.rotateKeys()
    case .protect: try store.protect(with: .keyFile)
    case .erase: try store.eraseVault()
    }
  }
}

// MARK: - What is in memory

/// Looks through all memory of this process that can be read.
enum MemoryScan {
  /// What keys are masked with wherever they are not to be found.
  static let mask: UInt8 = 0xA5

  struct Mapping {
    let range: Range<UInt>
    let isReadable: Bool
    let name: String
    /// As in proc_pid_smaps(5).
    var flags: Set<String> = []
  }

  /// A text of a size that is not known before.
  static func text(_ path: String) -> String {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 65_536)
    while true {
      let count = read(descriptor, &chunk, chunk.count)
      guard count > 0 else { return String(decoding: bytes, as: UTF8.self) }
      bytes += chunk[..<count]
    }
  }

  static func mappings() -> [Mapping] {
    var mappings: [Mapping] = []
    for line in text("/proc/self/smaps").split(separator: "\n") {
      let words = line.split(separator: " ", omittingEmptySubsequences: true)
      if line.hasPrefix("VmFlags:") {
        mappings[mappings.count - 1].flags = Set(words.dropFirst().map(String.init))
      } else if !words[0].hasSuffix(":") {
        let ends = words[0].split(separator: "-").compactMap { UInt($0, radix: 16) }
        guard ends.count == 2 else { continue }
        mappings.append(
          Mapping(
            range: ends[0]..<ends[1], isReadable: words[1].hasPrefix("r"),
            name: words.count > 5 ? String(words[5]) : "anonymous"))
      }
    }
    return mappings
  }

  /// Where each of the keys is, by its number; they are given masked, in hexadecimal.
  ///
  /// What is looked for and what is looked through is for a moment in a mapping of its own, which
  /// is left out of the search and gone afterwards.
  static func run(_ masked: [String]) -> String {
    let room = 1 << 20
    let scratch = mmap(nil, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    let memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC)
    guard let scratch, scratch != MAP_FAILED, memory >= 0 else { return "cannot scan" }
    defer {
      close(memory)
      memset(scratch, 0, room)
      munmap(scratch, room)
    }
    var needles: [UnsafeRawBufferPointer] = []
    var place = scratch
    for text in masked {
      let start = place
      var digits = text.utf8.makeIterator()
      while let high = digits.next(), let low = digits.next() {
        place.storeBytes(of: (digit(high) << 4 | digit(low)) ^ mask, as: UInt8.self)
        place += 1
      }
      needles.append(UnsafeRawBufferPointer(start: start, count: place - start))
    }
    // A page, so that keys and what is looked through stay apart.
    let window = UnsafeMutableRawBufferPointer(start: scratch + 16_384, count: room - 16_384)
    let overlap = needles.map(\.count).max() ?? 1
    let own = UInt(bitPattern: scratch)..<(UInt(bitPattern: scratch) + UInt(room))
    var found: [String] = []
    var total = 0
    for mapping in mappings() where mapping.isReadable {
      // Whatever was merged with the scratch mapping is looked through as well.
      for part in [
        mapping.range.clamped(to: 0..<own.lowerBound),
        mapping.range.clamped(to: own.upperBound..<UInt.max),
      ] where !part.isEmpty {
        var position = part.lowerBound
        while position < part.upperBound {
          let wanted = min(window.count, Int(part.upperBound - position))
          let count = pread(memory, window.baseAddress, wanted, off_t(position))
          // Device memory of the kernel can be in the list and yet not be read.
          guard count > 0 else { break }
          total += count
          for (index, needle) in needles.enumerated()
          where contains(needle, in: UnsafeRawBufferPointer(rebasing: window[..<count])) {
            let flags = ["lo", "dd", "wf"].filter(mapping.flags.contains)
            found.append("\(index):\(flags.joined(separator: "+")):\(mapping.name)")
          }
          position += UInt(count)
          // What lies across the end of a piece is found in the next one.
          if position < part.upperBound, count > overlap { position -= UInt(overlap) }
        }
      }
    }
    return "scanned \(total) " + found.joined(separator: " ")
  }

  /// Whether the bytes are there; makes no copy of any.
  static func contains(_ needle: UnsafeRawBufferPointer, in bytes: UnsafeRawBufferPointer) -> Bool {
    // By a byte that is not everywhere.
    guard let anchor = needle.firstIndex(where: { $0 != 0 && $0 != 0xFF }) ?? needle.indices.first,
      bytes.count >= needle.count, let start = bytes.baseAddress
    else { return false }
    let value = Int32(needle[anchor])
    var position = anchor
    let end = bytes.count - needle.count + anchor
    while position <= end,
      let hit = memchr(start + position, value, end - position + 1)
    {
      let candidate = UnsafeRawPointer(hit) - anchor
      if memcmp(candidate, needle.baseAddress!, needle.count) == 0 { return true }
      position = UnsafeRawPointer(hit) - start + 1
    }
    return false
  }

  private static func digit(_ character: UInt8) -> UInt8 {
    character < 58 ? character - 48 : character - 87
  }
}

/// One request to a process whose memory is looked at. Answers on one line.
private func answerSealing(_ words: [String]) -> String {
  let store = SecureVault.shared
  do throws(StorageError) {
    switch words[0] {
    case "set": try store.set(words[2], forKey: words[1])
    case "get": return try store.get(words[1]) ?? "nil"
    case "rotate": try store.rotateKeys()
    case "protect":
      try store.protect(with: words.count > 1 ? .passphrase(words[1]) : .keyFile)
    case "lock": try store.lock()
    case "unlock": try store.unlock(passphrase: words.count > 1 ? words[1] : nil)
    case "scan": return MemoryScan.run(Array(words[1...]))
    case "fork-scan": return inChild { MemoryScan.run(Array(words[1...])) }
    case "fork-get":
      return inChild {
        do throws(StorageError) {
          return try store.get(words[1]) ?? "nil"
        } catch {
          return "\(error.code)"
        }
      }
    case "fork-set":
      return inChild {
        do throws(StorageError) {
          try store.set(words[2], forKey: words[1])
          return "ok"
        } catch {
          return "\(error.code)"
        }
      }
    default: return "unknown \(words[0])"
    }
    return "ok"
  } catch {
    return "\(error.code)"
  }
}

/// What a forked child has to say.
private func inChild(_ body: () -> String) -> String {
  var ends: [Int32] = [0, 0]
  guard pipe(&ends) == 0 else { return "no pipe" }
  let child = forkedChild()
  if child == 0 {
    var text = body()
    text.withUTF8 { _ = write(ends[1], $0.baseAddress, $0.count) }
    _exit(0)
  }
  close(ends[1])
  var bytes = [UInt8](repeating: 0, count: 65_536)
  let count = read(ends[0], &bytes, bytes.count)
  close(ends[0])
  let status = ended(child)
  return status == 0 ? String(decoding: bytes.prefix(max(0, count)), as: UTF8.self) : "\(status)"
}

// MARK: - The verbs

/// What the arguments after the directory ask for; false when that has nothing to do with vaults.
func runSealing(_ words: [String]) -> Bool {
  func number(_ index: Int) -> Int { words.indices.contains(index) ? Int(words[index]) ?? 0 : 0 }
  StorageSystem.onFailure = { say("error \($0)") }
  switch words[0] {
  case "vault-create":  // WRITER COUNT [protect]: uses a vault from a moment on that it is told
    say("ready")
    guard let moment = readLine().flatMap({ Int($0) }) else { return true }
    usleep(UInt32(clamping: max(0, (moment - monotonicNow()) / 1_000)))
    do {
      if words.last == "protect" { try SecureVault.shared.protect(with: .keyFile) }
      for index in 0..<number(2) {
        let key = number(1) * number(2) + index
        let value = Certificate(key: key, writer: number(1), number: index, size: 100)
        try VaultStorm.store(key).set(value.bytes, forKey: Storm.name(key))
      }
    } catch {
      say("error \(error)")
    }
  case "vault-storm":  // WRITER COUNT: says at the end what it saw
    for line in VaultStorm.run(writer: number(1), count: number(2)) { say(line) }
  case "vault-rotate":  // rotates until its input ends, and says how often
    say("ready")
    var input = pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)
    var count = 0
    while poll(&input, 1, 0) == 0 {
      do {
        try SecureVault.shared.rotateKeys()
        count += 1
      } catch {
        say("error \(error)")
      }
    }
    say("\(count)")
  case "vault-acknowledge":  // PART WRITER START: says the number of each step that is done
    var index = number(3)
    while true {
      index += 1
      do {
        try VaultStep(words[1], writer: number(2), number: index).run()
        say("\(index)")
      } catch {
        say("error \(error)")
      }
    }
  case "vault-serve":  // answers requests until its input ends
    while let line = readLine() {
      let words = line.split(separator: " ").map(String.init)
      if words[0] == "abort" { abortWithCore(in: words[1]) }
      say(answerSealing(words))
    }
  default: return false
  }
  return true
}

/// Dies with a core dump in that directory. Some bytes are left in plain memory, by which a test
/// sees that it looks at the right file.
private func abortWithCore(in directory: String) {
  var limit = rlimit(rlim_cur: .max, rlim_max: .max)
  setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &limit)
  chdir(directory)
  let landmark = malloc(64)!
  for index in 0..<64 {
    landmark.storeBytes(of: UInt8(255 - index), toByteOffset: index, as: UInt8.self)
  }
  signal(SIGABRT, SIG_DFL)
  withExtendedLifetime(landmark) { abort() }
}
