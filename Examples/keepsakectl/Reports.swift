import Keepsake
import Synchronization

/// What goes wrong where nothing is thrown: damage that hides no other value, and the failures of facades.
enum Reports {
  private struct State {
    var isCollecting = false
    var errors: [StorageError] = []
    var isDamageSeen = false
  }

  private static let state = Mutex(State())

  /// For the stores of the app, so not before it has been named.
  static func start() { StorageSystem.onFailure = { take($0) } }

  private static func take(_ error: StorageError) {
    let isCollected = state.withLock { state in
      if state.isCollecting { state.errors.append(error) }
      if error.code == .damaged { state.isDamageSeen = true }
      return state.isCollecting
    }
    if !isCollected { Output.complain(error.description) }
  }

  /// 1 when something damaged was met on the way: a listing that lacks something is not all right.
  static var status: Int32 { state.withLock { $0.isDamageSeen } ? 1 : 0 }

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
    for error in errors { Output.complain(error.description) }
    return names
  }
}
