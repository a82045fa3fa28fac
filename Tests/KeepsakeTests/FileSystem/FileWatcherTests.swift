import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

#if os(Linux)
@Suite(.timeLimit(.minutes(20))) struct FileWatcherTests {
  /// A watch and its events.
  private struct Events: Sendable {
    private final class Log: Sendable {
      let all = Locked<[FileWatcher.Event]>([])
    }

    private let log = Log()
    private let watch: FileWatcher.Watch

    init(of path: String) {
      watch = FileWatcher.shared.watch(.contents, of: path) { [log] event in
        log.all.withLock { $0.append(event) }
      }
    }

    var count: Int { log.all.withLock { $0.count } }
    var isGone: Bool { log.all.withLock { $0.contains(.gone) } }
  }

  private let directory: TemporaryDirectory
  private var path: String { directory.file("file").path(percentEncoded: false) }

  init() throws {
    directory = try TemporaryDirectory(isQuick: true)
    try directory.write([], to: "file")
  }

  private func append(_ count: Int = 1) throws {
    let file = try File(path, .readWrite)
    let end = try file.status().size
    for number in 0..<count { try file.overwrite([UInt8(1)].span.bytes, at: end + number) }
  }

  /// The watch ends with its first event and begins again later: a change in between counts, too.
  @Test func aChangeRightAfterAnotherOneIsReported() async throws {
    let events = Events(of: path)
    for _ in 0..<5 {
      let before = events.count
      try append()
      try await eventually("the first change is reported") { events.count > before }
      let first = events.count
      try append()
      try await eventually("the second change is reported") { events.count > first }
    }
  }

  @Test func manyChangesAreFewEvents() async throws {
    let start = ContinuousClock.now
    let events = Events(of: path)
    try append(20_000)
    try await eventually("a change is reported") { events.count > 0 }
    let count = events.count
    // Two for each pause of eight milliseconds: a change, and the end of the pause.
    let pauseCount = Int((ContinuousClock.now - start) / .milliseconds(8)) + 1
    #expect(count <= 2 * pauseCount)
  }

  @Test(arguments: [true, false]) func aFileThatIsDeletedIsGone(isOpen: Bool) async throws {
    let events = Events(of: path)
    let file = isOpen ? try File(path, .read) : nil
    defer { withExtendedLifetime(file) {} }
    try append()
    try FileManager.default.removeItem(atPath: path)
    try await eventually("the file is gone") { events.isGone }
  }

  @Test func theFileThatReplacesAnotherIsWatched() async throws {
    let events = Events(of: path)
    let first = events.count
    try append()
    try directory.write([1], to: "new")
    try FileSystem.rename(directory.file("new").path(percentEncoded: false), to: path)
    try await eventually("the change is reported") { events.count > first }
    // At the latest once the watch has begun again, writes to the new file are events.
    for _ in 0..<3 where !events.isGone {
      let before = events.count
      try await eventually("the new file is watched") {
        try append()
        return events.count > before + 1 || events.isGone
      }
    }
  }

  /// A file that the system cannot watch is polled, but only until it can be watched.
  @Test func aFileThatCouldNotBeWatchedIsWatchedLater() async throws {
    try directory.write([], to: "other")
    let other = directory.file("other").path
    let attempts = Locked(0)
    let plan = FaultPlan(decide: { [path] event in
      guard event.call == .watch else { return .proceed }
      if event.path == path { return attempts.increment() == 1 ? .fail(ENOSPC) : .proceed }
      return event.path == other ? .fail(ENOSPC) : .proceed
    })
    let (events, polls) = FaultPlan.$current.withValue(plan) {
      (Events(of: path), Events(of: other))
    }
    try await eventually("the other file is polled") { polls.count >= 4 }
    #expect(events.count == 1 && attempts.withLock { $0 } == 2)
    try append()
    try await eventually("the change is reported") { events.count > 1 }
  }

  @Test func aWatchThatHasEndedReportsNothing() async throws {
    let isReported = Locked(false)
    let events = Events(of: path)
    _ = FileWatcher.shared.watch(.contents, of: path) { _ in isReported.withLock { $0 = true } }
    try append()
    try await eventually("the other watch goes on") { events.count > 0 }
    #expect(!isReported.withLock { $0 })
  }
}
#endif
