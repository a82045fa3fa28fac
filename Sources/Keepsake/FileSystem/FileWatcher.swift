internal import CKeepsake
internal import KeepsakeLibc

/// Calls handlers when files change, through one inotify descriptor for the process.
///
/// A file that cannot be watched, because the system has no inotify or no watches left, is reported
/// as changed once a second.
final class FileWatcher: Sendable {
  static let shared = FileWatcher()

  enum Event {
    /// The file may have changed.
    case changed
    /// The path names another file now, or none. No further events follow.
    case gone
  }

  enum Subject {
    /// Writes to a file and its removal.
    case contents
    /// Names added to and removed from a directory, files in it that are closed after a write, and
    /// its removal.
    case names
    /// Only whether the directory is moved or removed.
    case place
  }

  typealias Handler = @Sendable (Event) -> Void

  /// A registration, which ends with its last reference.
  final class Watch: Sendable {
    fileprivate let id: Int
    fileprivate init(id: Int) { self.id = id }
    deinit { FileWatcher.shared.end(id) }
  }

  private struct Registration {
    let subject: Subject
    let path: String
    let polls: Bool
    let handler: Handler
    /// Looks at the file in the context of the caller that registered it.
    let poll: @Sendable () -> Void
    var watch: Int32?
  }

  private struct State {
    var generation: UInt64 = 0
    var descriptor: Int32 = -1
    var hasReader = false
    /// The list of mounts, on which ``FileWatcher/waitForMounts(_:)`` waits; negative without one.
    var mounts: Int32 = -1
    var lastID = 0
    var registrations: [Int: Registration] = [:]
    /// The registrations by inotify watch.
    var watched: [Int32: Set<Int>] = [:]
    /// The registrations whose watch ended with its first event.
    var fired: Set<Int> = []
    /// The registrations that the system could not watch.
    var polled: Set<Int> = []
    var hasPoller = false
  }

  private let state = Locked(State())

  /// Calls `handler` after each change at `path`, on a thread of the watcher.
  ///
  /// - Parameter polls: Whether to call it once a second if the system has no events left.
  func watch(
    _ subject: Subject, of path: String, polls: Bool = true, handler: @escaping Handler
  ) -> Watch {
    let watch = state.withLock { state in
      enterGeneration(&state)
      state.lastID += 1
      let id = state.lastID
      let registration = Registration(
        subject: subject, path: path, polls: polls, handler: handler,
        poll: carryingTaskLocals { [self] in watchAgain([id]) })
      state.registrations[id] = registration
      if addWatch(id, registration, &state) != nil, polls { state.polled.insert(id) }
      return Watch(id: id)
    }
    startPollerIfNeeded()
    return watch
  }

  private func end(_ id: Int) {
    // Released outside the lock.
    var registration: Registration?
    state.withLock { state in
      // Registrations of a forked child's parent belong to the parent.
      guard state.generation == ForkGuard.generation else { return }
      registration = state.registrations.removeValue(forKey: id)
      state.polled.remove(id)
      state.fired.remove(id)
      guard let watch = registration?.watch, state.watched[watch]?.remove(id) != nil,
        state.watched[watch]?.isEmpty == true
      else { return }
      state.watched[watch] = nil
      #if os(Linux)
      // Fails if the file is gone, because then the watch is gone too.
      if keepsake_is_marked(state.descriptor, Mark.events) {
        inotify_rm_watch(state.descriptor, watch)
      }
      #endif
    }
    withExtendedLifetime(registration) {}
  }

  /// Starts afresh in a forked child, which has none of its parent's threads.
  private func enterGeneration(_ state: inout State) {
    guard state.generation != ForkGuard.generation else { return }
    state = State(generation: ForkGuard.generation, lastID: state.lastID)
  }

  private func startPollerIfNeeded() {
    let isMissing = state.withLock { state in
      if state.polled.isEmpty || state.hasPoller || ForkGuard.isForkedChild { return false }
      state.hasPoller = BackgroundThread.start(.watcher) { [self] in pollFiles() }
      return !state.hasPoller
    }
    // Waits for other work in the background that can start a thread, such as the sync of a set: a
    // process that only reads has no thread that could try again.
    if isMissing { BackgroundWork.run(after: .seconds(1)) { [self] in startPollerIfNeeded() } }
  }

  /// Looks at each polled file once a second while there are any.
  private func pollFiles() {
    while true {
      BackgroundThread.sleep(for: .seconds(1))
      let polls = state.withLock { state in
        defer { state.polled = [] }
        state.hasPoller = !state.polled.isEmpty
        return state.polled.compactMap { state.registrations[$0]?.poll }
      }
      if polls.isEmpty { return }
      for poll in polls { poll() }
    }
  }

  /// Tries to watch files that no watch reports. They may have changed since the last one ended.
  private func watchAgain(_ ids: Set<Int>) {
    call(
      state.withLock { state in
        ids.compactMap { id in
          guard let registration = state.registrations[id] else { return nil }
          let errorCode = addWatch(id, registration, &state)
          if errorCode == ENOENT { return (registration.handler, .gone) }
          if errorCode != nil, registration.polls { state.polled.insert(id) }
          return (registration.handler, .changed)
        }
      })
    startPollerIfNeeded()
  }

  private func call(_ calls: [(handler: Handler, event: Event)]) {
    for (handler, event) in calls { handler(event) }
  }

  #if os(Linux)
  /// Returns the `errno` of a failure.
  private func addWatch(
    _ id: Int, _ registration: Registration, _ state: inout State
  ) -> Int32? {
    guard openEvents(&state), startReader(&state) else { return ENOSPC }
    if registration.subject != .contents { openMounts(&state) }
    let events =
      switch registration.subject {
      // Events are expensive for the writer, which is often this process: a write takes two thirds
      // longer. So the watch ends with the first event, and begins again after a pause.
      case .contents: UInt32(IN_MODIFY | IN_ATTRIB) | UInt32(IN_ONESHOT)
      case .names:
        UInt32(IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE)
      // Adds to what others watch there: a directory has one watch.
      case .place: UInt32(IN_MASK_ADD)
      }
    let mask = events | UInt32(IN_DELETE_SELF | IN_MOVE_SELF)
    let descriptor = state.descriptor
    let result = systemCall(.watch, registration.path) {
      Int(inotify_add_watch(descriptor, registration.path, mask))
    }
    if case .success(let watch) = result {
      state.watched[Int32(watch), default: []].insert(id)
      state.registrations[id]?.watch = Int32(watch)
    }
    return result.errorCode
  }

  private func openEvents(_ state: inout State) -> Bool {
    if keepsake_is_marked(state.descriptor, Mark.events) { return true }
    forgetDescriptor(&state)
    guard !ForkGuard.isForkedChild else { return false }
    guard
      case .success(let descriptor) = openDescriptor(
        .watch, "inotify", { Int(inotify_init1(Int32(IN_CLOEXEC))) })
    else { return false }
    guard keepsake_mark(Int32(descriptor), Mark.events) else {
      close(Int32(descriptor))
      return false
    }
    state.descriptor = Int32(descriptor)
    return true
  }

  /// Starts over after the program has closed the descriptor, and with it all watches. Its number
  /// may be the program's by now, so it is not closed.
  private func forgetDescriptor(_ state: inout State) {
    state.descriptor = -1
    state.hasReader = false
    state.fired.formUnion(state.watched.values.joined())
    state.watched = [:]
  }

  /// By which the watcher's descriptors are told from others under their numbers.
  private enum Mark {
    static let events: Int32 = 58
    static let mounts: Int32 = 59
  }

  /// Waits for mounts from now on: what is mounted over a directory hides its files, and inotify
  /// has no event for that.
  ///
  /// Without such a list, the next write notices.
  private func openMounts(_ state: inout State) {
    if state.mounts >= 0 { return }
    let path = "/proc/self/mountinfo"
    guard
      case .success(let number) = openDescriptor(
        .watch, path, { Int(open(path, O_RDONLY | O_CLOEXEC)) })
    else { return }
    let mounts = Int32(number)
    if keepsake_mark(mounts, Mark.mounts),
      BackgroundThread.start(.watcher, { [self] in waitForMounts(mounts) })
    {
      state.mounts = mounts
    } else {
      close(mounts)
    }
  }

  /// Reports the watched directories as gone after mounts, but none that is only on the way to
  /// another one.
  private func waitForMounts(_ descriptor: Int32) {
    while true {
      var wait = pollfd(fd: descriptor, events: Int16(POLLPRI), revents: 0)
      while poll(&wait, 1, -1) < 0 { guard errno == EINTR else { return } }
      // The program may have closed it, and then its number may be the program's.
      let isOpen = keepsake_is_marked(descriptor, Mark.mounts)
      let handlers = state.withLock { state -> [Handler]? in
        guard state.mounts == descriptor else { return nil }
        if !isOpen { state.mounts = -1 }
        // Those without a watch look once a second.
        return state.registrations.values.filter { $0.subject == .names && $0.watch != nil }
          .map(\.handler)
      }
      guard let handlers else { return }
      call(handlers.map { ($0, .gone) })
      if !isOpen { return }
      // A container host mounts often, and each store looks at its whole path.
      BackgroundThread.sleep(for: .milliseconds(500))
    }
  }

  private func startReader(_ state: inout State) -> Bool {
    let descriptor = state.descriptor
    if !state.hasReader {
      state.hasReader = BackgroundThread.start(.watcher) { [self] in readEvents(descriptor) }
    }
    return state.hasReader
  }

  private static let pauseBetweenBatches = Duration.milliseconds(8)

  /// Handles events while anything is watched. Removing the last watch causes an event too.
  private func readEvents(_ descriptor: Int32) {
    while true {
      watchAgain(
        state.withLock { state in
          defer { state.fired = [] }
          return state.fired
        })
      let isDone = state.withLock { state in
        // Another thread reads from the descriptor that replaced this one.
        guard state.descriptor == descriptor else { return true }
        state.hasReader = !state.watched.isEmpty
        return !state.hasReader
      }
      if isDone { return }
      if keepsake_is_marked(descriptor, Mark.events) {
        handleEvents(descriptor)
      } else {
        state.withLock { if $0.descriptor == descriptor { forgetDescriptor(&$0) } }
      }
      // Without this pause a process that writes continuously, such as this one, would wake the
      // thread with every write.
      BackgroundThread.sleep(for: Self.pauseBetweenBatches)
    }
  }

  /// Waits for events, and calls each handler once.
  ///
  /// A call of `read` that waits keeps the events coming if the program closes the descriptor in
  /// the meantime; `poll` would look at whatever has the number by then.
  private func handleEvents(_ descriptor: Int32) {
    var masks: [Int32: UInt32] = [:]
    var hasOverflowed = false
    let size = 16 << 10
    withUnsafeTemporaryAllocation(byteCount: size, alignment: 8) { buffer in
      let count = read(descriptor, buffer.baseAddress, size)
      var position = 0
      while position + MemoryLayout<inotify_event>.size <= count {
        let event = buffer.loadUnaligned(fromByteOffset: position, as: inotify_event.self)
        masks[event.wd, default: 0] |= event.mask
        if event.mask & UInt32(IN_Q_OVERFLOW) != 0 { hasOverflowed = true }
        position += MemoryLayout<inotify_event>.size + Int(event.len)
      }
    }
    call(
      state.withLock { state in
        // The kernel dropped events, so any file may have changed.
        if hasOverflowed {
          for watch in state.watched.keys where masks[watch] == nil { masks[watch] = 0 }
        }
        return masks.flatMap { watch, mask in
          (state.watched[watch] ?? []).compactMap { id in
            guard let registration = state.registrations[id] else { return nil }
            // The kernel ignores a watch of contents after its first event.
            let isIgnored =
              registration.subject != .contents && mask & UInt32(IN_IGNORED) != 0
            let isGone = isIgnored || mask & UInt32(IN_DELETE_SELF | IN_MOVE_SELF) != 0
            if registration.subject == .place, !isGone, !hasOverflowed { return nil }
            if registration.subject == .contents {
              state.watched[watch] = nil
              if !isGone { state.fired.insert(id) }
            }
            return (registration.handler, isGone ? .gone : .changed)
          }
        }
      })
  }
  #else
  private func addWatch(
    _ id: Int, _ registration: Registration, _ state: inout State
  ) -> Int32? { ENOSYS }
  #endif
}
