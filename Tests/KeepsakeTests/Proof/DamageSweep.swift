import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// What a store promises when its files are damaged.
protocol DamagedModel: StoreModel {
  /// Stores values in every kind of file.
  static var filling: [Store.Call] { get }

  /// The name of the value that the call stores.
  static func nameStored(by call: Store.Call) -> String?

  /// A value that `filling` does not store.
  static var newValue: Store.Call { get }

  /// The kind of a file; nil for an unknown one.
  static func kind(of file: Snapshot.File) -> String?

  static var kinds: Set<String> { get }

  /// The files that hold exactly one value, with its name.
  static func owners(in directory: TemporaryDirectory) throws -> [String: String]

  /// Whether no value, or another one, may be found under the name.
  static func mayFind(_ found: String?, named name: String, in scene: DamagedFiles) -> Bool

  /// Makes calls at a time at which no other program can be restoring the files any more.
  static func later<R>(_ calls: () throws -> R) rethrows -> R
}

extension DamagedModel {
  static func later<R>(_ calls: () throws -> R) rethrows -> R { try calls() }
}

/// The files of a store after some damage.
struct DamagedFiles {
  let damage: Damage
  let file: Snapshot.File
  let template: Snapshot
  /// The files that hold exactly one value, with its name.
  let owners: [String: String]
  let directory: TemporaryDirectory
  let failures: Failures

  /// The files that are not as they were.
  var names: [String] {
    if case .exchanged(let other) = damage { [file.name, other] } else { [file.name] }
  }

  /// A file that holds one value cannot harm others.
  func mayHarm(_ name: String) -> Bool {
    names.contains { owners[$0].map { $0 == name } ?? true }
  }

  /// The present bytes of a file; nil if it has none.
  func bytes(of name: String) -> [UInt8]? { try? directory.bytes(of: name) }

  /// Which other programs may change: the contents are the value.
  func isPlainFile(_ name: String, holding found: String?, decoded: ([UInt8]) -> String?) -> Bool {
    guard let bytes = bytes(of: name) else { return found == nil && !damage.changesBytes }
    return found == decoded(bytes)
  }
}

/// Damages each file of a store in each way: no wrong value is read, errors are clear, values in
/// other files are unharmed, and what is lost can be stored again.
struct DamageSweep<Model: DamagedModel> {
  /// The result of reading a value.
  private enum Found: Equatable {
    case value(String?)
    case failed(StorageError.Code)
  }

  /// All files before any damage.
  private let template: Snapshot
  private let owners: [String: String]
  private let values: [String: String]

  init() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    var state = Model()
    let store = try Model.open(directory)
    try state.make(Model.filling, on: store)
    let contents = try store.contents()
    let isRight = state.accept(contents)
    #expect(isRight, "\(contents)")
    template = try Snapshot(of: directory)
    owners = try Model.owners(in: directory)
    let names = try Set(store.names())
    values = contents.filter { names.contains($0.key) }
  }

  func run() throws {
    var seen: Set<String> = []
    var (bytes, lengths, others) = (0, 0, 0)
    for file in template.files {
      let kind = try #require(Model.kind(of: file), "\(file.name) is of an unknown kind")
      // Damage of each byte takes one file of each kind.
      if seen.insert(kind).inserted {
        for position in Self.positions(in: file.bytes) {
          for mask: UInt8 in [0x01, 0x80, 0xFF] { try check(.flipped(position, mask), file) }
          try check(.cut(position), file)
          bytes += 3
          lengths += 1
        }
      }
      for damage in otherDamage(file) {
        try check(damage, file)
        others += 1
      }
    }
    #expect(seen == Model.kinds)
    print(
      """
      proof: damage, \(Model.name): \(bytes) states with a byte flipped, \(lengths) with a file \
      cut off, \(others) with a file zeroed, longer, exchanged or replaced
      """)
  }

  /// The first and last bytes, and fewer in between: the ledger of a cache and the value of a large
  /// secret have thousands that are all used in the same way.
  private static func positions(in bytes: [UInt8]) -> [Int] {
    let ends = Set(0..<512).union((bytes.count - 32)..<bytes.count)
    let all = bytes.indices.filter {
      ends.contains($0) || $0 < 8_192 && $0 % 7 == 0 || $0 % 997 == 0
    }
    return Coverage.cases(all, every: 127)
  }

  private func otherDamage(_ file: Snapshot.File) -> [Damage] {
    let count = file.bytes.count
    // Exchange each pair once.
    let others = template.files.filter { $0.name > file.name }
    let partners = Coverage.cases(others, every: 8, from: others.count)
    let blocks = stride(from: 0, to: count, by: max(512, count / 64)).map {
      $0..<min($0 + 512, count)
    }
    return blocks.map { .zeroed($0) } + (blocks.count > 1 ? [.zeroed(0..<count)] : [])
      + [1, 8, 511, 4_096, 70_000].map { .longer($0) } + [.deleted, .directory, .link, .pipe]
      + partners.map { .exchanged($0.name) }
  }

  private func check(_ damage: Damage, _ file: Snapshot.File) throws {
    let directory = try TemporaryDirectory(copying: template)
    let decoy = Array("the file of another program\n".utf8)
    try directory.write(decoy, to: Damage.decoy)
    try damage.apply(file, in: directory)
    let scene = DamagedFiles(
      damage: damage, file: file, template: template, owners: owners, directory: directory,
      failures: Failures())
    try Model.later { try check(scene, "\(Model.name): \(file.name), \(damage)") }
    #expect(scene.failures.all.allSatisfy { !$0.remedy.isEmpty }, "\(file.name), \(damage)")
    if case .link = damage { #expect(try directory.bytes(of: Damage.decoy) == decoy) }
  }

  private func check(_ scene: DamagedFiles, _ comment: Comment) throws {
    let store = try Model.open(scene.directory, scene.failures)
    var lost: Set<String> = []
    for (name, value) in values {
      let found = try find(name, in: store, comment)
      if found == .value(value) { continue }
      lost.insert(name)
      let isRight =
        switch found {
        // No other process is running, so no lock can be held.
        case .failed(let code): scene.mayHarm(name) && code != .timedOut
        case .value(let other):
          scene.mayHarm(name) && Model.mayFind(other, named: name, in: scene)
        }
      #expect(isRight, "\(comment): \(name) is \(found)")
    }
    do {
      // What cannot be read may be listed.
      let listed = try Set(store.names())
      let isRight = listed.isSuperset(of: values.keys.filter { !lost.contains($0) })
      #expect(isRight, "\(comment): lists \(listed)")
    } catch {
      try expectClear(error, comment)
    }

    // What is lost and a new value can be stored, or an error explains why not.
    var stored = values.filter { !lost.contains($0.key) }
    let calls = Model.filling.filter { Model.nameStored(by: $0).map(lost.contains) == true }
    for call in calls + [Model.newValue] {
      let name = try #require(Model.nameStored(by: call))
      do {
        _ = try store.perform(call)
        stored[name] = try store.value(named: name)
        #expect(stored[name] != nil, "\(comment): \(name) was stored")
      } catch {
        stored[name] = nil
        try expectClear(error, comment)
      }
    }
    let next = try Model.open(scene.directory, scene.failures)
    for (name, value) in stored {
      let found = try find(name, in: next, comment)
      #expect(found == .value(value), "\(comment): then \(name) is \(found)")
    }
  }

  private func find(_ name: String, in store: Model.Store, _ comment: Comment) throws -> Found {
    do {
      return .value(try store.value(named: name))
    } catch {
      try expectClear(error, comment)
      return .failed(try #require(error as? StorageError, comment).code)
    }
  }

  private func expectClear(_ error: any Error, _ comment: Comment) throws {
    let error = try #require(error as? StorageError, comment)
    let isClear =
      !error.remedy.isEmpty && error.code != .timedOut && (error.path ?? error.key) != nil
    #expect(isClear, "\(comment): \(error)")
  }
}
