import Foundation
import Testing

@testable import Keepsake
@testable import keepsake_peer

/// What a directory of files ought to do: names with what they are.
struct FolderModel: StoreModel {
  typealias Call = DrivenFolder.Call

  private enum Thing: Equatable {
    case file(Sample)
    case directory
  }

  static let name = "directory"
  /// By the bytes of their names.
  private var things: [[UInt8]: Thing] = [:]

  static let paths = [
    "a", "b", "d", "d/a", "d/e", "d/e/a", "d/e/f/a", "a/x", "é", "e\u{301}", "d/line\nbreak",
    ".hidden/é", String(repeating: "n", count: 255),
  ]

  static func open(_ directory: TemporaryDirectory) -> DrivenFolder {
    DrivenFolder(directory: Folder(directory.file("files")))
  }

  static func randomCall(_ generator: inout Sequence64) -> Call {
    func path() -> String { paths.randomElement(using: &generator) ?? "a" }
    let number = Int.random(in: 0..<40, using: &generator)
    switch Int.random(in: 0..<100, using: &generator) {
    case 0..<30: return .save(path(), number < 20 ? .text(number) : .bytes(number * 100))
    case 30..<36: return .load(path())
    case 36..<40: return .exists(path())
    case 40..<44: return .size(path())
    case 44..<54: return .delete(path())
    case 54..<70: return .move(path(), to: path())
    case 70..<84: return .copy(path(), to: path())
    case 84..<90: return .moveInto(path(), path(), to: path())
    case 90..<97: return .create(path())
    case 97..<99: return .totalSize
    default: return .clear
    }
  }

  static func simpler(_ call: Call) -> [Call] {
    func others(_ path: String) -> [String] { Array(paths.prefix { $0 != path }.prefix(4)) }
    switch call {
    case .save(let path, let sample):
      return (sample == .text(0) ? [] : [.save(path, .text(0))])
        + others(path).map { .save($0, sample) }
    case .move(let path, let target):
      return others(path).map { .move($0, to: target) } + others(target).map { .move(path, to: $0) }
    case .copy(let path, let target):
      return others(path).map { .copy($0, to: target) } + others(target).map { .copy(path, to: $0) }
    case .moveInto(let path, let other, let target): return [.move(path, to: other + "/" + target)]
    default: return []
    }
  }

  static func probe(of call: Call) -> Call? {
    switch call {
    case .save(let path, _): .load(path)
    case .delete(let path): .exists(path)
    case .move(_, let path), .copy(_, let path): .exists(path)
    default: nil
    }
  }

  // MARK: Paths

  private static func bytes(_ path: String) -> [UInt8] { Array(path.utf8) }

  /// The directories that it lies in, the outermost first.
  private static func ancestors(_ path: [UInt8]) -> [[UInt8]] {
    path.indices.filter { path[$0] == UInt8(ascii: "/") }.map { Array(path[..<$0]) }
  }

  private static func isInside(_ path: [UInt8], _ directory: [UInt8]) -> Bool {
    path.starts(with: directory + [UInt8(ascii: "/")])
  }

  /// A file stands where a directory would have to be.
  private func isBlocked(_ path: [UInt8]) -> Bool {
    Self.ancestors(path).contains { things[$0] != nil && things[$0] != .directory }
  }

  private func children(_ directory: [UInt8]) -> [[UInt8]: Thing] {
    things.filter { Self.isInside($0.key, directory) }
  }

  private mutating func makeAncestors(_ path: [UInt8]) {
    for ancestor in Self.ancestors(path) { things[ancestor] = .directory }
  }

  /// Puts a thing there, or says no.
  private mutating func put(_ path: [UInt8], _ thing: Thing) -> Bool {
    if isBlocked(path) { return false }
    switch (things[path], thing) {
    case (.directory, .file), (.file, .directory): return false
    case (.directory, .directory) where !children(path).isEmpty: return false
    default: break
    }
    makeAncestors(path)
    things[path] = thing
    return true
  }

  // MARK: Calls

  /// Of whatever code: what cannot be done is said by the system in several ways.
  private static let failure = "error"

  func outcomes(of call: Call, by user: StoreUser) -> [ModelOutcome<Self>] {
    var next = self
    let words = next.make(call)
    return [ModelOutcome(words, next)]
  }

  private mutating func make(_ call: Call) -> String {
    switch call {
    case .save(let path, let sample):
      return put(Self.bytes(path), .file(sample)) ? "done" : Self.failure
    case .load(let path):
      guard case .file(let sample) = things[Self.bytes(path)] else { return Self.failure }
      return sample.bytesInWords
    case .exists(let path): return "\(things[Self.bytes(path)] != nil)"
    case .size(let path):
      guard case .file(let sample) = things[Self.bytes(path)] else { return Self.failure }
      return "\(sample.contents.count)"
    case .delete(let path):
      let path = Self.bytes(path)
      for inner in children(path).keys { things[inner] = nil }
      things[path] = nil
    case .create(let path):
      let path = Self.bytes(path)
      guard !isBlocked(path), things[path] == nil || things[path] == .directory else {
        return Self.failure
      }
      makeAncestors(path)
      things[path] = .directory
    case .clear: things = [:]
    case .totalSize:
      let sizes = things.values.map { thing in
        if case .file(let sample) = thing { sample.contents.count } else { 0 }
      }
      return "\(sizes.reduce(0, +))"
    case .move(let path, let target):
      return move(Self.bytes(path), Self.bytes(target), isCopy: false)
    case .moveInto(let path, let other, let target):
      return move(Self.bytes(path), Self.bytes(other + "/" + target), isCopy: false)
    case .copy(let path, let target):
      return move(Self.bytes(path), Self.bytes(target), isCopy: true)
    }
    return "done"
  }

  private mutating func move(_ path: [UInt8], _ target: [UInt8], isCopy: Bool) -> String {
    guard let thing = things[path] else { return Self.failure }
    if path == target, !isCopy { return "done" }
    if thing == .directory, !isCopy, Self.isInside(target, path) { return Self.failure }
    let inner = children(path)
    guard put(target, thing) else { return Self.failure }
    for (name, thing) in inner { things[target + name.dropFirst(path.count)] = thing }
    if !isCopy {
      things[path] = nil
      for name in inner.keys { things[name] = nil }
    }
    return "done"
  }

  // MARK: Contents

  private var contents: [String] {
    things.map { path, thing in
      let name = String(decoding: path, as: UTF8.self)
      switch thing {
      case .directory: return name + "/"
      case .file(let sample): return "\(name): " + sample.bytesInWords
      }
    }
  }

  /// By bytes: texts equal others that are composed differently.
  private static func isSame(_ a: [String], _ b: [String]) -> Bool {
    Set(a.map { Array($0.utf8) }) == Set(b.map { Array($0.utf8) }) && a.count == b.count
  }

  /// What was interrupted leaves files, which are counted, and stay in directories that are
  /// cleared, until a sweep finds them an hour later.
  static func settle(_ directory: TemporaryDirectory, _ store: DrivenFolder) throws {
    for name in try directory.leftOvers() where try directory.status(name) != nil {
      try FileManager.default.removeItem(at: directory.file(name))
    }
  }

  mutating func accept(_ found: [String]) -> Bool { Self.isSame(found, contents) }

  /// Old or new; directories for what was to come may be there, and of what was to go a part.
  mutating func accept(_ found: [String], interrupting call: Call) -> Bool {
    var models = [self, outcomes(of: call, by: .first)[0].model]
    let target: String? =
      switch call {
      case .save(let path, _), .create(let path), .move(_, let path), .copy(_, let path): path
      case .moveInto(_, let other, let path): other + "/" + path
      default: nil
      }
    if let target, !isBlocked(Self.bytes(target)) {
      var model = self
      for ancestor in Self.ancestors(Self.bytes(target)) {
        model.things[ancestor] = .directory
        models.append(model)
      }
    }
    let going: [[UInt8]: Thing] =
      switch call {
      case .delete(let path): children(Self.bytes(path))
      case .clear: things
      default: [:]
      }
    if !going.isEmpty {
      let names = Set(found.map { Array($0.utf8) })
      var model = self
      for (name, thing) in going {
        var only = Self()
        only.things[name] = thing
        if !names.contains(Array(only.contents[0].utf8)) { model.things[name] = nil }
      }
      // What lies in a directory that is gone is gone as well.
      models.append(model)
    }
    for var model in models where model.accept(found) {
      self = model
      return true
    }
    return false
  }
}

extension Sample {
  fileprivate var contents: [UInt8] {
    switch self {
    case .text(let number): Array(Sample.text(of: number).utf8)
    case .bytes(let number): Array(Sample.bytes(of: number))
    default: []
    }
  }

  fileprivate var bytesInWords: String { Sample.words(of: Data(contents)) }
}

extension OneAtATime {
  @Suite struct FolderModelTests {
    @Test func aDirectoryDoesWhatATreeDoes() {
      ModelCheck<FolderModel>().run(sequences: 30, length: 80)
    }
  }
}
