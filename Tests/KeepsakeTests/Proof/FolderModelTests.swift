import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// A directory behaves like a dictionary of files and directories by path.
struct FolderModel: StoreModel {
  typealias Call = FilesUnderTest.Call

  private enum Node: Equatable {
    case file(Sample)
    case directory
  }

  static let name = "directory"
  /// By the bytes of their paths.
  private var nodes: [[UInt8]: Node] = [:]

  static let paths = [
    "a", "b", "d", "d/a", "d/e", "d/e/a", "d/e/f/a", "a/x", "é", "e\u{301}", "d/line\nbreak",
    ".hidden/é", String(repeating: "n", count: 255),
  ]

  static var simpleTexts: [String] { Array(paths.prefix(4)) }

  static func open(_ directory: TemporaryDirectory, _ failures: Failures) -> FilesUnderTest {
    FilesUnderTest(
      directory: Folder(directory.file("files")), incoming: directory.file("incoming"))
  }

  static func randomCall(_ generator: inout SplitMix64) -> Call {
    func path() -> String { paths.randomElement(using: &generator) ?? "a" }
    let number = Int.random(in: 0..<40, using: &generator)
    switch Int.random(in: 0..<100, using: &generator) {
    case 0..<6: return .saveNew(path(), number)
    case 6..<8: return .saveChunks(path(), number)
    case 8..<30: return .save(path(), number < 20 ? .text(number) : .bytes(number * 100))
    case 30..<36: return .load(path())
    case 36..<40: return .exists(path())
    case 40..<44: return .size(path())
    case 44..<54: return .delete(path())
    case 54..<70: return .move(path(), to: path())
    case 70..<84: return .copy(path(), to: path())
    case 84..<88: return .moveInto(path(), path(), to: path())
    case 88..<91: return .adopt(number * 100, as: path())
    case 91..<97: return .create(path())
    case 97: return .totalSize
    case 98: return .list
    default: return .clear
    }
  }

  static func probe(of call: Call) -> Call? {
    switch call {
    case .save(let path, _), .saveNew(let path, _), .saveChunks(let path, _), .adopt(_, let path):
      .load(path)
    case .delete(let path): .exists(path)
    case .move(_, let path), .copy(_, let path): .exists(path)
    default: nil
    }
  }

  // MARK: Paths

  private static func bytes(_ path: String) -> [UInt8] { Array(path.utf8) }

  /// The parent directories, the outermost first.
  private static func ancestors(_ path: [UInt8]) -> [[UInt8]] {
    path.indices.filter { path[$0] == UInt8(ascii: "/") }.map { Array(path[..<$0]) }
  }

  private static func isInside(_ path: [UInt8], _ directory: [UInt8]) -> Bool {
    path.starts(with: directory + [UInt8(ascii: "/")])
  }

  /// Whether a file is in the place of a parent directory.
  private func isBlocked(_ path: [UInt8]) -> Bool {
    Self.ancestors(path).contains { nodes[$0] != nil && nodes[$0] != .directory }
  }

  private func children(_ directory: [UInt8]) -> [[UInt8]: Node] {
    nodes.filter { Self.isInside($0.key, directory) }
  }

  private mutating func makeAncestors(_ path: [UInt8]) {
    for ancestor in Self.ancestors(path) { nodes[ancestor] = .directory }
  }

  /// Adds or replaces a node; false if that is not possible.
  private mutating func put(_ path: [UInt8], _ node: Node) -> Bool {
    if isBlocked(path) { return false }
    switch (nodes[path], node) {
    case (.directory, .file), (.file, .directory): return false
    case (.directory, .directory) where !children(path).isEmpty: return false
    default: break
    }
    makeAncestors(path)
    nodes[path] = node
    return true
  }

  // MARK: Calls

  /// An error with any code: systems report an impossible call in several ways.
  private static let failure = "error"

  func outcomes(of call: Call, by user: StoreUser) -> [ModelOutcome<Self>] {
    var next = self
    let answer = next.make(call)
    return [ModelOutcome(answer, next)]
  }

  private mutating func make(_ call: Call) -> String {
    switch call {
    case .save(let path, let sample):
      return put(Self.bytes(path), .file(sample)) ? "done" : Self.failure
    case .saveNew(let path, let number):
      let path = Self.bytes(path)
      return nodes[path] == nil && put(path, .file(.text(number))) ? "done" : Self.failure
    case .saveChunks(let path, let number):
      return put(Self.bytes(path), .file(.text(number))) ? "done" : Self.failure
    case .adopt(let count, let path):
      return put(Self.bytes(path), .file(.bytes(count))) ? "done" : Self.failure
    case .list: return "\(nodes.count)"
    case .load(let path):
      guard case .file(let sample) = nodes[Self.bytes(path)] else { return Self.failure }
      return sample.byteSummary
    case .exists(let path): return "\(nodes[Self.bytes(path)] != nil)"
    case .size(let path):
      guard case .file(let sample) = nodes[Self.bytes(path)] else { return Self.failure }
      return "\(sample.contents.count)"
    case .delete(let path):
      let path = Self.bytes(path)
      for inner in children(path).keys { nodes[inner] = nil }
      nodes[path] = nil
    case .create(let path):
      let path = Self.bytes(path)
      guard !isBlocked(path), nodes[path] == nil || nodes[path] == .directory else {
        return Self.failure
      }
      makeAncestors(path)
      nodes[path] = .directory
    case .clear: nodes = [:]
    case .totalSize:
      let sizes = nodes.values.map { node in
        if case .file(let sample) = node { sample.contents.count } else { 0 }
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
    guard let node = nodes[path] else { return Self.failure }
    if path == target, !isCopy { return "done" }
    if node == .directory, !isCopy, Self.isInside(target, path) { return Self.failure }
    let inner = children(path)
    guard put(target, node) else { return Self.failure }
    for (name, node) in inner { nodes[target + name.dropFirst(path.count)] = node }
    if !isCopy {
      nodes[path] = nil
      for name in inner.keys { nodes[name] = nil }
    }
    return "done"
  }

  // MARK: Contents

  var contents: [String: String] {
    Dictionary(
      uniqueKeysWithValues: nodes.map { path, node in
        let name = FilesUnderTest.escaped(String(decoding: path, as: UTF8.self))
        return switch node {
        case .directory: (name + "/", "directory")
        case .file(let sample): (name, sample.byteSummary)
        }
      })
  }

  /// Removes the temporary files of interrupted calls: they count as files, even in cleared
  /// directories, until a sweep removes them after an hour.
  static func recover(_ directory: TemporaryDirectory, _ store: FilesUnderTest) throws {
    for name in try directory.leftoverFiles() where try directory.status(name) != nil {
      try FileManager.default.removeItem(at: directory.file(name))
    }
  }

  /// Parent directories may have been made, or some nodes removed.
  func partialStates(of call: Call, found: [String: String]) -> [Self] {
    var models: [Self] = []
    let target: String? =
      switch call {
      case .save(let path, _), .saveNew(let path, _), .saveChunks(let path, _), .create(let path),
        .move(_, let path), .copy(_, let path), .adopt(_, let path):
        path
      case .moveInto(_, let other, let path): other + "/" + path
      default: nil
      }
    if let target, !isBlocked(Self.bytes(target)) {
      var model = self
      for ancestor in Self.ancestors(Self.bytes(target)) {
        model.nodes[ancestor] = .directory
        models.append(model)
      }
    }
    let removed: [[UInt8]: Node] =
      switch call {
      case .delete(let path): children(Self.bytes(path))
      case .clear: nodes
      default: [:]
      }
    if !removed.isEmpty {
      var model = self
      for (name, node) in removed {
        var only = Self()
        only.nodes[name] = node
        if only.contents.keys.allSatisfy({ found[$0] == nil }) { model.nodes[name] = nil }
      }
      models.append(model)
    }
    return models
  }
}

extension FolderModel: SweptModel {
  static var sweeps: [Sweep<Call>] {
    let (old, new) = (Sample.marked(1), Sample.marked(2))
    let start: [Call] = [
      .save("a", old), .save("d/a", old), .save("d/e/a", old), .save("b", .text(3)), .create("x"),
    ]
    let calls: [Call] = [
      .save("a", new), .save("new/deep/a", new), .save("a", .bytes(100_000)),
      .saveNew("x/a", 40), .saveChunks("a", 40), .load("d/a"), .exists("d/e/a"), .size("a"),
      .list, .totalSize, .delete("a"), .delete("d"), .clear, .create("new/x"),
      .copy("b", to: "a"), .copy("d", to: "new/d"), .copy("d", to: "x"), .move("b", to: "a"),
      .move("d", to: "new/d"), .moveInto("b", "d", to: "a"), .adopt(500, as: "a"),
      .adopt(500, as: "new/a"),
    ]
    return calls.map { Sweep(call: $0, start: start) }
  }

  static func leftovers(
    _ directory: TemporaryDirectory, _ store: FilesUnderTest, _ call: FailedCall
  ) throws -> [String] { try directory.leftoverFiles() }
}

extension Sample {
  fileprivate var contents: [UInt8] {
    switch self {
    case .text, .marked, .pages: open { Array((($0 as? String) ?? "").utf8) }
    case .bytes(let number): Array(Sample.bytes(of: number))
    default: []
    }
  }

  fileprivate var byteSummary: String { Sample.summary(of: Data(contents)) }
}

extension FolderModel: DamagedModel {
  static let filling: [Call] = [
    .save("d/a", .marked(1)), .save("d/b", .text(3)), .save("d/e/a", .bytes(9_000)),
  ]
  static let newValue = Call.save("d/c", .marked(2))

  static func nameStored(by call: Call) -> String? {
    if case .save(let path, _) = call { path } else { nil }
  }

  static let kinds: Set = ["file"]

  static func kind(of file: Snapshot.File) -> String? {
    file.name.hasPrefix("files/") ? "file" : nil
  }

  static func owners(in directory: TemporaryDirectory) -> [String: String] {
    Dictionary(uniqueKeysWithValues: filling.compactMap(nameStored).map { ("files/" + $0, $0) })
  }

  static func mayFind(_ found: String?, named name: String, in scene: DamagedFiles) -> Bool {
    scene.isPlainFile("files/" + name, holding: found) { Sample.summary(of: Data($0)) }
  }
}

extension OneAtATime {
  @Suite(.singleThreaded) struct FolderModelTests {
    @Test func aDirectoryBehavesLikeATree() {
      ModelCheck<FolderModel>().run(sequences: 30, length: 80)
    }
  }
}
