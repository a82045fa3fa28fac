// Measures the rows. Each round times all contestants one after the other, so that other load on
// the machine affects them alike, and only ratios within a round are compared.

/// Repeats an operation `count` times.
typealias Subject = (_ count: Int) throws -> Void

/// Measures one figure.
typealias Probe = () throws -> Double

/// Results are added to it, so that the optimizer does not remove the measured work.
nonisolated(unsafe) var sink = 0

/// An alternative to Keepsake, or the floor.
struct Peer<Work> {
  let name: String
  /// What it lacks compared with Keepsake, which then may be slower.
  var weaker: String?
  /// What it does in addition.
  var stronger: String?
  /// How many times as fast as the peer Keepsake has to be.
  var target: Double = 1
  let work: Work

  init(
    _ name: String, weaker: String? = nil, stronger: String? = nil, target: Double = 1,
    _ work: Work
  ) {
    self.name = name
    self.weaker = weaker
    self.stronger = stronger
    self.target = target
    self.work = work
  }

  func map<Other>(_ transform: (Work) throws -> Other) rethrows -> Peer<Other> {
    try Peer<Other>(
      name, weaker: weaker, stronger: stronger, target: target, transform(work))
  }
}

struct Bench {
  let rounds: Int
  /// Whether to use smaller stores and fewer rounds.
  let isQuick: Bool
  var section = Section.settings
  private(set) var rows: [Row] = []

  init(isQuick: Bool) {
    self.isQuick = isQuick
    rounds = isQuick ? 5 : 21
  }

  /// Measures the time of one operation against its floor and its peers.
  ///
  /// - Parameters:
  ///   - target: How many times as long as the floor Keepsake may take.
  ///   - limit: How many nanoseconds Keepsake may take.
  ///   - batch: The approximate time of one contestant's operations in one round.
  ///   - most: The maximum number of these operations.
  ///   - prepare: Called before each batch with the number of its operations, and not timed.
  mutating func measure(
    _ operation: String, size: Int? = nil, count: Int? = nil, target: Double? = nil,
    limit: Double? = nil, batch: Duration = .milliseconds(4), most: Int = .max,
    rounds mostRounds: Int = .max, prepare: Subject = { _ in },
    keepsake: @escaping Subject, floor: Subject?, floorName: String = "floor",
    peers: [Peer<Subject>] = []
  ) throws {
    try withoutActuallyEscaping(prepare) { prepare in
      func probe(_ subject: @escaping Subject) throws -> Probe {
        let count = try Self.count(for: batch, most: most, prepare: prepare, subject)
        return {
          try prepare(count)
          let taken = try ContinuousClock().measure { try subject(count) }
          return taken / .nanoseconds(1) / Double(count)
        }
      }
      try compare(
        operation, size: size, count: count, unit: .nanoseconds, limit: limit, rounds: mostRounds,
        keepsake: probe(keepsake),
        base: floor.map { Peer(floorName, target: target ?? .infinity, try probe($0)) },
        peers: peers.map { try $0.map(probe) })
    }
  }

  /// Compares figures of any kind. The target of a base is the maximal ratio to its figure.
  mutating func compare(
    _ operation: String, size: Int? = nil, count: Int? = nil, unit: Unit, limit: Double? = nil,
    rounds mostRounds: Int = .max, note: String? = nil,
    keepsake: Probe, base: Peer<Probe>?, peers: [Peer<Probe>] = []
  ) throws {
    try withoutActuallyEscaping(keepsake) { keepsake in
      let probes = [keepsake] + (base.map { [$0.work] } ?? []) + peers.map(\.work)
      var figures = [[Double]](repeating: [], count: probes.count)
      for round in 0..<min(rounds, mostRounds) {
        // Each round starts with another contestant, so that none always follows the same one.
        for offset in probes.indices {
          let which = (round + offset) % probes.count
          figures[which].append(try probes[which]())
        }
      }
      let own = figures[0]
      func comparison(_ peer: Peer<Probe>, _ values: [Double], isBase: Bool) -> Comparison {
        let isOwnOverOther = isBase || unit.moreIsBetter
        return Comparison(
          name: peer.name, weaker: peer.weaker, stronger: peer.stronger, value: Figure(values),
          ratio: Figure(zip(own, values).map { isOwnOverOther ? $0 / $1 : $1 / $0 }),
          target: peer.weaker == nil && peer.target.isFinite ? peer.target : nil)
      }
      rows.append(
        Row(
          section: section, operation: operation, size: size, count: count, unit: unit,
          keepsake: Figure(own), limit: limit,
          base: base.map { comparison($0, figures[1], isBase: true) },
          peers: zip(peers, figures.suffix(peers.count)).map {
            comparison($0, $1, isBase: false)
          }, note: note))
    }
  }

  /// The number of operations in a batch; measuring it also warms up.
  private static func count(
    for batch: Duration, most: Int, prepare: Subject, _ subject: Subject
  ) throws -> Int {
    var count = 1
    // Measure twice, so that one slow measurement on a busy machine does not lead to batches of a
    // single cold call. Batches of less than a millisecond are single calls on purpose, and some of
    // those cannot be repeated.
    var isConfirmed = batch < .milliseconds(1)
    while true {
      try prepare(count)
      let taken = try ContinuousClock().measure { try subject(count) }
      if taken >= batch || count == most {
        if isConfirmed || count == most { return count }
        isConfirmed = true
        continue
      }
      isConfirmed = false
      count = min(most, max(count * 2, min(count * 16, Int(Double(count) * (batch / taken)))))
    }
  }
}

/// Visits `count` elements, starting again after the last one.
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
