import Testing

@testable import Keepsake

@Suite struct ByteKeyedDictionaryTests {
  @Test func matchesDictionaryUnderRandomOperations() {
    var table = ByteKeyedDictionary<Int>()
    var model: [String: Int] = [:]
    for step in 0..<20_000 {
      let key = "key\(Int.random(in: 0..<300))"
      if Bool.random() {
        #expect(table.set(key, step) == model.updateValue(step, forKey: key))
      } else {
        #expect(table.remove(key) == model.removeValue(forKey: key))
      }
      let probe = "key\(Int.random(in: 0..<300))"
      #expect(table[probe] == model[probe])
    }
    #expect(table.count == model.count)
    #expect(Set(table.keys) == Set(model.keys))
  }

  @Test func canonicallyEquivalentKeysStayApart() {
    var table = ByteKeyedDictionary<Int>()
    table.set("\u{E9}", 1)
    table.set("e\u{301}", 2)
    #expect(table["\u{E9}"] == 1)
    #expect(table["e\u{301}"] == 2)
  }
}
