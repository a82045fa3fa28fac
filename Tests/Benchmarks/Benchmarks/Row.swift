// The measured figures, in the form that --json writes.
import Foundation

enum Unit: String, Codable {
  case nanoseconds
  case bytes
  case perSecond
  case items

  var moreIsBetter: Bool { self == .perSecond }
}

/// The result of several rounds.
struct Figure: Codable {
  let median: Double
  let min: Double
  let max: Double

  init(_ values: [Double]) {
    median = Self.median(values)
    min = values.min() ?? .nan
    max = values.max() ?? .nan
  }

  private static func median(_ values: [Double]) -> Double {
    let sorted = values.sorted()
    let middle = sorted.count / 2
    if sorted.isEmpty { return .nan }
    return sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
  }
}

/// The figures of the floor or of a peer in the same rounds.
struct Comparison: Codable {
  let name: String
  /// What it lacks compared with Keepsake.
  var weaker: String?
  /// What it does in addition.
  var stronger: String?
  let value: Figure
  /// The ratio within each round: for a base, Keepsake's figure divided by its own; for a peer, how
  /// many times as good as the peer Keepsake is.
  let ratio: Figure
  /// The ratio is at most this for a base, at least this for a peer.
  var target: Double?
}

struct Row: Codable {
  let section: Section
  let operation: String
  var size: Int?
  var count: Int?
  let unit: Unit
  let keepsake: Figure
  /// The absolute maximum for Keepsake.
  var limit: Double?
  var base: Comparison?
  var peers: [Comparison]
  /// What was missing on the machine for this row.
  var note: String?
}

/// Everything about one run.
struct Report: Codable {
  /// Increased when older readers would misread a file.
  var format = 1
  let machine: Machine
  let rounds: Int
  let rows: [Row]
  /// The sections that failed, with their errors.
  let failures: [String]

  func write(to path: String) throws {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    // A ratio to zero is not a number, which JSON cannot express.
    encoder.nonConformingFloatEncodingStrategy = .convertToString(
      positiveInfinity: "inf", negativeInfinity: "-inf", nan: "nan")
    try (encoder.encode(self) + Data("\n".utf8)).write(to: URL(filePath: path), options: .atomic)
  }

  static func read(from path: String) throws -> Report {
    let data = try Data(contentsOf: URL(filePath: path))
    struct Version: Codable { let format: Int }
    let decoder = JSONDecoder()
    decoder.nonConformingFloatDecodingStrategy = .convertFromString(
      positiveInfinity: "inf", negativeInfinity: "-inf", nan: "nan")
    let version = try decoder.decode(Version.self, from: data).format
    guard version == 1 else { throw Failure("\(path) has format \(version), not 1") }
    return try decoder.decode(Report.self, from: data)
  }
}
