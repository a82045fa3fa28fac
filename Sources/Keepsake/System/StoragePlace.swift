public import FoundationEssentials

/// Identifies a suite of settings, a service of secrets, or a cache.
///
/// A string literal or interpolation works too:
///
/// ```swift
/// Defaults.set(16, forKey: "size", suite: "com.example.shared")
/// Defaults.set(16, forKey: "size", suite: "window-\(number)")
/// Defaults.set(16, forKey: "size", suite: Defaults.Suite("team", in: sharedDirectory))
/// DiskCache.set(png, forKey: "avatar", cache: "Images")
/// ```
///
/// Names are compared by their bytes, as file names are. Two names that differ only in Unicode
/// normalization (NFC and NFD) are two places.
///
/// Places of different facades are different types: ``Defaults/Suite``, ``SecureVault/Service`` and
/// ``DiskCache/Name``.
public struct StoragePlace<Facade>: Hashable, Sendable {
  @usableFromInline
  enum Location: Hashable, Sendable {
    case standard
    case named(ExactString)
    case memory
    case inDirectory(String, name: ExactString)
  }

  @usableFromInline let location: Location

  @usableFromInline
  init(_ location: Location) { self.location = location }

  /// The place that calls use if they name none.
  @inlinable public static var standard: Self { Self(.standard) }

  /// One of the app's own places.
  ///
  /// Any name that is not too long is valid: characters that a file name cannot contain are
  /// escaped. The name `standard` means ``standard``.
  @inlinable
  public init(_ name: String) {
    // Comparing the lengths first is fast.
    let isStandard = name.utf8.count == 8 && name == "standard"
    location = isStandard ? .standard : .named(ExactString(name))
  }

  /// A place in a directory that the caller chooses, which apps and users can share.
  ///
  /// The directory must exist. Files get the permissions of the directory.
  public init(_ name: String, in folder: URL) {
    var text = folder.absoluteString
    // `file:///a` and `file:///a/` are one directory.
    while text.utf8.last == UInt8(ascii: "/"), text != "file:///" { text.removeLast() }
    location = .inDirectory(text, name: ExactString(name))
  }

  /// The place's name; empty for `memory`.
  public var name: String {
    switch location {
    case .standard: Self.standardName
    case .named(let name), .inDirectory(_, let name): name.text
    case .memory: ""
    }
  }

  /// A place of another name in the same directory, or among the app's own places.
  func named(_ name: String) -> Self {
    guard case .inDirectory(let directory, _) = location else { return Self(name) }
    return Self(.inDirectory(directory, name: ExactString(name)))
  }

  /// The name if it identifies one of the app's own places; nil otherwise.
  var givenName: String? {
    switch location {
    case .standard: Self.standardName
    case .named(let name): name.text
    case .memory, .inDirectory: nil
    }
  }

  private static var standardName: String { "standard" }

  /// The name encoded as a file name.
  package func fileName(_ kind: String) throws(StorageError) -> String {
    if let fileName = FileName.encode(name) { return fileName }
    throw StorageError(
      .misuse, operation: "open", reason: "the \(kind) name is too long for a file name",
      remedy: "Use a shorter name; 66 bytes of UTF-8 always fit.")
  }

  /// The directory of the place: the one that the caller chose, or the app's for this purpose.
  func directory(
    in finder: DirectoryFinder, _ purpose: DirectoryFinder.Purpose
  ) throws(StorageError) -> StoreDirectory {
    guard case .inDirectory(let text, _) = location else {
      return StoreDirectory(path: try finder.directory(purpose), isCallerOwned: false)
    }
    guard let url = URL(string: text) else {
      throw StorageError(
        .misuse, operation: "open", path: text, reason: "the directory URL is invalid",
        remedy: "Create it with URL(filePath:).")
    }
    return StoreDirectory(
      path: try DirectoryFinder.path(of: url, operation: "open"), isCallerOwned: true)
  }
}

extension StoragePlace<Defaults> {
  /// Kept in memory, and gone when the process ends.
  @inlinable public static var memory: Self { Self(.memory) }
}

extension StoragePlace<DiskCache> {
  /// Kept in memory, and gone when the process ends.
  @inlinable public static var memory: Self { Self(.memory) }
}

extension StoragePlace: ExpressibleByStringInterpolation {
  /// Creates the place of this name like ``init(_:)``.
  @inlinable
  public init(stringLiteral name: String) { self.init(name) }
}

extension StoragePlace: CustomStringConvertible {
  /// The name, and the directory if the caller chose one.
  public var description: String {
    switch location {
    case .standard, .named: name
    case .memory: "memory"
    case .inDirectory(let directory, _): "\(name) in \(directory)"
    }
  }
}
