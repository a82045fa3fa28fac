@testable import Keepsake
@testable import keepsake_peer

/// A power cut at one moment, and how much of the operations without a sync had reached the disk.
struct PowerCut {
  /// The number of operations before the power cut.
  let count: Int
  /// What survives of operations without a sync, apart from the exceptions.
  let rest: Survival
  var exceptions: [Int: Survival] = [:]
}

/// The power cuts to try on a recording.
struct PowerCuts {
  let disk: RecordedDisk
  private let syncs: [Int]

  init(_ disk: RecordedDisk) {
    self.disk = disk
    syncs = disk.syncs
  }

  /// The contents of the disk after a power cut.
  func contents(after cut: PowerCut) -> DiskContents {
    var contents = DiskContents(disk.nodes)
    for number in 0..<cut.count {
      let isSafe = syncs[number] < cut.count
      contents.apply(
        disk.operations[number], isSafe ? .all : cut.exceptions[number] ?? cut.rest)
    }
    return contents
  }

  /// For each moment, power cuts that keep only synced operations, all operations, or names without
  /// bytes; that lose or keep exactly one of the latest operations; that tear the latest write or
  /// keep some of its pages; and `random` cuts that decide for each operation by chance.
  ///
  /// Cuts that lose only an earlier operation are among the cuts at an earlier moment.
  func all(latest: Int = 8, random randomCount: Int = 2) -> [PowerCut] {
    (0...disk.operations.count).flatMap { count in
      let pending = (0..<count).filter { syncs[$0] >= count && !isSync($0) }
      var cuts = plain(count)
      for number in pending.suffix(latest) {
        cuts.append(PowerCut(count: count, rest: .all, exceptions: [number: .nothing]))
        cuts.append(PowerCut(count: count, rest: .nothing, exceptions: [number: .all]))
      }
      var random = SplitMix64(seed: UInt64(count))
      if let number = pending.last(where: { isWrite($0) }) {
        for survival in tears(number, &random) {
          cuts.append(PowerCut(count: count, rest: .all, exceptions: [number: survival]))
        }
      }
      for _ in 0..<randomCount {
        var cut = PowerCut(count: count, rest: .all)
        for number in pending {
          let whole: [Survival] = [.nothing, .all, .length]
          let torn = tears(number, &random)
          // Half of them torn, however many ways there are to tear a write.
          let isTorn = !torn.isEmpty && Bool.random(using: &random)
          cut.exceptions[number] = (isTorn ? torn : whole).randomElement(using: &random)
        }
        cuts.append(cut)
      }
      return cuts
    }
  }

  /// The three cuts that treat all operations without a sync alike.
  func plain(_ count: Int) -> [PowerCut] {
    [Survival.nothing, .all, .length].map { PowerCut(count: count, rest: $0) }
  }

  private func isSync(_ number: Int) -> Bool {
    if case .sync = disk.operations[number] { true } else { false }
  }

  private func isWrite(_ number: Int) -> Bool {
    if case .write = disk.operations[number] { true } else { false }
  }

  /// How much of a write may have reached the disk: disks write whole sectors, file systems whole
  /// pages.
  private func tears(_ number: Int, _ random: inout SplitMix64) -> [Survival] {
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
