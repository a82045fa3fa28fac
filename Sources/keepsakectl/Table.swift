import KeepsakeLibc

/// Aligned rows below headings, cut to the width of the terminal and not cut in a pipe.
struct Table {
  private let rows: [[String]]
  private var widths: [Int]

  /// Cells are not cut to less than this.
  private static let minimumWidth = 6
  /// In a pipe, a longer cell is not cut but does not widen its column either.
  private static let maximumPipeWidth = 60

  static func show(_ headings: [String], _ rows: [[String]]) throws {
    let table = Table([headings] + rows.map { $0.map(Output.escaped) })
    for (index, row) in table.rows.enumerated() {
      let line = table.line(row)
      try Output.write(index == 0 ? Output.bold(line) : line)
    }
  }

  /// Shows a row for each item, or with `--json` the items.
  static func show<Item: Encodable>(
    _ items: [Item], for arguments: Arguments, _ headings: [String], row: (Item) -> [String]
  ) throws {
    if arguments.hasOption("json") {
      try Output.show(json: items)
    } else {
      try show(headings, items.map(row))
    }
  }

  private init(_ rows: [[String]]) {
    self.rows = rows
    widths = rows[0].indices.map { column in rows.map { $0[column].columnWidth }.max() ?? 0 }
    guard Output.isTerminal else {
      widths = widths.map { min($0, Self.maximumPipeWidth) }
      return
    }
    widths = widths.map { min($0, Self.terminalWidth) }
    // Cut names and values, in the first two columns, before sizes and dates.
    for columns in [widths.indices.prefix(2), widths.indices] {
      while let widest = columns.max(by: { widths[$0] < widths[$1] }),
        widths[widest] > Self.minimumWidth,
        widths.reduce(2 * (widths.count - 1), +) > Self.terminalWidth
      {
        widths[widest] -= 1
      }
    }
  }

  private func line(_ cells: [String]) -> String {
    var line = ""
    for (column, cell) in cells.enumerated() {
      let cell = Output.isTerminal ? cell.cut(toColumnWidth: widths[column]) : cell
      line += cell
      if column < cells.count - 1 {
        line += String(repeating: " ", count: max(0, widths[column] - cell.columnWidth) + 2)
      }
    }
    return line
  }

  private static let terminalWidth: Int = {
    var size = winsize()
    let isKnown = ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0 && size.ws_col > 0
    return isKnown ? Int(size.ws_col) : 80
  }()
}
