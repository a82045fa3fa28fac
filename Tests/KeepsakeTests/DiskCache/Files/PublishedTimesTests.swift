import Testing

@testable import Keepsake
@testable import keepsake_peer

@Suite struct PublishedTimesTests {
  private let times = PublishedTimes()

  private func names(_ count: Int) throws -> [EntryName] {
    try (0..<count).map { number in
      try EntryName(key: "key-\(number)", rules: .init(ignoresCase: false, longestName: 255))
    }
  }

  @Test func onlyTheLastTimeOfANameIsKnown() throws {
    // More than there is room for.
    let names = try names(2_000)
    for round in 1...3 {
      for (number, name) in names.enumerated() {
        let old = Int64(number + 1) * 1_000 + Int64(round)
        times.note(old, of: name)
        #expect(times.mayContain(name) && times.isLast(old, of: name))
        times.note(old + 500, of: name)
        #expect(times.isLast(old + 500, of: name) && !times.isLast(old, of: name))
        #expect(!times.isLast(old - 1, of: name))
      }
    }
  }

  /// The number of keys that the benchmarks set again and again.
  @Test func aFewHundredNamesDoNotDisplaceEachOther() throws {
    let names = try names(256)
    for (number, name) in names.enumerated() { times.note(Int64(number), of: name) }
    let known = names.indices.filter { times.isLast(Int64($0), of: names[$0]) }
    #expect(known.count > 240)
    #expect(try self.names(2_000).dropFirst(256).count(where: times.mayContain) < 10)
  }

  /// The times of entries that expire are even, and the others odd.
  @Test(arguments: [0, 1]) func aFewHundredNamesDisplaceManyOthers(lowestBit: UInt64) throws {
    let all = try names(6_000)
    for name in all.dropFirst(256) { times.note(1_000 | Int64(lowestBit), of: name) }
    var generator = SplitMix64(seed: lowestBit)
    for _ in 0..<100 {
      for name in all.prefix(256) {
        times.note(Int64(generator.next() >> 20 & ~1 | lowestBit), of: name)
      }
    }
    #expect(all.prefix(256).count(where: times.mayContain) > 240)
  }
}
