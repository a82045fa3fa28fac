import Foundation

@testable import Keepsake

/// A directory that is removed with its last reference, or when the test process ends: the thread
/// of a link may keep it a moment longer than the test.
final class ServerDirectory: Sendable {
  let path: String

  init() throws {
    // Short, because the path of a socket is.
    path = NSTemporaryDirectory() + "keepsake-valkey-" + UUID().uuidString.prefix(13)
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
    let path = path
    // Unlike FileManager, it continues if work in the background removes files at the same time.
    AtExit.shared.add(path) { try? FileSystem.removeTree(path) }
  }

  deinit { AtExit.shared.run(path) }
}

/// What has to be done before the process ends, each once.
final class AtExit: @unchecked Sendable {
  static let shared = AtExit()
  /// Held during an action: one that another thread has begun must end before the process does.
  private let lock = NSRecursiveLock()
  private var actions: [(name: String, body: @Sendable () -> Void)] = []

  private init() {
    atexit { AtExit.shared.runAll() }
  }

  func add(_ name: String, _ body: @escaping @Sendable () -> Void) {
    lock.withLock { actions.append((name, body)) }
  }

  func run(_ name: String) {
    lock.withLock {
      let index = actions.firstIndex { $0.name == name }
      if let index { actions.remove(at: index).body() }
    }
  }

  /// The last one first: a server ends before its directory is removed.
  private func runAll() {
    lock.withLock {
      while let action = actions.popLast() { action.body() }
    }
  }
}
