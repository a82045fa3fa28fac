// What has been measured, as it is written to a file.
import Foundation

enum Unit: String, Codable {
  case nanoseconds
  case bytes
  case perSecond
  case items

  var moreIsBetter: Bool { self == .perSecond }
}

/// What several rounds came to.
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

/// Something else that did the same in the same rounds.
struct Comparison: Codable {
  let name: String
  /// What it does less than Keepsake.
  var weaker: String?
  /// What it does more.
  var stronger: String?
  let value: Figure
  /// Taken within each round: of a base, how many times its figure Keepsake's is; of a peer, how
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
  /// At most this, whatever else takes.
  var limit: Double?
  var base: Comparison?
  var peers: [Comparison]
  /// What the machine lacked for this row.
  var note: String?
}

/// Everything about one run.
struct Report: Codable {
  /// Changes whenever a reader of older files would misread newer ones.
  var format = 1
  let machine: Machine
  let rounds: Int
  let rows: [Row]
  /// Sections that ended early, and why.
  let failures: [String]

  func write(to path: String) throws {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
    // A ratio to nothing is no number of JSON's.
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
