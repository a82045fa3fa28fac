internal import FoundationEssentials
internal import Keepsake

/// The header of an entry in the second tier, which its payload follows.
///
/// All integers are little-endian:
///
///      0  format    1  kind    2  expiry    3  zero    4  size of the details (4 bytes)
///      8  name of the version 16  created             24  time of the expiry
///     32  payload size        40  payload checksum    48  checksum of all else before the payload
///     56  the details, as a sidecar has them
struct SharedEntry: Equatable, Sendable {
  enum Content: Equatable, Sendable {
    case payload(Payload.Kind)
    /// A record that there is no value.
    case noValue
    /// The payload is only on the machine that stored it. The header tells whether it still counts.
    case tooLarge

    init(_ kind: Payload.Kind, size: Int) {
      self = size > SharedEntry.largestPayload ? .tooLarge : .payload(kind)
    }
  }

  enum Failure: Error {
    case damaged
    case newerFormat
  }

  /// Its number stands before the entry. It is 0 until the server has stored the entry.
  private(set) var version: EntryVersion
  let content: Content
  let expiry: StoredExpiry
  /// When the entry was stored, by the clock of the machine that did.
  let created: Int64
  let details: EntryDetails?
  /// Of the payload.
  let size: Int
  let checksum: UInt64

  private static let format: UInt8 = 1
  private static let headerSize = 56
  private static let noValue: UInt8 = 255
  private static let tooLarge: UInt8 = 254
  /// Larger payloads stay on the machine that stored them.
  static let largestPayload = 8 << 20
  /// How many bytes are read to compare versions. Smaller entries need no second reading.
  static let headCount = 4_096

  init(
    _ content: Content, payload: UnsafeRawBufferPointer, _ options: WriteOptions
  ) {
    version = EntryVersion(number: 0, name: .random(in: 1 ... .max))
    self.content = content
    expiry = options.expiry
    created = WallClock.now
    details = EntryDetails(kept: options.details?.kept ?? 0, tags: options.details?.tags ?? [:])
    size = payload.count
    checksum = content == .tooLarge ? 0 : StreamChecksum.sum(payload)
  }

  // MARK: Bytes

  func bytes(with payload: UnsafeRawBufferPointer) -> [UInt8] {
    let details = details?.bytes ?? []
    let payload = content == .tooLarge ? UnsafeRawBufferPointer(rebasing: payload[..<0]) : payload
    let (rule, time) = expiry.stored
    var bytes: [UInt8] = []
    bytes.reserveCapacity(Self.headerSize + details.count + payload.count)
    let kind =
      switch content {
      case .payload(let kind): kind.rawValue
      case .noValue: Self.noValue
      case .tooLarge: Self.tooLarge
      }
    bytes += [Self.format, kind, rule, 0]
    bytes.append(number: UInt32(details.count))
    bytes.append(number: version.name)
    bytes.append(number: created)
    bytes.append(number: time)
    bytes.append(number: UInt64(size))
    bytes.append(number: checksum)
    bytes.append(
      number: bytes.withUnsafeBytes { fields in details.withUnsafeBytes { Self.sum(fields, $0) } })
    bytes += details
    bytes.append(contentsOf: payload)
    return bytes
  }

  private static func sum(
    _ fields: UnsafeRawBufferPointer, _ details: UnsafeRawBufferPointer
  ) -> UInt64 { Checksum.sum(details, seed: Checksum.sum(fields, seed: 0)) }

  /// Parses the header. The payload may be missing or incomplete.
  init(_ stored: SharedBytes) throws(Failure) {
    self = try stored.bytes.span.bytes.withUnsafeBytes { (bytes) throws(Failure) in
      try SharedEntry(bytes, number: stored.number)
    }
  }

  private init(_ bytes: UnsafeRawBufferPointer, number: UInt64) throws(Failure) {
    guard let format = bytes.first else { throw .damaged }
    guard bytes.count >= Self.headerSize else { throw .damaged }
    let detailsSize = Int(bytes.number(at: 4, as: UInt32.self))
    let end = Self.headerSize + detailsSize
    guard detailsSize <= EntryDetails.largestSize, bytes.count >= end else { throw .damaged }
    let fields = UnsafeRawBufferPointer(rebasing: bytes[..<48])
    let details = UnsafeRawBufferPointer(rebasing: bytes[Self.headerSize..<end])
    guard bytes.number(at: 48) == Self.sum(fields, details) else { throw .damaged }
    guard format == Self.format else { throw .newerFormat }
    version = EntryVersion(number: number, name: bytes.number(at: 8))
    created = bytes.number(at: 16)
    checksum = bytes.number(at: 40)
    guard let expiry = StoredExpiry(rule: bytes[2], time: bytes.number(at: 24)),
      let size = Int(exactly: bytes.number(at: 32, as: UInt64.self))
    else { throw .damaged }
    self.expiry = expiry
    self.size = size
    switch bytes[1] {
    case Self.noValue: content = .noValue
    case Self.tooLarge: content = .tooLarge
    default:
      guard let kind = Payload.Kind(rawValue: bytes[1]) else { throw .damaged }
      content = .payload(kind)
    }
    guard size <= Self.largestPayload || content == .tooLarge else { throw .damaged }
    if details.isEmpty {
      self.details = nil
    } else {
      guard let details = EntryDetails(details), !details.isEmpty, details.version == nil else {
        throw .damaged
      }
      self.details = details
    }
  }

  /// The payload that follows the header; nil if it is incomplete or damaged.
  func payload(in bytes: ArraySlice<UInt8>) -> Payload? {
    let start = Self.headerSize + (details?.bytes.count ?? 0)
    guard case .payload(let kind) = content, bytes.count == start + size else { return nil }
    let data = bytes.withUnsafeBytes { bytes -> Data? in
      let payload = UnsafeRawBufferPointer(rebasing: bytes[start...])
      return StreamChecksum.sum(payload) == checksum ? Data(payload) : nil
    }
    return data.map { Payload(bytes: $0, kind: kind) }
  }

  // MARK: Times

  /// How long the expiry lets the entry be fresh.
  private var length: Int64 {
    switch expiry {
    case .never: Self.longestUnlimited
    case .after(let length), .idle(let length): min(length, Self.longest)
    case .at(let time): min(max(0, time.subtractingSaturated(created)), Self.longest)
    }
  }

  /// How long the entry is kept after its expiry. Both times together are at most the longest.
  var kept: Int64 { min(details?.kept ?? 0, Self.longest - length) }

  private static let day = 86_400 * WallClock.second
  /// How long the server keeps an entry that never expires.
  private static let longestUnlimited = 30 * day
  private static let longest = 3_650 * day

  /// How long the server is to keep the entry.
  var lifetime: Int64 { length + kept }

  /// Whether it has not expired, if the server keeps it for this long.
  func isFresh(remaining: Int64) -> Bool {
    if case .never = expiry { return true }
    return min(remaining, lifetime) > kept
  }

  /// How this machine stores the entry, if the server keeps it for this long: only the server's
  /// clock is the same for all machines.
  func localOptions(remaining: Int64) -> WriteOptions {
    let rest = min(remaining, lifetime).subtractingSaturated(kept)
    let local: StoredExpiry =
      switch expiry {
      case .never: .never
      case .idle(let length) where rest > 0: .idle(length)
      default: rest > 0 ? .after(rest) : .at(WallClock.now.addingSaturated(rest))
      }
    let details = EntryDetails(kept: kept, tags: details?.tags ?? [:], version: version)
    return WriteOptions(expiry: local, details: details, isDurable: false)
  }

}
