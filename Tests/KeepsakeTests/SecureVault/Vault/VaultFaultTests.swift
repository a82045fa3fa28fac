import Foundation
import Testing

@testable import Keepsake

/// Expects a vault in its old or its new state after any failing system call.
@Suite(.proofThread, .singleThreaded) struct VaultFaultTests {
  private static let old = Data(String(repeating: Fault.mark + " old. ", count: 5).utf8)
  private static let new = Data(String(repeating: Fault.mark + " new. ", count: 6).utf8)
  /// Large enough to be sealed and written in chunks.
  private static let large = Data((0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* 7) })

  private static let passphrase = "correct horse"
  /// With a low cost, because each attempt derives the key again.
  private static let quick = SecureVault.KeySource(.passphrase(passphrase, logN: 10))

  /// A secret by its service and key.
  struct Name: Hashable, Sendable {
    var service = "standard"
    var key: String
  }

  /// The secrets in the vault before an operation.
  private static let before: [Name: Data] = [
    Name(key: "k"): old, Name(key: "l"): Data("l".utf8),
    Name(service: "second", key: "k"): Data("m".utf8),
  ]

  struct Operation: Sendable, CustomTestStringConvertible {
    enum Start { case nothing, keyFile, passphrase, presence, recovery }

    let testDescription: String
    var start = Start.keyFile
    var service = SecureVault.Service.standard
    /// The secrets that it changes, with their new values; nil for a removed secret.
    var changes: [Name: Data?] = [:]
    /// The protections that the vault may have after a failure.
    var protections: Set<SecureVault.Protection?> = [.keyFile]
    /// Runs before the operation, on the same store. By default it opens the vault, because the
    /// system calls of opening are the same for all operations and need to fail only in one.
    var prepare: @Sendable (SecureVault.Store) throws -> Void = {
      _ = try $0.isLocked || $0.contains("")
    }
    /// Returns false if the result is wrong.
    let run: @Sendable (SecureVault.Store) throws -> Bool
  }

  private static let removed: Data? = nil

  /// An operation without a result.
  private static func changing(
    _ name: String, _ start: Operation.Start = .keyFile,
    in service: SecureVault.Service = .standard, to changes: [Name: Data?] = [:],
    under protections: Set<SecureVault.Protection?> = [.keyFile],
    _ run: @escaping @Sendable (SecureVault.Store) throws -> Void
  ) -> Operation {
    Operation(
      testDescription: name, start: start, service: service, changes: changes,
      protections: protections,
      run: { store in
        try run(store)
        return true
      })
  }

  static let operations: [Operation] = [
    changing("first set", .nothing, to: [Name(key: "k"): new], under: [nil, .keyFile]) {
      try $0.set(new, forKey: "k")
    },
    changing("replacing set", to: [Name(key: "k"): new]) { try $0.set(new, forKey: "k") },
    changing("set of a new key", to: [Name(key: "new"): new]) { try $0.set(new, forKey: "new") },
    changing("set in a new service", in: "third", to: [Name(service: "third", key: "k"): new]) {
      try $0.set(new, forKey: "k")
    },
    changing("large set", to: [Name(key: "k"): large]) { try $0.set(large, forKey: "k") },
    changing(
      "set with presence", .passphrase, to: [Name(key: "k"): new], under: [.passphrase]
    ) { try $0.set(new, forKey: "k", access: .userPresence) },
    changing("remove", to: [Name(key: "k"): removed]) { try $0.remove("k") },
    changing("removeAll", to: [Name(key: "k"): removed, Name(key: "l"): removed]) {
      try $0.removeAll()
    },
    changing("rotateKeys") { try $0.rotateKeys() },
    changing("rotateKeys with presence", .presence, under: [.passphrase]) { try $0.rotateKeys() },
    changing("protect with key file") { try $0.protect(with: .keyFile) },
    changing("protect with passphrase", under: [.keyFile, .passphrase]) {
      try $0.protect(with: quick)
    },
    changing("first protect", .nothing, under: [nil, .passphrase]) {
      try $0.protect(with: quick)
    },
    changing("protect with another passphrase", .presence, under: [.passphrase]) {
      try $0.protect(with: quick)
    },
    changing("add", to: [Name(key: "new"): new]) { store in
      // Again after a failure that came too late.
      let isStored = try store.add(new, forKey: "new")
      if !isStored, try store.getData("new") != new { throw CancellationError() }
    },
    changing("addRecovery") { _ = try $0.addRecovery() },
    changing("removeRecovery", .recovery) { try $0.removeRecovery() },
    changing("forgetOldKeys", .recovery) { try $0.forgetOldKeys() },
    Operation(testDescription: "openers", start: .recovery) { try $0.openers.count >= 1 },
    changing("erase", to: before.mapValues { _ in removed }, under: [nil, .keyFile]) {
      try $0.eraseVault()
    },
    Operation(
      testDescription: "get", prepare: { _ in }, run: { try $0.getData("k") == old }),
    Operation(testDescription: "get when open") { try $0.getData("k") == old },
    Operation(testDescription: "get of a missing secret") { try $0.getData("missing") == nil },
    Operation(testDescription: "get with presence", start: .presence, protections: [.passphrase]) {
      try $0.getData("k") == old
    },
    Operation(testDescription: "contains") { try $0.contains("k") && !$0.contains("missing") },
    Operation(testDescription: "entry") { try $0.entry("k")?.access == .whenUnlocked },
    Operation(testDescription: "keys") { try $0.keys() == ["k", "l"] },
    Operation(testDescription: "services") { try $0.storedServices() == ["second", .standard] },
    Operation(testDescription: "protection") { try $0.protection == .keyFile },
    Operation(
      testDescription: "unlock", prepare: { try $0.lock() },
      run: {
        try $0.unlock()
        return try $0.getData("k") == old
      }),
    Operation(
      testDescription: "unlock with passphrase", start: .passphrase, protections: [.passphrase],
      prepare: { try $0.lock() },
      run: {
        try $0.unlock(passphrase: passphrase)
        return try $0.getData("k") == old
      }),
  ]

  private static func store(
    _ directory: TemporaryDirectory, _ service: SecureVault.Service = .standard,
    _ failures: Failures = Failures()
  ) -> SecureVault.Store {
    directory.secrets(
      service, failures: failures, keySources: [.keyFile, quick], authenticate: { _ in passphrase })
  }

  /// The vault before an operation. It is copied, because creating one takes long.
  private static func makeTemplate(_ start: Operation.Start) throws -> Snapshot {
    let directory = try TemporaryDirectory(isQuick: true)
    if start == .nothing { return try Snapshot(of: directory) }
    if start == .passphrase || start == .presence { try store(directory).protect(with: quick) }
    for (name, value) in before {
      let access = start == .presence ? SecureVault.Access.userPresence : nil
      try store(directory, SecureVault.Service(name.service))
        .set(value, forKey: name.key, access: access)
    }
    if start == .recovery {
      _ = try store(directory).addRecovery()
      // With old keys that are still in use.
      let plan = FaultPlan(decide: { event in
        event.call == .rename && !event.path.hasSuffix("/vault.hdr") ? .fail(ENOSPC) : .proceed
      })
      try? FaultPlan.$current.withValue(plan) { try store(directory).rotateKeys() }
    }
    return try Snapshot(of: directory)
  }

  /// The changes of an operation that are expected to be visible.
  private enum Extent {
    case nothing, all
    /// Each secret may have its old or its new value.
    case any
  }

  /// All changes after success. After a failure none, unless a secret had been moved into place or
  /// removed before.
  private func extent(_ call: FailedCall) -> Extent {
    if call.failure == nil { return .all }
    let isAfterChange = call.isAfterChange { path in
      let name = FileSystem.name(of: path)
      // The length of entries' file and directory names.
      return name.count == 32
    }
    return isAfterChange ? .any : .nothing
  }

  /// Expects every secret to have its old value or the operation's.
  private func expectOldOrNew(
    _ directory: TemporaryDirectory, _ operation: Operation, _ extent: Extent, _ comment: Comment
  ) throws {
    let start = operation.start == .nothing ? [:] : Self.before
    let vault = directory.vault([.keyFile, Self.quick], authenticate: { _ in Self.passphrase })
    for name in Set(start.keys).union(operation.changes.keys) {
      var value: Data?
      if let secret = try vault.read(name.service, name.key, reason: nil) {
        value = secret.withBytes { bytes in bytes.withUnsafeBytes { Data($0) } }
      }
      var allowed: [Data?] = [start[name]]
      if let change = operation.changes[name] {
        switch extent {
        case .nothing: break
        case .all: allowed = [change]
        case .any: allowed.append(change)
        }
      }
      #expect(
        allowed.contains(value), "\(comment): \(name), \(value?.count.description ?? "nothing")")
    }
  }

  @Test func eachFailingCallLeavesTheOldOrTheNewState() async throws {
    var count = 0
    for operation in Self.operations { count += try await failEachCall(of: operation) }
    print("proof: faults, secrets: \(count) failing calls")
  }

  private func failEachCall(of operation: Operation) async throws -> Int {
    let template = try Self.makeTemplate(operation.start)
    let isRight = Locked(true)
    // Deriving a key from a passphrase is slow on purpose.
    let isSlow =
      operation.start == .passphrase || operation.start == .presence
      || operation.protections.contains(.passphrase)
    return try await failingEachCall(
      step: isSlow ? 4 : 1,
      { (store: SecureVault.Store, _: Failures) in
        isRight.withLock { $0 = true }
        let outcome = try operation.run(store)
        isRight.withLock { $0 = outcome }
      },
      on: {
        let directory = try TemporaryDirectory(copying: template)
        let failures = Failures()
        let store = Self.store(directory, operation.service, failures)
        try operation.prepare(store)
        return ((store, failures), [directory])
      },
      check: { stage, directory, call in
        let (store, failures) = stage
        let comment: Comment = "\(operation): \(call.comment)"
        if call.failure == nil {
          // Entries that a listing leaves out, or a rotation does not seal again, are reported.
          #expect(isRight.withLock { $0 } || !failures.all.isEmpty, comment)
        }
        #expect(failures.all.allSatisfy { !$0.remedy.isEmpty }, comment)
        #expect(!failures.all.contains { "\($0)".contains(Fault.mark) }, comment)
        // The fault is over when the temporary file is removed, so none is left behind.
        #expect(try directory.temporaries() == [], comment)
        #expect(operation.protections.contains(try Self.store(directory).protection), comment)
        try expectOldOrNew(directory, operation, extent(call), comment)
        // Both the store that failed and a new one work afterwards.
        if call.number % 4 < 2 {
          #expect(try operation.run(store), "\(comment), again")
        } else {
          let next = Self.store(directory, operation.service)
          try operation.prepare(next)
          #expect(try operation.run(next), "\(comment), again")
        }
        try expectOldOrNew(directory, operation, .all, comment)
        #expect(try directory.temporaries() == [], comment)
      })
  }

  @Test func aPartialWriteLeavesTheOldSecret() throws {
    let template = try Self.makeTemplate(.keyFile)
    for value in [Self.new, Self.large] {
      for length in [0, 1, 23, 24, 25, 127, 128, 400] {
        let directory = try TemporaryDirectory(copying: template)
        let store = Self.store(directory)
        let error = #expect(throws: StorageError.self) {
          try withDiskFull(afterBytes: length) { try store.set(value, forKey: "k") }
        }
        #expect(error?.code == .diskFull && error?.key == "k" && error?.operation == "set")
        for reader in [store, Self.store(directory)] {
          #expect(try reader.getData("k") == Self.old && reader.keys() == ["k", "l"])
        }
        #expect(try directory.temporaries() == [])
        // The same for the header and the key file.
        for call in [{ try store.rotateKeys() }, { try store.protect(with: .keyFile) }] {
          let error = #expect(throws: StorageError.self) {
            try withDiskFull(afterBytes: length) { try call() }
          }
          #expect(error?.code == .diskFull)
          #expect(
            try Self.store(directory).getData("k") == Self.old && directory.temporaries() == [])
        }
      }
    }
  }

  @Test func shortWritesAreContinued() throws {
    let plan = FaultPlan(decide: { _ in .proceed }, shorten: { _ in 37 })
    let directory = try TemporaryDirectory()
    try FaultPlan.$current.withValue(plan) {
      let store = Self.store(directory)
      try store.set(Self.new, forKey: "k")
      try store.set(Self.large, forKey: "l")
      try store.rotateKeys()
      try store.protect(with: .keyFile)
    }
    #expect(try Self.store(directory).getData("k") == Self.new)
    #expect(try Self.store(directory).getData("l") == Self.large)
  }

  @Test func synchronizesFilesBeforeTheirNamesAndTheHeaderBeforeDroppingKeys() throws {
    let directory = try TemporaryDirectory()
    let store = Self.store(directory)
    // The key file comes before the header, and the header before a secret.
    let first = try pathsSynchronized { try store.set(Self.old, forKey: "k") }
    let key = first.firstIndex { $0.hasSuffix("/state") }
    let header = first.firstIndex { $0.hasSuffix("/vault") }
    #expect(try #require(key) < #require(header))
    #expect(first.last == FileSystem.parent(of: try directory.secretPath("k")))
    let calls = try systemCalls { try store.set(Self.new, forKey: "k") }
    let sync = calls.firstIndex(of: .fdatasync)
    let rename = calls.firstIndex(of: .rename)
    #expect(try #require(sync) < #require(rename) && calls.last == .fsync)
    let removal = try systemCalls { try store.remove("k") }
    #expect(removal.last == .fsync)
    try store.set(Self.new, forKey: "k")
    let events = Locked<[String]>([])
    let plan = FaultPlan(decide: { event in
      if [.rename, .fdatasync, .fsync].contains(event.call) {
        let name = FileSystem.name(of: event.path)
        events.withLock { $0.append("\(event.call) \(name.count == 32 ? "secret" : name)") }
      }
      return .proceed
    })
    try FaultPlan.$current.withValue(plan) { try store.rotateKeys() }
    let steps = events.withLock { $0 }.filter { !$0.hasPrefix("fdatasync") }
    #expect(
      steps == [
        "rename vault.hdr", "fsync vault", "rename secret", "fsync secret", "rename vault.hdr",
        "fsync vault",
      ])
  }

  private func pathsSynchronized(_ body: () throws -> Void) rethrows -> [String] {
    let paths = Locked<[String]>([])
    let plan = FaultPlan(decide: { event in
      if event.call == .fsync { paths.withLock { $0.append(event.path) } }
      return .proceed
    })
    try FaultPlan.$current.withValue(plan, operation: body)
    return paths.withLock { $0 }
  }

  @Test(arguments: [SystemCall.lockMemory, .adviseMemory])
  func reportsUnshieldedMemoryOnceAndContinues(call: SystemCall) throws {
    let directory = try TemporaryDirectory()
    let failures = Failures()
    let store = directory.secrets(failures: failures)
    // A failure is reported at most once a second; a different code would be reported again.
    for code in [EPERM, ENOMEM, EAGAIN] {
      let plan = FaultPlan(decide: { $0.call == call ? .fail(code) : .proceed })
      try FaultPlan.$current.withValue(plan) {
        try store.set(Self.new, forKey: "k")
        #expect(try store.getData("k") == Self.new)
        try store.rotateKeys()
        try store.lock()
        try store.unlock()
        #expect(try store.keys() == ["k"])
      }
    }
    // Another thread reports it.
    try waitUntil("the failure is reported") { !failures.all.isEmpty }
    #expect(failures.all.count == 1)
    let failure = try #require(failures.all.first)
    #expect(failure.code == .system(EPERM) && failure.operation == "SecureVault." + call.rawValue)
    #expect(failure.remedy.contains("ulimit -l"))
    #expect(failure.description.contains("keys"))
  }

  @Test func throwsWhenMemoryCannotBeAllocated() throws {
    let directory = try TemporaryDirectory(copying: try Self.makeTemplate(.keyFile))
    let plan = FaultPlan(decide: { $0.call == .map ? .fail(ENOMEM) : .proceed })
    let error = #expect(throws: StorageError.self) {
      try FaultPlan.$current.withValue(plan) { try Self.store(directory).getData("k") }
    }
    #expect(error?.code == .system(ENOMEM))
    #expect(try Self.store(directory).getData("k") == Self.old)
  }

  @Test func removesStaleTemporaryFiles() throws {
    let directory = try TemporaryDirectory(copying: try Self.makeTemplate(.keyFile))
    let stale = ["vault/.entry.abc.tmp", "vault/.vault.hdr.abc.tmp"]
    let fresh = ["vault/.entry.def.tmp", "vault/.vault.hdr.def.tmp"]
    let keys = "state/.vault.key.abc.tmp"
    for name in stale + fresh + [keys] { try directory.write([1, 2, 3], to: name) }
    for name in stale {
      let file = try File(directory.file(name).path, .readWrite)
      try file.setTimes(accessed: 0, modified: WallClock.now - 3_600 * WallClock.second)
    }
    // A set removes temporary files of entries; a write of the header removes temporary files of
    // headers.
    try Self.store(directory).set(Self.new, forKey: "k")
    try Self.store(directory).rotateKeys()
    #expect(try directory.temporaries().sorted() == ([keys] + fresh).sorted())
    // Temporary files of the key file contain keys, so they are removed at any age, under the lock.
    try Self.store(directory).protect(with: .keyFile)
    #expect(try directory.temporaries().sorted() == fresh.sorted())
    #expect(try Self.store(directory).getData("k") == Self.new)
  }
}
