@testable import Keepsake

/// A power cut at one moment, and what the disk had written out by then of what no sync had made
/// safe.
struct PowerCut {
  /// How many operations had been made.
  let count: Int
  /// Of what is not safe, all but the exceptions.
  let rest: Survival
  var exceptions: [Int: Survival] = [:]
}

/// The power cuts that a recording is to stand.
struct PowerCuts {
  let disk: RecordedDisk
  private let securing: [Int]

  init(_ disk: RecordedDisk) {
    self.disk = disk
    securing = disk.securing
  }

  /// What is on the disk after one of them.
  func contents(after cut: PowerCut) -> DiskContents {
    var contents = DiskContents(disk.nodes)
    for number in 0..<cut.count {
      let isSafe = securing[number] < cut.count
      contents.apply(
        disk.operations[number], isSafe ? .all : cut.exceptions[number] ?? cut.rest)
    }
    return contents
  }

  /// At each moment: nothing but what is safe; all; names without bytes; each of the latest effects
  /// alone missing, or alone there; the latest write torn, or with any of its pages; and any
  /// effects by chance, of which writes may be torn as well.
  ///
  /// Those that leave out what is not of the latest were made at an earlier moment.
  func all(latest: Int = 8, byChance: Int = 2) -> [PowerCut] {
    (0...disk.operations.count).flatMap { count in
      let pending = (0..<count).filter { securing[$0] >= count && !isSync($0) }
      var cuts = plain(count)
      for number in pending.suffix(latest) {
        cuts.append(PowerCut(count: count, rest: .all, exceptions: [number: .nothing]))
        cuts.append(PowerCut(count: count, rest: .nothing, exceptions: [number: .all]))
      }
      var random = Seeded(state: UInt64(count))
      if let number = pending.last(where: { isWrite($0) }) {
        for survival in tears(number, &random) {
          cuts.append(PowerCut(count: count, rest: .all, exceptions: [number: survival]))
        }
      }
      for _ in 0..<byChance {
        var cut = PowerCut(count: count, rest: .all)
        for number in pending {
          let whole: [Survival] = [.nothing, .all, .length]
          let torn = tears(number, &random)
          // As often the one as the other, however many ways there are to tear it.
          let isTorn = !torn.isEmpty && Bool.random(using: &random)
          cut.exceptions[number] = (isTorn ? torn : whole).randomElement(using: &random)
        }
        cuts.append(cut)
      }
      return cuts
    }
  }

  /// The three that need no choice.
  func plain(_ count: Int) -> [PowerCut] {
    [Survival.nothing, .all, .length].map { PowerCut(count: count, rest: $0) }
  }

  private func isSync(_ number: Int) -> Bool {
    if case .sync = disk.operations[number] { true } else { false }
  }

  private func isWrite(_ number: Int) -> Bool {
    if case .write = disk.operations[number] { true } else { false }
  }

  /// The ways in which a write can be on the disk in part: disks write whole sectors, and file
  /// systems pages.
  private func tears(_ number: Int, _ random: inout Seeded) -> [Survival] {
    guard case .write(_, let offset, let bytes) = disk.operations[number] else { return [] }
    let end = offset + bytes.count
    func cuts(_ size: Int) -> [Int] {
      Array(stride(from: (offset / size + 1) * size, to: end, by: size))
    }
    let ends = Set(cuts(512).prefix(2) + cuts(512).suffix(1) + cuts(Survival.pageSize).prefix(8))
    var tears = ends.sorted().map { Survival.firstBytes($0 - offset) }
    if cuts(Survival.pageSize).count > 0 {
      tears += (0..<3).map { _ in .pages(random.next()) }
    }
    return tears
  }
}
