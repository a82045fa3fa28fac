import Keepsake
import Synchronization

/// Collects failures that do not keep a command from doing the rest of its work.
enum Diagnostics {
  private struct State {
    /// nil while errors are printed.
    var collected: [StorageError]?
    var status: Int32 = 0
  }

  private static let state = Mutex(State())

  /// Starts to print the errors that the library reports and does not throw: the failures of
  /// facades, and damage that hides no other value. The app must have been named.
  static func startReporting() { StorageSystem.onFailure = { receive($0) } }

  private static func receive(_ error: StorageError) {
    let isCollected = state.withLock { $0.collected?.append(error) != nil }
    if !isCollected { report(error) }
  }

  /// Prints an error and returns its exit code.
  ///
  /// The first reported error also determines ``status``, so that an incomplete listing does not
  /// look like a success.
  @discardableResult
  static func report(_ error: any Error) -> Int32 {
    let failure =
      switch error {
      case let failure as Failure: failure
      case let error as StorageError: Failure(error)
      default: Failure(message: "\(error)", status: 70)
      }
    if let error = error as? StorageError, error.severity == .warning, error.code != .damaged {
      // Damage may have cost values, so that what is shown is incomplete.
      Output.printError("warning: " + failure.message)
      return 0
    }
    Output.printError(failure.message)
    state.withLock { state in
      if state.status == 0 { state.status = failure.status }
    }
    return failure.status
  }

  /// The exit code: that of the first error that was reported, unless the command sets another.
  static var status: Int32 {
    get { state.withLock { $0.status } }
    set { state.withLock { $0.status = newValue } }
  }

  /// The value of `body`, or nil after reporting the error that it throws.
  static func attempt<R>(_ body: () throws -> R) -> R? {
    do {
      return try body()
    } catch {
      report(error)
      return nil
    }
  }

  /// The value of `body`, and the errors that the library reported in the meantime.
  static func collectingErrors<R>(_ body: () throws -> R) rethrows -> (R, [StorageError]) {
    state.withLock { $0.collected = [] }
    defer { state.withLock { $0.collected = nil } }
    let value = try body()
    return (value, state.withLock { $0.collected.take() ?? [] })
  }

  /// The names that a facade or a store lists.
  ///
  /// - Throws: What the store throws, or the error that the facade reports when it cannot list
  ///   anything and returns an empty array.
  static func names<Name>(_ list: () throws -> [Name]) throws -> [Name] {
    let (names, errors) = try collectingErrors(list)
    if names.isEmpty, let error = errors.last { throw error }
    for error in errors { report(error) }
    return names
  }
}
