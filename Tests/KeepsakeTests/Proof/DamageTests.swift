import Foundation
import Testing

@testable import Keepsake
@testable import TestSupport

/// Damage to a file from outside the library.
private enum Damage: CustomStringConvertible {
  case flipped(Int, UInt8)
  case cut(Int)
  case zeroed(Range<Int>)
  case longer(Int)
  case exchanged(String)
  case deleted
  case directory
  case link
  case pipe

  /// The target of a link that replaces a file.
  static let decoy = "decoy"

  func apply(_ file: Snapshot.File, in directory: TemporaryDirectory) throws {
    let path = directory.path + "/" + file.name
    var bytes = file.bytes
    switch self {
    case .flipped(let position, let mask): bytes[position] ^= mask
    case .cut(let length): bytes = Array(bytes[..<length])
    case .zeroed(let range):
      bytes.replaceSubrange(range, with: repeatElement(0, count: range.count))
    case .longer(let count):
      bytes += (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 151 &+ 7) }
    case .exchanged(let other):
      #expect(try FileSystem.exchange(path, with: directory.path + "/" + other))
      return
    case .deleted, .directory, .link, .pipe:
      try FileSystem.unlink(path)
      switch self {
      case .directory: try directory.makeDirectory(file.name)
      case .link: try directory.link(file.name, to: directory.path + "/" + Self.decoy)
      case .pipe: try #require(mkfifo(path, 0o600) == 0)
      default: break
      }
      return
    }
    // In place and with unchanged times, as by a failing disk.
    try Bytes.write(bytes, to: path)
    try File(path, .readWrite).setTimes(
      accessed: file.status.accessed, modified: file.status.modified)
  }

  /// Whether the file still exists, with other bytes.
  var changesBytes: Bool {
    switch self {
    case .flipped, .cut, .zeroed, .longer: true
    default: false
    }
  }

  var description: String {
    switch self {
    case .flipped(let position, let mask): "byte \(position) ^ \(mask)"
    case .cut(let length): "cut to \(length)"
    case .zeroed(let range): "zeroed \(range)"
    case .longer(let count): "\(count) bytes more"
    case .exchanged(let other): "exchanged with \(other)"
    case .deleted: "deleted"
    case .directory: "a directory"
    case .link: "a link"
    case .pipe: "a pipe"
    }
  }
}

/// Damages each file of each store in each way: no wrong value is read, and values in other files
/// are unharmed.
@Suite(.singleThreaded, .proofThread) struct DamageTests {
  /// The kind of a file, and the store that it belongs to.
  private static func kind(of name: String) -> (String, App.Store)? {
    switch name {
    case "standard.jsonl": ("journal", .settings)
    case ".standard.lock": ("lock of settings", .settings)
    case "engine/a.json", "engine/b.json": ("file of a key", .engine)
    case "engine/.keepsake-engine.lock": ("lock of an engine", .engine)
    case "vault/vault.hdr": ("header", .secrets)
    case "vault/.lock": ("lock of the vault", .secrets)
    case "state/vault.key": ("key file", .secrets)
    case "state/.vault.key.lock": ("lock of the key file", .secrets)
    case "caches/.standard.ledger": ("ledger", .cache)
    case "caches/standard/CACHEDIR.TAG": ("tag", .cache)
    case "files/d/a.txt", "files/d/b.txt": ("file", .files)
    case _ where name.hasPrefix("vault/"): ("secret", .secrets)
    // The entry of "b" has tags.
    case _ where name.hasSuffix("/Yg.meta"): ("sidecar with tags", .cache)
    case _ where name.hasPrefix("caches/standard/"):
      name.hasSuffix(Sidecar.suffix) ? ("sidecar", .cache) : ("payload", .cache)
    default: nil
    }
  }

  private static let kinds: Set = [
    "journal", "lock of settings", "file of a key", "lock of an engine", "header",
    "lock of the vault", "key file", "lock of the key file", "ledger", "tag", "file", "secret",
    "sidecar", "sidecar with tags", "payload",
  ]

  /// All files before any damage.
  private let template: Snapshot
  /// The items of the files that hold exactly one value.
  private let owners: [String: App.Item]

  init() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    try App(directory).fill()
    // Or each of the thousands of copies of the cache would be swept.
    _ = try directory.cache().removeExpired()
    template = try Snapshot(of: directory)
    var owners: [String: App.Item] = [:]
    func add(_ path: String, _ store: App.Store, _ key: String) {
      owners[String(path.dropFirst(directory.path.count + 1))] = App.Item(store: store, key: key)
    }
    for key in App.keys {
      let cache = directory.cache()
      add(directory.path + "/engine/\(key).json", .engine, key)
      add(try directory.secretPath(key), .secrets, key)
      add(try cache.payload(key), .cache, key)
      add(try cache.sidecar(key), .cache, key)
      add(directory.path + "/files/d/\(key).txt", .files, key)
    }
    self.owners = owners
  }

  /// A state that the files can be in.
  private struct State {
    let damage: Damage
    let file: Snapshot.File
    let store: App.Store
    let template: Snapshot
    let checksAllStores: Bool
  }

  @Test func damageNeverYieldsAWrongValue() throws {
    var seen: Set<String> = []
    var (bytes, lengths, others): ([State], [State], [State]) = ([], [], [])
    for file in template.files {
      let (kind, store) = try #require(
        Self.kind(of: file.name), "\(file.name) is of an unknown kind")
      let isFirst = seen.insert(kind).inserted
      // Damage of each byte takes one file of each kind.
      if isFirst {
        // Only its own store opens the file.
        let own = template.filtered { Self.kind(of: $0)?.1 == store }
        for position in file.bytes.indices {
          let checksAllStores = position % 32 == 0
          // The ledger of a cache holds thousands of numbers, which are all used in the same way.
          if position > 512, position % 7 > 0 { continue }
          if !Coverage.isComplete, position % 127 > 0 { continue }
          func state(_ damage: Damage) -> State {
            State(
              damage: damage, file: file, store: store,
              template: checksAllStores ? template : own, checksAllStores: checksAllStores)
          }
          bytes += [0x01, 0x80, 0xFF].map { state(.flipped(position, $0)) }
          lengths.append(state(.cut(position)))
        }
      }
      others += Self.otherDamage(file, template).map {
        State(damage: $0, file: file, store: store, template: template, checksAllStores: true)
      }
    }
    #expect(seen == Self.kinds)
    for state in bytes + lengths + others { try check(state) }
    print("proof: damage, bytes flipped: \(bytes.count) states")
    print("proof: damage, files cut off: \(lengths.count) states")
    print("proof: damage, files zeroed, longer, exchanged, replaced: \(others.count) states")
  }

  private static func otherDamage(_ file: Snapshot.File, _ template: Snapshot) -> [Damage] {
    let count = file.bytes.count
    // Exchange each pair once.
    let others = template.files.filter { $0.name > file.name }
    let partners = Coverage.cases(others, every: 8, from: others.count)
    let blocks = stride(from: 0, to: count, by: 512).map { $0..<min($0 + 512, count) }
    return blocks.map { .zeroed($0) } + (blocks.count > 1 ? [.zeroed(0..<count)] : [])
      + [1, 8, 511, 4_096, 70_000].map { .longer($0) } + [.deleted, .directory, .link, .pipe]
      + partners.map { .exchanged($0.name) }
  }

  private func check(_ state: State) throws {
    let (damage, file, store) = (state.damage, state.file, state.store)
    let directory = try TemporaryDirectory(copying: state.template)
    let decoy = Array("the file of another program\n".utf8)
    try directory.write(decoy, to: Damage.decoy)
    try damage.apply(file, in: directory)
    let comment: Comment = "\(file.name), \(damage)"
    var damagedStores = [store]
    if case .exchanged(let other) = damage, let (_, store) = Self.kind(of: other) {
      damagedStores.append(store)
    }
    let stores = state.checksAllStores ? App.Store.allCases : [store]

    let app = App(directory)
    let found = try app.findAll(stores)
    for (item, found) in found where found != .value(item.value) {
      #expect(damagedStores.contains(item.store), "\(comment): \(item) is \(found)")
      let isRight = try isAllowed(found, at: item, damage, file, app)
      #expect(isRight, "\(comment): \(item) is \(found)")
    }

    // A new value can be stored, or an error explains why not; readable values stay readable.
    var written: [App.Item: App.Found] = [:]
    for store in stores {
      let item = App.Item(store: store, key: "c")
      do {
        try app.set(item.value, for: item)
        written[item] = .value(item.value)
      } catch {
        let error = try #require(error as? StorageError)
        #expect(damagedStores.contains(store) && error.code != .timedOut, "\(comment): \(error)")
        let isClear = !error.remedy.isEmpty && (error.path ?? error.key) != nil
        #expect(isClear, "\(comment): \(error)")
      }
    }
    let next = App(directory)
    let kept = try next.findAll(stores)
    for (item, found) in found where found == .value(item.value) {
      #expect(kept[item] == found, "\(comment): \(item) is lost by a set")
    }
    for (item, value) in written {
      #expect(try next.find(item) == value, "\(comment): \(item) was set")
    }
    #expect((app.failures.all + next.failures.all).allSatisfy { !$0.remedy.isEmpty }, comment)
    if case .link = damage { #expect(try directory.bytes(of: Damage.decoy) == decoy, comment) }
  }

  /// Whether `found` is an acceptable result for an item whose value is not found.
  private func isAllowed(
    _ found: App.Found, at item: App.Item, _ damage: Damage, _ file: Snapshot.File, _ app: App
  ) throws -> Bool {
    // No other process is running, so no lock can be held.
    if found == .failed(.timedOut) { return false }
    var names = [file.name]
    if case .exchanged(let other) = damage { names.append(other) }
    // A file that holds one value cannot harm other items.
    let mayHarm = names.contains { owners[$0].map { $0 == item } ?? true }
    if !mayHarm { return false }
    if case .failed = found { return true }
    switch item.store {
    case .cache: return found == .nothing
    case .settings: return isAllowed(found, inSettings: item.key, damage, file, names, app)
    case .secrets:
      // A deleted file is indistinguishable from a removed secret.
      if case .deleted = damage { return found == .nothing && owners[file.name] == item }
      return false
    case .engine, .files:
      // Other programs may change these plain files: their contents are the value.
      let name = item.store == .engine ? "engine/\(item.key).json" : "files/d/\(item.key).txt"
      guard let bytes = try? app.directory.bytes(of: name) else {
        return found == .nothing && !damage.changesBytes
      }
      let text =
        item.store == .engine
        ? try? JSONDecoder().decode(String.self, from: Data(bytes))
        : String(decoding: bytes, as: UTF8.self)
      return found == text.map { .value($0) }
    }
  }

  /// No value, or the one before the last set. Damage is reported, unless the file looks like an
  /// older one.
  private func isAllowed(
    _ found: App.Found, inSettings key: String, _ damage: Damage, _ file: Snapshot.File,
    _ names: [String], _ app: App
  ) -> Bool {
    let journal = TemporaryDirectory.journal
    guard names.contains(journal) else { return false }
    let isOld = found == .nothing || key == "a" && found == .value("earlier")
    let isReported = !app.failures.all.isEmpty
    switch damage {
    case .cut(let length) where length >= JournalFormat.headerSize:
      // All complete records are found; the end of the last line may be missing.
      let end = min(length + "]\n".utf8.count, file.bytes.count)
      let records = file.bytes[JournalFormat.headerSize..<end].count { $0 == 0x0A }
      let items = App.items.filter { $0.store == .settings }
      let writes = [("a", "earlier")] + items.map { ($0.key, $0.value) }
      let last = writes.prefix(records).last { $0.0 == key }
      return found == last.map { .value($0.1) } ?? .nothing
    case .cut(0), .deleted: return isOld
    case .exchanged:
      // An empty file in its place looks as if nothing was ever stored.
      let isEmpty = template.files.contains {
        $0.name != journal && names.contains($0.name) && $0.bytes.isEmpty
      }
      return isOld && (isReported || isEmpty)
    default: return isOld && isReported
    }
  }
}
