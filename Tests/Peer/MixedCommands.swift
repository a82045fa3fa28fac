// Commands that use all kinds of stores. The tests also use this file, to compute what a process
// that they killed was doing.
import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// One store of each kind.
struct MixedStores: Sendable {
  enum Kind: CaseIterable, Sendable { case settings, secrets, cache, files }

  let settings: SettingsUnderTest
  let secrets: VaultUnderTest
  let cache: CacheUnderTest
  let files: FilesUnderTest

  /// - Parameter directory: Holds the files, and backups by this process.
  init(
    settings: Defaults.Store, secrets: SecureVault.Store, cache: DiskCache.Store, files: Folder,
    in directory: URL
  ) {
    let backups = directory.appending(path: "backups-\(getpid())")
    self.settings = SettingsUnderTest(
      store: settings, backup: directory.appending(path: "backup-\(getpid()).jsonl"))
    self.secrets = VaultUnderTest(stores: [secrets], storedServices: { [] }, backup: backups)
    self.cache = CacheUnderTest(store: cache)
    self.files = FilesUnderTest(directory: files, incoming: backups)
  }

  /// The stores of this process.
  init(in directory: URL) {
    self.init(
      settings: Defaults.shared, secrets: SecureVault.shared,
      cache: DiskCache.named(DiskCache.Name("mixed", in: directory)),
      files: Folder(directory.appending(path: "own")), in: directory)
  }

  subscript(kind: Kind) -> any ByteStore {
    switch kind {
    case .settings: settings
    case .secrets: secrets
    case .cache: cache
    case .files: files
    }
  }
}

/// A step of a writer, which has keys of its own. It follows from the writer and the number.
struct MixedStep: Sendable {
  static let keyCount = 4
  /// The setting that all writers increment.
  static let counter = "count"

  let kind: MixedStores.Kind
  let isRemoval: Bool
  let isCounted: Bool
  let value: SelfCheckingValue
  private let number: Int

  init(writer: Int, number: Int) {
    var generator = SplitMix64(seed: UInt64(writer) << 40 | UInt64(number))
    let key = Int.random(in: 0..<Self.keyCount, using: &generator)
    let isLarge = Int.random(in: 0..<8, using: &generator) == 0
    let size = Int.random(in: isLarge ? 10_000...80_000 : 32...2_000, using: &generator)
    kind = MixedStores.Kind.allCases.randomElement(using: &generator) ?? .settings
    isRemoval = Int.random(in: 0..<5, using: &generator) == 0
    isCounted = number.isMultiple(of: 3)
    value = SelfCheckingValue(
      key: writer * Self.keyCount + key, writer: writer, number: number, size: size)
    self.number = number
  }

  func run(_ stores: MixedStores) throws {
    let store = stores[kind]
    if isRemoval {
      try store.remove(CacheStress.name(value.key))
    } else {
      try store.set(value.bytes, CacheStress.name(value.key))
    }
    if isCounted {
      try stores.settings.store.update(Self.counter, default: 0) { (count: inout Int) in
        count += 1
      }
    }
    if number.isMultiple(of: 15) { try store.maintain(number / 15) }
  }
}

// MARK: - Resources of a long run

/// The resources of this process at one moment.
struct ResourceUse: Sendable {
  var bytes: Int
  var descriptors: Int
  var threads: Int

  static var now: ResourceUse {
    ResourceUse(
      bytes: residentBytes, descriptors: count("/proc/self/fd"), threads: count("/proc/self/task"))
  }

  private static func count(_ path: String) -> Int {
    guard let directory = opendir(path) else { return 0 }
    defer { closedir(directory) }
    var count = -2  // "." and ".."
    while readdir(directory) != nil { count += 1 }
    return count
  }

  private static var residentBytes: Int {
    let words = MemoryScan.text("/proc/self/statm").split(separator: " ")
    return (words.count > 1 ? Int(words[1]) ?? 0 : 0) * Int(sysconf(Int32(_SC_PAGESIZE)))
  }
}

/// Uses the whole library for a while, in rounds, and prints its resources after each round.
private func soak(_ stores: MixedStores, seconds: Int) async throws {
  let rounds = 6
  let clock = ContinuousClock()
  var quiet = Int.max
  for round in 0..<rounds {
    let end = clock.now + .seconds(seconds) / rounds
    try await withThrowingTaskGroup(of: Void.self) { group in
      let watcher = Task {
        var count = 0
        for await _ in stores.settings.store.changes(MixedStep.counter, default: 0) { count += 1 }
        return count
      }
      for writer in 0..<3 {
        group.addTask {
          var number = 0
          while clock.now < end {
            number += 1
            let step = MixedStep(writer: writer, number: number % 500)
            try step.run(stores)
            if let data = try stores[step.kind].bytes(CacheStress.name(step.value.key)),
              SelfCheckingValue(data, key: step.value.key) == nil
            {
              printLine("error wrong value")
            }
            await Task.yield()
          }
        }
      }
      group.addTask {
        var number = 0
        while clock.now < end {
          number += 1
          let name = "fetched \(number % 20)"
          _ = try await stores.cache.store.fetch(name, expiry: .seconds(0.01)) {
            Data(count: number % 9_000)
          }
          if number.isMultiple(of: 50) { try stores.cache.removeAll() }
          try await StorageSystem.withTemporary {
            Defaults.set(number, forKey: "n")
            SecureVault.set("s", forKey: "n")
            DiskCache.set("c", forKey: "n")
          }
        }
      }
      try await group.waitForAll()
      watcher.cancel()
      _ = await watcher.value
    }
    // Wait for work in the background: settings are synced about a second after they are set, even
    // in closed scopes, and on a busy disk that takes a while.
    var use = ResourceUse.now
    for _ in 0..<100 {
      try await Task.sleep(for: .milliseconds(100))
      use = ResourceUse.now
      quiet = min(quiet, use.descriptors)
      if round > 0, use.descriptors <= quiet + 1 { break }
      if round == 0, clock.now > end + .milliseconds(1_500) { break }
    }
    // Threads that have nothing to do end after two seconds.
    for _ in 0..<30 where round == 1 || round == rounds - 1 {
      try await Task.sleep(for: .milliseconds(100))
      use.threads = min(use.threads, ResourceUse.now.threads)
    }
    printLine("\(round) \(use.bytes) \(use.descriptors) \(use.threads)")
  }
}

// MARK: - The commands

/// Runs the command if it belongs to all stores; false otherwise.
func runMixedCommand(_ words: [String], in folder: URL) async throws -> Bool {
  let stores = MixedStores(in: directory)
  switch words[0] {
  case "mixed":  // WRITER START: runs step after step, and prints the number of each
    acknowledge(from: number(2)) {
      try MixedStep(writer: number(1), number: $0).run(stores)
    }
  case "mixed-until-closed":  // WRITER: runs steps until its input ends, and prints the last number
    countUntilClosed { try MixedStep(writer: number(1), number: $0).run(stores) }
  case "soak":  // SECONDS
    try await soak(stores, seconds: number(1))
  default: return false
  }
  return true
}
