public import FoundationEssentials

/// Describes what failed, on which key or path, and what to do about it.
///
/// Stores throw it, and facades pass it to ``StorageSystem/onFailure``. It never contains a stored
/// value. Distinguish cases by ``code``:
///
/// ```swift
/// do {
///   try Defaults.shared.set(profile, forKey: "profile")
/// } catch StorageError.Code.diskFull {
///   print("free some space first")
/// } catch {
///   print(error)
/// }
/// ```
///
/// Make the last `catch` unconditional: without it, the Swift 6.3 compiler may crash with "Found
/// ownership error", or hang, on a `do` statement with typed throws.
public struct StorageError: Error, Sendable {
  /// The kind of failure.
  ///
  /// A struct and not an enum, so that a new kind breaks no `switch`. Use it in a `catch` clause,
  /// as in `catch StorageError.Code.notFound`.
  public struct Code: Hashable, Sendable {
    /// The name of the code in the interface, such as `diskFull`; `system` for ``system(_:)``.
    ///
    /// It stays the same in all versions. There are few names, so they suit as labels of metrics.
    public let name: String
    /// The system's `errno` for ``system(_:)``, otherwise nil.
    public let systemError: Int32?

    init(_ name: String, systemError: Int32? = nil) {
      self.name = name
      self.systemError = systemError
    }

    /// No such file, folder or vault exists, or the user has no home directory.
    public static let notFound = Code("notFound")
    /// Something has the name already, and the call may not replace it.
    public static let alreadyExists = Code("alreadyExists")
    /// The stored value is not of the requested type.
    public static let wrongType = Code("wrongType")
    /// The value's `encode(to:)` or its source failed, or the value cannot be encoded. The old
    /// value is intact.
    public static let encodingFailed = Code("encodingFailed")
    /// The stored bytes cannot be decoded as the requested type, or cannot be imported.
    public static let decodingFailed = Code("decodingFailed")
    /// A file was changed by another program, or the disk is failing.
    public static let damaged = Code("damaged")
    /// The system refused access, or the file system is read-only.
    public static let accessDenied = Code("accessDenied")
    /// The vault is locked: call `unlock`, or restore the key file or other key source.
    public static let locked = Code("locked")
    /// The passphrase is wrong.
    public static let wrongPassphrase = Code("wrongPassphrase")
    /// The disk is full, or a quota or file-size limit is reached.
    public static let diskFull = Code("diskFull")
    /// The call waited for longer than the timeout: usually ten seconds for a lock or another
    /// writer, and the `timeout` of `DiskCache.fetch(…timeout:)` for another task's producer.
    public static let timedOut = Code("timedOut")
    /// A newer version of Keepsake wrote the file.
    public static let unsupportedVersion = Code("unsupportedVersion")
    /// The call is incorrect: an invalid name, a value over the size limit, a nested update, a late
    /// bootstrap.
    public static let misuse = Code("misuse")
    /// A custom ``StorageEngines/Engine`` or ``StorageBacking`` threw an error: see
    /// ``StorageError/underlyingError``.
    public static let engineFailed = Code("engineFailed")
    /// The server of a ``StorageBacking`` or a custom ``StorageEngines/Engine`` cannot be reached.
    /// Nothing was changed there.
    public static let unreachable = Code("unreachable")
    /// The connection to the server of a ``StorageBacking`` or a custom ``StorageEngines/Engine``
    /// failed before the reply came. The change may have been made.
    public static let outcomeUnknown = Code("outcomeUnknown")
    /// The producer of a value failed, and `DiskCache.fetch` returned the expired one. The
    /// description quotes the producer's error, which is also ``StorageError/underlyingError``.
    public static let fetchFailed = Code("fetchFailed")
    /// Any other error of the operating system, with its `errno`.
    public static func system(_ errno: Int32) -> Code { Code("system", systemError: errno) }
  }

  /// How bad it is.
  public enum Severity: Sendable {
    /// The call did what it was asked to do, but something needs attention: an expired value was
    /// returned, a file was repaired, a cache goes on without its server, or a server is not set up
    /// well.
    case warning
    /// Something that was asked for was not done.
    case failure
  }

  /// One reference, so that calls that can throw reserve little space for the error.
  private var details: Details

  private final class Details: Sendable {
    let values: Values
    init(_ values: Values) { self.values = values }
  }

  private struct Values: Sendable {
    let code: Code
    var severity = Severity.failure
    var operation: String
    var key: String?
    var path: String?
    let reason: String?
    let remedy: String
    let underlyingError: (any Error)?
    var suppressedCount = 0
  }

  /// The kind of failure.
  public var code: Code { details.values.code }
  /// Whether anything failed. Only errors that are reported can be warnings; a log handler may use
  /// another level for them.
  public var severity: Severity { details.values.severity }
  /// The operation that failed, such as `set` or `rename`. In errors that a facade reports to
  /// ``StorageSystem/onFailure`` it includes the facade's name, such as `Defaults.set`.
  public var operation: String { details.values.operation }
  /// The key that the operation was given, if any.
  public var key: String? { details.values.key }
  /// The file or directory that the operation was working on, if any.
  public var path: String? { details.values.path }
  /// What to do about it, as a sentence.
  public var remedy: String { details.values.remedy }
  /// The error that caused this one, if any.
  public var underlyingError: (any Error)? { details.values.underlyingError }
  /// In an error that ``StorageSystem/onFailure`` receives, the number of failures that were not
  /// reported since the previous report; otherwise 0.
  public var suppressedCount: Int { details.values.suppressedCount }
  /// What is wrong, more precisely than ``code``: a short clause.
  package var reason: String? { details.values.reason }

  /// Creates an error, for a custom ``StorageEngines/Engine``.
  ///
  /// - Parameters:
  ///   - code: The kind of failure.
  ///   - operation: The operation that failed; the call of the library that failed replaces it with
  ///     its own name.
  ///   - key: The key that the operation was given.
  ///   - path: The file or other location that the operation was working on.
  ///   - reason: What is wrong, as a short clause without any stored value.
  ///   - remedy: What to do about it, as a sentence.
  ///   - underlyingError: The error that caused this one; its text is not shown.
  @inline(never)
  public init(
    _ code: Code, operation: String, key: String? = nil, path: String? = nil,
    reason: String? = nil, remedy: String, underlyingError: (any Error)? = nil
  ) {
    details = Details(
      Values(
        code: code, operation: operation, key: key, path: path, reason: reason, remedy: remedy,
        underlyingError: underlyingError))
  }

  /// The same failure, described as a failure of the call that it ended.
  @usableFromInline
  @inline(never)
  package func inContext(
    of operation: String, key: String? = nil, path: String? = nil
  ) -> StorageError {
    changed {
      $0.operation = operation
      $0.key = key ?? $0.key
      $0.path = $0.path ?? path
      $0.suppressedCount = 0
    }
  }

  /// The same failure at another path.
  func at(_ path: String) -> StorageError { changed { $0.path = path } }

  /// The same description as a warning.
  package var asWarning: StorageError { changed { $0.severity = .warning } }

  /// The same failure after a part of the changes was made.
  var withUnknownOutcome: StorageError {
    StorageError(
      .outcomeUnknown, operation: operation, key: key, path: path,
      reason: "a part of the changes was made, then: \(reason ?? code.description)",
      remedy: remedy, underlyingError: underlyingError)
  }

  /// The same failure for a report, after failures that were not reported.
  func reported(suppressedCount: Int) -> StorageError {
    changed { $0.suppressedCount = suppressedCount }
  }

  @inline(never)
  private func changed(_ change: (inout Values) -> Void) -> StorageError {
    var (error, values) = (self, details.values)
    change(&values)
    error.details = Details(values)
    return error
  }

  /// The same failure with the facade's name in ``operation``, for reports.
  @inline(never)
  func reported(by facade: String) -> StorageError { inContext(of: "\(facade).\(operation)") }
}

extension StorageError {
  /// An error of the app's own code, in one line. Errors of coders may quote a value, so that only
  /// their type is named.
  static func text(of error: any Error) -> String {
    let type = "\(Swift.type(of: error))"
    if error is DecodingError || error is EncodingError { return type }
    let text = "\(error)".split(whereSeparator: \.isWhitespace).joined(separator: " ").prefix(200)
    return text.contains(type) ? String(text) : "\(type): \(text)"
  }
}

/// Lets `catch StorageError.Code.diskFull` match a ``StorageError`` of that code.
public func ~= (code: StorageError.Code, error: any Error) -> Bool {
  (error as? StorageError)?.code == code
}

extension StorageError: CustomStringConvertible, LocalizedError {
  /// One line: the operation, whether it failed, the key, what is wrong, the path, the remedy, and
  /// how many failures were not reported.
  public var description: String {
    var line = "\(operation) \(severity == .failure ? "failed" : "warns")"
    if let key { line += " for key \(key.debugDescription)" }
    line += ": \(reason ?? code.description)"
    if let path { line += " at \(path)" }
    line += ". " + remedy
    switch suppressedCount {
    case 0: break
    case 1: line += " 1 other failure was not reported."
    default: line += " \(suppressedCount) other failures were not reported."
    }
    // A line break in a path would forge a line of the log.
    return line.unicodeScalars.map {
      $0.properties.generalCategory == .control ? $0.escaped(asASCII: true) : String($0)
    }.joined()
  }

  /// The same line as ``description``.
  public var errorDescription: String? { description }
  /// What is wrong, without the remedy.
  public var failureReason: String? { reason ?? code.description }
  /// The same sentence as ``remedy``.
  public var recoverySuggestion: String? { remedy }
}

extension StorageError.Code: CustomStringConvertible {
  /// The code in words.
  public var description: String {
    if let systemError { return "system error \(systemError)" }
    return name.reduce(into: "") { words, letter in
      words += letter.isUppercase ? " \(letter.lowercased())" : "\(letter)"
    }
  }
}
