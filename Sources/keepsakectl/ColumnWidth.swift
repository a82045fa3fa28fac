extension String {
  /// How many columns of a terminal the text takes.
  var columnWidth: Int {
    utf8.allSatisfy { $0 < 0x80 } ? utf8.count : reduce(0) { $0 + $1.columnWidth }
  }

  func cut(toColumnWidth width: Int) -> String {
    // A character takes at least one column, apart from stray marks, so few bytes always fit.
    if utf8.count <= width || columnWidth <= width { return self }
    var (cut, used) = ("", 0)
    for character in self {
      used += character.columnWidth
      if used >= width { break }
      cut.append(character)
    }
    return cut + "…"
  }
}

extension Character {
  /// 2 for East Asian characters and emoji, however many scalars they have; 0 for a mark alone.
  fileprivate var columnWidth: Int {
    min(2, unicodeScalars.reduce(0) { $0 + $1.columnWidth })
  }
}

extension Unicode.Scalar {
  fileprivate var columnWidth: Int {
    switch properties.generalCategory {
    case .nonspacingMark, .enclosingMark, .format: return 0
    default:
      let isWide = properties.isEmojiPresentation || Self.wide.contains { $0.contains(value) }
      return isWide ? 2 : 1
    }
  }

  /// The wide and full-width ranges of Unicode's EastAsianWidth, including the gaps between them.
  private static let wide: [ClosedRange<UInt32>] = [
    0x1100...0x115F, 0x2E80...0x303E, 0x3041...0x4DBF, 0x4E00...0xA4CF, 0xA960...0xA97F,
    0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE30...0xFE6F, 0xFF01...0xFF60, 0xFFE0...0xFFE6,
    0x20000...0x3FFFD,
  ]
}
