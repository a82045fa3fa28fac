/// Runs a loop over changes, which never ends by itself, while another task goes on setting new
/// values.
///
/// - Returns: The first value that the loop shows; nil if it ended without one.
func firstShown(
  whileSetting set: @escaping @Sendable (Int) -> Void,
  in loop: @escaping @Sendable (_ show: @escaping @Sendable (Int) -> Void) async -> Void
) async -> Int? {
  let (shown, showing) = AsyncStream.makeStream(of: Int.self)
  return await withTaskGroup(of: Void.self) { tasks in
    tasks.addTask {
      for number in 1... {
        set(number)
        guard (try? await Task.sleep(for: .milliseconds(5))) != nil else { return }
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
