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

  /// Kept so that it goes on; sources may be used from any thread (dispatch/source.h).
  private struct Source: @unchecked Sendable {
    let source: any DispatchSourceProtocol
  }

  private struct State {
    var descriptor: Int32 = -1
    var generation: UInt64 = 0
    var source: Source?
    var timers: [Source] = []
    var handlers: [Int32: [@Sendable () -> Void]] = [:]
  }

  private let state = Locked(State())
  private let queue = DispatchQueue(label: "keepsake.watch", qos: .utility)

  /// Calls `handler` after each write to `path`, on a queue of the watcher's, until the process
  /// ends; with `isWatched` false it is called once a second.
  @discardableResult
  func watch(_ path: String, handler: @escaping @Sendable () -> Void) -> Bool {
    let handler = carryingFaults(handler)
    if add(path, handler) { return true }
    let timer = DispatchSource.makeTimerSource(queue: queue)
    timer.schedule(deadline: .now() + 1, repeating: 1, leeway: .milliseconds(200))
    timer.setEventHandler(handler: handler)
    timer.activate()
    let kept = Source(source: timer)
    state.withLock { $0.timers.append(kept) }
    return false
  }

  #if os(Linux)
    private func add(_ path: String, _ handler: @escaping @Sendable () -> Void) -> Bool {
      state.withLock { state in
        guard start(&state) else { return false }
        let mask = UInt32(IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)
        let descriptor = state.descriptor
        let result = systemCall(.watch, path) { Int(inotify_add_watch(descriptor, path, mask)) }
        guard case .success(let watch) = result else { return false }
        state.handlers[Int32(watch), default: []].append(handler)
        return true
      }
    }

    private func start(_ state: inout State) -> Bool {
      if state.generation == ForkGuard.generation { return state.descriptor >= 0 }
      state = State(generation: ForkGuard.generation)
      guard !ForkGuard.isForkedChild else { return false }
      let flags = Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK)
      guard
        case .success(let descriptor) = systemCall(
          .watch, "inotify", { Int(inotify_init1(flags)) })
      else { return false }
      state.descriptor = Int32(descriptor)
      let source = DispatchSource.makeReadSource(
        fileDescriptor: Int32(descriptor), queue: queue)
      source.setEventHandler { [weak self] in self?.drain(Int32(descriptor)) }
      source.activate()
      state.source = Source(source: source)
      return true
    }

    /// Reads all pending events and calls each handler once.
    private func drain(_ descriptor: Int32) {
      var changed: Set<Int32> = []
      let size = 4096
      withUnsafeTemporaryAllocation(byteCount: size, alignment: 8) { buffer in
        while true {
          let count = read(descriptor, buffer.baseAddress, size)
          guard count > 0 else { break }
          var position = 0
          while position + MemoryLayout<inotify_event>.size <= count {
            let event = buffer.loadUnaligned(fromByteOffset: position, as: inotify_event.self)
            changed.insert(event.wd)
            position += MemoryLayout<inotify_event>.size + Int(event.len)
          }
        }
      }
      let handlers = state.withLock { state in changed.flatMap { state.handlers[$0] ?? [] } }
      for handler in handlers { handler() }
    }
  #else
    private func add(_ path: String, _ handler: @escaping @Sendable () -> Void) -> Bool { false }
  #endif
}
