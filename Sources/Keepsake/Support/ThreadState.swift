internal import CKeepsake

/// State of the current thread. Swift has no thread-local variables.
enum ThreadState {
  /// The innermost `update` whose closure is running; nil if there is none.
  static var innermostUpdate: UnsafeRawPointer? {
    get { keepsake_innermost_update() }
    set { keepsake_set_innermost_update(newValue) }
  }

  /// Whether a handler for failures is running.
  static var isReporting: Bool {
    get { keepsake_is_reporting().pointee }
    set { keepsake_is_reporting().pointee = newValue }
  }

  /// How often the key path has been hashed that shows whether Observation is tracking.
  @inline(__always)
  static var probeHashes: UInt64 {
    get { keepsake_thread_observation().pointee.probe_hashes }
    set { keepsake_thread_observation().pointee.probe_hashes = newValue }
  }

  /// The tracked value whose observers are being notified.
  static var notifiedValue: UnsafeRawPointer? {
    get { keepsake_thread_observation().pointee.notified_value }
    set { keepsake_thread_observation().pointee.notified_value = newValue }
  }

  /// Where this thread announces what it reads; nil if it has read nothing yet.
  @inline(__always)
  static var readerSlot: UnsafeMutableRawPointer? {
    get { keepsake_reader_slot() }
    set { keepsake_set_reader_slot(newValue) }
  }
}
