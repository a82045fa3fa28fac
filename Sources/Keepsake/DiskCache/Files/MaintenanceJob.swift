internal import Synchronization

/// Work in the background that many calls ask for, such as an eviction. One thread of this process
/// at a time does it.
final class MaintenanceJob: Sendable {
  /// Names it in reports.
  let operation: String
  let lock = Locked(())
  let lastFailure = Atomic(Int64.min)
  /// The process that is to run it; 0 if none is. A forked child has no thread of its parent's.
  private let generation = Atomic<UInt64>(0)

  init(_ operation: String) { self.operation = operation }

  /// False for a second after a failure: each set would try again.
  var mayRun: Bool {
    let age = WallClock.now.subtractingSaturated(lastFailure.load(ordering: .relaxed))
    return !(0..<WallClock.second).contains(age)
  }

  /// Whether the caller must start a thread that calls ``run(_:onFailure:)``.
  func request() -> Bool {
    let current = ForkGuard.generation
    return mayRun
      && generation.exchange(current, ordering: .sequentiallyConsistent) != current
  }

  /// Runs `work`, and again if that was requested in the meantime.
  @inline(never)
  func run(
    _ work: () throws(StorageError) -> Void, onFailure: (StorageError) -> Void
  ) {
    repeat {
      // A thread that is running it looks at the number when it has finished.
      guard let result = lock.withLockIfAvailable({ _ in runOnce(work) }) else { return }
      if let failure = result { onFailure(failure) }
    } while generation.load(ordering: .sequentiallyConsistent) != 0
  }

  /// Returns the failure.
  private func runOnce(_ work: () throws(StorageError) -> Void) -> StorageError? {
    generation.store(0, ordering: .sequentiallyConsistent)
    // It may have failed since this run was requested.
    guard mayRun else { return nil }
    do throws(StorageError) {
      try work()
    } catch  where error.code == .notFound {
      // The cache was emptied in the meantime.
    } catch {
      lastFailure.store(WallClock.now, ordering: .relaxed)
      return error
    }
    return nil
  }
}
