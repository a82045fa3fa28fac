internal import KeepsakeLibc

/// The system calls the library makes, under the names that errors and recordings show.
enum SystemCall: String, Sendable {
  case open, read, write, fsync, fdatasync, syncfs, rename, unlink, rmdir, mkdir, stat, chmod
  case list, link, lock, map, watch, space, resolve, exchange, times, clone, chown
  case reserve, truncate
  case openNoSymlinks = "openat2"
  case lockMemory = "mlock"
  case adviseMemory = "madvise"
  case terminal = "terminal settings"
  case random = "getrandom"
  case publish = "write to shared word"
  case keyring = "keyctl"
  case accessList = "access-control list"
}

/// The `errno` of a failed system call.
struct Errno: Error {
  let code: Int32
}

/// Makes one system call: retries it if a signal interrupted it, and turns -1 into its `errno`.
///
/// Every call of the library that can fail goes through this function, which lets a test fail the
/// n-th one or record them all. Releasing calls (close, unlock, unmap) do not.
///
/// - Parameters:
///   - descriptor: The open file or directory that the call works on; nil if it uses the path.
///   - bytes: The bytes that a write passes to the system.
///   - offset: The offset of that write; nil for the descriptor's current position.
@inline(__always)
func systemCall(
  _ call: SystemCall, _ path: @autoclosure () -> String, on descriptor: Int32? = nil,
  bytes: UnsafeRawBufferPointer? = nil, offset: Int? = nil,
  _ body: () -> Int
) -> Result<Int, Errno> {
  #if DEBUG
  if let plan = FaultPlan.current {
    let event = SystemCallEvent(
      call: call, path: path(), descriptor: descriptor, offset: offset,
      bytes: bytes.map { Array($0) } ?? [])
    while true {
      switch plan.decide(event) {
      case .fail(EINTR): continue
      case .fail(let code): return .failure(Errno(code: code))
      case .succeed(let value): return .success(value)
      case .proceed: break
      }
      break
    }
    let result = retryingInterrupted(body)
    plan.observe?(event, result)
    return result
  }
  #endif
  return retryingInterrupted(body)
}

@inline(__always)
private func retryingInterrupted(_ body: () -> Int) -> Result<Int, Errno> {
  while true {
    let result = body()
    if result != -1 { return .success(result) }
    let code = errno
    if code != EINTR { return .failure(Errno(code: code)) }
  }
}

#if DEBUG
/// One system call as a test sees it.
struct SystemCallEvent: Sendable {
  let call: SystemCall
  let path: String
  /// Identifies the file even if the path names another one by now.
  let descriptor: Int32?
  let offset: Int?
  let bytes: [UInt8]
}

/// Decides, for a test, which system calls fail. Release builds have none.
struct FaultPlan: Sendable {
  enum Decision: Sendable {
    case proceed
    case fail(Int32)
    /// Returns this value without making the call.
    case succeed(Int)
  }

  @TaskLocal static var current: FaultPlan?

  let decide: @Sendable (SystemCallEvent) -> Decision
  /// How many bytes of a write the disk accepts; nil for all of them.
  var shorten: @Sendable (SystemCallEvent) -> Int? = { _ in nil }
  /// Receives each call that was made, with its result.
  var observe: (@Sendable (SystemCallEvent, Result<Int, Errno>) -> Void)?
}
#endif

/// The part of `bytes` that the disk accepts in one write: all of it, unless a test's
/// ``FaultPlan`` shortens it.
@inline(__always)
func acceptedPart(
  of bytes: UnsafeRawBufferPointer, _ call: SystemCall, _ path: @autoclosure () -> String,
  on descriptor: Int32, offset: Int? = nil
) -> UnsafeRawBufferPointer {
  #if DEBUG
  if let plan = FaultPlan.current,
    let count = plan.shorten(
      SystemCallEvent(
        call: call, path: path(), descriptor: descriptor, offset: offset, bytes: Array(bytes)))
  {
    return UnsafeRawBufferPointer(rebasing: bytes[..<min(count, bytes.count)])
  }
  #endif
  return bytes
}

/// Wraps `body` so that on another thread it sees the fault plan and the clock of the current
/// task. Task-local values do not follow a hop to another thread.
func carryingTaskLocals<R>(_ body: @escaping @Sendable () -> R) -> @Sendable () -> R {
  let body = WallClock.carryingAdvance(body)
  #if DEBUG
  let (plan, time) = (FaultPlan.current, WallClock.fixed)
  if plan == nil, time == nil { return body }
  return {
    WallClock.$fixed.withValue(time) { FaultPlan.$current.withValue(plan, operation: body) }
  }
  #else
  return body
  #endif
}
