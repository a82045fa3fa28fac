import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

extension OneAtATime {
  /// Several processes that use one vault, are killed or stopped, and what is in their memory.
  ///
  /// Serialized, because most of the tests keep all cores busy.
  @Suite(.serialized) struct VaultProcessTests {
    /// Five times the duration of the test that locks and unlocks repeatedly.
    private let seconds = Coverage.count("KEEPSAKE_SECONDS", sample: 1, complete: 10)
    private let kills = Coverage.count("KEEPSAKE_KILLS", sample: 8, complete: 200)
    private let directory: TemporaryDirectory
    private let failures = Failures()

    init() throws { directory = try TemporaryDirectory() }

    // MARK: Several processes

    /// The first processes also protect the vault with a new key.
    @Test(arguments: [0, 3]) func processesThatCreateTheVaultAtOnceAgreeOnOne(protecting: Int)
      throws
    {
      let (count, secrets) = (8, 4)
      for round in 0..<max(3, seconds / 3) {
        // Not on a slow disk, whose syncs the processes wait for in turn.
        let directory = try TemporaryDirectory(isQuick: true)
        let peers = try (0..<count).map {
          try Peer.start(
            directory, "vault-create", "\($0)", "\(secrets)", $0 < protecting ? "protect" : "")
        }
        for peer in peers { try #require(peer.line() == "ready") }
        // Each line takes microseconds, and creating a vault takes milliseconds.
        for peer in peers { try peer.writeLine("begin") }
        for peer in peers {
          let said = peer.finish()
          try #require(said == "" && peer.exitStatus == 0, "round \(round)")
        }

        let failures = Failures()
        let stores = directory.bothServices(failures)
        for key in 0..<(count * secrets) {
          let data = try stores[key % 2].getData(CacheStress.name(key))
          let value = data.flatMap { SelfCheckingValue($0, key: key) }
          try #require(
            value?.number == key % secrets, "round \(round): key \(key) has \(data as Any)")
        }
        #expect(
          try stores.map { try $0.keys().count } == [count * secrets / 2, count * secrets / 2])
        try expectNoStrayFiles(directory)
        let records = try directory.bytes(of: "state/vault.key").dropFirst(6).first
        // One more for the process that created the vault, unless that also protected it.
        #expect((max(1, protecting)...(protecting + 1)).contains(Int(records ?? 0)))
        if protecting == 0 {
          #expect(try directory.vault().currentSession()?.ring.keyIDs.count == 1)
        }
        #expect(failures.all.isEmpty, "\(failures.all)")
      }
    }

    /// The other process creates the vault after the header was found missing, before entries are
    /// listed.
    @Test(arguments: 0..<4) func opensAVaultThatAnotherProcessHasJustCreated(call: Int) throws {
      let vault = directory.vault()
      try interrupt(before: .list) {
        try directory.secrets().set("theirs", forKey: "key1")
      } in: {
        switch call {
        case 0: _ = try vault.read("standard", "key1", reason: nil)
        case 1: try vault.set("own", forKey: "key0")
        case 2: try vault.rotateKeys()
        default: try vault.unlock(passphrase: nil)
        }
      }
      #expect(try directory.secrets().get("key1") == "theirs")
      #expect(try directory.secrets().get("key0") == (call == 1 ? "own" : nil))
      #expect(try vault.keys("standard") == (call == 1 ? ["key0", "key1"] : ["key1"]))
      try expectNoStrayFiles(directory)
    }

    @Test func writersLoseNothingDuringConstantRotation() throws {
      let writerCount = Coverage.count(sample: 4, complete: 16)
      let count = Coverage.count(sample: 200, complete: 500)
      // As above.
      let directory = try TemporaryDirectory(isQuick: true)
      let rotators = try (0..<2).map { _ in try Peer.start(directory, "vault-rotate") }
      for rotator in rotators { #expect(rotator.line() == "ready") }
      let writers = try (0..<writerCount).map {
        try Peer.start(directory, "vault-stress", "\($0)", "\(count)")
      }
      var events: [VaultStress.Event] = []
      for writer in writers {
        for line in writer.finish().split(separator: "\n") {
          events.append(try #require(VaultStress.Event(line), "\(line)"))
        }
        #expect(writer.exitStatus == 0)
      }
      #expect(events.count == 2 * writerCount * count)
      for rotator in rotators {
        let said = rotator.finish().dropLast()
        let rotations = try #require(Int(said), "\(said)")
        #expect(rotations > 3)
      }

      let stores = directory.bothServices(failures)
      try expectNoStrayFiles(directory)
      try stores[0].rotateKeys()
      try expectOneKey(directory.vault())
      for key in 0..<VaultStress.ownKeys(writerCount).lowerBound {
        events.append(try VaultStress.get(key, from: stores[key % 2]))
      }
      expectNoOldValue(events)
      #expect(failures.all.isEmpty, "\(failures.all)")
    }

    // MARK: Exiting processes

    /// Threads are in the vault when the program exits, and so is a handler that runs last.
    ///
    /// - Parameter start: What the program does first.
    @Test(arguments: ["", "after-openssl", "after-scrypt"])
    func aProgramExitsWhileThreadsStoreSecrets(_ start: String) throws {
      for round in 0..<Coverage.count(sample: start.isEmpty ? 40 : 10, complete: 200) {
        let directory = try TemporaryDirectory(isQuick: true)
        let peer = try Peer.start(directory, "vault-exit", "\(round % 5)", start)
        let lines = peer.finish().split(separator: "\n").map(String.init)
        try #require(peer.exitStatus == 0, "round \(round): \(peer.exitStatus), \(lines)")
        #expect(lines.contains("last") && lines.contains("read"), "round \(round): \(lines)")
        let store = directory.secrets()
        if start == "after-scrypt" { try store.unlock(passphrase: "swordfish") }
        for line in lines where line != "read" {
          #expect(try store.get(line) == line, "round \(round)")
        }
      }
    }

    // MARK: Killed processes

    @Test(arguments: [["set", "rotate", "protect"], ["rotate", "rotate", "protect"], ["erase"]])
    func killedWritersLeaveEachSecretOldOrNew(parts: [String]) throws {
      var strays = 0
      // Each protection leaves a key in the key file, which holds a thousand.
      let roundsPerDirectory = 20
      let rounds = max(10, kills / 3 / parts.count)
      for first in stride(from: 0, to: rounds, by: roundsPerDirectory) {
        let directory = try TemporaryDirectory()
        var last = parts.map { _ in 0 }
        var states: [Int: Set<SelfCheckingValue?>] = [:]
        for round in first..<min(rounds, first + roundsPerDirectory) {
          try startAndKill(parts, directory, &last, &states)
          let stores = directory.bothServices(failures)
          let rotatesFirst = round.isMultiple(of: 2)
          if rotatesFirst { try stores[0].rotateKeys() }
          for key in 0..<(parts.count * VaultStep.keyCount) {
            let data = try stores[key % 2].getData(CacheStress.name(key))
            let value = data.flatMap { SelfCheckingValue($0, key: key) }
            let allowed = states[key] ?? [nil]
            try #require((data == nil) == (value == nil), "round \(round): key \(key) is torn")
            try #require(
              allowed.contains(value),
              "round \(round): key \(key) has \(value as Any), not \(allowed)")
            states[key] = [value]
          }
          if !rotatesFirst { try stores[0].rotateKeys() }
          if try directory.vault().currentSession() != nil { try expectOneKey(directory.vault()) }
        }
        strays += try directory.temporaries().count
        // Writes remove temporary files that are ten minutes old.
        for name in try directory.temporaries() { try directory.age(name, seconds: 601) }
        let store = directory.secrets("even", failures: failures)
        try store.set("v", forKey: "after")
        try store.protect(with: .keyFile)
        #expect(try store.get("after") == "v")
        try expectNoStrayFiles(directory)
        #expect(last.allSatisfy { $0 >= 1 }, "steps done: \(last)")
      }
      #expect(failures.all.isEmpty, "\(failures.all)")
      if parts.count > 1, rounds >= roundsPerDirectory {
        #expect(strays > 0, "no writer was killed while it wrote a file")
      }
    }

    /// Starts writers, kills them at a random moment, and updates the values that each key may
    /// have.
    private func startAndKill(
      _ parts: [String], _ directory: TemporaryDirectory, _ last: inout [Int],
      _ states: inout [Int: Set<SelfCheckingValue?>]
    ) throws {
      let peers = try parts.enumerated().map {
        try Peer.start(directory, "vault-acknowledge", $1, "\($0)", "\(last[$0])")
      }
      // The first line shows that a process runs. Then it gets a random time.
      let firsts = peers.map { $0.line() }
      waitForARandomMoment(upTo: .milliseconds(Bool.random() ? 5 : 60))
      for peer in peers {
        kill(peer.identifier, SIGKILL)
        if Bool.random() { waitForARandomMoment(upTo: .milliseconds(5)) }
      }
      for (writer, peer) in peers.enumerated() {
        var done = last[writer]
        for line in ([firsts[writer] ?? ""] + peer.finish().split(separator: "\n").map(String.init))
        {
          if let number = Int(line) {
            done = number
          } else if !line.isEmpty {
            Issue.record("\(line)")
          }
        }
        // The step that was interrupted may have got to any point.
        for number in (last[writer] + 1)..<(done + 2) {
          let step = VaultStep(parts[writer], writer: writer, number: number)
          let key = step.value.key
          switch step.action {
          case .set: states[key] = (number > done ? states[key] ?? [nil] : []).union([step.value])
          case .erase:
            for (key, allowed) in states {
              states[key] = number > done ? allowed.union([nil]) : [nil]
            }
          case .rotate, .protect, .forget, .recover: break
          }
        }
        last[writer] = done
      }
    }

    // MARK: Stopped processes

    @Test func writersTimeOutAndReadersContinueWhileAStoppedProcessHoldsTheLock() throws {
      let writer = directory.secrets(failures: failures)
      for index in 0..<10 { try writer.set("value \(index)", forKey: "key\(index)") }
      let rotator = try Peer.start(directory, "vault-rotate")
      #expect(rotator.line() == "ready")
      var isHeld = false
      let end = ContinuousClock.now + .seconds(600)
      while !isHeld, ContinuousClock.now < end {
        waitForARandomMoment(upTo: .milliseconds(10))
        kill(rotator.identifier, SIGSTOP)
        var information = siginfo_t()
        waitid(P_PID, id_t(rotator.identifier), &information, WSTOPPED | WEXITED | WNOWAIT)
        isHeld = try wholeLockIsHeld(directory)
        if !isHeld { kill(rotator.identifier, SIGCONT) }
      }
      try #require(isHeld)

      // One vault was opened before, the other one is opened now.
      let timeout = Duration.milliseconds(100)
      let vaults = [directory.vault(timeout: timeout), directory.vault(timeout: timeout)]
      #expect(try vaults[0].read("standard", "key0", reason: nil) != nil)
      for vault in vaults {
        let calls: [(String, () throws -> Void)] = [
          ("set", { try vault.set("late", forKey: "key0") }),
          ("remove", { try vault.remove("standard", "key1") }), ("rotate", vault.rotateKeys),
          ("protect", { try vault.protect(with: .closure("c") { Data(count: 32) }) }),
          ("eraseVault", vault.erase),
        ]
        for (name, call) in calls {
          var failure: StorageError?
          let calls = systemCalls { failure = expectFailure(.timedOut) { try call() } }
          // It gives up after the vault's time-out, and has tried again before.
          #expect(failure?.description.contains("more than \(timeout)") == true, "\(name)")
          #expect(calls.count { $0 == .lock } > 1, "\(name)")
        }
        #expect(try vault.keys("standard").count == 10)
      }
      for index in 0..<10 {
        #expect(try directory.secrets().get("key\(index)") == "value \(index)")
      }

      kill(rotator.identifier, SIGCONT)
      try writer.set("new", forKey: "key0")
      #expect((Int(rotator.finish().dropLast()) ?? 0) > 0)
      #expect(try directory.secrets().get("key0") == "new")
      #expect(failures.all.isEmpty, "\(failures.all)")
    }

    // MARK: Locking

    @Test func nothingIsReadOrWrittenBetweenLockAndUnlock() async throws {
      let vault = directory.vault(failures: failures)
      try vault.set("0", forKey: "key0")
      let end = ContinuousClock.now + .milliseconds(seconds * 200)
      // Odd from just before lock() returns until just before it is unlocked.
      let phase = Locked(0)
      let isOver = Locked(false)
      let tallies = Locked([0, 0])
      let faults = Locked<[String]>([])
      // The fifth thread makes the others reload the header all the time.
      let threads = (0..<5).map { number in
        startThread {
          while !isOver.withLock({ $0 }) {
            let before = phase.withLock { $0 }
            do throws(StorageError) {
              if number == 4 {
                try vault.rotateKeys()
              } else if number.isMultiple(of: 2) {
                try vault.set("value", forKey: "key\(number)")
              } else {
                let count = try vault.read("standard", "key0", reason: nil)?.range.count ?? 0
                if count == 0 { faults.withLock { $0.append("lost") } }
              }
              tallies.withLock { $0[0] += 1 }
              let isWrong = before % 2 == 1 && phase.withLock { $0 } == before
              if isWrong { faults.withLock { $0.append("used while it was locked") } }
            } catch {
              tallies.withLock { $0[1] += 1 }
              if error.code != .locked { faults.withLock { $0.append("\(error)") } }
            }
          }
        }
      }
      // A busy machine needs longer for enough calls that find it unlocked, and locked.
      let isEnough = { tallies.withLock { $0.allSatisfy { $0 > 20 } } }
      while ContinuousClock.now < end
        || !isEnough() && ContinuousClock.now < end + .seconds(300)
      {
        waitForARandomMoment(upTo: .milliseconds(20))
        weak let session = try vault.session()
        try vault.lock()
        phase.withLock { $0 += 1 }
        #expect(session == nil, "its keys are still in memory")
        #expect(try vault.isLocked())
        waitForARandomMoment(upTo: .milliseconds(20))
        #expect(throws: StorageError.self) { _ = try vault.read("standard", "key0", reason: nil) }
        phase.withLock { $0 += 1 }
        try vault.unlock(passphrase: nil)
        #expect(try vault.read("standard", "key0", reason: nil) != nil)
      }
      isOver.withLock { $0 = true }
      for thread in threads { thread.wait() }
      #expect(faults.withLock { Array($0.prefix(5)) } == [])
      #expect(isEnough(), "\(tallies.withLock { $0 })")
      #expect(failures.all.isEmpty, "\(failures.all)")
    }

    @Test func lockWinsOverAConcurrentOpening() throws {
      let key = Data((0..<32).map { UInt8($0) })
      try directory.vault().protect(with: .closure("server") { key })
      try directory.secrets(keySources: [.closure("server") { key }]).set("v", forKey: "key0")

      let (isAsked, mayAnswer) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
      let slow = SecureVault.KeySource.closure("server") {
        isAsked.signal()
        mayAnswer.wait()
        return key
      }
      for number in 0..<3 {
        let vault = directory.vault([slow])
        let code = Locked<StorageError.Code?>(nil)
        let hasEnded = startThread {
          do throws(StorageError) {
            switch number {
            case 0: _ = try vault.read("standard", "key0", reason: nil)
            case 1: try vault.unlock(passphrase: nil)
            default: try vault.rotateKeys()
            }
          } catch {
            code.withLock { $0 = error.code }
          }
        }
        isAsked.wait()
        try vault.lock()
        mayAnswer.signal()
        hasEnded.wait()
        #expect(code.withLock { $0 } == .locked, "call \(number)")
        #expect(try vault.isLocked(), "call \(number)")
        #expect(throws: StorageError.self, "call \(number)") { _ = try vault.session() }
        mayAnswer.signal()
        try vault.unlock(passphrase: nil)
        isAsked.wait()
        #expect(try vault.read("standard", "key0", reason: nil) != nil, "call \(number)")
      }
    }

    // MARK: Memory

    private static let passphrases = ["correct-horse-battery", "staple-of-another-kind"]
    private static let logN = QuickPassphrases.logN

    /// The thread sanitizer maps terabytes of memory, which cannot be scanned.
    private static let canBeScanned = dlsym(nil, "__tsan_init") == nil

    @Test(.enabled(if: canBeScanned)) func keysAreOnlyInTheirPageAndNowhereAfterLock() throws {
      let peer = try Peer.start(directory, "vault-serve")
      var ever = KnownKeys()
      func scan(isOpen: Bool, _ after: String, passphrase: String? = nil) throws {
        let now = try KnownKeys(of: directory, passphrase: passphrase)
        ever.formUnion(now)
        try ever.expect(inMemory: isOpen ? now.held : [], of: peer, after)
      }
      func ask(_ request: String, _ answer: String = "ok") throws {
        let answered = try peer.ask(request)
        #expect(answered == answer, "to \(request)")
      }
      try ask("set a first")
      try scan(isOpen: true, "the first set")
      try ask("lock")
      try scan(isOpen: false, "the first set and lock")
      try ask("get a", "locked")
      try scan(isOpen: false, "a get while it was locked")
      try ask("unlock")
      try ask("get a", "first")
      try ask("set b second")
      try ask("get b", "second")
      try scan(isOpen: true, "unlock")
      for _ in 0..<3 {
        try ask("rotate")
        try scan(isOpen: true, "a rotation")
      }
      try ask("lock")
      try scan(isOpen: false, "rotations and lock")
      try ask("unlock")
      try ask("protect")
      try scan(isOpen: true, "a new key file's key")
      try ask("lock")
      try scan(isOpen: false, "a new key file's key and lock")
      try ask("unlock")
      let (first, second) = (Self.passphrases[0], Self.passphrases[1])
      try ask("protect \(first) \(Self.logN)")
      try scan(isOpen: true, "a passphrase", passphrase: first)
      try ask("lock")
      try scan(isOpen: false, "a passphrase and lock", passphrase: first)
      try ask("unlock not-the-passphrase", "wrong passphrase")
      try ask("get a", "locked")
      try scan(isOpen: false, "a wrong passphrase", passphrase: first)
      try ask("unlock \(first)")
      try ask("get a", "first")
      try ask("rotate")
      try scan(isOpen: true, "the right passphrase", passphrase: first)
      try ask("protect \(second) \(Self.logN)")
      try ask("lock")
      try scan(isOpen: false, "another passphrase and lock", passphrase: second)
      try ask("unlock \(second)")
      try ask("recovery third")
      try scan(isOpen: true, "a recovery passphrase", passphrase: second)
      try ask("lock")
      try scan(isOpen: false, "a recovery passphrase and lock", passphrase: second)
      #expect(ever.list.filter { $0.name == "entry" }.count == 8)
      #expect(peer.finish() == "" && peer.exitStatus == 0)
    }

    /// A second process opens the vault without a passphrase until one of them calls `lock()`.
    @Test(.enabled(if: Keyring.isAvailable), arguments: [nil, PermissionTests.otherUser])
    func theNextProcessOpensAVaultThatIsRemembered(user: String?) throws {
      if user != nil, getuid() != 0 { return }
      try #require(chmod(directory.path, 0o777) == 0)
      func start() throws -> Child {
        let peer = try Peer.start(directory, "vault-serve")
        if let user { #expect(try peer.ask("become \(user)") == "ok") }
        return peer
      }
      let passphrase = Self.passphrases[0]
      let first = try start()
      #expect(try first.ask("protect \(passphrase) \(Self.logN)") == "ok")
      #expect(try first.ask("set a value") == "ok")
      #expect(try first.ask("lock") == "ok")
      #expect(try start().ask("get a") == "locked")
      #expect(try first.ask("remember \(passphrase) 60") == "ok")
      let second = try start()
      #expect(try second.ask("get a") == "value")
      if Self.canBeScanned, user == nil {
        let keys = try KnownKeys(of: directory, passphrase: passphrase)
        // The positive control: both processes hold the keys, in their page alone.
        for peer in [first, second] {
          try keys.expect(inMemory: keys.held, of: peer, "remembered")
        }
        for peer in [second, first] {
          #expect(try peer.ask("lock") == "ok")
          try keys.expect(inMemory: [], of: peer, "remembered and lock")
        }
      } else {
        #expect(try second.ask("lock") == "ok")
      }
      #expect(try start().ask("get a") == "locked")
      #expect(first.finish() == "" && second.finish() == "")
    }

    /// Starts a process that has stored a secret.
    private func startWithOpenVault(_ passphrase: String?) throws -> (Child, KnownKeys) {
      let peer = try Peer.start(directory, "vault-serve")
      #expect(try peer.ask("set a value") == "ok")
      if let passphrase { #expect(try peer.ask("protect \(passphrase) \(Self.logN)") == "ok") }
      return (peer, try KnownKeys(of: directory, passphrase: passphrase))
    }

    @Test(.enabled(if: canBeScanned), arguments: [nil, passphrases[0]])
    func aForkedChildHasNoneOfItsParentsKeys(passphrase: String?) throws {
      let (peer, keys) = try startWithOpenVault(passphrase)
      try keys.expect(inMemory: [], of: peer, by: "fork-scan", "fork")
      #expect(try peer.ask("fork-get a") == (passphrase == nil ? "value" : "locked"))
      // The parent still has its keys.
      #expect(try peer.ask("get a") == "value")
      try keys.expect(inMemory: keys.held, of: peer, "fork, in the parent")
      #expect(peer.finish() == "" && peer.exitStatus == 0)
    }

    @Test func aForkedChildDoesNotUseItsParentsNonces() throws {
      let peer = try Peer.start(directory, "vault-serve")
      #expect(try peer.ask("set a value") == "ok")
      #expect(try peer.ask("fork-set b value") == "ok")
      #expect(try peer.ask("set c value") == "ok")
      #expect(peer.finish() == "" && peer.exitStatus == 0)
      let nonces = try ["a", "b", "c"].flatMap {
        try EntryHeader.nonces(in: directory.secretPath($0))
      }
      #expect(Set(nonces).count == 6)
    }

    /// Whether a core dump is written to the working directory of the process.
    private static let dumpsArePlainFiles: Bool = {
      let pattern = MemoryScan.text("/proc/sys/kernel/core_pattern").dropLast()
      var limit = rlimit()
      getrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &limit)
      return !pattern.isEmpty && !pattern.contains { $0 == "/" || $0 == "|" }
        && limit.rlim_max == .max
    }()

    @Test(.enabled(if: canBeScanned && dumpsArePlainFiles), arguments: [nil, passphrases[0]])
    func aCoreDumpOfAnOpenVaultHasNoKeys(passphrase: String?) throws {
      let (peer, keys) = try startWithOpenVault(passphrase)
      try keys.expect(inMemory: keys.held, of: peer, "set")
      let dumps = directory.path + "/dump"
      try FileManager.default.createDirectory(atPath: dumps, withIntermediateDirectories: false)
      try peer.writeLine("abort \(dumps)")
      #expect(peer.exitStatus & 0x7F == SIGABRT)
      let dump = try #require(try FileManager.default.contentsOfDirectory(atPath: dumps).first)
      let bytes = try Data(contentsOf: URL(filePath: dumps + "/" + dump))
      func has(_ needle: [UInt8]) -> Bool {
        bytes.withUnsafeBytes { bytes in needle.withBytes { MemoryScan.contains($0, in: bytes) } }
      }
      #expect(has((0..<64).map { UInt8(255 - $0) }), "the dump does not contain all memory")
      for part in keys.parts {
        #expect(!has(part.bytes), "part \(part.number) of \(part.entry.name)")
      }
    }
  }
}

// MARK: - Keys

/// The keys, computed from the files, that may be in no memory but the shielded pages.
private struct KnownKeys {
  struct Entry: Hashable {
    let name: String
    let bytes: [UInt8]
  }

  private(set) var list: [Entry] = []
  /// The keys that an open vault holds.
  private(set) var held: Set<Entry> = []

  init() {}

  init(of directory: TemporaryDirectory, passphrase: String? = nil) throws {
    let vault = directory.vault()
    if let passphrase { try vault.unlock(passphrase: passphrase) }
    let session = try #require(try vault.currentSession())
    let (ring, vaultID) = (session.ring, session.header.vaultID)
    let master = ring.withMasterKey { Array($0) }
    let names = ring.withNameKey { Array($0) }
    hold("master", master)
    hold("names", names)
    for id in ring.keyIDs { hold("entry", try #require(ring.withEntryKey(id) { Array($0) })) }

    // The padded keys that HMAC computes.
    for pad in [0x36, 0x5C] as [UInt8] { add("names in HMAC", names.map { $0 ^ pad }) }
    try addHKDF("key set", master, vaultID, "Keepsake vault 1 key set", 32)

    // The keys of the boxes of one entry, each of which is derived for one message.
    for path in try session.storage.allEntries().prefix(1) {
      let id = try EntryHeader(Bytes.read(path.path)).keyID
      let key = try #require(ring.withEntryKey(id) { Array($0) })
      for nonce in try EntryHeader.nonces(in: path.path) {
        add("message", XAES.messageKey(key, nonce))
      }
    }

    let slot = try #require(session.header.masterSlot)
    let salt = Array(slot.bytes[(4 + slot.locator.count)...].prefix(32))
    if let passphrase {
      let derived = try KeyDerivation.scrypt(passphrase, salt: salt, logN: slot.logN)
      // The other half is in the header.
      add("scrypt", Array(derived.prefix(32)))
      return
    }
    let file = try directory.bytes(of: "state/vault.key").dropFirst(8).dropLast(32)
    for start in stride(from: file.startIndex, to: file.endIndex, by: 48) {
      let key = Array(file[(start + 16)..<(start + 48)])
      add("key file", key)
      guard Array(file[start..<(start + 16)]) == slot.locator else { continue }
      try addHKDF("slot", key, salt, "Keepsake vault 1 slot: key file", 64)
    }
  }

  private mutating func addHKDF(
    _ name: String, _ secret: [UInt8], _ salt: [UInt8], _ info: String, _ count: Int
  ) throws {
    add("\(name), extracted", try Digest.hmac(key: salt, secret))
    let derived = try KeyDerivation.hkdf(
      secret, salt: salt, info: Array(info.utf8), count: count)
    add(name, Array(derived.prefix(32)))
  }

  private mutating func add(_ name: String, _ bytes: [UInt8]) {
    let entry = Entry(name: name, bytes: bytes)
    if !list.contains(entry) { list.append(entry) }
  }

  private mutating func hold(_ name: String, _ bytes: [UInt8]) {
    add(name, bytes)
    held.insert(Entry(name: name, bytes: bytes))
  }

  mutating func formUnion(_ other: Self) {
    for entry in other.list { add(entry.name, entry.bytes) }
    held.formUnion(other.held)
  }

  /// Keys are searched in parts, because freed memory may keep only a part of one.
  private static let partSize = 8

  var parts: [(entry: Entry, number: Int, bytes: [UInt8])] {
    list.flatMap { entry in
      (0..<(entry.bytes.count / Self.partSize)).map { number in
        let start = number * Self.partSize
        return (entry, number, Array(entry.bytes[start..<(start + Self.partSize)]))
      }
    }
  }

  /// All parts, masked, so that handing them to the other process does not put keys into its
  /// memory.
  var masked: String {
    parts.map { part in
      part.bytes.map { String(format: "%02x", $0 ^ MemoryScan.mask) }.joined()
    }.joined(separator: " ")
  }

  /// Expects these keys in shielded pages, and no part of any key anywhere else.
  func expect(
    inMemory expected: Set<Entry>, of peer: Child, by request: String = "scan", _ after: String,
    sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let said = try #require(try peer.ask("\(request) \(masked)"), sourceLocation: sourceLocation)
    let words = said.split(separator: " ")
    try #require(words.first == "scanned", "\(said)", sourceLocation: sourceLocation)
    #expect(Int(words[1]) ?? 0 > 4 << 20, "after \(after)", sourceLocation: sourceLocation)
    var found: Set<Entry> = []
    for word in words.dropFirst(2) {
      let fields = word.split(separator: ":", omittingEmptySubsequences: false)
      let (entry, number, _) = parts[try #require(Int(fields[0]))]
      #expect(
        fields[1] == "lo+dd+wf",
        "after \(after): part \(number) of \(entry.name) is in \(fields[2])",
        sourceLocation: sourceLocation)
      found.insert(entry)
    }
    #expect(
      found.subtracting(expected).map(\.name) == [], "after \(after)",
      sourceLocation: sourceLocation)
    #expect(
      expected.subtracting(found).map(\.name) == [], "after \(after)",
      sourceLocation: sourceLocation)
  }
}

// MARK: - Helpers

extension TemporaryDirectory {
  /// The service of the even keys, then the service of the odd ones.
  fileprivate func bothServices(_ failures: Failures) -> [SecureVault.Store] {
    [0, 1].map { secrets(VaultStress.service($0), failures: failures) }
  }
}

/// Whether a process holds the exclusive lock of a vault.
private func wholeLockIsHeld(_ directory: TemporaryDirectory) throws -> Bool {
  let descriptor = open(directory.path + "/vault/.lock", O_RDWR | O_CLOEXEC)
  try #require(descriptor >= 0)
  defer { close(descriptor) }
  var lock = flock()
  lock.l_type = Int16(F_WRLCK)
  lock.l_whence = Int16(SEEK_SET)
  lock.l_len = off_t(ByteRangeLock.allBytes.upperBound)
  // F_OFD_GETLK, which Glibc's module lacks.
  try #require(fcntl(descriptor, 36, &lock) == 0)
  return lock.l_type != Int16(F_UNLCK) && lock.l_len == off_t(ByteRangeLock.allBytes.upperBound)
}

/// Expects nothing but a header, a lock file, secrets and a key file.
private func expectNoStrayFiles(
  _ directory: TemporaryDirectory, sourceLocation: SourceLocation = #_sourceLocation
) throws {
  let root = directory.path + "/vault"
  for name in try FileSystem.list(root) where name != "vault.hdr" && name != ".lock" {
    try #require(EntryPath.isName(name), "\(name)", sourceLocation: sourceLocation)
    let strays = try FileSystem.list(root + "/" + name).filter { !EntryPath.isName($0) }
    try #require(strays == [], sourceLocation: sourceLocation)
  }
  let state = try FileSystem.list(directory.path + "/state").sorted()
  try #require(state == [".vault.key.lock", "vault.key"], sourceLocation: sourceLocation)
  let top = Set(try directory.names()).subtracting(["vault", "state"])
  try #require(top == [], sourceLocation: sourceLocation)
}

/// Expects all secrets to be sealed under one key, which is the only one in the header.
private func expectOneKey(
  _ vault: Vault, sourceLocation: SourceLocation = #_sourceLocation
) throws {
  let session = try #require(try vault.currentSession(), sourceLocation: sourceLocation)
  #expect(session.ring.keyIDs == [session.ring.primaryID], sourceLocation: sourceLocation)
  for path in try vault.storage.allEntries() {
    let id = try vault.storage.keyID(of: path)
    #expect(id == session.ring.primaryID, sourceLocation: sourceLocation)
  }
}

/// Expects each get to have returned the value that was set last.
private func expectNoOldValue(_ events: [VaultStress.Event]) {
  let calls = events.map {
    RegisterCall(
      key: $0.key, isWrite: $0.kind == .set, value: $0.writer << 32 | $0.number,
      began: UInt64($0.start), ended: UInt64($0.end))
  }
  for (_, calls) in Dictionary(grouping: calls, by: \.key) {
    let violation = LinearizabilityCheck.violation(in: calls)
    #expect(violation == nil, "\(violation?.description ?? "")")
  }
}
