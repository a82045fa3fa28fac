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
  }

  typealias Handler = @Sendable (Event) -> Void

  /// A registration, which ends with its last reference.
  final class Watch: Sendable {
    fileprivate let id: Int
    fileprivate init(id: Int) { self.id = id }
    deinit { FileWatcher.shared.end(id) }
  }

  private struct State {
    var generation: UInt64 = 0
    var descriptor: Int32 = -1
    var hasReader = false
    var lastID = 0
    /// The handlers by inotify watch and registration.
    var handlers: [Int32: [Int: Handler]] = [:]
    /// The handlers that are called once a second.
    var polled: [Int: @Sendable () -> Void] = [:]
    var hasPoller = false
  }

  private let state = Locked(State())

  /// Calls `handler` after each change at `path`, on a thread of the watcher.
  func watch(_ subject: Subject, of path: String, handler: @escaping Handler) -> Watch {
    let reportChange = carryingTaskLocals { handler(.changed) }
    return state.withLock { state in
      enterGeneration(&state)
      state.lastID += 1
      let id = state.lastID
      if let watch = addWatch(subject, path, &state) {
        state.handlers[watch, default: [:]][id] = handler
      } else {
        state.polled[id] = reportChange
        if !state.hasPoller, !ForkGuard.isForkedChild {
          state.hasPoller = BackgroundThread.start { [self] in pollFiles() }
        }
      }
      return Watch(id: id)
    }
  }

  private func end(_ id: Int) {
    state.withLock { state in
      // Registrations of a forked child's parent belong to the parent.
      guard state.generation == ForkGuard.generation else { return }
      state.polled[id] = nil
      for (watch, var handlers) in state.handlers where handlers[id] != nil {
        handlers[id] = nil
        state.handlers[watch] = handlers.isEmpty ? nil : handlers
        #if os(Linux)
        // Fails if the file is gone, because then the watch is gone too.
        if handlers.isEmpty { inotify_rm_watch(state.descriptor, watch) }
        #endif
      }
    }
  }

  /// Starts afresh in a forked child, which has none of its parent's threads.
  private func enterGeneration(_ state: inout State) {
    guard state.generation != ForkGuard.generation else { return }
    state = State(generation: ForkGuard.generation, lastID: state.lastID)
  }

  /// Calls each polled handler once a second while there are any.
  private func pollFiles() {
    while true {
      BackgroundThread.sleep(for: .seconds(1))
      let handlers = state.withLock { state in
        if state.polled.isEmpty { state.hasPoller = false }
        return state.polled.values.map { $0 }
      }
      if handlers.isEmpty { return }
      for handler in handlers { handler() }
    }
  }

  #if os(Linux)
  private func addWatch(_ subject: Subject, _ path: String, _ state: inout State) -> Int32? {
    guard open(&state), startReader(&state) else { return nil }
    let changes =
      switch subject {
      case .contents: IN_MODIFY | IN_ATTRIB
      case .names: IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE
      }
    let mask = UInt32(changes | IN_DELETE_SELF | IN_MOVE_SELF)
    let descriptor = state.descriptor
    let result = systemCall(.watch, path) { Int(inotify_add_watch(descriptor, path, mask)) }
    guard case .success(let watch) = result else { return nil }
    return Int32(watch)
  }

  private func open(_ state: inout State) -> Bool {
    if state.descriptor >= 0 { return true }
    guard !ForkGuard.isForkedChild else { return false }
    let flags = Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK)
    guard
      case .success(let descriptor) = openDescriptor(
        .watch, "inotify", { Int(inotify_init1(flags)) })
    else { return false }
    state.descriptor = Int32(descriptor)
    return true
  }

  private func startReader(_ state: inout State) -> Bool {
    let descriptor = state.descriptor
    if !state.hasReader {
      state.hasReader = BackgroundThread.start { [self] in readEvents(descriptor) }
    }
    return state.hasReader
  }

  private static let pauseBetweenBatches = Duration.milliseconds(8)

  /// Handles events while anything is watched. Removing the last watch causes an event too.
  private func readEvents(_ descriptor: Int32) {
    while true {
      var input = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      _ = poll(&input, 1, -1)
      handlePendingEvents(descriptor)
      // The kernel merges equal events that are pending. Without this pause a process that writes
      // continuously, such as this one, would wake the thread with every write.
      BackgroundThread.sleep(for: Self.pauseBetweenBatches)
      let isDone = state.withLock { state in
        state.hasReader = !state.handlers.isEmpty
        return !state.hasReader
      }
      if isDone { return }
    }
  }

  /// Reads all pending events and calls each handler once.
  private func handlePendingEvents(_ descriptor: Int32) {
    var events: [Int32: Event] = [:]
    var hasOverflowed = false
    let size = 4096
    withUnsafeTemporaryAllocation(byteCount: size, alignment: 8) { buffer in
      while true {
        let count = read(descriptor, buffer.baseAddress, size)
        guard count > 0 else { break }
        var position = 0
        while position + MemoryLayout<inotify_event>.size <= count {
          let event = buffer.loadUnaligned(fromByteOffset: position, as: inotify_event.self)
          let isGone = event.mask & UInt32(IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED) != 0
          if isGone || events[event.wd] == nil { events[event.wd] = isGone ? .gone : .changed }
          if event.mask & UInt32(IN_Q_OVERFLOW) != 0 { hasOverflowed = true }
          position += MemoryLayout<inotify_event>.size + Int(event.len)
        }
      }
    }
    let calls = state.withLock { state in
      // The kernel dropped events, so any file may have changed.
      if hasOverflowed {
        for watch in state.handlers.keys where events[watch] == nil { events[watch] = .changed }
      }
      return events.flatMap { watch, event in
        (state.handlers[watch] ?? [:]).values.map { (handler: $0, event: event) }
      }
    }
    for call in calls { call.handler(call.event) }
  }
  #else
  private func addWatch(_ subject: Subject, _ path: String, _ state: inout State) -> Int32? { nil }
  #endif
}
