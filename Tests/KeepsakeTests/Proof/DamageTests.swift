import Foundation
import Testing

@testable import Keepsake

/// What can happen to a file that nobody of ours has a hand in.
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

  /// The file to which a link in another one's place leads.
  static let decoy = "decoy"

  func strike(_ file: Snapshot.File, in directory: TemporaryDirectory) throws {
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
    // In place and with the times it had: as a failing disk does it.
    try Bytes.write(bytes, to: path)
    try File(path, .readWrite).setTimes(
      accessed: file.status.accessed, modified: file.status.modified)
  }

  /// Whether the file is there with other bytes.
  var isOfBytes: Bool {
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

extension OneAtATime {
  /// Each file of an app's stores damaged in each way: never a wrong value, and no harm to what is
  /// in the other files.
  @Suite struct DamageTests {
    /// What a file is, and whose.
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
      case _ where name.hasPrefix("caches/standard/"):
        name.hasSuffix(Sidecar.suffix) ? ("sidecar", .cache) : ("payload", .cache)
      default: nil
      }
    }

    private static let kinds: Set = [
      "journal", "lock of settings", "file of a key", "lock of an engine", "header",
      "lock of the vault", "key file", "lock of the key file", "ledger", "tag", "file", "secret",
      "sidecar", "payload",
    ]

    /// All files before any damage.
    private let template: Snapshot
    /// Those that hold one value and nothing else.
    private let owners: [String: App.Place]

    init() throws {
      let directory = try TemporaryDirectory(isQuick: true)
      try App(directory).fill()
      template = try Snapshot(of: directory)
      var owners: [String: App.Place] = [:]
      func add(_ path: String, _ store: App.Store, _ key: String) {
        owners[String(path.dropFirst(directory.path.count + 1))] = App.Place(store: store, key: key)
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

    @Test func eachFileDamagedInEachWayIsNeverAWrongValue() throws {
      let start = ContinuousClock.now
      var seen: Set<String> = []
      var counts = (bytes: 0, lengths: 0, others: 0)
      for file in template.files {
        let (kind, store) = try #require(
          Self.kind(of: file.name), "\(file.name) is of a kind that no damage was thought of for")
        let isFirst = seen.insert(kind).inserted
        // Of two files of a kind one is enough for what is done to each byte.
        if isFirst {
          // No other store opens the file.
          let own = template.part { Self.kind(of: $0)?.1 == store }
          for position in file.bytes.indices {
            let looksAtAll = position % 32 == 0
            // The books of a cache are thousands of numbers, which all are looked at in the same
            // way.
            if position > 512, position % 7 > 0 { continue }
            if !Coverage.isComplete, position % 13 > 0 { continue }
            for mask: UInt8 in [0x01, 0x80, 0xFF] {
              try check(
                .flipped(position, mask), file, store, looksAtAll ? template : own,
                looksAtAll: looksAtAll)
              counts.bytes += 1
            }
            try check(
              .cut(position), file, store, looksAtAll ? template : own, looksAtAll: looksAtAll)
            counts.lengths += 1
          }
        }
        for damage in Self.otherDamage(file, template) {
          try check(damage, file, store, template, looksAtAll: true)
          counts.others += 1
        }
      }
      #expect(seen == Self.kinds)
      #expect(ContinuousClock.now - start < .seconds(900), "nothing waits for what does not come")
      print("proof: damage, bytes flipped: \(counts.bytes) states")
      print("proof: damage, files cut off: \(counts.lengths) states")
      print("proof: damage, files zeroed, longer, exchanged, replaced: \(counts.others) states")
    }

    private static func otherDamage(_ file: Snapshot.File, _ template: Snapshot) -> [Damage] {
      let count = file.bytes.count
      let blocks = stride(from: 0, to: count, by: 512).map { $0..<min($0 + 512, count) }
      return blocks.map { .zeroed($0) } + (blocks.count > 1 ? [.zeroed(0..<count)] : [])
        + [1, 8, 511, 4_096, 70_000].map { .longer($0) } + [.deleted, .directory, .link, .pipe]
        // Each pair once.
        + template.files.filter { $0.name > file.name }.map { .exchanged($0.name) }
    }

    private func check(
      _ damage: Damage, _ file: Snapshot.File, _ store: App.Store, _ template: Snapshot,
      looksAtAll: Bool
    ) throws {
      let directory = try TemporaryDirectory(copying: template)
      let decoy = Array("somebody's file, with some text in it\n".utf8)
      try directory.write(decoy, to: Damage.decoy)
      try damage.strike(file, in: directory)
      let comment: Comment = "\(file.name), \(damage)"
      var struck = [store]
      if case .exchanged(let other) = damage, let (_, store) = Self.kind(of: other) {
        struck.append(store)
      }
      let stores = looksAtAll ? App.Store.allCases : [store]

      let app = App(directory)
      let found = try app.findAll(stores)
      for (place, found) in found where found != .value(place.value) {
        #expect(struck.contains(place.store), "\(comment): \(place) is \(found)")
        let isRight = try isAllowed(found, at: place, damage, file, app)
        #expect(isRight, "\(comment): \(place) is \(found)")
      }

      // Something new is there afterwards, or an error says why not; what was there still is.
      var written: [App.Place: App.Found] = [:]
      for store in stores {
        let place = App.Place(store: store, key: "c")
        do {
          try app.set(place.value, at: place)
          written[place] = .value(place.value)
        } catch {
          let error = try #require(error as? StorageError)
          #expect(struck.contains(store) && error.code != .timedOut, "\(comment): \(error)")
          let isClear = !error.remedy.isEmpty && (error.path ?? error.key) != nil
          #expect(isClear, "\(comment): \(error)")
        }
      }
      let next = App(directory)
      let kept = try next.findAll(stores)
      for (place, found) in found where found == .value(place.value) {
        #expect(kept[place] == found, "\(comment): \(place) is lost by a set")
      }
      for (place, value) in written {
        #expect(try next.find(place) == value, "\(comment): \(place) was set")
      }
      #expect((app.failures.all + next.failures.all).allSatisfy { !$0.remedy.isEmpty }, comment)
      if case .link = damage { #expect(try directory.bytes(of: Damage.decoy) == decoy, comment) }
    }

    /// Whether that may be found in place of the value; what is nobody's to see is always wrong.
    private func isAllowed(
      _ found: App.Found, at place: App.Place, _ damage: Damage, _ file: Snapshot.File, _ app: App
    ) throws -> Bool {
      // Nobody is there to be waited for.
      if found == .failed(.timedOut) { return false }
      var names = [file.name]
      if case .exchanged(let other) = damage { names.append(other) }
      // What holds one value has no part in the others.
      let mayHarm = names.contains { owners[$0].map { $0 == place } ?? true }
      if !mayHarm { return false }
      if case .failed = found { return true }
      switch place.store {
      case .cache: return found == .nothing
      case .settings: return isAllowed(found, inSettings: place.key, damage, file, names, app)
      case .secrets:
        // A whole secret that is gone was removed, as far as anybody can tell.
        if case .deleted = damage { return found == .nothing && owners[file.name] == place }
        return false
      case .engine, .files:
        // Plain files, which anybody may change: what is in them is what is read.
        let name = place.store == .engine ? "engine/\(place.key).json" : "files/d/\(place.key).txt"
        guard let bytes = try? app.directory.bytes(of: name) else {
          return found == .nothing && !damage.isOfBytes
        }
        let text =
          place.store == .engine
          ? try? JSONDecoder().decode(String.self, from: Data(bytes))
          : String(decoding: bytes, as: UTF8.self)
        return found == text.map { .value($0) }
      }
    }

    /// Gone, or as before the last set; and that is said, but for what looks like a shorter file.
    private func isAllowed(
      _ found: App.Found, inSettings key: String, _ damage: Damage, _ file: Snapshot.File,
      _ names: [String], _ app: App
    ) -> Bool {
      let journal = TemporaryDirectory.journal
      guard names.contains(journal) else { return false }
      let isOld = found == .nothing || key == "a" && found == .value("earlier")
      let isSaid = !app.failures.all.isEmpty
      switch damage {
      case .cut(let length) where length >= JournalFormat.headerSize:
        // All that was written out before is there; of its last line the ending may be missing.
        let end = min(length + "]\n".utf8.count, file.bytes.count)
        let records = file.bytes[JournalFormat.headerSize..<end].count { $0 == 0x0A }
        let places = App.places.filter { $0.store == .settings }
        let writes = [("a", "earlier")] + places.map { ($0.key, $0.value) }
        let last = writes.prefix(records).last { $0.0 == key }
        return found == last.map { .value($0.1) } ?? .nothing
      case .cut(0), .deleted: return isOld
      case .exchanged:
        // In place of an empty file nothing was ever stored.
        let isEmpty = template.files.contains {
          $0.name != journal && names.contains($0.name) && $0.bytes.isEmpty
        }
        return isOld && (isSaid || isEmpty)
      default: return isOld && isSaid
      }
    }
  }
}
