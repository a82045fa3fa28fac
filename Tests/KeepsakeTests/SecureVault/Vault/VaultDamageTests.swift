import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Expects errors, and never a value, from files that were altered, moved or exchanged.
@Suite(.singleThreaded) struct VaultDamageTests {
  private let directory: TemporaryDirectory

  init() throws { directory = try TemporaryDirectory(isQuick: true) }

  /// The error of a call that must not return a value.
  @discardableResult
  private func failure<R>(
    _ comment: Comment, codes: Set<StorageError.Code> = [.damaged],
    _ body: () throws -> R
  ) -> StorageError? {
    let error = #expect(throws: StorageError.self, comment) { try body() }
    if let error {
      #expect(codes.contains(error.code), "\(comment): \(error)")
      #expect(error.path != nil && !error.remedy.isEmpty, "\(comment): \(error)")
    }
    return error
  }

  // MARK: Secrets

  /// The offset of the value box in a secret with short names.
  private static let valueStart = EntryHeader.size + XAES.overhead + 64

  /// Expects an error for the secret `k`, and for no other.
  private func expectDamage(
    _ comment: Comment, at path: String, codes: Set<StorageError.Code> = [.damaged],
    isListed: Bool = false
  ) throws {
    let failures = Failures()
    let store = directory.secrets(failures: failures)
    let error = failure(comment, codes: codes) { try store.get("k") }
    #expect(error?.path == path && error?.key == "k" && error?.operation == "get", comment)
    #expect(try store.get("l") == "other", comment)
    #expect(try directory.secrets("second", failures: failures).get("k") == "third", comment)
    #expect(failures.all.isEmpty, comment)
    #expect(try store.keys() == (isListed ? ["k", "l"] : ["l"]), comment)
    #expect(failures.all.map(\.path) == (isListed ? [] : [path]), comment)
    #expect(failures.all.allSatisfy { codes.contains($0.code) }, comment)
  }

  private func makeSecrets(_ value: Data = Data("tok".utf8)) throws -> String {
    let store = directory.secrets()
    try store.set(value, forKey: "k")
    try store.set("other", forKey: "l")
    try directory.secrets("second").set("third", forKey: "k")
    return try directory.secretPath("k")
  }

  @Test func eachCallThatReadsADamagedSecretThrows() throws {
    let path = try makeSecrets()
    let good = try Bytes.read(path)
    for position in [8, 30, 100, Self.valueStart + 30, good.count - 1] {
      try Bytes.write(good[position] ^ 1, at: position, of: path)
      let store = directory.secrets()
      failure("get") { try store.get("k") }
      failure("getData") { try store.getData("k") }
      failure("model") { try store.model("k", type: [Int].self) }
      failure("typed") { try store.get(SecureVault.Key<String>("k")) }
      failure("withSecret") {
        try store.withSecret("k") { (_: RawSpan) in Issue.record("called with a damaged secret") }
      }
      try Bytes.write(good[position], at: position, of: path)
    }
  }

  @Test func throwsForAShortTagEvenIfTheHeaderMatches() throws {
    for value in [Data("tok".utf8), Data(count: 9_000)] {
      let path = try makeSecrets(value)
      let good = try Bytes.read(path)
      let namesLength = XAES.overhead + 64
      let valueLength = good.count - Self.valueStart
      for missing in 1...XAES.tagSize {
        let shorter = Array(good.dropLast(missing))
        try Bytes.write(Bytes.put(UInt64(valueLength - missing), at: 16, in: shorter), to: path)
        try expectDamage("value's tag without \(missing)", at: path)
        var names = good
        names.removeSubrange((Self.valueStart - missing)..<Self.valueStart)
        try Bytes.write(Bytes.put(UInt32(namesLength - missing), at: 12, in: names), to: path)
        try expectDamage("names' tag without \(missing)", at: path)
      }
      // The tag is whole, but the header counts it to the other box.
      let moved = Bytes.put(UInt32(namesLength - 16), at: 12, in: good)
      try Bytes.write(Bytes.put(UInt64(valueLength + 16), at: 16, in: moved), to: path)
      try expectDamage("boxes divided elsewhere", at: path)
    }
  }

  @Test func throwsForSecretsExchangedBetweenKeysAndServices() throws {
    let secrets = [("standard", "k"), ("standard", "l"), ("second", "k")]
    // The values have the same length, so that only the names differ.
    for (number, (service, key)) in secrets.enumerated() {
      try directory.secrets(SecureVault.Service(service)).set("\(number)", forKey: key)
    }
    let paths = try secrets.map { try directory.secretPath($1, $0) }
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
      #expect(try FileSystem.exchange(paths[a], with: paths[b]))
      for (number, (service, key)) in secrets.enumerated() {
        let reader = directory.secrets(SecureVault.Service(service))
        if number == a || number == b {
          #expect(failure("\(service).\(key)") { try reader.get(key) }?.path == paths[number])
          failure("\(service).\(key)") { try reader.entry(key) }
          #expect(try !reader.keys().contains(key))
        } else {
          #expect(try reader.get(key) == "\(number)" && reader.keys().contains(key))
        }
      }
      #expect(try FileSystem.exchange(paths[a], with: paths[b]))
    }
    // A directory's name determines its service.
    let directories = (FileSystem.parent(of: paths[0]), FileSystem.parent(of: paths[2]))
    #expect(try FileSystem.exchange(directories.0, with: directories.1))
    try FileSystem.rename(directories.0 + "/" + FileSystem.name(of: paths[2]), to: paths[0])
    failure("another service's directory") { try directory.secrets().get("k") }
    failure("another service's directory") { try directory.secrets().entry("k") }
    #expect(try directory.secrets().keys() == [])
  }

  @Test func throwsForSecretsOfAnotherVault() throws {
    let path = try makeSecrets()
    let good = try Bytes.read(path)
    let elsewhere = try TemporaryDirectory()
    try elsewhere.secrets().set("planted", forKey: "k")
    var planted = try Bytes.read(try elsewhere.secretPath("k"))
    try Bytes.write(planted, to: path)
    try expectDamage("unchanged", at: path)
    planted = Bytes.put(try directory.openVault().ring.primaryID, at: 8, in: planted)
    try Bytes.write(planted, to: path)
    try expectDamage("with this vault's key id", at: path)
    try Bytes.write(good, to: path)
    #expect(try directory.secrets().getData("k") == Data("tok".utf8))
  }

  /// Only the vault's id differs: keys and names are the same.
  @Test func aSecretIsBoundToItsVaultsID() throws {
    let path = try makeSecrets()
    let session = try directory.openVault()
    let entry = try session.entryPath(service: "standard", key: "k")
    #expect(entry.path == path)
    var header = session.header
    header.vaultID[0] ^= 1
    let other = VaultSession(header: header, storage: session.storage, ring: session.ring)
    for part in [EntryPart.names, .value, .all] {
      failure("\(part)") {
        if try other.readEntry(at: entry, part)?.header == nil { Issue.record("not found") }
      }
      #expect(try session.readEntry(at: entry, part)?.header != nil)
    }
  }

  @Test func throwsWhenASecretsFileIsNotAFile() throws {
    let path = try makeSecrets()
    let good = try Bytes.read(path)
    let other = try directory.secretPath("l")
    let untouched = try Bytes.read(other)

    try FileSystem.unlink(path)
    try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: other)
    try expectDamage("a link to another secret", at: path)
    try directory.secrets().set("new", forKey: "k")
    #expect(try directory.secrets().get("k") == "new")
    #expect(try Bytes.read(other) == untouched, "a set replaces the link and not its target")

    try FileSystem.unlink(path)
    try #require(mkfifo(path, 0o600) == 0)
    failure("a pipe", codes: [.damaged, .system(ESPIPE)]) { try directory.secrets().get("k") }

    try FileSystem.unlink(path)
    try FileManager.default.createDirectory(
      atPath: path + "/inner", withIntermediateDirectories: true)
    try expectDamage("a directory", at: path, codes: [.system(EISDIR)])
    let store = directory.secrets()
    failure("set over a directory", codes: [.system(EISDIR)]) { try store.set("new", forKey: "k") }
    failure("remove a directory", codes: [.system(EISDIR)]) { try store.remove("k") }
    failure("rotate", codes: [.system(EISDIR)]) { try store.rotateKeys() }
    #expect(try FileSystem.status(path + "/inner") != nil && directory.temporaries() == [])
    #expect(try store.get("l") == "other")

    try FileSystem.removeTree(path)
    try File(path, .create).writeAll(good)
    #expect(try directory.secrets().getData("k") == Data("tok".utf8))
  }

  @Test func throwsForWrongLengthsInASecretsHeader() throws {
    for value in [Data("tok".utf8), Data(count: 9_000)] {
      let path = try makeSecrets(value)
      let good = try Bytes.read(path)
      for names: UInt32 in [0, 1, 39, 40, 103, 105, 4_096, 132_096, 132_097, 1 << 31, .max] {
        try Bytes.write(Bytes.put(names, at: 12, in: good), to: path)
        try expectDamage("\(names) bytes of names", at: path)
      }
      let values: [UInt64] = [
        0, 1, 55, 56, 295, 297, 1 << 32, 1 << 36, 1 << 36 - 32, 1 << 63 - 1, 1 << 63, .max,
        UInt64(good.count), .max - UInt64(Self.valueStart) + 1,
      ]
      for length in values {
        try Bytes.write(Bytes.put(length, at: 16, in: good), to: path)
        try expectDamage("\(length) bytes of value", at: path)
      }
      try Bytes.write(Bytes.put(UInt16(2), at: 6, in: good), to: path)
      try expectDamage("an unknown flag", at: path)
      try Bytes.write(Bytes.put(UInt16(1), at: 6, in: good), to: path)
      try expectDamage("presence is required", at: path)
    }
  }

  @Test func damagedSecretsCanBeReplacedAndRemoved() throws {
    let path = try makeSecrets()
    let good = try Bytes.read(path)
    for position in [0, 30, Self.valueStart + 30] {
      try Bytes.write(good[position] ^ 1, at: position, of: path)
      let store = directory.secrets()
      #expect(try store.contains("k"))
      try store.set(Data("tok".utf8), forKey: "k")
      #expect(try directory.secrets().getData("k") == Data("tok".utf8))
      try Bytes.write(good[position] ^ 1, at: position, of: path)
      try store.remove("k")
      #expect(try !store.contains("k") && store.getData("k") == nil)
      try store.set(Data("tok".utf8), forKey: "k")
    }
  }

  @Test func rotationSkipsDamagedSecretsAndKeepsTheirKeys() throws {
    let path = try makeSecrets()
    for position in [0, 9, 30, Self.valueStart + 30] {
      let good = try Bytes.read(path)
      let bad = good[position] ^ 1
      try Bytes.write(bad, at: position, of: path)
      let damaged = try Bytes.read(path)
      let before = try Bytes.read(try directory.secretPath("l"))
      let error = failure("byte \(position)") { try directory.secrets().rotateKeys() }
      #expect(error?.path == path)
      #expect(try Bytes.read(path) == damaged, "left unchanged")
      #expect(try Bytes.read(try directory.secretPath("l")) != before, "all others are done")
      #expect(try directory.secrets().get("l") == "other")
      #expect(try directory.openVault().ring.keyIDs.count > 1)
      // So the secret can still be restored.
      try Bytes.write(good, to: path)
      #expect(try directory.secrets().getData("k") == Data("tok".utf8))
      try directory.secrets().rotateKeys()
      #expect(try directory.openVault().ring.keyIDs.count == 1)
      #expect(try directory.secrets().getData("k") == Data("tok".utf8))
    }
  }

  /// All headers are read to find out whether the presence key is in use.
  @Test func aDamagedSecretDoesNotBlockSecretsThatRequirePresence() throws {
    func store(_ failures: Failures = Failures()) -> SecureVault.Store {
      directory.secrets(
        failures: failures, keySources: [Self.quick], authenticate: { _ in "correct horse" })
    }
    for key in ["damaged", "l"] { try store().set("value of \(key)", forKey: key) }
    let path = try directory.secretPath("damaged", "standard", [Self.quick])
    for position in [0, 4] {
      let good = try Bytes.read(path)
      try Bytes.write(good[position] ^ 0xFE, at: position, of: path)
      // The first one makes the key, the second one uses it.
      for key in ["k", "m"] {
        try store().set("value of \(key)", forKey: key, access: .userPresence)
      }
      let failures = Failures()
      try store(failures).protect(with: Self.quick)
      #expect(failures.all.map(\.path) == [path], "reported, but not thrown")
      for key in ["k", "l", "m"] { #expect(try store().get(key) == "value of \(key)") }
      // Only the damaged secret may still need the key, which is therefore kept.
      for key in ["k", "m"] { try store().remove(key) }
      try store().protect(with: Self.quick)
      #expect(try directory.openVault([Self.quick]).header.presenceSlot != nil)
      try Bytes.write(good[position], at: position, of: path)
      #expect(try store().get("damaged") == "value of damaged")
    }
  }

  @Test func leavesASecretUnderAnUnknownKeyUnchanged() throws {
    let store = directory.secrets()
    for key in ["k", "l", "m"] { try store.set("value of \(key)", forKey: key) }
    let names = ["l", "m"]
    let oldHeader = try Bytes.read(directory.headerPath)
    let oldFiles = try names.map { try Bytes.read(try directory.secretPath($0)) }
    try store.rotateKeys()
    // The header and two of the three secrets are restored from a backup.
    let path = try directory.secretPath("k")
    for (name, bytes) in zip(names, oldFiles) {
      try Bytes.write(bytes, to: try directory.secretPath(name))
    }
    let newHeader = try Bytes.read(directory.headerPath)
    try Bytes.write(oldHeader, to: directory.headerPath)

    let sealed = try Bytes.read(path)
    let failures = Failures()
    let next = directory.secrets(failures: failures)
    #expect(failure("get") { try next.get("k") }?.path == path)
    failure("entry") { try next.entry("k") }
    let refusal = failure("set") { try next.set("new", forKey: "k") }
    #expect(refusal?.path == path && refusal?.remedy.contains("header") == true)
    #expect(try Bytes.read(path) == sealed)
    #expect(failures.all.isEmpty)
    #expect(try next.keys() == ["l", "m"])
    #expect(failures.all.map(\.path) == [path])
    #expect(try next.contains("k"))

    // Twice, because the second rotation finds keys that the first one kept.
    for _ in 0..<2 {
      let before = try names.map { try Bytes.read(try directory.secretPath($0)) }
      #expect(failure("rotateKeys") { try next.rotateKeys() }?.path == path)
      #expect(try Bytes.read(path) == sealed)
      let primary = try directory.openVault().ring.primaryID
      for (name, old) in zip(names, before) {
        let new = try Bytes.read(try directory.secretPath(name))
        #expect(new != old && Array(new[8..<12]) == Bytes.put(primary, at: 0, in: [0, 0, 0, 0]))
        #expect(try directory.secrets().get(name) == "value of \(name)")
      }
    }
    // With the right header the secret can be read again.
    let rotated = try Bytes.read(directory.headerPath)
    try Bytes.write(newHeader, to: directory.headerPath)
    #expect(try directory.secrets().get("k") == "value of k")
    // Without it, the secret can be removed.
    try Bytes.write(rotated, to: directory.headerPath)
    try directory.secrets().remove("k")
    #expect(try FileSystem.status(path) == nil)
    try directory.secrets().rotateKeys()
    #expect(try directory.openVault().ring.keyIDs.count == 1)
    #expect(try directory.secrets().keys() == names)
  }

  // MARK: The header and the key file

  /// A passphrase source with a low cost.
  private static let quick = SecureVault.KeySource(.passphrase("correct horse", logN: 10))

  private func expectClosed(
    _ comment: Comment, codes: Set<StorageError.Code>, path: String?,
    sources: [SecureVault.KeySource] = [.keyFile]
  ) throws {
    let before = try directory.contents()
    let error = failure(comment, codes: codes) {
      try directory.secrets(keySources: sources).get("k")
    }
    if let path { #expect(error?.path == path, comment) }
    failure(comment, codes: codes) {
      try directory.secrets(keySources: sources).set("new", forKey: "n")
    }
    failure(comment, codes: codes) { try directory.secrets(keySources: sources).keys() }
    #expect(try directory.contents() == before, comment)
  }

  @Test(arguments: [true, false])
  func throwsForAForgedHeaderWithAValidChecksum(isPassphrase: Bool) throws {
    let sources = isPassphrase ? [Self.quick] : [.keyFile]
    try directory.secrets(keySources: sources).set("other", forKey: "l")
    let good = try Bytes.read(directory.headerPath)
    let slot = 24
    for position in good.indices.dropLast(Digest.size) {
      var bad = good
      bad[position] ^= 1
      bad = try Bytes.summed(bad)
      try Bytes.write(bad, to: directory.headerPath)
      let comment: Comment = "byte \(position)"
      var codes: Set<StorageError.Code> = [.damaged]
      // The kind or the purpose of the slot: no key source matches it any more.
      if (slot...(slot + 1)).contains(position) {
        codes.formUnion([.locked, .unsupportedVersion])
      }
      if (4...5).contains(position) { codes = [.unsupportedVersion] }
      // Locator, salt and cost change the derived key, and the commitment is compared with it: the
      // header could belong to another vault.
      if isPassphrase, (slot + 2..<slot + 68).contains(position) { codes.insert(.wrongPassphrase) }
      if !isPassphrase, (slot + 4..<slot + 84).contains(position) { codes = [.locked] }
      try expectClosed(comment, codes: codes, path: nil, sources: sources)
    }
    try Bytes.write(good, to: directory.headerPath)
    #expect(try directory.secrets(keySources: sources).get("l") == "other")
  }

  /// Without one, see `DamageTests`.
  @Test(arguments: [true, false])
  func throwsForAWrongLengthWithAValidChecksum(ofHeader: Bool) throws {
    _ = try makeSecrets()
    let path = ofHeader ? directory.headerPath : directory.keyFilePath
    let good = try Bytes.read(path)
    let shorter = good.indices.dropFirst(Digest.size + 1).map { Array(good[..<$0]) }
    let longer = [1, 32, 48, 70_000, 2 << 20].map { good + [UInt8](repeating: 0, count: $0) }
    for bytes in shorter + longer {
      try Bytes.write(try Bytes.summed(bytes), to: path)
      // The checksum may overlap the version and the cipher suite.
      try expectClosed(
        "\(bytes.count) bytes",
        codes: bytes.count < 38 ? [.damaged, .unsupportedVersion] : [.damaged], path: path)
    }
    try Bytes.write(good, to: path)
    #expect(try directory.secrets().get("l") == "other")
  }

  @Test func throwsForAForgedKeyFileWithAValidChecksum() throws {
    _ = try makeSecrets()
    let good = try Bytes.read(directory.keyFilePath)
    for position in good.indices.dropLast(Digest.size) {
      for mask: UInt8 in [1, 0xFF] {
        var bad = good
        bad[position] ^= mask
        try Bytes.write(try Bytes.summed(bad), to: directory.keyFilePath)
        // An altered key is only noticed when it does not open the header.
        try expectClosed(
          "byte \(position) ^ \(mask)",
          codes: [position == 4 ? .unsupportedVersion : position < 8 ? .damaged : .locked],
          path: position < 24 ? directory.keyFilePath : directory.path + "/vault")
      }
    }
    try Bytes.write(good, to: directory.keyFilePath)
    #expect(try directory.secrets().get("l") == "other")
  }

  @Test func anUnreadableServiceHidesNoOther() throws {
    let failures = Failures()
    try directory.secrets("other").set("v", forKey: "k")
    let store = directory.secrets(failures: failures)
    try store.set("v", forKey: "k")
    let service = FileSystem.parent(of: try directory.secretPath("k"))
    let plan = FaultPlan(decide: {
      $0.call == .list && $0.path == service ? .fail(EACCES) : .proceed
    })
    let services = try FaultPlan.$current.withValue(plan) { try store.services() }
    #expect(services == ["other"])
    #expect(failures.all.map(\.path) == [service])
  }

  @Test func ignoresForeignFiles() throws {
    let store = directory.secrets()
    try store.set("v", forKey: "k")
    let name = String(repeating: "a", count: 32)
    try directory.write([1], to: "vault/" + name)
    try directory.write([1], to: "vault/notes.txt")
    #expect(try store.keys() == ["k"] && store.services() == ["standard"])
    try store.rotateKeys()
    try store.protect(with: Self.quick)
    #expect(try store.get("k") == "v" && directory.bytes(of: "vault/" + name) == [1])
  }

  @Test func createsNoVaultWithADamagedOrRefusedKeyFile() throws {
    _ = try makeSecrets()
    try directory.secrets().eraseVault()
    let good = try Bytes.read(directory.keyFilePath)
    func expectNoVault(_ code: StorageError.Code) throws {
      let before = try directory.contents()
      failure("set", codes: [code]) { try directory.secrets().set("v", forKey: "k") }
      #expect(try directory.contents() == before)
    }
    for bad in [[], Array(good.dropLast()), try Bytes.summed(good + [0])] {
      try Bytes.write(bad, to: directory.keyFilePath)
      try expectNoVault(.damaged)
    }
    try Bytes.write(good, to: directory.keyFilePath)
    try #require(chmod(directory.keyFilePath, 0o644) == 0)
    try expectNoVault(.accessDenied)
    try #require(chmod(directory.keyFilePath, 0o600) == 0)
    try directory.secrets().set("v", forKey: "k")
    #expect(try Bytes.read(directory.keyFilePath) == good, "the key in it is used")
    #expect(try directory.secrets().get("k") == "v")
  }

  // MARK: Missing files

  /// Expects all calls that need the keys to fail, and all files to stay unchanged.
  private func expectAllCallsFail(
    _ comment: Comment, code: StorageError.Code = .damaged, path: String, reason: String = ""
  ) throws {
    let before = try directory.contents()
    let calls: [(String, (SecureVault.Store) throws -> Void)] = [
      ("get", { _ = try $0.get("k") }), ("set", { try $0.set("new", forKey: "k") }),
      ("set new", { try $0.set("new", forKey: "new") }), ("contains", { _ = try $0.contains("k") }),
      ("entry", { _ = try $0.entry("k") }), ("keys", { _ = try $0.keys() }),
      ("services", { _ = try $0.services() }), ("remove", { try $0.remove("k") }),
      ("removeAll", { try $0.removeAll() }), ("rotateKeys", { try $0.rotateKeys() }),
      ("unlock", { try $0.unlock() }), ("protect", { try $0.protect(with: Self.quick) }),
      ("protect with key file", { try $0.protect(with: .keyFile) }),
    ]
    for (name, call) in calls {
      let error = failure("\(comment): \(name)", codes: [code]) { try call(directory.secrets()) }
      #expect(error?.path == path, "\(comment): \(name)")
      #expect(error?.remedy.contains("backup") == true, "\(comment): \(name)")
      if !reason.isEmpty {
        #expect(error?.reason?.contains(reason) == true, "\(comment): \(name)")
      }
      #expect(try directory.contents() == before, "\(comment): \(name)")
    }
  }

  @Test func leavesSecretsUnchangedWhenTheHeaderIsMissing() throws {
    _ = try makeSecrets()
    let good = try Bytes.read(directory.headerPath)
    let open = directory.secrets()
    #expect(try open.get("l") == "other")
    try FileSystem.unlink(directory.headerPath)
    try expectAllCallsFail("no header", path: directory.headerPath)
    // A store that has the vault open can read it, but does not write a header.
    #expect(try open.get("l") == "other")
    failure("set") { try open.set("new", forKey: "l") }
    failure("rotateKeys") { try directory.secrets().rotateKeys() }
    #expect(try FileSystem.status(directory.headerPath) == nil)
    try File(directory.headerPath, .create).writeAll(good)
    #expect(try directory.secrets().get("l") == "other" && open.get("l") == "other")
    try FileSystem.unlink(directory.headerPath)
    try directory.secrets().eraseVault()
    try directory.secrets().set("new", forKey: "k")
    #expect(try directory.secrets().get("k") == "new" && directory.secrets().keys() == ["k"])
  }

  @Test func aFileOfAnotherFormatIsNoHeaderAndStays() throws {
    _ = try makeSecrets()
    let rest = try Bytes.read(directory.headerPath).dropFirst(4)
    for foreign in [Array("SVH1".utf8) + rest, Array("KVH2".utf8) + rest, []] {
      try Bytes.write(foreign.isEmpty ? [] : Bytes.summed(foreign), to: directory.headerPath)
      try expectAllCallsFail(
        "another format", path: directory.headerPath, reason: "not a vault header")
    }
  }

  @Test func aKeyFileOfAnotherFormatIsNoKeyFileAndStays() throws {
    _ = try makeSecrets()
    let foreign = try Array("SVK1".utf8) + Bytes.read(directory.keyFilePath).dropFirst(4)
    try Bytes.write(try Bytes.summed(foreign), to: directory.keyFilePath)
    try expectAllCallsFail(
      "another format", path: directory.keyFilePath, reason: "not a vault key file")
  }

  @Test func leavesAVaultUnchangedWhenItsKeyFileIsMissing() throws {
    _ = try makeSecrets()
    let good = try Bytes.read(directory.keyFilePath)
    try FileSystem.unlink(directory.keyFilePath)
    try expectAllCallsFail("no key file", code: .locked, path: directory.keyFilePath)
    try FileSystem.removeTree(directory.path + "/state")
    try expectAllCallsFail("no state directory", code: .locked, path: directory.keyFilePath)

    // The key file of another vault is not used or changed.
    try FileSystem.createDirectory(directory.path + "/state")
    let elsewhere = try TemporaryDirectory()
    try elsewhere.secrets().set("v", forKey: "k")
    try File(directory.keyFilePath, .create).writeAll(try Bytes.read(elsewhere.keyFilePath))
    try expectAllCallsFail("another vault's", code: .locked, path: directory.keyFilePath)

    try Bytes.write(good, to: directory.keyFilePath)
    #expect(try directory.secrets().get("l") == "other")
    // Without it, an erased vault can be used again.
    try FileSystem.unlink(directory.keyFilePath)
    try directory.secrets().eraseVault()
    #expect(try directory.secrets().get("k") == nil)
    try directory.secrets().set("new", forKey: "k")
    #expect(try directory.secrets().get("k") == "new")
  }

  @Test func aKeyFileWithTwoKeysOpensBothVaults() throws {
    _ = try makeSecrets()
    let first = try directory.contents()
    try directory.secrets().protect(with: .keyFile)
    #expect(try Bytes.read(directory.keyFilePath).count == 8 + 2 * 48 + 32)
    #expect(try directory.secrets().get("l") == "other")
    // An older copy of the vault still opens.
    for (name, bytes) in first where name.hasPrefix("vault/") && !bytes.isEmpty {
      try directory.makeDirectory(FileSystem.parent(of: name))
      try bytes.write(to: directory.file(name))
    }
    #expect(try directory.secrets().get("l") == "other")
  }

  // MARK: The key file's owner and mode

  private func expectRefused(_ comment: Comment, remedy: String) throws {
    let before = try directory.contents()
    for call in [
      { _ = try directory.secrets().get("l") }, { try directory.secrets().set("v", forKey: "n") },
      { try directory.secrets().protect(with: .keyFile) },
    ] {
      let error = failure(comment, codes: [.accessDenied], call)
      #expect(
        error?.path == directory.keyFilePath && error?.remedy.contains(remedy) == true, comment)
    }
    #expect(try directory.contents() == before, comment)
  }

  private func expectUsable(_ comment: Comment) throws {
    #expect(try directory.secrets().get("l") == "other", comment)
    try directory.secrets().set("v", forKey: "n")
    #expect(try directory.secrets().get("n") == "v", comment)
    try directory.secrets().remove("n")
  }

  @Test func refusesAKeyFileThatOtherUsersMayOpenOrReplace() throws {
    _ = try makeSecrets()
    let (path, file) = (directory.path, directory.keyFilePath)
    let state = path + "/state"
    let cases: [(path: String, refused: [mode_t], remedy: String, usable: [mode_t])] = [
      (
        file, [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666], "chmod 600 ",
        [0o400, 0o600]
      ),
      (state, [0o770, 0o720, 0o702, 0o777, 0o1777], "chmod go-w ", [0o755, 0o750, 0o700]),
      // They could put their own directory in the place of the key file's, unless it is sticky.
      (path, [0o777, 0o757, 0o702], "chmod go-w ", [0o1777, 0o755, 0o711]),
    ]
    for (path, refused, remedy, usable) in cases {
      for mode in refused {
        try #require(chmod(path, mode) == 0)
        try expectRefused("\(path), mode \(String(mode, radix: 8))", remedy: remedy + path)
      }
      for mode in usable {
        try #require(chmod(path, mode) == 0)
        try expectUsable("\(path), mode \(String(mode, radix: 8))")
      }
    }
    // Nor is a key file created there.
    try #require(chmod(state, 0o770) == 0)
    try FileSystem.unlink(file)
    try directory.secrets().eraseVault()
    failure("set", codes: [.accessDenied]) { try directory.secrets().set("v", forKey: "k") }
    #expect(try FileSystem.status(file) == nil && FileSystem.status(directory.headerPath) == nil)
  }

  @Test func refusesAKeyFileBelowADirectoryThatOtherUsersMayWrite() throws {
    _ = try makeSecrets()
    let path = directory.path
    // Behind a link.
    let open = path + "/open"
    try directory.makeDirectory("open")
    try FileSystem.rename(path + "/state", to: open + "/state")
    try directory.link("state", to: open + "/state")
    try expectUsable("a link")
    try #require(chmod(open, 0o777) == 0)
    try expectRefused("behind a link", remedy: "chmod go-w \(open)")
    try #require(chmod(open, 0o755) == 0)
    if geteuid() != 0 { return }
    // The owner could, unless this is a container that does not know the owner.
    let users = try String(contentsOfFile: "/proc/self/uid_map", encoding: .utf8)
    let knowsAll = users.split(separator: " ").last == "4294967295\n"
    for (owner, isRefused): (uid_t, Bool) in [(1_234, true), (65_534, knowsAll), (0, false)] {
      for path in [path, open] {
        try #require(chown(path, owner, 0) == 0)
        if isRefused {
          try expectRefused("user \(owner)", remedy: "chown 0 \(path)")
          try #require(chown(path, 0, 0) == 0)
        } else {
          try expectUsable("user \(owner)")
        }
      }
    }
    // A group of one user has no others.
    try #require(chmod(path, 0o775) == 0)
    try expectUsable("the group of root")
    try #require(chown(path, 0, 65_534) == 0)
    try expectRefused("another group", remedy: "chmod go-w \(path)")
  }

  /// Root uses the key file of the vault's owner, and of no other user.
  @Test(.enabled(if: geteuid() == 0)) func rootRefusesAKeyFileThatIsNotTheVaultOwners() throws {
    _ = try makeSecrets()
    for name in ["state/vault.key", "state"] {
      try #require(chown(directory.file(name).path, 65_534, 65_534) == 0)
      try expectRefused("another user's", remedy: "chown 0 \(directory.keyFilePath)")
    }
    try #require(chown(directory.keyFilePath, 0, 0) == 0)
    try expectRefused("in another user's directory", remedy: "chown 0 \(directory.path)/state")
    try #require(chown(directory.keyFilePath, 65_534, 65_534) == 0)
    try #require(chown(directory.path + "/vault", 65_534, 65_534) == 0)
    try expectUsable("the vault owner's")
  }

  @Test func refusesAKeyFileThatIsNotAFile() throws {
    _ = try makeSecrets()
    let path = directory.keyFilePath
    let aside = directory.path + "/aside"
    try FileSystem.rename(path, to: aside)
    try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: aside)
    try expectRefused("a link", remedy: "Replace the link with the file itself")
    #expect(try FileSystem.linkTarget(path) == aside)
    try FileSystem.unlink(path)
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
    try expectRefused("a directory", remedy: "Move it away")
    try FileSystem.removeTree(path)
    // Without waiting for a writer.
    try #require(mkfifo(path, 0o600) == 0)
    let error = failure("a pipe", codes: [.accessDenied]) { try directory.secrets().get("l") }
    #expect(error?.remedy.contains("Move it away") == true)
    try FileSystem.rename(aside, to: path)
    try expectUsable("restored")
  }
}
