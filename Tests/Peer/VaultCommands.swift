// Commands on vaults. The tests also use this file: both processes make and verify the same values,
// and a test computes what a process that it killed was doing.
import Dispatch
import FoundationEssentials
import Keepsake
import KeepsakeLibc

// MARK: - Stress on shared keys

/// Sets and gets keys of the process's own, and keys that all processes write.
///
/// The test merges the events of all processes to see whether any of them read an old value.
struct VaultStress: Sendable {
  static let sharedKeys = 0..<3
  static let ownCount = 5

  /// One finished call.
  struct Event: Sendable {
    enum Kind: String, Sendable { case set, get, miss }

    let kind: Kind
    let key: Int
    let start: Int
    let end: Int
    /// The writer and the number of the value; 0 for a miss.
    let writer: Int
    let number: Int

    var line: String { "\(kind.rawValue) \(key) \(start) \(end) \(writer) \(number)" }

    init(_ kind: Kind, _ key: Int, from start: Int, _ writer: Int, _ number: Int) {
      (self.kind, self.key, self.writer, self.number) = (kind, key, writer, number)
      (self.start, end) = (start, Int(RegisterCall.now))
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

  /// A wrong result.
  struct Fault: Error {
    let text: String
  }

  static func ownKeys(_ writer: Int) -> Range<Int> {
    let start = sharedKeys.upperBound + writer * ownCount
    return start..<(start + ownCount)
  }

  /// Keys are in one of two services.
  static func store(_ key: Int) -> SecureVault.Store {
    SecureVault.service(service(key))
  }

  static func service(_ key: Int) -> SecureVault.Service { key.isMultiple(of: 2) ? "even" : "odd" }

  static func get(_ key: Int, from store: SecureVault.Store) throws -> Event {
    let start = Int(RegisterCall.now)
    guard let data = try store.getData(CacheStress.name(key)) else {
      return Event(.miss, key, from: start, 0, 0)
    }
    guard let value = SelfCheckingValue(data, key: key) else {
      throw Fault(text: "\(data.count) bytes that fit no key at \(key)")
    }
    return Event(.get, key, from: start, value.writer, value.number)
  }

  /// Sets a value and reads its key, `count` times.
  static func run(writer: Int, count: Int) -> [String] {
    var lines: [String] = []
    let own = ownKeys(writer)
    for number in 1...max(1, count) {
      let isShared = Int.random(in: 0..<5) < 2
      let key = isShared ? Int.random(in: sharedKeys) : Int.random(in: own)
      // Large values are stored in several chunks.
      let isLarge = Int.random(in: 0..<10) == 0
      let size = Int.random(in: isLarge ? 4_000...150_000 : 32...2_000)
      let value = SelfCheckingValue(key: key, writer: writer, number: number, size: size)
      do {
        let bytes = value.bytes
        let start = Int(RegisterCall.now)
        try retryingTimeouts { try store(key).set(bytes, forKey: CacheStress.name(key)) }
        lines.append(Event(.set, key, from: start, writer, number).line)
        let event = try get(key, from: store(key))
        lines.append(event.line)
        // No other process writes these keys.
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

// MARK: - Steps of a process that is killed

/// A step of a writer. It follows from the writer and the number.
struct VaultStep: Sendable {
  enum Action: Sendable {
    case set, rotate, protect, erase, forget, recover
  }

  static let keyCount = 6

  let action: Action
  let value: SelfCheckingValue

  /// - Parameter part: The calls that the writer makes besides `set`: "rotate", "protect", or
  ///   "erase", for which it has to be the only user.
  init(_ part: String, writer: Int, number: Int) {
    var generator = SplitMix64(seed: UInt64(writer) << 40 | UInt64(number))
    let key = Int.random(in: 0..<Self.keyCount, using: &generator)
    let isLarge = Int.random(in: 0..<6, using: &generator) == 0
    let size = Int.random(in: isLarge ? 4_000...150_000 : 32...2_000, using: &generator)
    let isOther = Int.random(in: 0..<4, using: &generator) == 0
    action =
      switch part {
      case "rotate" where isOther: [.rotate, .forget, .recover][number % 3]
      case "protect" where isOther: .protect
      case "erase" where isOther: .erase
      default: .set
      }
    value = SelfCheckingValue(
      key: writer * Self.keyCount + key, writer: writer, number: number, size: size)
  }

  func run() throws {
    let store = VaultStress.store(value.key)
    switch action {
    case .set: try store.set(value.bytes, forKey: CacheStress.name(value.key))
    case .rotate: try store.rotateKeys()
    case .protect: try store.protect(with: .keyFile)
    case .erase: try store.eraseVault()
    case .forget: try store.forgetOldKeys()
    case .recover:
      try store.removeAllRecoveries()
      _ = try store.addRecovery()
    }
  }
}

// MARK: - Scans of memory

/// Searches all readable memory of this process.
enum MemoryScan {
  /// Keys are masked with this byte wherever a scan must not find them.
  static let mask: UInt8 = 0xA5

  struct Mapping {
    let range: Range<UInt>
    let isReadable: Bool
    let name: String
    /// The flags of proc_pid_smaps(5).
    var flags: Set<String> = []
  }

  /// Reads a text file whose size is not known in advance. Foundation reads the first part of it.
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

  /// Finds keys, given masked and in hexadecimal, and lists the mappings that contain them.
  ///
  /// The keys and the memory being searched are copied to a separate mapping, which is excluded
  /// from the search and unmapped afterwards.
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
    var cursor = scratch
    for text in masked {
      let start = cursor
      var digits = text.utf8.makeIterator()
      while let high = digits.next(), let low = digits.next() {
        cursor.storeBytes(of: (digit(high) << 4 | digit(low)) ^ mask, as: UInt8.self)
        cursor += 1
      }
      needles.append(UnsafeRawBufferPointer(start: start, count: cursor - start))
    }
    // Leaves a gap between the keys and the memory being searched.
    let window = UnsafeMutableRawBufferPointer(start: scratch + 16_384, count: room - 16_384)
    let overlap = needles.map(\.count).max() ?? 1
    let own = UInt(bitPattern: scratch)..<(UInt(bitPattern: scratch) + UInt(room))
    var found: [String] = []
    var total = 0
    for mapping in mappings() where mapping.isReadable {
      // The kernel may have merged the scratch mapping with others, which are also searched.
      for part in [
        mapping.range.clamped(to: 0..<own.lowerBound),
        mapping.range.clamped(to: own.upperBound..<UInt.max),
      ] where !part.isEmpty {
        var position = part.lowerBound
        while position < part.upperBound {
          let wanted = min(window.count, Int(part.upperBound - position))
          let count = pread(memory, window.baseAddress, wanted, off_t(position))
          // Some kernel mappings are listed but cannot be read.
          guard count > 0 else { break }
          total += count
          for (index, needle) in needles.enumerated()
          where contains(needle, in: UnsafeRawBufferPointer(rebasing: window[..<count])) {
            let flags = ["lo", "dd", "wf"].filter(mapping.flags.contains)
            found.append("\(index):\(flags.joined(separator: "+")):\(mapping.name)")
          }
          position += UInt(count)
          // Overlap the windows to find a key that spans two of them.
          if position < part.upperBound, count > overlap { position -= UInt(overlap) }
        }
      }
    }
    return "scanned \(total) " + found.joined(separator: " ")
  }

  /// Whether `bytes` contains `needle`; copies nothing.
  static func contains(_ needle: UnsafeRawBufferPointer, in bytes: UnsafeRawBufferPointer) -> Bool {
    // Search for a byte that is not common.
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

/// Answers one request to a process whose memory is searched, or to its child.
private func answerSealing(_ words: [String]) -> String {
  if words[0].hasPrefix("fork-") {
    return inChild { answerSealing([String(words[0].dropFirst(5))] + words.dropFirst()) }
  }
  // Before the library is called in a child, which may make it drop what it had at the fork.
  if words[0] == "scan" { return MemoryScan.run(Array(words[1...])) }
  let store = SecureVault.shared
  do throws(StorageError) {
    switch words[0] {
    case "set": try store.set(words[2], forKey: words[1])
    case "get": return try store.get(words[1]) ?? "nil"
    case "rotate": try store.rotateKeys()
    case "protect":  // [PASSPHRASE LOGN]
      let logN = words.count > 2 ? UInt8(words[2]) : nil
      try store.protect(with: logN.map { .passphrase(words[1], logN: $0) } ?? .keyFile)
    case "lock": try store.lock()
    case "unlock": try store.unlock(passphrase: words.count > 1 ? words[1] : nil)
    case "recovery": try store.addRecovery(passphrase: words[1])
    case "remember":  // PASSPHRASE SECONDS
      try store.unlock(passphrase: words[1], rememberFor: .seconds(Int(words[2]) ?? 60))
    case "become":
      let id = UInt32(words[1]) ?? 0
      return setgid(id) == 0 && setuid(id) == 0 ? "ok" : "errno \(errno)"
    default: return "unknown \(words[0])"
    }
    return "ok"
  } catch {
    return "\(error.code)"
  }
}

/// Runs `body` in a forked child and returns its result.
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
  let status = waitForExit(of: child)
  return status == 0 ? String(decoding: bytes.prefix(max(0, count)), as: UTF8.self) : "\(status)"
}

// MARK: - The commands

/// Runs the command if it belongs to vaults; false otherwise.
func runVaultCommand(_ words: [String]) -> Bool {
  switch words[0] {
  case "vault-create":  // WRITER COUNT [protect]: uses a vault after a line on its input
    printLine("ready")
    guard readLine() != nil else { return true }
    printingErrors {
      if words.last == "protect" { try SecureVault.shared.protect(with: .keyFile) }
      for index in 0..<number(2) {
        let key = number(1) * number(2) + index
        let value = SelfCheckingValue(key: key, writer: number(1), number: index, size: 100)
        try VaultStress.store(key).set(value.bytes, forKey: CacheStress.name(key))
      }
    }
  case "vault-stress":  // WRITER COUNT: prints its events at the end
    for line in VaultStress.run(writer: number(1), count: number(2)) { printLine(line) }
  case "vault-rotate":  // rotates keys until its input ends, and prints how often
    printLine("ready")
    countUntilClosed { _ in try retryingTimeouts { try SecureVault.shared.rotateKeys() } }
  case "vault-acknowledge":  // PART WRITER START: runs steps, and prints their numbers
    acknowledge(from: number(3)) {
      try VaultStep(words[1], writer: number(2), number: $0).run()
    }
  case "vault-exit":  // prints the secrets that it has stored, and exits while it stores others
    switch CommandLine.arguments.last {
    case "after-openssl":
      // As the URLSession of a program does, which uses the same library.
      typealias Initialize = @convention(c) (UInt64, OpaquePointer?) -> Int32
      let symbol = dlsym(nil, "OPENSSL_init_crypto")
      precondition(unsafeBitCast(symbol, to: Initialize.self)(0, nil) == 1)
    case "after-scrypt":
      precondition(SecureVault.protect(with: .passphrase("swordfish", logN: 10)))
    default: break
    }
    // Runs after the handlers that are registered later.
    atexit {
      printLine(SecureVault.set("last", forKey: "last") ? "last" : "failed last")
      printLine(SecureVault.get("last") == "last" ? "read" : "failed to read")
    }
    let isBusy = DispatchSemaphore(value: 0)
    let count = number(1)
    for thread in 0..<2 {
      DispatchQueue(label: "\(thread)").async {
        for index in 0... {
          let key = "\(thread).\(index)"
          printLine(SecureVault.set(key, forKey: key) ? key : "failed \(key)")
          if index == count { isBusy.signal() }
        }
      }
    }
    isBusy.wait()
    exit(0)
  case "vault-serve":  // answers requests until its input ends
    while let line = readLine() {
      let words = line.split(separator: " ").map(String.init)
      if words[0] == "abort" { abortWithCore(in: words[1]) }
      printLine(answerSealing(words))
    }
  default: return false
  }
  return true
}

/// Ends with a core dump in that directory. Known bytes in plain memory let the test verify that it
/// searches the right file.
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
