// An engine without a server, to measure the reads of a suite whose values are mirrored.
import Foundation
import Keepsake
import Synchronization

final class MirroredTable: StorageEngines.MirroredEngine {
  static let suite: Defaults.Suite = "mirrored"

  private struct State {
    var values: [String: Data] = [:]
    var mirrors: [StorageEngines.Mirror] = []
  }

  private let state = Mutex(State())

  func fill(_ mirror: StorageEngines.Mirror) {
    state.withLock { state in
      mirror.replaceAll(
        with: state.values.map { StorageEngines.Entry(key: $0.key, data: $0.value) })
      state.mirrors.append(mirror)
    }
  }

  func data(forKey key: String) -> Data? { state.withLock { $0.values[key] } }

  func set(_ data: Data?, forKey key: String) {
    _ = apply([StorageEngines.Entry(key: key, data: data)], ifCurrent: [])
  }

  func replace(_ old: Data?, with new: Data?, forKey key: String) -> Bool {
    apply(
      [StorageEngines.Entry(key: key, data: new)],
      ifCurrent: [StorageEngines.Entry(key: key, data: old)])
  }

  func apply(_ changes: [StorageEngines.Entry], ifCurrent conditions: [StorageEngines.Entry])
    -> Bool
  {
    state.withLock { state in
      guard conditions.allSatisfy({ state.values[$0.key] == $0.data }) else { return false }
      for change in changes { state.values[change.key] = change.data }
      for mirror in state.mirrors { mirror.apply(changes) }
      return true
    }
  }

  func keys() -> [String] { state.withLock { Array($0.values.keys) } }
}
