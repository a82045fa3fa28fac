import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Files of secrets get new names with a new master key.
@Suite(.singleThreaded, .quickPassphrases) struct NameKeyTests {
  private let directory: TemporaryDirectory
  private let services = ["standard", "second"]

  init() throws { directory = try TemporaryDirectory(isQuick: true) }

  private func store(_ failures: Failures = Failures()) -> SecureVault.Store {
    directory.secrets(failures: failures, authenticate: { _ in "1234" })
  }

  private func makeSecrets() throws {
    try store().set("1", forKey: "a")
    try store().set("2", forKey: "b")
    try store().set("4711", forKey: "pin", access: .userPresence)
    try directory.secrets("second").set("3", forKey: "a")
  }

  private func expectSecrets(sourceLocation: SourceLocation = #_sourceLocation) throws {
    let (failures, location) = (Failures(), sourceLocation)
    let first = store(failures)
    let second = directory.secrets("second", failures: failures)
    #expect(try first.get("a") == "1" && first.get("b") == "2", sourceLocation: location)
    #expect(try first.get("pin") == "4711", sourceLocation: location)
    #expect(try second.get("a") == "3" && second.get("b") == nil, sourceLocation: location)
    #expect(try first.keys() == ["a", "b", "pin"], sourceLocation: location)
    #expect(try second.keys() == ["a"], sourceLocation: location)
    #expect(try first.services() == ["second", .standard], sourceLocation: location)
    #expect(try first.contains("a") && !first.contains("c"), sourceLocation: location)
    #expect(try first.entry("pin")?.access == .userPresence, sourceLocation: location)
    #expect(failures.all.isEmpty, sourceLocation: location)
  }

  /// Names in the vault's directory.
  private func names() throws -> [String] {
    try directory.contents().keys.filter { $0.hasPrefix("vault/") }.sorted()
  }

  private func nameKeyCount() throws -> Int { try directory.openVault().ring.nameKeyCount }

  /// Expects that nothing has a name under these keys.
  private func expectNoNames(
    of ring: KeyRing, sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let names = try names()
    for service in services {
      let directoryName = try ring.directoryName(service)
      #expect(!names.contains { $0.contains(directoryName) }, sourceLocation: sourceLocation)
      for key in ["a", "b", "pin"] {
        let fileName = try ring.fileName(service, key)
        #expect(!names.contains { $0.contains(fileName) }, sourceLocation: sourceLocation)
      }
    }
  }

  /// Writes the header that `protect` writes first, and leaves all entries where they are.
  private func startProtecting() throws {
    let vault = directory.vault()
    let session = try #require(try vault.currentSession())
    let ring = try session.ring.addingPrimaryKey(newMasterKey: true)
    let secret = try #require(try vault.storage.keyFile()).newestSecret()
    let slot = try ring.makeSlot(vaultID: session.header.vaultID, for: secret)
    let slots = [slot] + session.header.sealedSlots
    #expect(try vault.replaceHeader(of: session, slots: slots, { ring }) != nil)
  }

  /// Stops `protect` in the middle of moving a secret: the secret is in both places.
  private func protectUntilFirstRemoval() throws {
    let isOver = Locked(false)
    let plan = FaultPlan(decide: { event in
      isOver.withLock { isOver in
        if event.call == .unlink, FileSystem.name(of: event.path).count == 32 { isOver = true }
        return isOver ? .fail(EIO) : .proceed
      }
    })
    let failures = Failures()
    let store = directory.secrets(failures: failures)
    try FaultPlan.$current.withValue(plan) { try store.protect(with: .keyFile) }
    #expect(isOver.withLock { $0 } && !failures.all.isEmpty)
  }

  /// The secret is in place already, and may not be stored again: it was replaced meanwhile.
  @Test func aSecretIsStoredOnceAlthoughItsDirectoryIsGone() throws {
    let (first, other) = (store(), store())
    try first.set("1", forKey: "a")
    let service = FileSystem.parent(of: try directory.secretPath("a"))
    let steps = Locked((isStored: false, isInterrupted: false))
    let plan = FaultPlan(decide: { event in
      if event.call == .rename { steps.withLock { $0.isStored = true } }
      let isNow = steps.withLock { steps in
        guard steps.isStored, !steps.isInterrupted, event.call == .open, event.path == service
        else { return false }
        steps.isInterrupted = true
        return true
      }
      if isNow {
        FaultPlan.$current.withValue(nil) {
          #expect(throws: Never.self) {
            try other.protect(with: .keyFile)
            try other.set("3", forKey: "a")
          }
        }
      }
      return .proceed
    })
    try FaultPlan.$current.withValue(plan) { try first.set("2", forKey: "a") }
    #expect(steps.withLock { $0.isInterrupted })
    #expect(try FileSystem.status(service) == nil)
    #expect(try first.get("a") == "3")
  }

  @Test func protectGivesEveryFileANewName() throws {
    try makeSecrets()
    let closure = SecureVault.KeySource.closure("test") { Data(repeating: 7, count: 32) }
    for source in [.keyFile, closure, .keyFile] {
      let old = try directory.openVault([.keyFile, closure]).ring
      let count = try names().count
      let store = directory.secrets(
        keySources: [.keyFile, closure], authenticate: { _ in "1234" })
      try store.protect(with: source)
      try expectNoNames(of: old)
      #expect(try names().count == count)
    }
    #expect(try nameKeyCount() == 1)
    try expectSecrets()
    let before = try names()
    try store().rotateKeys()
    #expect(try names() == before, "other keys do not change names")
  }

  @Test func everythingIsFoundBeforeItIsMovedAndIsMovedByTheNextCall() throws {
    for call in 0..<4 {
      try makeSecrets()
      let old = try directory.openVault().ring
      for _ in 0...call { try startProtecting() }
      #expect(try nameKeyCount() == call + 2)
      try expectSecrets()
      switch call {
      case 0: try store().rotateKeys()
      case 1: try store().protect(with: .keyFile)
      case 2: try store().forgetOldKeys()
      default:
        try protectUntilFirstRemoval()
        try expectSecrets()
        try store().rotateKeys()
      }
      #expect(try nameKeyCount() == 1, "call \(call)")
      try expectNoNames(of: old)
      try expectSecrets()
      try store().eraseVault()
    }
  }

  /// Each call that changes something, while a secret is under an old name, or is under both.
  @Test(arguments: [true, false]) func changesWhileMoving(isInBothPlaces: Bool) throws {
    for key in ["a", "b"] {
      for call in 0..<4 {
        try makeSecrets()
        let old = try directory.openVault().ring
        if isInBothPlaces { try protectUntilFirstRemoval() } else { try startProtecting() }
        switch call {
        case 0: try store().set("new", forKey: key)
        case 1: #expect(try !store().add("new", forKey: key))
        case 2: try store().remove(key)
        default: try store().removeAll()
        }
        func expectOutcome() throws {
          let other = key == "a" ? "b" : "a"
          let value = call == 0 ? "new" : key == "a" ? "1" : "2"
          #expect(try store().get(key) == (call < 2 ? value : nil), "call \(call)")
          #expect(try store().contains(other) == (call < 3), "call \(call)")
          #expect(try directory.secrets("second").get("a") == "3")
          if call == 2 {
            #expect(try store().add("added", forKey: key))
            try store().remove(key)
          }
        }
        try expectOutcome()
        try store().rotateKeys()
        try expectOutcome()
        #expect(try nameKeyCount() == 1)
        try expectNoNames(of: old)
        try store().eraseVault()
      }
    }
  }

  /// A removal removes a secret once, so it spares what is set once the secret is missing. Here
  /// another process changes the master key and sets it again, whenever a writer may come in.
  @Test(arguments: ["a", nil], [true, false])
  func aRemovalSparesWhatIsSetAfterIt(key: String?, isMoving: Bool) throws {
    try makeSecrets()
    if isMoving {
      try startProtecting()
      // Its directory is there already.
      try store().set("2", forKey: "b")
    }
    let keys = key.map { [$0] } ?? ["a", "b"]
    let isSetAgain = Locked(Set<String>())
    let plan = FaultPlan(decide: { event in
      guard event.call == .lock, event.path.hasSuffix("vault/.lock") else { return .proceed }
      FaultPlan.$current.withValue(nil) {
        #expect(throws: Never.self) {
          for key in keys where !isSetAgain.withLock({ $0.contains(key) }) {
            if try store().contains(key) { continue }
            if !isMoving { try store().protect(with: .keyFile) }
            try store().set("new", forKey: key)
            _ = isSetAgain.withLock { $0.insert(key) }
          }
        }
      }
      return .proceed
    })
    try FaultPlan.$current.withValue(plan) {
      if let key { try store().remove(key) } else { try store().removeAll() }
    }
    for key in keys {
      let isSetAgain = isSetAgain.withLock { $0.contains(key) }
      #expect(try store().get(key) == (isSetAgain ? "new" : nil), "\(key)")
    }
  }

  /// A set keeps the dates and the access of the secret that it replaces.
  @Test func aSecretKeepsItsDatesAndAccess() throws {
    try makeSecrets()
    let created = try #require(try store().entry("pin")).created
    try startProtecting()
    try store().set("new", forKey: "pin")
    let entry = try #require(try store().entry("pin"))
    #expect(entry.created == created && entry.access == .userPresence)
    expectFailure(.wrongPassphrase) {
      _ = try directory.secrets(authenticate: { _ in "4321" }).get("pin")
    }
  }

  /// It is moved after a reader has not found it at its new path.
  @Test(arguments: 0..<4) func aReaderFindsASecretThatIsBeingMoved(call: Int) throws {
    try makeSecrets()
    try startProtecting()
    let reader = directory.vault()
    let session = try #require(try reader.currentSession())
    let mover = try #require(try directory.vault().currentSession())
    let service = call == 3 ? "second" : "standard"
    let older = try #require(try session.olderPaths(service: service, key: "a").first)
    let isMoved = Locked(false)
    let plan = FaultPlan(decide: { event in
      // `keys` and `services` list the directory before, and find nothing in it.
      let isLook = event.path == older.path || event.path == FileSystem.parent(of: older.path)
      guard isLook, !isMoved.withLock({ $0 }) else { return .proceed }
      isMoved.withLock { $0 = true }
      let moved: Void? = FaultPlan.$current.withValue(nil) { try? mover.resealEntry(at: older) }
      #expect(moved != nil)
      return .proceed
    })
    try FaultPlan.$current.withValue(plan) {
      switch call {
      case 0:
        let value = try reader.read("standard", "a", reason: nil)?.range.count
        #expect(value == 1)
      case 1: #expect(try reader.contains("standard", "a"))
      case 2: #expect(try reader.keys("standard") == ["a", "b", "pin"])
      default: #expect(try reader.services() == ["second", "standard"])
      }
    }
    #expect(isMoved.withLock { $0 })
    #expect(!FileManager.default.fileExists(atPath: older.path))
  }

  /// A temporary file is in the directory of its secret, where a killed process leaves it.
  @Test func aTemporaryFileKeepsNoDirectory() throws {
    try makeSecrets()
    let old = try directory.openVault().ring
    try directory.write([1], to: "vault/\(old.directoryName("standard"))/.entry.1f.tmp")
    let failures = Failures()
    try store(failures).protect(with: .keyFile)
    #expect(try failures.all.isEmpty && nameKeyCount() == 1 && directory.temporaries().isEmpty)
    try expectNoNames(of: old)
    try expectSecrets()
  }

  /// Another process removes the directory, and the file that is about to be moved within it.
  @Test func aWriterWhoseDirectoryIsRemovedBeginsAgain() throws {
    let failures = Failures()
    let writer = directory.secrets("second", failures: failures)
    try writer.set("3", forKey: "a")
    try writer.remove("a")
    let old = try directory.openVault().ring
    let directory = directory
    try interruptBeforeLocking {
      #expect(try directory.temporaries().count == 1)
      try directory.secrets(failures: failures).protect(with: .keyFile)
      #expect(try directory.temporaries().isEmpty)
    } in: {
      try writer.set("new", forKey: "a")
    }
    #expect(try directory.secrets("second").get("a") == "new")
    #expect(try failures.all.isEmpty && nameKeyCount() == 1 && directory.temporaries().isEmpty)
    try expectNoNames(of: old)
  }

  @Test func aDamagedSecretKeepsItsOldNameUntilItIsReplacedOrRemoved() throws {
    for call in 0..<4 {
      try makeSecrets()
      let path = try directory.secretPath("a")
      var bytes = try Bytes.read(path)
      bytes[30] ^= 1
      try Bytes.write(bytes, to: path)
      let old = try directory.openVault().ring
      let failures = Failures()
      try store(failures).protect(with: .keyFile)
      #expect(failures.all.map(\.path) == [path])
      expectFailure(.damaged) { _ = try store().get("a") }
      #expect(try store().contains("a") && !store().add("new", forKey: "a"))
      #expect(try store().get("b") == "2" && nameKeyCount() == 2)
      if call == 3 {
        try store().forgetOldKeys()
        expectFailure(.damaged) { _ = try store().get("a") }
      }
      switch call {
      case 0: try store().set("1", forKey: "a")
      case 1, 3: try store().remove("a")
      default: try store().removeAll()
      }
      try store().rotateKeys()
      #expect(try nameKeyCount() == 1)
      try expectNoNames(of: old)
      if call == 0 { try expectSecrets() } else { #expect(try store().get("a") == nil) }
      try store().eraseVault()
    }
  }

  /// In its names or in its value.
  @Test(arguments: [true, false])
  func aDamagedSecretIsKeptUntilTheNewOneIsStored(hasNames: Bool) throws {
    try makeSecrets()
    let path = try directory.secretPath("pin")
    var bytes = try Bytes.read(path)
    bytes[hasNames ? bytes.count - 1 : 30] ^= 1
    try Bytes.write(bytes, to: path)
    try store().protect(with: .keyFile)
    let full = FaultPlan(decide: { $0.call == .fdatasync ? .fail(ENOSPC) : .proceed })
    FaultPlan.$current.withValue(full) {
      expectFailure(.diskFull) { try store().set("new", forKey: "pin") }
    }
    let cancelling = directory.secrets(authenticate: { _ in nil })
    expectFailure(.locked) { try cancelling.set("new", forKey: "pin") }
    #expect(try Bytes.read(path) == bytes)
    try store().set("new", forKey: "pin")
    #expect(try store().entry("pin")?.access == .userPresence && store().get("pin") == "new")
    #expect(try FileSystem.status(path) == nil)
    try store().rotateKeys()
    #expect(try nameKeyCount() == 1 && store().get("pin") == "new")
  }

  /// A directory with a file of the user keeps its name, and the next call removes it.
  @Test func aForeignFileKeepsADirectory() throws {
    try makeSecrets()
    let old = try directory.openVault().ring
    let name = "vault/" + (try old.directoryName("second"))
    try directory.write([1], to: name + "/note.txt")
    let failures = Failures()
    try store(failures).protect(with: .keyFile)
    #expect(failures.all.compactMap(\.path) == [directory.file(name).path])
    #expect(failures.all.map(\.operation) == ["SecureVault.protect"])
    try expectSecrets()
    try FileManager.default.removeItem(at: directory.file(name + "/note.txt"))
    try store().rotateKeys()
    try expectNoNames(of: old)
    #expect(try nameKeyCount() == 1)
  }

  @Test func nothingIsRemovedBehindALink() throws {
    try makeSecrets()
    try directory.makeDirectory("elsewhere")
    try directory.write([1], to: "elsewhere/.entry.1f.tmp")
    let link = "vault/" + String(repeating: "0", count: 32)
    try directory.link(link, to: directory.path + "/elsewhere")
    let failures = Failures()
    try store(failures).protect(with: .keyFile)
    #expect(failures.all.map(\.path) == [directory.path + "/" + link])
    #expect(try directory.temporaries() == ["elsewhere/.entry.1f.tmp"])
    try expectSecrets()
  }

  /// A process that has not heard of the new header leaves no directory with an old name.
  @Test func aLateWriterLeavesNoOldName() throws {
    try makeSecrets()
    let late = store()
    #expect(try late.get("a") == "1")
    let old = try directory.openVault().ring
    try store().protect(with: .keyFile)
    try late.set("9", forKey: "late")
    try late.remove("late")
    try expectNoNames(of: old)
  }
}
