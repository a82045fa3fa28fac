// One row of the table: every round times all subjects one after the other, so that whatever else
// the machine does meanwhile hits them alike, and only ratios within a round are compared.

/// Does its operation as often as it is told.
typealias Subject = (_ count: Int) throws -> Void

/// What is measured must be used, or the optimiser removes it.
nonisolated(unsafe) var sink = 0

struct Row {
  let operation: String
  let keys: Int?
  let size: Int?
  let target: String
  let keepsake: Double
  var floor: Double?
  var ratio: [Double] = []
  var peerName = ""
  var peer: Double?
  var peerRatio: Double?

  /// The cells as they stand in the table.
  var cells: [String] {
    [
      operation, keys.map { "\($0)" } ?? "", size.map(bytes) ?? "", time(keepsake),
      floor.map(time) ?? "-", ratio.isEmpty ? "-" : decimal(median(ratio)), target,
      peer.map(time) ?? "-", peerRatio.map { decimal($0) + " x" } ?? "-", peerName,
      ratio.isEmpty ? "-" : "\(decimal(ratio.min() ?? 0))...\(decimal(ratio.max() ?? 0))",
    ]
  }

  static let titles = [
    "operation", "keys", "size", "Keepsake", "floor", "ratio", "target", "peer", "peer ratio",
    "peer is", "spread",
  ]
}

struct Bench {
  let rounds: Int
  private(set) var rows: [Row] = []

  init(rounds: Int) { self.rounds = rounds }

  /// Measures one operation against its floor and its peers.
  ///
  /// - Parameters:
  ///   - batch: How long one subject's operations of one round take together, about.
  ///   - limit: How many these are at most.
  ///   - prepare: Is told how many will follow, before each batch and outside of its time.
  mutating func measure(
    _ operation: String, keys: Int? = nil, size: Int? = nil, target: String,
    batch: Duration = .milliseconds(4), limit: Int = .max, rounds mostRounds: Int = .max,
    prepare: Subject = { _ in },
    keepsake: @escaping Subject, floor: Subject?, peers: [(name: String, subject: Subject)] = []
  ) throws {
    let subjects = [keepsake] + (floor.map { [$0] } ?? []) + peers.map(\.subject)
    let counts = try subjects.map {
      try Self.count(for: batch, limit: limit, prepare: prepare, $0)
    }
    var times = [[Double]](repeating: [], count: subjects.count)
    for round in 0..<min(rounds, mostRounds) {
      // Each round starts with another subject: none always follows the same one.
      for offset in subjects.indices {
        let which = (round + offset) % subjects.count
        try prepare(counts[which])
        let taken = try ContinuousClock().measure { try subjects[which](counts[which]) }
        times[which].append(taken.nanoseconds / Double(counts[which]))
      }
    }
    let row = Row(
      operation: operation, keys: keys, size: size, target: target, keepsake: median(times[0]),
      floor: floor.map { _ in median(times[1]) },
      ratio: floor.map { _ in zip(times[0], times[1]).map { $0 / $1 } } ?? [])
    if peers.isEmpty { rows.append(row) }
    for (peer, taken) in zip(peers, times.suffix(peers.count)) {
      var withPeer = row
      withPeer.peerName = peer.name
      withPeer.peer = median(taken)
      withPeer.peerRatio = median(zip(taken, times[0]).map { $0 / $1 })
      rows.append(withPeer)
    }
  }

  /// How many operations make a batch; the first ones also warm up.
  private static func count(
    for batch: Duration, limit: Int, prepare: Subject, _ subject: Subject
  ) throws -> Int {
    var count = 1
    while true {
      try prepare(count)
      let taken = try ContinuousClock().measure { try subject(count) }
      if taken >= batch || count == limit { return count }
      count = min(limit, max(count * 2, min(count * 16, Int(Double(count) * (batch / taken)))))
    }
  }
}

extension Bench {
  /// All rows, those of one operation together, in aligned columns.
  var table: String {
    var operations: [String] = []
    for row in rows where !operations.contains(row.operation) { operations.append(row.operation) }
    let sorted = operations.flatMap { name in rows.filter { $0.operation == name } }
    let lines = [Row.titles] + sorted.map(\.cells)
    let widths = Row.titles.indices.map { column in lines.map { $0[column].count }.max() ?? 0 }
    return lines.map { cells in
      cells.indices.map { column in
        let space = String(repeating: " ", count: widths[column] - cells[column].count)
        let isText = [0, 9].contains(column)
        return isText ? cells[column] + space : space + cells[column]
      }.joined(separator: "  ")
    }.joined(separator: "\n")
  }
}

func median(_ values: [Double]) -> Double {
  let sorted = values.sorted()
  let middle = sorted.count / 2
  if sorted.isEmpty { return .nan }
  return sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

private func decimal(_ number: Double) -> String {
  let hundredths = Int((number * 100).rounded())
  if hundredths >= 10_000 { return "\(hundredths / 100)" }
  return "\(hundredths / 100).\(hundredths % 100 < 10 ? "0" : "")\(hundredths % 100)"
}

private func bytes(_ count: Int) -> String {
  switch count {
  case ..<1_024: "\(count) B"
  case ..<(1 << 20): "\(count >> 10) KiB"
  default: "\(count >> 20) MiB"
  }
}

private func time(_ nanoseconds: Double) -> String {
  switch nanoseconds {
  case ..<1_000: decimal(nanoseconds) + " ns"
  case ..<1_000_000: decimal(nanoseconds / 1_000) + " us"
  default: decimal(nanoseconds / 1_000_000) + " ms"
  }
}

extension Duration {
  fileprivate var nanoseconds: Double { self / .nanoseconds(1) }
}

/// Visits `count` elements, from the start again after the last.
@inline(__always)
func each<Element>(
  _ elements: [Element], _ count: Int, _ body: (Element) throws -> Void
) rethrows {
  var position = 0
  for _ in 0..<count {
    try body(elements[position])
    position += 1
    if position == elements.count { position = 0 }
  }
}
