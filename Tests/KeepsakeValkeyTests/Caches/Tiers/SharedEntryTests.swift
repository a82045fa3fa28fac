import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeValkey

/// The bytes of an entry in the second tier.
@Suite struct SharedEntryTests {
  private static let day = 86_400 * WallClock.second
  private static let payload = Data((0..<300).map { UInt8(truncatingIfNeeded: $0) })

  private func entry(
    _ content: SharedEntry.Content, _ expiry: StoredExpiry = .never, kept: Int64 = 0,
    tags: [String: String] = [:], payload: Data = Self.payload
  ) -> (entry: SharedEntry, bytes: [UInt8]) {
    let options = WriteOptions(
      expiry: expiry, details: EntryDetails(kept: kept, tags: tags), isDurable: false)
    return payload.withUnsafeBytes { payload in
      let entry = SharedEntry(content, payload: payload, options)
      return (entry, entry.bytes(with: payload))
    }
  }

  private func parse(
    _ bytes: some Collection<UInt8>, number: UInt64 = 0
  ) throws(SharedEntry.Failure) -> SharedEntry {
    try SharedEntry(SharedBytes(Array(bytes)[...], number: number, remaining: 0))
  }

  @Test(arguments: [
    StoredExpiry.never, .after(day), .at(WallClock.now + day), .idle(day), .after(1),
  ])
  func entriesComeBack(_ expiry: StoredExpiry) throws {
    for kept in [0, Self.day] {
      for tags in [[:], ["etag": "\"x\"", "": "n\u{E9}"]] {
        let (stored, bytes) = entry(.payload(.text), expiry, kept: kept, tags: tags)
        let found = try parse(bytes)
        #expect(found == stored && found.expiry == expiry)
        #expect(
          try parse(bytes, number: 7).version
            == EntryVersion(number: 7, name: stored.version.name))
        #expect(found.kept == kept && found.details?.tags ?? [:] == tags)
        #expect(found.payload(in: bytes[...])?.bytes == Self.payload)
        #expect(found.payload(in: bytes[...])?.kind == .text)
      }
    }
  }

  @Test func valuesWithoutBytesComeBack() throws {
    let (none, bytes) = entry(.noValue, .after(5), payload: Data())
    #expect(try parse(bytes) == none && none.payload(in: bytes[...]) == nil)
    let large = Data(count: SharedEntry.largestPayload + 1)
    let (mark, markBytes) = entry(.tooLarge, payload: large)
    #expect(markBytes.count < 100)
    #expect(try parse(markBytes) == mark && mark.size == large.count)
    let (empty, emptyBytes) = entry(.payload(.data), payload: Data())
    #expect(empty.payload(in: emptyBytes[...])?.bytes == Data())
  }

  @Test func truncatedBytesAreNoEntry() throws {
    let (stored, bytes) = entry(.payload(.data), .after(5), kept: 3, tags: ["a": "b"])
    let headerSize = bytes.count - Self.payload.count
    for count in 0..<bytes.count {
      if count < headerSize {
        #expect(throws: SharedEntry.Failure.damaged) { try parse(bytes[..<count]) }
      } else {
        #expect(try parse(bytes[..<count]) == stored)
        #expect(stored.payload(in: bytes[..<count]) == nil)
      }
    }
    #expect(stored.payload(in: (bytes + [0])[...]) == nil)
  }

  @Test func changedBytesAreNoEntry() throws {
    let (stored, bytes) = entry(.payload(.data), .after(5), kept: 3, tags: ["a": "b"])
    for index in bytes.indices {
      for bit in 0..<8 {
        var changed = bytes
        changed[index] ^= 1 << bit
        if index < bytes.count - Self.payload.count {
          #expect(throws: SharedEntry.Failure.self) { try parse(changed) }
        } else {
          #expect(stored.payload(in: changed[...]) == nil)
        }
      }
    }
  }

  /// Its sum is right, so it is no damage.
  @Test func newerFormatIsKnown() {
    var (_, bytes) = entry(.payload(.data))
    bytes[0] = 2
    let sum = bytes.withUnsafeBytes {
      Checksum.sum(
        UnsafeRawBufferPointer(start: nil, count: 0),
        seed: Checksum.sum(UnsafeRawBufferPointer(rebasing: $0[..<48]), seed: 0))
    }
    withUnsafeBytes(of: sum.littleEndian) { bytes.replaceSubrange(48..<56, with: $0) }
    #expect(throws: SharedEntry.Failure.newerFormat) { try parse(bytes) }
  }

  @Test func lifetimesEnd() {
    let now = WallClock.now
    #expect(entry(.payload(.data)).entry.lifetime == 30 * Self.day)
    #expect(entry(.payload(.data), .after(5), kept: 3).entry.lifetime == 8)
    #expect(entry(.payload(.data), .idle(5)).entry.lifetime == 5)
    #expect(entry(.payload(.data), .after(.max), kept: .max).entry.lifetime == 3_650 * Self.day)
    let date = entry(.payload(.data), .at(now + Self.day)).entry.lifetime
    #expect(date > 0 && date <= Self.day)
    #expect(entry(.payload(.data), .at(.min), kept: 3).entry.lifetime == 3)
    let never = entry(.payload(.data)).entry
    #expect(never.isFresh(remaining: 1))
    let kept = entry(.payload(.data), .after(5), kept: 3).entry
    #expect(kept.isFresh(remaining: 4) && !kept.isFresh(remaining: 3))
  }

  // MARK: The version in a sidecar

  @Test func versionIsBesideTheTags() throws {
    let tags = ["a": "b", String(repeating: "x", count: 300): "y"]
    for number in [nil, 0, 1, UInt64.max] {
      let version = number.map { EntryVersion(number: $0, name: ~$0) }
      guard let details = EntryDetails(kept: 3, tags: tags, version: version) else { continue }
      let bytes = details.bytes
      let found = bytes.withUnsafeBytes { EntryDetails($0) }
      #expect(found == details && found?.version == version && found?.tags == tags)
      for count in 8..<bytes.count {
        let part = bytes[..<count].withUnsafeBytes { EntryDetails($0) }
        #expect(part?.version == nil)
      }
    }
    // The version takes no space from the tags.
    let most = ["k": String(repeating: "x", count: EntryDetails.largestTags - 5)]
    let bytes = try #require(EntryDetails(tags: most, version: EntryVersion(number: 5, name: 6)))
      .bytes
    #expect(bytes.withUnsafeBytes { EntryDetails($0) }?.tags == most)
  }
}
