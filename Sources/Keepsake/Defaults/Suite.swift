public import FoundationEssentials

extension Defaults {
  /// Names a group of settings that are kept apart from all others: one file each.
  ///
  /// ```swift
  /// Defaults.set(16, forKey: "size", suite: "com.example.shared")
  /// Defaults.set(16, forKey: "size", suite: "window-\(number)")
  /// Defaults.set(16, forKey: "size", suite: Defaults.Suite("team", in: sharedFolder))
  /// ```
  public struct Suite: Hashable, Sendable {
    @usableFromInline
    enum Place: Hashable, Sendable {
      case standard
      case named(String)
      case memory
      case inFolder(String, name: String)
    }

    @usableFromInline let place: Place

    @usableFromInline
    init(place: Place) { self.place = place }

    /// The suite that is meant where none is named.
    @inlinable public static var standard: Suite { Suite(place: .standard) }

    /// Kept in the process only, and gone with it.
    @inlinable public static var memory: Suite { Suite(place: .memory) }

    /// One of the app's own suites.
    ///
    /// Any name will do: characters that a file name cannot hold are escaped in it. `standard` is
    /// ``standard``.
    public init(_ name: String) {
      place = name == Self.standardName ? .standard : .named(name)
    }

    /// A suite in a folder of its own, which apps and users can share.
    ///
    /// The folder must exist; the files' modes follow its mode.
    public init(_ name: String, in folder: URL) {
      place = .inFolder(folder.absoluteString, name: name)
    }

    /// The suite's name; empty for ``memory``.
    public var name: String {
      switch place {
      case .standard: Self.standardName
      case .named(let name), .inFolder(_, let name): name
      case .memory: ""
      }
    }

    private static let standardName = "standard"
  }
}

extension Defaults.Suite: ExpressibleByStringInterpolation {
  /// The suite of this name, as ``init(_:)`` makes it.
  public init(stringLiteral name: String) { self.init(name) }
}

extension Defaults.Suite: CustomStringConvertible {
  /// The name, and the folder if it has one of its own.
  public var description: String {
    switch place {
    case .standard, .named: name
    case .memory: "memory"
    case .inFolder(let folder, let name): "\(name) in \(folder)"
    }
  }
}

/// Any name as a file name, and back: letters, digits, `-`, `_` and inner dots as they are, other
/// bytes as `%XX` (RFC 3986, section 2.1).
enum FileName {
  /// nil when the result would be too long for a file system.
  static func encode(_ name: String) -> String? {
    var encoded: [UInt8] = []
    for (position, byte) in name.utf8.enumerated() {
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "-"), UInt8(ascii: "_"):
        encoded.append(byte)
      case UInt8(ascii: ".") where position > 0: encoded.append(byte)
      default:
        let digits = String(byte, radix: 16, uppercase: true)
        encoded.append(contentsOf: (byte < 16 ? "%0" : "%").utf8)
        encoded.append(contentsOf: digits.utf8)
      }
    }
    // An empty name still needs a file name; a single % stands for nothing else.
    if encoded.isEmpty { return "%" }
    return encoded.count <= 200 ? String(decoding: encoded, as: UTF8.self) : nil
  }

  /// nil for a name that ``encode(_:)`` does not make.
  static func decode(_ fileName: String) -> String? {
    if fileName == "%" { return "" }
    let bytes = Array(fileName.utf8)
    var decoded: [UInt8] = []
    var position = 0
    while position < bytes.count {
      if bytes[position] != UInt8(ascii: "%") {
        decoded.append(bytes[position])
        position += 1
        continue
      }
      guard position + 2 < bytes.count, let high = hexadecimalDigit(bytes[position + 1]),
        let low = hexadecimalDigit(bytes[position + 2])
      else { return nil }
      decoded.append(UInt8(high << 4 | low))
      position += 3
    }
    guard let name = String(validating: decoded, as: UTF8.self), encode(name) == fileName else {
      return nil
    }
    return name
  }
}
