#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

/// Rows under their headings: cut to the width of a terminal, whole where there is none.
struct Table {
  private let rows: [[String]]
  private var widths: [Int]

  /// A cell as narrow as this is not cut.
  private static let narrow = 6
  /// In a pipe one long cell does not move all others away.
  private static let wide = 60

  static func show(_ headings: [String], _ rows: [[String]]) {
    let table = Table([headings] + rows.map { $0.map(Output.visible) })
    for (position, row) in table.rows.enumerated() {
      let line = table.line(row)
      print(position == 0 ? Output.bold(line) : line)
    }
  }

  private init(_ rows: [[String]]) {
    self.rows = rows
    widths = rows[0].indices.map { column in rows.map { Self.width($0[column]) }.max() ?? 0 }
    guard Output.isTerminal else {
      widths = widths.map { min($0, Self.wide) }
      return
    }
    widths = widths.map { min($0, Self.terminalWidth) }
    // Names and values are in the first two columns; what follows says little once it is cut.
    for columns in [widths.indices.prefix(2), widths.indices] {
      while let widest = columns.max(by: { widths[$0] < widths[$1] }), widths[widest] > Self.narrow,
        widths.reduce(2 * (widths.count - 1), +) > Self.terminalWidth
      {
        widths[widest] -= 1
      }
    }
  }

  private func line(_ cells: [String]) -> String {
    var line = ""
    for (column, cell) in cells.enumerated() {
      let cell = Output.isTerminal ? Self.cut(cell, to: widths[column]) : cell
      line += cell
      if column < cells.count - 1 {
        line += String(repeating: " ", count: max(0, widths[column] - Self.width(cell)) + 2)
      }
    }
    return line
  }

  private static let terminalWidth: Int = {
    var size = winsize()
    let isKnown = ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0 && size.ws_col > 0
    return isKnown ? Int(size.ws_col) : 80
  }()

  // MARK: Columns of a terminal

  private static func cut(_ cell: String, to width: Int) -> String {
    // Each character takes a column at least, but for stray marks.
    if cell.utf8.count <= width || Self.width(cell) <= width { return cell }
    var (cut, taken) = ("", 0)
    for character in cell {
      taken += Self.width(character)
      if taken >= width { break }
      cut.append(character)
    }
    return cut + "…"
  }

  private static func width(_ text: String) -> Int {
    text.utf8.allSatisfy { $0 < 0x80 }
      ? text.utf8.count : text.reduce(0) { $0 + width($1) }
  }

  /// None for a mark alone, two for the characters of East Asia and for pictures, of however many
  /// parts.
  private static func width(_ character: Character) -> Int {
    min(2, character.unicodeScalars.reduce(0) { $0 + width($1) })
  }

  private static func width(_ scalar: Unicode.Scalar) -> Int {
    switch scalar.properties.generalCategory {
    case .nonspacingMark, .enclosingMark, .format: return 0
    default:
      let isWide =
        scalar.properties.isEmojiPresentation
        || wideScalars.contains { $0.contains(scalar.value) }
      return isWide ? 2 : 1
    }
  }

  /// What Unicode's EastAsianWidth has as wide or full, with the gaps between them.
  private static let wideScalars: [ClosedRange<UInt32>] = [
    0x1100...0x115F, 0x2E80...0x303E, 0x3041...0x4DBF, 0x4E00...0xA4CF, 0xA960...0xA97F,
    0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE30...0xFE6F, 0xFF01...0xFF60, 0xFFE0...0xFFE6,
    0x20000...0x3FFFD,
  ]
}
