import Keepsake
import Synchronization

/// What goes wrong on the way, and does not keep the rest from being done.
enum Reports {
  private struct State {
    var isCollecting = false
    var errors: [StorageError] = []
    var status: Int32 = 0
  }

  private static let state = Mutex(State())

  /// Takes what is not thrown: damage that hides no other value, and the failures of facades. For
  /// the stores of the app, so not before it has been named.
  static func start() { StorageSystem.onFailure = { take($0) } }

  private static func take(_ error: StorageError) {
    let isCollecting = state.withLock { state in
      if state.isCollecting { state.errors.append(error) }
      return state.isCollecting
    }
    if !isCollecting { complain(error) }
  }

  /// Says what failed; a listing that lacks something is not all right, so the exit code says it
  /// too.
  @discardableResult
  static func complain(_ error: any Error) -> Int32 {
    let failure =
      switch error {
      case let failure as Failure: failure
      case let error as StorageError: Failure(error)
      default: Failure(message: "\(error)", status: 70)
      }
    Output.complain(failure.message)
    state.withLock { state in
      if state.status == 0 { state.status = failure.status }
    }
    return failure.status
  }

  /// The exit code: that of what failed first.
  static var status: Int32 { state.withLock { $0.status } }

  /// nil where a body fails, which is said: what else there is goes on.
  static func attempt<R>(_ body: () throws -> R) -> R? {
    do {
      return try body()
    } catch {
      complain(error)
      return nil
    }
  }

  /// The value of a body, and what was reported meanwhile.
  static func collecting<R>(_ body: () throws -> R) rethrows -> (R, [StorageError]) {
    state.withLock { $0.isCollecting = true }
    func end() -> [StorageError] {
      state.withLock { state in
        defer { (state.isCollecting, state.errors) = (false, []) }
        return state.errors
      }
    }
    do {
      let value = try body()
      return (value, end())
    } catch {
      _ = end()
      throw error
    }
  }

  /// The names that a facade lists, with its failure thrown: what it returns then is empty.
  static func strictly<Name>(_ list: () -> [Name]) throws -> [Name] {
    let (names, errors) = collecting(list)
    if names.isEmpty, let error = errors.last { throw error }
    for error in errors { complain(error) }
    return names
  }
}
