/// Runs a loop over changes while another task keeps setting new values, and cancels both after the
/// first value that the loop shows.
///
/// - Returns: That value, or nil if the loop ended without one.
func firstShown(
  whileSetting set: @escaping @Sendable (Int) -> Void,
  in loop: @escaping @Sendable (_ show: @escaping @Sendable (Int) -> Void) async -> Void
) async -> Int? {
  let (shown, showing) = AsyncStream.makeStream(of: Int.self)
  return await withTaskGroup(of: Void.self) { tasks in
    tasks.addTask {
      for number in 1... {
        set(number)
        await Task.yield()
        if Task.isCancelled { return }
      }
    }
    tasks.addTask {
      await loop { showing.yield($0) }
      showing.finish()
    }
    let first = await shown.first { _ in true }
    tasks.cancelAll()
    return first
  }
}
