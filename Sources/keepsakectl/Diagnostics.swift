import Keepsake
import Synchronization

/// Collects failures that do not keep a command from doing the rest of its work.
enum Diagnostics {
  private struct State {
    var isCollecting = false
    var errors: [StorageError] = []
    var status: Int32 = 0
  }

  private static let state = Mutex(State())

  /// Starts to print the errors that the library reports and does not throw: the failures of
  /// facades, and damage that hides no other value. The app must have been named.
  static func startReporting() { StorageSystem.onFailure = { receive($0) } }

  private static func receive(_ error: StorageError) {
    let isCollecting = state.withLock { state in
      if state.isCollecting { state.errors.append(error) }
      return state.isCollecting
    }
    if !isCollecting { report(error) }
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

  /// The exit code of the first error that was reported, or 0.
  static var status: Int32 { state.withLock { $0.status } }

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
    state.withLock { $0.isCollecting = true }
    func stopCollecting() -> [StorageError] {
      state.withLock { state in
        defer { (state.isCollecting, state.errors) = (false, []) }
        return state.errors
      }
    }
    do {
      let value = try body()
      return (value, stopCollecting())
    } catch {
      _ = stopCollecting()
      throw error
    }
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
