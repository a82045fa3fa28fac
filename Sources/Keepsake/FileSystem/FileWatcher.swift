internal import KeepsakeLibc

/// Tells when files change: one inotify descriptor for the process, made on first use.
///
/// Where the system has no watch left, or no inotify, each file is looked at once a second.
final class FileWatcher: Sendable {
  static let shared = FileWatcher()

  enum Event {
    /// The file may have changed.
    case changed
    /// Its name leads elsewhere now: nothing more will come.
    case gone
  }

  /// What to look for.
  enum Subject {
    /// Writes to a file, and its end.
    case contents
    /// Names that come and go in a directory, files that are closed after a write, and its end.
    case names
  }

  typealias Handler = @Sendable (Event) -> Void

  /// Lasts as long as somebody holds it.
  final class Watch: Sendable {
    fileprivate let id: Int
    fileprivate init(id: Int) { self.id = id }
    deinit { FileWatcher.shared.end(id) }
  }

  private struct State {
    var generation: UInt64 = 0
    var descriptor: Int32 = -1
    /// Whether a thread waits for events.
    var isRead = false
    var lastID = 0
    var handlers: [Int32: [Int: Handler]] = [:]
    /// Of those that are looked at once a second, and whether a thread does so.
    var unwatched: [Int: @Sendable () -> Void] = [:]
    var isTicking = false
  }

  private let state = Locked(State())

  /// Calls `handler` after each change at `path`, on a thread of the watcher's.
  func watch(_ subject: Subject, of path: String, handler: @escaping Handler) -> Watch {
    let carried = carryingTaskLocals { handler(.changed) }
    return state.withLock { state in
      enterGeneration(&state)
      state.lastID += 1
      let id = state.lastID
      if let watch = add(subject, path, &state) {
        state.handlers[watch, default: [:]][id] = handler
      } else {
        state.unwatched[id] = carried
        if !state.isTicking, !ForkGuard.isForkedChild {
          state.isTicking = BackgroundThread.start { [self] in tick() }
        }
      }
      return Watch(id: id)
    }
  }

  private func end(_ id: Int) {
    state.withLock { state in
      // What a child has from its parent is still the parent's.
      guard state.generation == ForkGuard.generation else { return }
      state.unwatched[id] = nil
      for (watch, var handlers) in state.handlers where handlers[id] != nil {
        handlers[id] = nil
        state.handlers[watch] = handlers.isEmpty ? nil : handlers
        #if os(Linux)
        // Fails where the file is gone, and the watch with it.
        if handlers.isEmpty { inotify_rm_watch(state.descriptor, watch) }
        #endif
      }
    }
  }

  /// A forked child has none of its parent's threads: what they watched is lost.
  private func enterGeneration(_ state: inout State) {
    guard state.generation != ForkGuard.generation else { return }
    state = State(generation: ForkGuard.generation, lastID: state.lastID)
  }

  /// Calls each handler whose file has no watch, once a second while there is any.
  private func tick() {
    while true {
      BackgroundThread.sleep(for: .seconds(1))
      let handlers = state.withLock { state in
        if state.unwatched.isEmpty { state.isTicking = false }
        return state.unwatched.values.map { $0 }
      }
      if handlers.isEmpty { return }
      for handler in handlers { handler() }
    }
  }

  #if os(Linux)
  private func add(_ subject: Subject, _ path: String, _ state: inout State) -> Int32? {
    guard open(&state), readEvents(&state) else { return nil }
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
      case .success(let descriptor) = systemCall(
        .watch, "inotify", { Int(inotify_init1(flags)) })
    else { return false }
    state.descriptor = Int32(descriptor)
    return true
  }

  private func readEvents(_ state: inout State) -> Bool {
    let descriptor = state.descriptor
    if !state.isRead { state.isRead = BackgroundThread.start { [self] in read(descriptor) } }
    return state.isRead
  }

  /// Waits for events as long as something is watched. The end of the last watch is one as well.
  private func read(_ descriptor: Int32) {
    while true {
      var input = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      _ = poll(&input, 1, -1)
      drain(descriptor)
      // Leaves events alone for a moment, in which the system makes one of those that are alike:
      // who writes without pause, as this process itself may, would else wake a thread with each
      // write.
      BackgroundThread.sleep(for: .milliseconds(8))
      let isOver = state.withLock { state in
        state.isRead = !state.handlers.isEmpty
        return !state.isRead
      }
      if isOver { return }
    }
  }

  /// Reads all pending events and calls each handler once.
  private func drain(_ descriptor: Int32) {
    var events: [Int32: Event] = [:]
    var hasOverflown = false
    let size = 4096
    withUnsafeTemporaryAllocation(byteCount: size, alignment: 8) { buffer in
      while true {
        let count = platformRead(descriptor, buffer.baseAddress, size)
        guard count > 0 else { break }
        var position = 0
        while position + MemoryLayout<inotify_event>.size <= count {
          let event = buffer.loadUnaligned(fromByteOffset: position, as: inotify_event.self)
          let isGone = event.mask & UInt32(IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED) != 0
          if isGone || events[event.wd] == nil { events[event.wd] = isGone ? .gone : .changed }
          if event.mask & UInt32(IN_Q_OVERFLOW) != 0 { hasOverflown = true }
          position += MemoryLayout<inotify_event>.size + Int(event.len)
        }
      }
    }
    let calls = state.withLock { state in
      // Events were dropped: any file may have changed.
      if hasOverflown {
        for watch in state.handlers.keys where events[watch] == nil { events[watch] = .changed }
      }
      return events.flatMap { watch, event in
        (state.handlers[watch] ?? [:]).values.map { (handler: $0, event: event) }
      }
    }
    for call in calls { call.handler(call.event) }
  }
  #else
  private func add(_ subject: Subject, _ path: String, _ state: inout State) -> Int32? { nil }
  #endif
}

#if os(Linux)
private func platformRead(
  _ descriptor: Int32, _ buffer: UnsafeMutableRawPointer?, _ size: Int
) -> Int {
  read(descriptor, buffer, size)
}
#endif
