extension Output {
  /// Escapes, as JSON does, all characters that a terminal would take for a command or display at
  /// another position. Names and values are untrusted.
  static func escaped(_ text: String) -> String {
    var result = String.UnicodeScalarView()
    for scalar in text.unicodeScalars {
      if isPrintable(scalar) {
        result.append(scalar)
      } else {
        for unit in String(scalar).utf16 { result.append(contentsOf: escape(unit).unicodeScalars) }
      }
    }
    return String(result)
  }

  private static func isPrintable(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.properties.generalCategory {
    case .control, .lineSeparator, .paragraphSeparator: false
    // The joiners form one letter or emoji from several scalars.
    case .format: scalar == "\u{200C}" || scalar == "\u{200D}"
    default: true
    }
  }

  private static func escape(_ unit: UInt16) -> String {
    let digits = String(unit, radix: 16)
    return "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
  }
}
