public import FoundationEssentials

/// Names one place of a facade, kept apart from all its others: a suite of settings, a service's
/// secrets, a cache.
///
/// A literal or an interpolated text will do:
///
/// ```swift
/// Defaults.set(16, forKey: "size", suite: "com.example.shared")
/// Defaults.set(16, forKey: "size", suite: "window-\(number)")
/// Defaults.set(16, forKey: "size", suite: Defaults.Suite("team", in: sharedDirectory))
/// DiskCache.set(png, forKey: "avatar", cache: "Images")
/// ```
///
/// Places of different facades are different types: ``Defaults/Suite``, ``SecureVault/Service`` and
/// ``DiskCache/Name``.
public struct StoragePlace<Facade>: Hashable, Sendable {
  @usableFromInline
  enum Location: Hashable, Sendable {
    case standard
    case named(String)
    case memory
    case inDirectory(String, name: String)
  }

  @usableFromInline let location: Location

  @usableFromInline
  init(_ location: Location) { self.location = location }

  /// The place that is meant where none is named.
  @inlinable public static var standard: Self { Self(.standard) }

  /// One of the app's own places.
  ///
  /// Any name will do: characters that a file name cannot hold are escaped in it. `standard` is
  /// ``standard``.
  public init(_ name: String) {
    location = name == Self.standardName ? .standard : .named(name)
  }

  /// A place in a directory of its own, which apps and users can share.
  ///
  /// The directory must exist; the files' modes follow its mode.
  public init(_ name: String, in folder: URL) {
    location = .inDirectory(folder.absoluteString, name: name)
  }

  /// The place's name; empty for `memory`.
  public var name: String {
    switch location {
    case .standard: Self.standardName
    case .named(let name), .inDirectory(_, let name): name
    case .memory: ""
    }
  }

  /// The name of one of the app's own places; nil for all others.
  var givenName: String? { if case .named(let name) = location { name } else { nil } }

  private static var standardName: String { "standard" }

  /// The name as that of a file.
  func fileName(_ kind: String) throws(StorageError) -> String {
    if let fileName = FileName.encode(name) { return fileName }
    throw StorageError(
      .misuse, operation: "open", reason: "the \(kind)'s name is too long for a file name",
      remedy: "Use a name of at most 66 characters.")
  }

  /// The directory that holds the place: the caller's own, or the app's for this purpose.
  func directory(
    in finder: DirectoryFinder, _ purpose: DirectoryFinder.Purpose
  ) throws(StorageError) -> StoreDirectory {
    guard case .inDirectory(let text, _) = location else {
      return StoreDirectory(path: try finder.directory(purpose), isCallerOwned: false)
    }
    guard let url = URL(string: text) else {
      throw StorageError(
        .misuse, operation: "open", path: text, reason: "not a URL",
        remedy: "Make the URL with URL(filePath:).")
    }
    return StoreDirectory(
      path: try DirectoryFinder.path(of: url, operation: "open"), isCallerOwned: true)
  }
}

extension StoragePlace<Defaults> {
  /// Kept in the process only, and gone with it.
  @inlinable public static var memory: Self { Self(.memory) }
}

extension StoragePlace<DiskCache> {
  /// Kept in the process only, and gone with it.
  @inlinable public static var memory: Self { Self(.memory) }
}

extension StoragePlace: ExpressibleByStringInterpolation {
  /// The place of this name, as ``init(_:)`` makes it.
  public init(stringLiteral name: String) { self.init(name) }
}

extension StoragePlace: CustomStringConvertible {
  /// The name, and the directory if it has one of its own.
  public var description: String {
    switch location {
    case .standard, .named: name
    case .memory: "memory"
    case .inDirectory(let directory, let name): "\(name) in \(directory)"
    }
  }
}
