// The operations that matter most, as bars on a logarithmic scale: one picture for light pages and
// one for dark ones, from the figures of an earlier run.
import Foundation

struct Picture {
  private let groups: [Group]
  private let machine: Machine

  /// One operation, and how long it takes each of those that have it.
  private struct Group {
    let title: String
    let bars: [Bar]
  }

  private struct Bar {
    let name: String
    let nanoseconds: Double
    /// How many times as fast Keepsake is; nil for Keepsake itself.
    var ratio: Double?
    /// Whether it does less than Keepsake.
    var isWeaker = false
  }

  /// The title of each group of bars, and the row that it shows.
  private static let operations:
    [(title: String, section: Section, operation: String, size: Int?)] =
      [
        ("Defaults.get", .settings, "Defaults.get Int", nil),
        ("Defaults.set", .settings, "Defaults.set Int", nil),
        ("Defaults.set + synchronize", .settings, "Defaults.set + synchronize", nil),
        ("Defaults.model", .settings, "Defaults.model, read again", nil),
        ("SecureVault.get, 32 B", .secrets, "SecureVault.get", 32),
        ("SecureVault.set, 32 B", .secrets, "SecureVault.set, existing key", 32),
        ("DiskCache.get, 1 KiB", .cache, "DiskCache.get, read before", 1_024),
        // Databases are faster with small values, files with large ones.
        ("DiskCache.set, 1 KiB", .cache, "DiskCache.set, new key", 1_024),
        ("DiskCache.set, 1 MiB", .cache, "DiskCache.set, new key", 1 << 20),
      ]

  init(_ report: Report) throws {
    machine = report.machine
    groups = Self.operations.compactMap { title, section, operation, size in
      let row = report.rows.first {
        $0.section == section && $0.operation == operation && $0.size == size
      }
      guard let row else { return nil }
      let others = row.peers.map {
        Bar(
          name: $0.name, nanoseconds: $0.value.median, ratio: $0.ratio.median,
          isWeaker: $0.weaker != nil)
      }
      return Group(
        title: title, bars: [Bar(name: "Keepsake", nanoseconds: row.keepsake.median)] + others)
    }
    if groups.isEmpty { throw Failure("the file has none of the rows to draw") }
  }

  func draw(into directory: String) throws {
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    for (name, colors) in [("speed.svg", Colors.light), ("speed~dark.svg", .dark)] {
      let file = URL(filePath: directory).appending(path: name)
      try Data(drawing(colors).utf8).write(to: file, options: .atomic)
    }
  }

  private struct Colors {
    let background: String
    let text: String
    let quiet: String
    let line: String
    let own: String
    let other: String

    static let light = Colors(
      background: "#ffffff", text: "#1f2328", quiet: "#59636e", line: "#d1d9e0", own: "#0b62c4",
      other: "#818b98")
    static let dark = Colors(
      background: "#0d1117", text: "#f0f6fc", quiet: "#9aa4ae", line: "#30363d", own: "#58a6ff",
      other: "#6e7781")
  }

  // MARK: Geometry

  private static let width = 820.0
  private static let plot = (left: 210.0, right: 655.0)
  private static let (barStep, barHeight, titleHeight, gap) = (17.0, 11.0, 21.0, 9.0)
  private static let top = 74.0

  /// The powers of ten that enclose all bars.
  private var range: (low: Double, high: Double) {
    let times = groups.flatMap(\.bars).map { log10(max($0.nanoseconds, 1)) }
    let low = max(0, (times.min() ?? 0).rounded(.down) - 1)
    return (low, max(low + 1, (times.max() ?? 1).rounded(.up)))
  }

  private func place(_ nanoseconds: Double) -> Double {
    let share = (log10(max(nanoseconds, 1)) - range.low) / (range.high - range.low)
    return Self.plot.left + share * (Self.plot.right - Self.plot.left)
  }

  private var bottom: Double {
    groups.reduce(Self.top) {
      $0 + Self.titleHeight + Double($1.bars.count) * Self.barStep + Self.gap
    }
  }

  // MARK: Drawing

  private func drawing(_ colors: Colors) -> String {
    let height = bottom + 46
    var lines = [
      """
      <svg xmlns="http://www.w3.org/2000/svg" width="\(number(Self.width))" \
      height="\(number(height))" \
      viewBox="0 0 \(number(Self.width)) \(number(height))" role="img" aria-labelledby="t d" \
      font-family="system-ui, -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, sans-serif" \
      font-size="12">
      """,
      "<title id=\"t\">How long Keepsake takes, and what a program would use instead</title>",
      "<desc id=\"d\">\(escaped(description))</desc>",
      """
      <style>
      .a{fill:\(colors.text)}.q{fill:\(colors.quiet)}.b{font-weight:600}.e{text-anchor:end}
      .m{text-anchor:middle}.k{fill:\(colors.own)}.o{fill:\(colors.other)}
      .h{fill:\(colors.background)}
      .l{stroke:\(colors.line);stroke-width:1}
      .w{fill:\(colors.background);stroke:\(colors.other);stroke-width:1.5;stroke-dasharray:4 2}
      </style>
      """,
      "<rect width=\"100%\" height=\"100%\" fill=\"\(colors.background)\" rx=\"6\"/>",
      text("Time of one call", 16, 26, "a b", size: 16),
      text(
        "shorter is better; logarithmic scale: each line is ten times the one before", 16, 45, "q"),
    ]
    lines += scale
    var y = Self.top
    for group in groups {
      lines.append(text(group.title, 16, y + 14, "a b"))
      y += Self.titleHeight
      for bar in group.bars {
        lines += drawing(bar, y)
        y += Self.barStep
      }
      y += Self.gap
    }
    if groups.contains(where: { $0.bars.contains(where: \.isWeaker) }) {
      lines.append(
        text(
          "Dashed: does less than Keepsake; see the table of the benchmarks.", 16, bottom + 14, "q"
        ))
    }
    lines.append(text(machine.text, 16, bottom + 32, "q", size: 10.5))
    return (lines + ["</svg>", ""]).joined(separator: "\n")
  }

  /// A line for each power of ten, with its name on top.
  private var scale: [String] {
    (Int(range.low)...Int(range.high)).flatMap { power in
      let x = place(pow(10, Double(power)))
      return [
        """
        <line class="l" x1="\(number(x))" y1="\(number(Self.top))" x2="\(number(x))" \
        y2="\(number(bottom - Self.gap))"/>
        """,
        text(Self.time(pow(10, Double(power))), x, Self.top - 6, "q m", size: 10.5),
      ]
    }
  }

  private func drawing(_ bar: Bar, _ y: Double) -> [String] {
    let end = max(place(bar.nanoseconds), Self.plot.left + 2)
    let isOwn = bar.ratio == nil
    let shape = isOwn ? "k" : bar.isWeaker ? "w" : "o"
    var label = Self.time(bar.nanoseconds)
    if let ratio = bar.ratio { label += " · " + Self.comparison(ratio) }
    return [
      text(bar.name, Self.plot.left - 8, y + 10, isOwn ? "a b e" : "a e"),
      box(shape, Self.plot.left, y, width: end - Self.plot.left, height: Self.barHeight),
      // Hides the lines of the scale behind the label.
      box("h", end + 4, y - 2, width: Double(label.count) * 6.8, height: 15),
      text(label, end + 6, y + 10, isOwn ? "a b" : "a"),
    ]
  }

  private func box(
    _ style: String, _ x: Double, _ y: Double, width: Double, height: Double
  ) -> String {
    """
    <rect class="\(style)" x="\(number(x))" y="\(number(y))" width="\(number(width))" \
    height="\(number(height))" rx="2"/>
    """
  }

  private func text(
    _ text: String, _ x: Double, _ y: Double, _ style: String, size: Double? = nil
  ) -> String {
    let sized = size.map { " font-size=\"\(number($0))\"" } ?? ""
    return """
      <text class="\(style)" x="\(number(x))" y="\(number(y))"\(sized)>\(escaped(text))</text>
      """
  }

  /// A description for screen readers.
  private var description: String {
    groups.map { group in
      let bars = group.bars.map { bar in
        let ratio = bar.ratio.map { " (\(Self.comparison($0)))" } ?? ""
        return "\(bar.name) \(Self.time(bar.nanoseconds))\(ratio)"
      }
      return "\(group.title): \(bars.joined(separator: ", "))."
    }.joined(separator: " ")
  }

  // MARK: Labels

  private static func comparison(_ ratio: Double) -> String {
    switch ratio {
    case 0.95..<1.05: "as long"
    case 1...: "\(short(ratio))× as long"
    default: "\(short(1 / ratio))× as fast"
    }
  }

  private static func time(_ nanoseconds: Double) -> String {
    switch nanoseconds {
    case ..<1_000: "\(short(nanoseconds)) ns"
    case ..<1_000_000: "\(short(nanoseconds / 1_000)) µs"
    default: "\(short(nanoseconds / 1_000_000)) ms"
    }
  }

  /// Two significant digits, or all digits before the point.
  private static func short(_ value: Double) -> String {
    value >= 9.95 || value == value.rounded()
      ? grouped(Int(value.rounded())) : decimal(value, digits: 1)
  }

  private func number(_ value: Double) -> String {
    value == value.rounded() ? String(Int(value)) : decimal(value, digits: 1)
  }

  private func escaped(_ text: String) -> String {
    text.replacing("&", with: "&amp;").replacing("<", with: "&lt;").replacing(">", with: "&gt;")
  }
}
