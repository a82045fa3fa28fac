import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeValkey

@Suite struct TableMessageTests {
  private func entry(_ key: String, _ text: String?) -> StorageEngines.Entry {
    StorageEngines.Entry(key: key, data: text.map { Data($0.utf8) })
  }

  private var examples: [TableChanges] {
    let keys = ["a", "", " ", "3:abc", "?", "!", "\u{0}", "größe", "gro\u{308}ße", "鍵\n"]
    return [
      TableChanges([]), TableChanges([], removesAll: true), TableChanges([entry("a", "1")]),
      TableChanges([entry("a", nil)]), TableChanges([entry("a", "")]),
      TableChanges(keys.map { entry($0, "\"\($0)\"") } + [entry("z", nil)]),
      TableChanges([entry("?", "?")], removesAll: true),
    ]
  }

  private func expectSame(_ message: TableMessage?, _ changes: TableChanges) {
    let entries = message?.changes?.entries
    // Byte by byte: strings that differ only in Unicode normalization are equal.
    #expect(entries?.map { Array($0.key.utf8) } == changes.entries.map { Array($0.key.utf8) })
    #expect(entries?.map(\.data) == changes.entries.map(\.data))
    #expect(message?.changes?.removesAll == changes.removesAll)
  }

  @Test func messagesAreReadBack() {
    for changes in examples {
      let message = TableMessage(TableMessage.bytes(id: "id", version: 7, name: "n", changes))
      #expect(message?.id == "id" && message?.version == 7 && message?.name == "n")
      expectSame(message, changes)
      // The script puts these parts together.
      let payload = TableMessage.payload(of: changes)
      expectSame(TableMessage(Array("x1 9007199254740991 m n ".utf8) + payload), changes)
    }
  }

  @Test func largeChangesAreNotPublished() {
    let limit = TableMessage.maximumSize
    let small = TableChanges([entry("a", String(repeating: "x", count: limit - 100))])
    #expect(TableMessage.payload(of: small).count > limit - 100)
    let large = TableChanges([entry("a", String(repeating: "x", count: limit))])
    #expect(TableMessage.payload(of: large) == Array("?".utf8))
    let message = TableMessage(Array("id 3 m n ?".utf8))
    #expect(message?.version == 3 && message?.changes == nil)
  }

  /// A message that ends too early is no message, or one with fewer changes.
  @Test func truncatedMessagesAreRefused() {
    for changes in examples {
      let bytes = TableMessage.bytes(id: "id", version: 12, name: "n", changes)
      var ends: Set<Int> = [9]
      if changes.removesAll { ends.insert(10) }
      for count in 0...changes.entries.count {
        let some = TableChanges(
          Array(changes.entries.prefix(count)), removesAll: changes.removesAll)
        ends.insert(TableMessage.bytes(id: "id", version: 12, name: "n", some).count)
      }
      for count in 0..<bytes.count {
        let isRead = TableMessage(Array(bytes.prefix(count))) != nil
        #expect(isRead == (ends.contains(count)), "\(count) of \(bytes.count)")
      }
    }
  }

  @Test(
    arguments: [
      "", " ", "  ", "id", "id 1", " 1 m n ", "id x m n ", "id -1 m n ", "id 0 m n ", "id 1 m n",
      "id 9007199254740992 m n ", "id 9223372036854775808 m n ", "id 1 m n x", "id 1 m n 1",
      "id 1 m n :", "id 1 m n 1:", "id 1 m n 1:a", "id 1 m n 1:a*", "id 1 m n 2:a-",
      "id 1 m n -1:a-", "id 1 m n 1:a+", "id 1 m n 1:a+5:abcd", "id 1 m n 1:a+-1:",
      "id 1 m n 9223372036854775807:a-", "id 1 m n 99999999999999999999:a-", "id 1 m n 1:a-?",
      "id 1 m n ??", "id 1 m n !?", "id 1 m n **", "id 1 m n 1:a+9223372036854775807:b",
      "id 1 m n !!",
    ]) func wrongMessagesAreRefused(_ text: String)
  {
    #expect(TableMessage(Array(text.utf8)) == nil)
  }

  @Test func bytesThatAreNotTextAreRefused() {
    #expect(TableMessage(Array("id 1 m n 1:".utf8) + [0xFF, UInt8(ascii: "-")]) == nil)
    #expect(TableMessage([0xFF] + Array(" 1 m n ".utf8)) == nil)
  }
}
