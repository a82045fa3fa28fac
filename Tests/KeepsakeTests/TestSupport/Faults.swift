import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

extension SystemCall {
  /// The errors that a correct call can fail with, according to its manual page: open(2),
  /// openat2(2), read(2), write(2), fsync(2), sync(2), rename(2), unlink(2), rmdir(2), mkdir(2),
  /// statx(2), chmod(2), link(2), symlink(2), flock(2), fcntl(2), mmap(2), mlock(2), madvise(2),
  /// inotify_add_watch(2), statvfs(3), realpath(3), utimensat(2), ioctl_ficlone(2),
  /// ioctl_iflags(2), fallocate(2), ftruncate(2), tcsetattr(3) and getrandom(2).
  ///
  /// EIO is possible for most calls. Left out are errors that cannot occur here (EBADF, EFAULT),
  /// and those that state a fact about names (ENOENT, EEXIST, ENOTDIR, EISDIR, ELOOP, ENOTEMPTY):
  /// they would be false for intact files, and other tests create files for which they are true.
  var possibleErrors: [Int32] {
    switch self {
    case .open:
      [EACCES, EDQUOT, EINTR, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EPERM, EROFS, ETXTBSY]
    case .openNoSymlinks: [EACCES, EINTR, EIO, EMFILE, ENFILE, ENOMEM, ENOSYS, EPERM]
    case .list: [EACCES, EINTR, EIO, EMFILE, ENFILE, ENOMEM]
    case .read: [EINTR, EIO]
    case .write, .publish: [EDQUOT, EFBIG, EINTR, EIO, ENOSPC, EPERM]
    case .fsync, .fdatasync: [EDQUOT, EINTR, EINVAL, EIO, ENOSPC, EROFS]
    case .syncfs: [EIO, ENOSPC, EROFS]
    case .rename: [EACCES, EBUSY, EDQUOT, EIO, EMLINK, ENOMEM, ENOSPC, EPERM, EROFS, EXDEV]
    case .exchange: [EACCES, EBUSY, EINVAL, EIO, ENOMEM, ENOSPC, EPERM, EROFS]
    case .unlink: [EACCES, EBUSY, EIO, ENOMEM, EPERM, EROFS]
    case .rmdir: [EACCES, EBUSY, EIO, ENOMEM, EPERM, EROFS]
    case .mkdir: [EACCES, EDQUOT, EIO, EMLINK, ENOMEM, ENOSPC, EPERM, EROFS]
    case .stat, .resolve: [EACCES, EIO, ENOMEM]
    case .chmod: [EACCES, EIO, ENOMEM, EPERM, EROFS]
    case .link: [EACCES, EDQUOT, EIO, EMLINK, ENOMEM, ENOSPC, EPERM, EROFS]
    case .lock: [EAGAIN, EINTR, EIO, ENOLCK, ENOMEM]
    case .map: [EACCES, EAGAIN, ENFILE, ENODEV, ENOMEM, EPERM]
    case .lockMemory: [EAGAIN, ENOMEM, EPERM]
    case .adviseMemory: [EACCES, EAGAIN, EINVAL, EIO, ENOMEM, EPERM]
    case .watch: [EACCES, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC]
    case .space: [EACCES, EINTR, EIO, ENOMEM, ENOSYS]
    case .times: [EACCES, EIO, EPERM, EROFS]
    case .reserve: [EDQUOT, EINTR, EIO, ENOSPC, ENOSYS, EOPNOTSUPP, EPERM]
    case .truncate: [EINTR, EIO, EPERM, EROFS]
    case .accessList: [EACCES, ENOSPC, EPERM, ERANGE]
    case .chown: [EACCES, EIO, ENOMEM, EPERM, EROFS]
    case .clone: [EINVAL, EIO, EOPNOTSUPP, EPERM, EXDEV]
    case .terminal: [EINTR, EIO, ENOTTY]
    case .keyring: [EACCES, EDQUOT, ENOKEY, ENOMEM, ENOSYS, EPERM]
    case .random: [EINTR, ENOSYS]
    }
  }
}

/// How one system call fails.
enum Fault {
  case error(Int32)
  /// The disk accepts that many bytes of a write, and the rest at the next attempt.
  case short(Int)
  /// The disk accepts that many bytes of a write and is full then.
  case full(Int)
  /// From here on, reads of this file find its end although it is longer.
  case endOfFile

  /// A text that is part of the tests' values and must not appear in an error.
  static let mark = Sample.mark

  /// All faults that the call can have.
  static func all(of event: SystemCallEvent) -> [Fault] {
    var faults = event.call.possibleErrors.map { Fault.error($0) }
    if event.call == .read { faults.append(.endOfFile) }
    if event.call == .write || event.call == .publish {
      let parts = Set([1, event.bytes.count / 2, event.bytes.count - 1]).filter { $0 > 0 }
      faults += parts.sorted().flatMap { [.short($0), .full($0)] } + [.short(0), .full(0)]
    }
    return faults
  }

  /// The code of the error that the call throws; nil if it continues.
  var code: StorageError.Code? {
    switch self {
    case .error(EINTR): nil
    case .error(let code): StorageError(errno: code, operation: "", path: "").code
    case .short(let count): count == 0 ? .diskFull : nil
    case .full: .diskFull
    case .endOfFile: .system(EIO)
    }
  }
}

/// Runs `body` as a process does that is killed before one of its system calls: neither that call
/// nor a later one has an effect.
///
/// - Returns: Whether there was such a call.
func killing<R>(beforeCall number: Int, _ body: () -> R) -> Bool {
  let count = Locked(0)
  let plan = FaultPlan(decide: { _ in count.increment() > number ? .fail(EIO) : .proceed })
  _ = FaultPlan.$current.withValue(plan, operation: body)
  return count.withLock { $0 } > number
}

/// Runs `interruption` once, as another process would: just before the first such system call of
/// `body` whose path has this suffix, or the one with that number. There must be one. A plan that
/// is in force sees the calls of both.
func interrupt(
  before call: SystemCall, number: Int = 1, at suffix: String = "",
  _ interruption: @escaping @Sendable () throws -> Void, in body: () throws -> Void
) throws {
  let count = Locked(0)
  let outer = FaultPlan.current
  let plan = FaultPlan(
    decide: { event in
      if event.call == call, event.path.hasSuffix(suffix), count.increment() == number {
        FaultPlan.$current.withValue(outer) {
          #expect(throws: Never.self) { try interruption() }
        }
      }
      return outer?.decide(event) ?? .proceed
    },
    observe: outer?.observe)
  try FaultPlan.$current.withValue(plan, operation: body)
  #expect(count.withLock { $0 } >= number)
}

/// Runs `body` on a disk that accepts so many bytes of the first write, and no write after it.
func withDiskFull<R>(afterBytes count: Int, _ body: () throws -> R) rethrows -> R {
  let isFull = Locked(false)
  let plan = FaultPlan(
    decide: { event in
      event.call == .write && isFull.withLock { $0 } ? .fail(ENOSPC) : .proceed
    },
    shorten: { _ in
      isFull.withLock { $0 = true }
      return count
    })
  return try FaultPlan.$current.withValue(plan, operation: body)
}

/// A system call that failed, and how the operation ended.
struct FailedCall {
  let number: Int
  let event: SystemCallEvent
  let fault: Fault
  /// The error of the operation; nil if it succeeded nevertheless.
  let failure: StorageError?
  /// The paths that were created, replaced or removed before the call failed.
  let changedPaths: [String]

  /// Whether a matching path had been created, replaced or removed before the call failed, so that
  /// the new state may be visible.
  func isAfterChange(of isWanted: (_ path: String) -> Bool) -> Bool {
    changedPaths.contains(where: isWanted)
  }

  var comment: Comment {
    let end = failure.map { "\($0)" } ?? "no failure"
    return "call \(number), \(event.call) \(event.path), \(fault): \(end)"
  }
}

/// Makes one system call fail.
private final class FaultyCall: Sendable {
  struct State {
    /// How many calls were made.
    var count = 0
    var isOver = false
    /// The path of a write that was cut short: the next write to it finds the disk full.
    var fullPath: String?
    /// The path of a file that seems to end.
    var endedPath: String?
    var failed: (event: SystemCallEvent, fault: Fault)?
    /// How many faults the call can have.
    var faultCount = 0
    /// The paths that were changed before it failed.
    var changedPaths: [String] = []
  }

  let state = Locked(State())
  private let number: Int
  private let faultIndex: Int

  init(number: Int, faultIndex: Int) {
    self.number = number
    self.faultIndex = faultIndex
  }

  var plan: FaultPlan {
    FaultPlan(
      decide: { self.decide($0) }, shorten: { self.shorten($0) },
      observe: { self.observe($0, $1) })
  }

  /// Stops failing calls. Returns the call that failed; nil if there was no such call.
  func end(_ failure: StorageError?) -> FailedCall? {
    state.withLock { state in
      state.isOver = true
      return state.failed.map {
        FailedCall(
          number: number, event: $0.event, fault: $0.fault, failure: failure,
          changedPaths: state.changedPaths)
      }
    }
  }

  /// The fault to give to this call, if it is the chosen one.
  private func fault(_ event: SystemCallEvent, _ state: inout State) -> Fault? {
    guard !state.isOver, state.count == number, state.failed == nil else { return nil }
    let faults = Fault.all(of: event)
    state.faultCount = faults.count
    // A sample has one fault of each call that it takes, another one each time.
    let index = Coverage.isComplete ? faultIndex : faultIndex % faults.count
    guard faults.indices.contains(index) else { return nil }
    return faults[index]
  }

  private func decide(_ event: SystemCallEvent) -> FaultPlan.Decision {
    state.withLock { state in
      if state.isOver { return .proceed }
      defer { state.count += 1 }
      if state.fullPath == event.path, event.call == .write || event.call == .publish {
        state.fullPath = nil
        return .fail(ENOSPC)
      }
      if state.endedPath == event.path, event.call == .read { return .succeed(0) }
      guard let fault = fault(event, &state) else { return .proceed }
      switch fault {
      case .error(let code):
        state.failed = (event, fault)
        return .fail(code)
      case .endOfFile:
        state.failed = (event, fault)
        state.endedPath = event.path
        return .succeed(0)
      case .short, .full: return .proceed
      }
    }
  }

  private func observe(_ event: SystemCallEvent, _ result: Result<Int, Errno>) {
    let changing: Set<SystemCall> = [.rename, .exchange, .link, .unlink, .mkdir, .rmdir]
    guard changing.contains(event.call), case .success = result else { return }
    state.withLock { state in
      if state.failed == nil {
        state.changedPaths += event.path.split(separator: "\0").map(String.init)
      }
    }
  }

  /// Called before ``decide(_:)`` for the same call.
  private func shorten(_ event: SystemCallEvent) -> Int? {
    state.withLock { state in
      guard let fault = fault(event, &state) else { return nil }
      switch fault {
      case .error, .endOfFile: return nil
      case .short(let count):
        state.failed = (event, fault)
        return count
      case .full(let count):
        state.failed = (event, fault)
        state.fullPath = count > 0 ? event.path : nil
        return count
      }
    }
  }
}

/// Runs `body` once for each fault that each of its system calls can have.
///
/// `check` examines the result, and `afterwards` examines it again after the stage was released.
/// At the end no file, lock or mapping of the directories may be resources.
///
/// - Parameters:
///   - step: With more than 1, a call has only every `step`th of its faults, and the next call the
///     ones after them: for slow operations that make the same calls as quick ones.
///   - every: Of the calls, a plain test run takes every so many, beginning with the one at
///     `offset`. Each has one fault.
///   - prepare: Makes a new stage, and returns it with its directories, of which the first is
///     passed to `check`.
/// - Returns: The number of faults.
func failingEachCall<Stage>(
  step: Int = 1, every interval: Int = 1, offset: Int = 0, _ body: (Stage) async throws -> Void,
  on prepare: () throws -> (stage: Stage, directories: [TemporaryDirectory]),
  check: (Stage, TemporaryDirectory, FailedCall) throws -> Void,
  afterwards: (TemporaryDirectory, FailedCall) throws -> Void = { _, _ in }
) async throws -> Int {
  let interval = Coverage.isComplete ? 1 : interval
  var total = 0
  let resources = HeldResources()

  /// Releases the stage at the end.
  func attempt(
    _ faulty: FaultyCall, _ resources: HeldResources
  ) async throws -> ([TemporaryDirectory], FailedCall)? {
    let (stage, directories) = try prepare()
    var failure: StorageError?
    do {
      try await FaultPlan.$current.withValue(faulty.plan) { try await body(stage) }
    } catch {
      failure = try #require(error as? StorageError)
    }
    guard let call = faulty.end(failure) else {
      #expect(failure == nil, "without a fault")
      return nil
    }
    if let failure {
      #expect(failure.path?.isEmpty == false && !failure.remedy.isEmpty, call.comment)
      // A file system that cannot exchange names makes some calls impossible.
      let isRefused = failure.code == .misuse && call.event.call == .exchange
      #expect(failure.code == call.fault.code || isRefused, call.comment)
      #expect(!"\(failure)".contains(Fault.mark), call.comment)
    }
    for directory in directories {
      try await resources.expectUnlocked(directory.path, call.comment)
    }
    try check(stage, directories[0], call)
    return (directories, call)
  }

  var number = offset % interval
  var isFinished = false
  while !isFinished {
    var faultIndex = Coverage.isComplete ? number % step : number + offset
    var faultCount = 0
    repeat {
      let faulty = FaultyCall(number: number, faultIndex: faultIndex)
      if let (directories, call) = try await attempt(faulty, resources) {
        total += 1
        try afterwards(directories[0], call)
        for directory in directories { resources.add(directory.path, call.comment) }
      }
      let state = faulty.state.withLock { $0 }
      isFinished = state.count <= number
      faultCount = state.faultCount
      faultIndex += step
    } while Coverage.isComplete && faultIndex < faultCount
    number += interval
    // A guard against a call that never ends. The keyring of the login may have many keys of other
    // tests, and lock() looks at each.
    try #require(number < 10_000)
  }
  #expect(total > 0 || !Coverage.isComplete, "there are calls that can fail")
  try await resources.expectReleased()
  return total
}
