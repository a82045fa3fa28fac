internal import KeepsakeLibc

/// A store that keeps files open between calls, and opens them again when it needs them.
protocol FileHoldingStore: AnyObject, Sendable {
  /// When the store last used its files, by ``CoarseClock``; nil while it is in use.
  var lastUse: Int64? { get }

  /// Closes the files; returns false if they are in use and stay open.
  func closeIdleFiles() -> Bool
}

/// Bounds how many stores keep files open, so that a program can use thousands of them.
///
/// A store that opens its files is added; if there are too many, those that were not used for the
/// longest time close theirs. Calls on open files do not come here.
final class OpenStores: Sendable {
  static let shared = OpenStores(limit: nil)

  private struct Entry {
    weak var store: (any FileHoldingStore)?
  }

  private struct State {
    var entries: [Entry] = []
    var generation = ForkGuard.generation
  }

  private let state = Locked(State())
  private let fixedLimit: Int?

  /// - Parameter limit: nil to derive it from the process's limit on descriptors.
  init(limit: Int?) { fixedLimit = limit }

  /// How many stores may keep files open: with two descriptors each, a quarter of those that the
  /// process may have.
  private var limit: Int {
    if let fixedLimit { return fixedLimit }
    var limit = rlimit()
    guard getrlimit(platformDescriptorLimit, &limit) == 0 else { return 32 }
    return Int(clamping: min(max(limit.rlim_cur / 8, 8), 512))
  }

  /// Adds a store that has just opened its files. The caller must not hold a lock that
  /// ``FileHoldingStore/closeIdleFiles()`` of any store waits for.
  func add(_ store: any FileHoldingStore) {
    let limit = limit
    let idle: [any FileHoldingStore] = state.withLock { state in
      if state.generation != ForkGuard.generation { state = State() }
      if !state.entries.contains(where: { $0.store === store }) {
        state.entries.append(Entry(store: store))
      }
      if state.entries.count <= limit { return [] }
      state.entries.removeAll { $0.store == nil }
      if state.entries.count <= limit { return [] }
      // A quarter at once, so that not every call that opens files has to look for idle stores.
      let count = state.entries.count - limit + limit / 4
      let uses = state.entries.map { (store: $0.store, time: $0.store?.lastUse ?? .max) }
      // The sort is stable: of equal times, the store that was added first is older.
      let idle = uses.sorted { $0.time < $1.time }.prefix(count).filter {
        $0.time < .max && $0.store !== store
      }.compactMap(\.store)
      state.entries.removeAll { entry in idle.contains { $0 === entry.store } }
      return idle
    }
    let busy = idle.filter { !$0.closeIdleFiles() }
    if busy.isEmpty { return }
    state.withLock { state in
      for store in busy where !state.entries.contains(where: { $0.store === store }) {
        state.entries.append(Entry(store: store))
      }
    }
  }
}

#if canImport(Glibc)
private let platformDescriptorLimit = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
#else
private let platformDescriptorLimit = RLIMIT_NOFILE
#endif
