// The figures as text: a table for each section, and the missed targets.
import Foundation

struct Table {
  private let rows: [Row]

  init(_ rows: [Row]) { self.rows = rows }

  /// Aligned columns, one for each peer of the section, and below them how peers differ.
  var text: String {
    let names = unique(rows.flatMap { $0.peers.map(\.name) })
    let notes = unique(rows.flatMap(Self.notes))
    let titles =
      ["operation", "size", "count", "Keepsake", base, "ratio", "target", "spread"] + names
    let lines = [titles] + rows.map { cells($0, names, notes) }
    let isUsed = titles.indices.map { column in lines.dropFirst().contains { $0[column] != "" } }
    let widths = titles.indices.map { column in lines.map { $0[column].count }.max() ?? 0 }
    let table = lines.map { cells in
      titles.indices.filter { isUsed[$0] }.map { column in
        let space = String(repeating: " ", count: widths[column] - cells[column].count)
        return column == 0 ? cells[column] + space : space + cells[column]
      }.joined(separator: "  ")
    }
    let feet = notes.enumerated().map { "  (\($0 + 1)) \($1)" }
    return (table + feet).joined(separator: "\n")
  }

  /// The title of the base column; if the bases differ, each row names its own.
  private var base: String {
    let names = unique(rows.compactMap(\.base?.name))
    return names.count == 1 ? names[0] : Self.anyBase
  }

  private static let anyBase = "compared with"

  private func baseCell(_ row: Row) -> String? {
    row.base.map { own in
      (base == Self.anyBase ? "\(own.name) " : "") + row.unit.text(own.value.median)
    }
  }

  private func cells(_ row: Row, _ names: [String], _ notes: [String]) -> [String] {
    func mark(_ note: String?) -> String {
      note.flatMap { notes.firstIndex(of: $0) }.map { " (\($0 + 1))" } ?? ""
    }
    let own: [String?] = [
      row.operation + mark(row.note), row.size.map { Unit.bytes.text(Double($0)) },
      row.count.map(grouped), row.unit.text(row.keepsake.median),
      baseCell(row), row.base.map { decimal($0.ratio.median) },
      row.limit.map { "<= " + row.unit.text($0) } ?? row.base?.target.map { "<= \($0)" },
      row.base.map { "\(decimal($0.ratio.min))...\(decimal($0.ratio.max))" },
    ]
    let others = names.map { name -> String in
      guard let peer = row.peers.first(where: { $0.name == name }) else { return "" }
      let ratio = peer.ratio.median
      return "\(row.unit.text(peer.value.median)) \(decimal(ratio, digits: ratio < 10 ? 2 : 1))x"
        + mark(Self.note(peer))
    }
    return own.map { $0 ?? "" } + others
  }

  private static func notes(_ row: Row) -> [String] {
    row.peers.compactMap(note) + [row.note].compactMap(\.self)
  }

  private static func note(_ peer: Comparison) -> String? {
    let differences = [
      peer.weaker.map { "less: \(peer.name) \($0)" },
      peer.stronger.map { "more: \(peer.name) \($0)" },
    ].compactMap(\.self)
    return differences.isEmpty ? nil : differences.joined(separator: "; ")
  }
}

/// The missed targets, and by how much.
struct Verdict {
  private let rows: [Row]
  private let isWhole: Bool

  /// - Parameter isWhole: Whether no section failed.
  init(_ rows: [Row], isWhole: Bool) {
    self.rows = rows
    self.isWhole = isWhole
  }

  var text: String {
    let reached = isWhole ? "all targets reached" : "all targets reached in the rows above"
    let short = rows.flatMap(shortfalls)
    let ahead = rows.flatMap(aheadDoingLess)
    let first = short.isEmpty ? [reached] : ["missed targets:"] + short
    return (first + (ahead.isEmpty ? [] : ["faster, but doing less:"] + ahead))
      .joined(separator: "\n")
  }

  private func shortfalls(_ row: Row) -> [String] {
    var lines: [String] = []
    func miss(_ text: String, by factor: Double) {
      lines.append("  \(row.title): \(text), short by \(excess(factor))")
    }
    if let limit = row.limit, row.keepsake.median > limit {
      miss(
        "\(row.unit.text(row.keepsake.median)), at most \(row.unit.text(limit))",
        by: row.keepsake.median / limit)
    }
    if let base = row.base, let target = base.target, base.ratio.median > target {
      miss(
        "\(decimal(base.ratio.median)) x \(base.name), at most \(target)",
        by: base.ratio.median / target)
    }
    for peer in row.peers {
      guard let target = peer.target, peer.ratio.median < target else { continue }
      miss(
        "\(decimal(peer.ratio.median)) x as good as \(peer.name), at least \(decimal(target))",
        by: target / peer.ratio.median)
    }
    return lines
  }

  private func aheadDoingLess(_ row: Row) -> [String] {
    row.peers.filter { $0.weaker != nil && $0.ratio.median < 1 }.map {
      "  \(row.title): \($0.name) (\($0.weaker ?? "")), \(decimal(1 / $0.ratio.median)) x as good"
    }
  }
}

extension Row {
  /// The operation with its section, size and count.
  var title: String {
    let details = [
      size.map { Unit.bytes.text(Double($0)) }, count.map { "of \(grouped($0))" },
    ].compactMap(\.self)
    return "\(section.rawValue): " + ([operation] + details).joined(separator: ", ")
  }
}

extension Unit {
  func text(_ value: Double) -> String {
    switch self {
    case .nanoseconds:
      switch value {
      case ..<1_000: decimal(value) + " ns"
      case ..<1_000_000: decimal(value / 1_000) + " us"
      case ..<10_000_000_000: decimal(value / 1_000_000) + " ms"
      default: decimal(value / 1_000_000_000) + " s"
      }
    case .bytes:
      switch value {
      case ..<1_024: decimal(value, digits: value == value.rounded() ? 0 : 1) + " B"
      case ..<1_048_576: decimal(value / 1_024, digits: 1) + " KiB"
      default: decimal(value / 1_048_576, digits: 1) + " MiB"
      }
    case .perSecond:
      switch value {
      case ..<1_000: decimal(value, digits: 0) + "/s"
      case ..<1_000_000: decimal(value / 1_000, digits: 1) + "k/s"
      default: decimal(value / 1_000_000, digits: 1) + "M/s"
      }
    case .items: decimal(value, digits: 0)
    }
  }
}

func grouped(_ number: Int) -> String {
  var digits = Array(String(number))
  for index in stride(from: digits.count - 3, to: 0, by: -3) { digits.insert(",", at: index) }
  return String(digits)
}

/// The number with that many decimals, or none from 100.
func decimal(_ number: Double, digits: Int = 2) -> String {
  number.isFinite ? String(format: "%.\(abs(number) >= 100 ? 0 : digits)f", number) : "-"
}

private func excess(_ factor: Double) -> String {
  factor < 2
    ? "\(decimal((factor - 1) * 100, digits: 0)) %" : "a factor of \(decimal(factor, digits: 1))"
}

private func unique(_ texts: [String]) -> [String] {
  var seen: Set<String> = []
  return texts.filter { seen.insert($0).inserted }
}
