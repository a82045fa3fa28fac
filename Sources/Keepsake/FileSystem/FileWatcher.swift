internal import Dispatch

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

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
    /// Names that come and go in a folder, files that are closed after a write, and its end.
    case names
  }

  typealias Handler = @Sendable (Event) -> Void

  /// Lasts as long as somebody holds it.
  final class Watch: Sendable {
    fileprivate let id: Int
    fileprivate init(id: Int) { self.id = id }
    deinit { FileWatcher.shared.end(id) }
  }

  /// Kept so that it goes on; sources may be used from any thread (dispatch/source.h).
  private struct Source: @unchecked Sendable {
    let source: any DispatchSourceProtocol
  }

  private struct State {
    var generation: UInt64 = 0
    var descriptor: Int32 = -1
    var source: Source?
    var lastID = 0
    var handlers: [Int32: [Int: Handler]] = [:]
    var timers: [Int: Source] = [:]
  }

  private let state = Locked(State())
  private let queue = DispatchQueue(label: "keepsake.watch", qos: .utility)

  /// Calls `handler` after each change at `path`, on a queue of the watcher's.
  func watch(_ subject: Subject, of path: String, handler: @escaping Handler) -> Watch {
    let carried = carryingFaults { handler(.changed) }
    return state.withLock { state in
      enterGeneration(&state)
      state.lastID += 1
      let id = state.lastID
      if let watch = add(subject, path, &state) {
        state.handlers[watch, default: [:]][id] = handler
      } else {
        let timer = DispatchSource.makeTimerSource(queue: queue)
        timer.schedule(deadline: .now() + 1, repeating: 1, leeway: .milliseconds(200))
        timer.setEventHandler(handler: carried)
        timer.activate()
        state.timers[id] = Source(source: timer)
      }
      return Watch(id: id)
    }
  }

  private func end(_ id: Int) {
    state.withLock { state in
      // What a child has from its parent is still the parent's.
      guard state.generation == ForkGuard.generation else { return }
      state.timers.removeValue(forKey: id)?.source.cancel()
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
    // Kept for good: it may have been suspended, and must not be let go of then.
    if let source = state.source { _ = Unmanaged.passRetained(source.source as AnyObject) }
    state = State(generation: ForkGuard.generation, lastID: state.lastID)
  }

  #if os(Linux)
    private func add(_ subject: Subject, _ path: String, _ state: inout State) -> Int32? {
      guard start(&state) else { return nil }
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

    private func start(_ state: inout State) -> Bool {
      if state.descriptor >= 0 { return true }
      guard !ForkGuard.isForkedChild else { return false }
      let flags = Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK)
      guard
        case .success(let descriptor) = systemCall(
          .watch, "inotify", { Int(inotify_init1(flags)) })
      else { return false }
      state.descriptor = Int32(descriptor)
      let source = DispatchSource.makeReadSource(
        fileDescriptor: Int32(descriptor), queue: queue)
      source.setEventHandler { [weak self] in
        self?.drain(Int32(descriptor))
        self?.pause()
      }
      source.activate()
      state.source = Source(source: source)
      return true
    }

    /// Leaves events alone for a moment, in which the system makes one of those that are alike: who
    /// writes without pause, as this process itself may, would else wake a thread with each write.
    private func pause() {
      guard let source = state.withLock({ $0.source }) else { return }
      source.source.suspend()
      queue.asyncAfter(deadline: .now() + .milliseconds(8)) { source.source.resume() }
    }

    /// Reads all pending events and calls each handler once.
    private func drain(_ descriptor: Int32) {
      var events: [Int32: Event] = [:]
      var hasOverflown = false
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
