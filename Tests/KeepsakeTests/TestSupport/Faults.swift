import Foundation
import Testing

@testable import Keepsake

extension SystemCall {
  /// The errors that a call in good order can end with, by its manual page: open(2), openat2(2),
  /// read(2), write(2), fsync(2), rename(2), unlink(2), rmdir(2), mkdir(2), statx(2), chmod(2),
  /// link(2), symlink(2), flock(2), fcntl(2), mmap(2), mlock(2), madvise(2), inotify_add_watch(2),
  /// statvfs(3), realpath(3), utimensat(2), ioctl_ficlone(2) and tcsetattr(3).
  ///
  /// Each may be EIO besides. Left out is what cannot be (EBADF, EFAULT), and what tells a fact
  /// about the names (ENOENT, EEXIST, ENOTDIR, EISDIR, ELOOP, ENOTEMPTY): said of files that are as
  /// they should be it were a lie, and tests that make such files tell it truly.
  var possibleErrors: [Int32] {
    switch self {
    case .open:
      [EACCES, EDQUOT, EINTR, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EPERM, EROFS, ETXTBSY]
    case .openUnlinked: [EACCES, EINTR, EIO, EMFILE, ENFILE, ENOMEM, ENOSYS, EPERM]
    case .list: [EACCES, EINTR, EIO, EMFILE, ENFILE, ENOMEM]
    case .read: [EINTR, EIO]
    case .write, .publish: [EDQUOT, EFBIG, EINTR, EIO, ENOSPC, EPERM]
    case .fsync, .fdatasync: [EDQUOT, EINTR, EINVAL, EIO, ENOSPC, EROFS]
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
    case .clone: [EINVAL, EIO, EOPNOTSUPP, EPERM, EXDEV]
    case .terminal: [EINTR, EIO, ENOTTY]
    }
  }
}

/// What becomes of one system call.
enum Fault {
  case error(Int32)
  /// The disk takes so many bytes of a write, and the rest when it is asked again.
  case short(Int)
  /// The disk takes so many bytes of a write, and is full then.
  case full(Int)

  /// A text that values of a test have in them, and errors never.
  static let mark = "said-by-no-error"

  /// What can become of a call.
  static func all(of event: SystemCallEvent) -> [Fault] {
    var faults = event.call.possibleErrors.map { Fault.error($0) }
    if event.call == .write || event.call == .publish {
      let parts = Set([1, event.bytes.count / 2, event.bytes.count - 1]).filter { $0 > 0 }
      faults += parts.sorted().flatMap { [.short($0), .full($0)] } + [.short(0), .full(0)]
    }
    return faults
  }

  /// The error that the call itself makes of it; nil where it goes on.
  var code: StorageError.Code? {
    switch self {
    case .error(EINTR): nil
    case .error(let code): StorageError(errno: code, operation: "", path: "").code
    case .short(let count): count == 0 ? .diskFull : nil
    case .full: .diskFull
    }
  }
}

/// A call that fails, and what came of it.
struct FailedCall {
  let number: Int
  let event: SystemCallEvent
  let fault: Fault
  /// What it ended with; nil when it was done all the same.
  let failure: StorageError?
  /// The names that came to stand for something else, or for nothing, before it failed.
  let namesChanged: [String]

  /// Whether a file whose name says so came, was replaced or went before; with what fails then, the
  /// new state may be the one that is there.
  func isAfterChange(of isWanted: (_ path: String) -> Bool) -> Bool {
    namesChanged.contains(where: isWanted)
  }

  var comment: Comment {
    let end = failure.map { "\($0)" } ?? "no failure"
    return "call \(number), \(event.call) \(event.path), \(fault): \(end)"
  }
}

/// Lets one system call fail.
private final class FaultyCall: Sendable {
  struct State {
    /// Of the calls that were made.
    var count = 0
    var isOver = false
    /// The write that was cut short, by its path: the next one to it finds the disk full.
    var fullPath: String?
    var failed: (event: SystemCallEvent, fault: Fault)?
    /// In how many ways the call can fail.
    var faultCount = 0
    /// The names that were changed before it did.
    var namesChanged: [String] = []
  }

  let state = Locked(State())
  private let number: Int
  private let way: Int

  init(number: Int, way: Int) {
    self.number = number
    self.way = way
  }

  var plan: FaultPlan {
    FaultPlan(
      decide: { self.decide($0) }, shorten: { self.shorten($0) },
      observe: { self.observe($0, $1) })
  }

  /// From now on nothing fails. Returns what failed, nil where there was no such call.
  func end(_ failure: StorageError?) -> FailedCall? {
    state.withLock { state in
      state.isOver = true
      return state.failed.map {
        FailedCall(
          number: number, event: $0.event, fault: $0.fault, failure: failure,
          namesChanged: state.namesChanged)
      }
    }
  }

  /// The fault of this call, if it is the one.
  private func fault(_ event: SystemCallEvent, _ state: inout State) -> Fault? {
    guard !state.isOver, state.count == number, state.failed == nil else { return nil }
    let faults = Fault.all(of: event)
    state.faultCount = faults.count
    guard faults.indices.contains(way) else { return nil }
    return faults[way]
  }

  private func decide(_ event: SystemCallEvent) -> FaultPlan.Decision {
    state.withLock { state in
      if state.isOver { return .proceed }
      defer { state.count += 1 }
      if state.fullPath == event.path, event.call == .write || event.call == .publish {
        state.fullPath = nil
        return .fail(ENOSPC)
      }
      guard let fault = fault(event, &state), case .error(let code) = fault else { return .proceed }
      state.failed = (event, fault)
      return .fail(code)
    }
  }

  private func observe(_ event: SystemCallEvent, _ result: Result<Int, Errno>) {
    guard [.rename, .exchange, .link, .unlink, .rmdir].contains(event.call), case .success = result
    else { return }
    state.withLock { state in
      if state.failed == nil {
        state.namesChanged += event.path.split(separator: "\0").map(String.init)
      }
    }
  }

  /// Asked before ``decide(_:)`` is about the same call.
  private func shorten(_ event: SystemCallEvent) -> Int? {
    state.withLock { state in
      guard let fault = fault(event, &state) else { return nil }
      switch fault {
      case .error: return nil
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

/// Each of the system calls of `body` fails in turn, in each way that it can; `check` sees what
/// came of it, and `afterwards` once the stage was let go. In the end nothing may be held of the
/// directories any more.
///
/// - Parameters:
///   - step: With more than one a call fails in every so many ways only, its neighbours in the
///     others: for slow operations that make the same calls as quick ones.
///   - prepare: Makes what a call needs, anew for each, and says in which directories; the first is
///     handed on.
/// - Returns: How many faults were tried.
func failingEachCall<Stage>(
  step: Int = 1, _ body: (Stage) async throws -> Void,
  on prepare: () throws -> (stage: Stage, directories: [TemporaryDirectory]),
  check: (Stage, TemporaryDirectory, FailedCall) throws -> Void,
  afterwards: (TemporaryDirectory, FailedCall) throws -> Void = { _, _ in }
) async throws -> Int {
  let step = Coverage.isComplete ? step : max(step, 8)
  var total = 0
  let holdings = Holdings()

  /// Lets the stage go in the end.
  func attempt(
    _ faulty: FaultyCall, _ holdings: Holdings
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
      #expect(failure.code == call.fault.code, call.comment)
      #expect(!"\(failure)".contains(Fault.mark), call.comment)
    }
    for directory in directories { try await holdings.expectNoLock(directory.path, call.comment) }
    try check(stage, directories[0], call)
    return (directories, call)
  }

  var number = 0
  var isThrough = false
  while !isThrough {
    var way = number % step
    var ways = 0
    repeat {
      let faulty = FaultyCall(number: number, way: way)
      if let (directories, call) = try await attempt(faulty, holdings) {
        total += 1
        try afterwards(directories[0], call)
        for directory in directories { holdings.add(directory.path, call.comment) }
      }
      let state = faulty.state.withLock { $0 }
      isThrough = state.count <= number
      ways = state.faultCount
      way += step
    } while way < ways
    number += 1
    try #require(number < 400)
  }
  #expect(number > 2, "there are calls that can fail")
  try await holdings.expectNone()
  return total
}
