internal import KeepsakeLibc

/// The system calls the library makes, by the name that errors and recordings show.
enum SystemCall: String, Sendable {
  case open, read, write, fsync, fdatasync, rename, unlink, rmdir, mkdir, stat, chmod
  case list, link, lock, map, watch, space, resolve, exchange, times, clone
  case openUnlinked = "openat2"
  case lockMemory = "mlock"
  case adviseMemory = "madvise"
  case terminal = "terminal settings"
  case publish = "write to lock file"
}

/// An `errno` value on its way to becoming a ``StorageError``.
struct Errno: Error {
  let code: Int32
}

/// Makes one system call: repeats it when a signal interrupted it, and turns -1 into its `errno`.
///
/// Every call of the library that can fail passes here, which is what lets a test fail the n-th one
/// or record them all; giving back (close, unlock, unmap) does not.
///
/// - Parameters:
///   - descriptor: That of the open file or directory that the call works on; nil where it goes by
///     the path.
///   - bytes: What a write hands over.
///   - offset: Where it puts them; nil for the position that the descriptor is at.
@inline(__always)
func systemCall(
  _ call: SystemCall, _ path: @autoclosure () -> String, on descriptor: Int32? = nil,
  bytes: UnsafeRawBufferPointer? = nil, offset: Int? = nil,
  _ body: () -> Int
) -> Result<Int, Errno> {
  #if DEBUG
  if let plan = FaultPlan.current {
    let event = SystemCallEvent(
      call: call, path: path(), descriptor: descriptor, offset: offset, bytes: bytes)
    while true {
      switch plan.decide(event) {
      case .fail(EINTR): continue
      case .fail(let code): return .failure(Errno(code: code))
      case .proceed: break
      }
      break
    }
    let result = untilDone(body)
    plan.observe?(event, result)
    return result
  }
  #endif
  return untilDone(body)
}

@inline(__always)
private func untilDone(_ body: () -> Int) -> Result<Int, Errno> {
  while true {
    let result = body()
    if result != -1 { return .success(result) }
    let code = errno
    if code != EINTR { return .failure(Errno(code: code)) }
  }
}

extension Result where Success == Int, Failure == Errno {
  /// The call's result, or its failure as an error that names the path.
  @inline(__always)
  @discardableResult
  func get(_ call: SystemCall, _ path: @autoclosure () -> String) throws(StorageError) -> Int {
    switch self {
    case .success(let value): return value
    case .failure(let error):
      throw StorageError(errno: error.code, operation: call.rawValue, path: path())
    }
  }
}

#if DEBUG
/// One system call as a test sees it.
struct SystemCallEvent: Sendable {
  let call: SystemCall
  let path: String
  /// Says which file it is when the path may be another one's by now.
  let descriptor: Int32?
  let offset: Int?
  let bytes: [UInt8]

  init(
    call: SystemCall, path: String, descriptor: Int32?, offset: Int?,
    bytes: UnsafeRawBufferPointer?
  ) {
    self.call = call
    self.path = path
    self.descriptor = descriptor
    self.offset = offset
    self.bytes = bytes.map { Array($0) } ?? []
  }
}

/// What a test decides about the system calls made below it; absent from release builds.
struct FaultPlan: Sendable {
  enum Decision: Sendable {
    case proceed
    case fail(Int32)
  }

  @TaskLocal static var current: FaultPlan?

  let decide: @Sendable (SystemCallEvent) -> Decision
  /// How many of a write's bytes the disk still takes; nil: all of them.
  var shorten: @Sendable (SystemCallEvent) -> Int? = { _ in nil }
  /// Sees each call that was made, with its result.
  var observe: (@Sendable (SystemCallEvent, Result<Int, Errno>) -> Void)?
}
#endif

/// What the disk takes of a write at once: all, unless a test says otherwise.
@inline(__always)
func portion(
  of bytes: UnsafeRawBufferPointer, _ call: SystemCall, _ path: @autoclosure () -> String,
  on descriptor: Int32, offset: Int? = nil
) -> UnsafeRawBufferPointer {
  #if DEBUG
  if let plan = FaultPlan.current,
    let count = plan.shorten(
      SystemCallEvent(
        call: call, path: path(), descriptor: descriptor, offset: offset, bytes: bytes))
  {
    return UnsafeRawBufferPointer(rebasing: bytes[..<min(count, bytes.count)])
  }
  #endif
  return bytes
}

/// Runs `body` later under the faults, and by the clock, that are in force now: a task-local does
/// not follow a hop to another thread by itself.
func carryingTaskLocals<R>(_ body: @escaping @Sendable () -> R) -> @Sendable () -> R {
  #if DEBUG
  let (plan, shift) = (FaultPlan.current, WallClock.shift)
  if plan == nil, shift == 0 { return body }
  return {
    WallClock.$shift.withValue(shift) { FaultPlan.$current.withValue(plan, operation: body) }
  }
  #else
  return body
  #endif
}
