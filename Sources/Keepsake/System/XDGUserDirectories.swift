/// Parses `user-dirs.dirs`, in which xdg-user-dirs keeps the user's choice of directories
/// (user-dirs.dirs(5)).
enum XDGUserDirectories {
  /// The directory for a purpose such as `DOCUMENTS`; nil if the file has no valid line for it.
  ///
  /// Lines have the form `XDG_DOCUMENTS_DIR="$HOME/Documents"`: a quoted path that starts with
  /// `$HOME` or `/`, in which a backslash escapes the next character. The last line counts.
  static func directory(_ purpose: String, in text: [UInt8], home: String) -> String? {
    var found: String?
    // Compares bytes: a path need not be text, and text has more line ends than the format.
    for line in text.split(separator: UInt8(ascii: "\n")) {
      if let path = directory(of: line, named: "XDG_\(purpose)_DIR", home: home) { found = path }
    }
    return found
  }

  /// All directories in the file.
  static func all(in text: [UInt8], home: String) -> [String] {
    let purposes = [
      "DESKTOP", "DOWNLOAD", "TEMPLATES", "PUBLICSHARE", "DOCUMENTS", "MUSIC", "PICTURES", "VIDEOS",
    ]
    return purposes.compactMap { directory($0, in: text, home: home) }
  }

  private static func directory(
    of line: ArraySlice<UInt8>, named name: String, home: String
  ) -> String? {
    func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }
    var rest = line.drop(while: isBlank)
    guard rest.starts(with: name.utf8) else { return nil }
    rest = rest.dropFirst(name.utf8.count).drop(while: isBlank)
    guard rest.first == UInt8(ascii: "=") else { return nil }
    rest = rest.dropFirst().drop(while: isBlank)
    guard rest.first == UInt8(ascii: "\"") else { return nil }
    rest = rest.dropFirst()

    var path: [UInt8] = []
    if rest.starts(with: "$HOME".utf8) {
      path = Array(home.utf8)
      rest = rest.dropFirst(5)
      guard rest.first == UInt8(ascii: "/") || rest.first == UInt8(ascii: "\"") else { return nil }
    } else if rest.first != UInt8(ascii: "/") {
      return nil
    }
    while rest.first != UInt8(ascii: "\"") {
      if rest.first == UInt8(ascii: "\\") { rest = rest.dropFirst() }
      guard let byte = rest.popFirst() else { return nil }  // the closing quote is missing
      path.append(byte)
    }
    while path.count > 1, path.last == UInt8(ascii: "/") { path.removeLast() }
    if path.contains(0) { return nil }
    return String(validating: path, as: UTF8.self)
  }
}
