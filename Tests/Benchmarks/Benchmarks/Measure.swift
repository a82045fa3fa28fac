// How a row comes about: every round times all contestants one after the other, so that whatever
// else the machine does meanwhile hits them alike, and only ratios within a round are compared.

/// Does its operation as often as it is told.
typealias Subject = (_ count: Int) throws -> Void

/// Takes one figure.
typealias Probe = () throws -> Double

/// What is measured must be used, or the optimiser removes it.
nonisolated(unsafe) var sink = 0

/// What a program would use instead.
struct Peer<Work> {
  let name: String
  /// What it does less than Keepsake, which then does not have to be ahead.
  var weaker: String?
  /// What it does more.
  var stronger: String?
  /// How many times as fast Keepsake has to be.
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
  /// Smaller stores will do.
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
  ///   - target: How many times as long as the floor it may take.
  ///   - limit: How many nanoseconds it may take.
  ///   - batch: How long one subject's operations of one round take together, about.
  ///   - most: How many these are at most.
  ///   - prepare: Is told how many will follow, before each batch and outside of its time.
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

  /// Compares figures of any kind. A base's target is how many times its figure there may be.
  mutating func compare(
    _ operation: String, size: Int? = nil, count: Int? = nil, unit: Unit, limit: Double? = nil,
    rounds mostRounds: Int = .max, note: String? = nil,
    keepsake: Probe, base: Peer<Probe>?, peers: [Peer<Probe>] = []
  ) throws {
    try withoutActuallyEscaping(keepsake) { keepsake in
      let probes = [keepsake] + (base.map { [$0.work] } ?? []) + peers.map(\.work)
      var figures = [[Double]](repeating: [], count: probes.count)
      for round in 0..<min(rounds, mostRounds) {
        // Each round starts with another one: none always follows the same.
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

  /// How many operations make a batch; the first ones also warm up.
  private static func count(
    for batch: Duration, most: Int, prepare: Subject, _ subject: Subject
  ) throws -> Int {
    var count = 1
    // A machine that was busy elsewhere once must not leave a batch of one call, which would be
    // measured cold in each round. So short a batch is meant to be one call, though, and may not
    // come twice.
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
