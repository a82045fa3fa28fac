import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

@Suite struct ModelCacheTests {
  static let decodes = Locked<[String: Int]>([:])

  struct Counted: Codable, Sendable, Equatable {
    var tag: String
    init(_ tag: String) { self.tag = tag }
    init(from decoder: any Decoder) throws {
      tag = try decoder.container(keyedBy: CodingKeys.self).decode(String.self, forKey: .tag)
      ModelCacheTests.decodes.withLock { [tag] in $0[tag, default: 0] += 1 }
    }
    enum CodingKeys: CodingKey { case tag }
  }

  final class Node: Codable, Sendable {
    let name: String
    init(_ name: String) { self.name = name }
  }

  struct Holder: Codable, Sendable { let node: Node }
  struct Hidden: Codable, Sendable, CustomReflectable {
    let node: Node
    var customMirror: Mirror { Mirror(self, children: [:]) }
  }

  @Test func sendableModelIsDecodedOnce() throws {
    let store = try TemporaryDirectory().store()
    let tag = UUID().uuidString
    try store.set(Counted(tag), forKey: "m")
    for _ in 0..<5 { #expect(try store.model("m") == Counted(tag)) }
    #expect(Self.decodes.withLock { $0[tag] } == 1)
    let other = UUID().uuidString
    try store.set(Counted(other), forKey: "m")
    #expect(try store.model("m") == Counted(other))
  }

  @Test func genericReadDecodesEveryTime() throws {
    func read<T: Codable>(_ store: Defaults.Store, as: T.Type) throws {
      _ = try store.model("m") as T?
    }
    let store = try TemporaryDirectory().store()
    let tag = UUID().uuidString
    try store.set(Counted(tag), forKey: "m")
    for _ in 0..<3 { try read(store, as: Counted.self) }
    #expect(Self.decodes.withLock { $0[tag] } == 3)
  }

  @Test func classInstancesAreNeverShared() throws {
    let store = try TemporaryDirectory().store()
    func areDistinct<T: Codable & Sendable>(_ value: T, _ node: (T) -> Node) throws -> Bool {
      try store.set(value, forKey: "m")
      let first = try #require(try store.model("m", type: T.self))
      let second = try #require(try store.model("m", type: T.self))
      return node(first) !== node(second)
    }
    #expect(try areDistinct(Node("a")) { $0 })
    #expect(try areDistinct(Holder(node: Node("a"))) { $0.node })
    #expect(try areDistinct([Holder(node: Node("a"))]) { $0[0].node })
    #expect(try areDistinct(["k": Node("a")]) { $0["k"]! })
    #expect(try areDistinct(Hidden(node: Node("a"))) { $0.node })
  }

  @Test func otherTypesOfTheSameKeyAreDecoded() throws {
    struct A: Codable, Sendable, Equatable { var tag: String }
    let store = try TemporaryDirectory().store()
    try store.set(A(tag: "x"), forKey: "m")
    #expect(try store.model("m") == A(tag: "x"))
    #expect(try store.model("m") == Counted("x"))
    #expect(try store.model("m") == A(tag: "x"))
  }
}
