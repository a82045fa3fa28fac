import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// `perform` of the stores and of `StorageSystem`.
@Suite(.temporaryStorage, .timeLimit(.minutes(20))) struct PerformTests {
  private typealias Perform =
    @Sendable (@escaping @Sendable () throws -> Void) async throws -> Void

  private static let performs: [Perform] = [
    { body in try await StorageSystem.perform { try body() } },
    { body in try await Defaults.shared.perform { _ in try body() } },
    { body in try await SecureVault.shared.perform { _ in try body() } },
    { body in try await DiskCache.shared.perform { _ in try body() } },
  ]

  @Test func runsCallsOnThreadsOfTheLibrary() async throws {
    for perform in Self.performs { try await perform { #expect(threadName() == "keepsake-io") } }
    SecureVault.set("tok", forKey: "token")
    Defaults.set(5, forKey: "size")
    #expect(try await StorageSystem.perform { SecureVault.get("token") } == "tok")
    let values = try await Defaults.shared.perform { store -> [Int?] in
      [try store.get("size"), try store.get("missing")]
    }
    #expect(values == [5, nil])
    #expect(try await SecureVault.shared.perform { try $0.get("token") } == "tok")
    #expect(try await DiskCache.shared.perform { try $0.count } == 0)
  }

  @Test func throwsWhatTheClosureThrows() async {
    struct Failure: Error {}
    for perform in Self.performs {
      await #expect(throws: Failure.self) { try await perform { throw Failure() } }
    }
  }

  @Test func aClosureOfACancelledTaskDoesNotStart() async {
    for perform in Self.performs {
      let task = Task {
        withUnsafeCurrentTask { $0?.cancel() }
        try await perform { Issue.record("it has started") }
      }
      await #expect(throws: CancellationError.self) { try await task.value }
    }
  }

  private enum Request { @TaskLocal static var id = 0 }

  @Test func closuresSeeTheTaskLocalValuesOfTheTask() async throws {
    try await Request.$id.withValue(7) { () async throws in
      for perform in Self.performs { try await perform { #expect(Request.id == 7) } }
    }
  }

  @Test func closuresSeeThatTheTaskIsCancelled() async throws {
    for perform in Self.performs {
      let handle = Locked<Task<Void, any Error>?>(nil)
      let task = Task {
        try await perform {
          #expect(!Task.isCancelled)
          waitUntil("the task has a handle") { handle.withLock { $0 != nil } }
          handle.withLock { $0?.cancel() }
          waitUntil("the closure knows it") { Task.isCancelled }
          try Task.checkCancellation()
        }
      }
      handle.withLock { $0 = task }
      await #expect(throws: CancellationError.self) { try await task.value }
    }
  }

  /// Otherwise the caller would compute on a thread of the library.
  @Test func theCallerGoesOnWhereItWas() async throws {
    func expectPoolOfSwift() async throws {
      _ = try await StorageSystem.perform { threadName() }
      #expect(threadName() != "keepsake-io")
    }
    try await expectPoolOfSwift()
    try await Task.detached { try await expectPoolOfSwift() }.value
    try await Task { @MainActor in
      let name = try await StorageSystem.perform { threadName() }
      #expect(name == "keepsake-io")
      MainActor.assertIsolated()
      #expect(threadName() != "keepsake-io")
    }.value
  }

  /// With a concurrent Dispatch queue, the tasks wait until the closures have ended.
  @Test func tasksGoOnWhileAllClosuresWait() async throws {
    let gate = ThreadGate()
    let waiting = Locked(0)
    let wait: @Sendable () -> Void = {
      waiting.withLock { $0 += 1 }
      gate.wait()
    }
    try await withThrowingTaskGroup { group in
      for _ in 0..<64 {
        group.addTask { try await StorageSystem.perform { wait() } }
      }
      try await eventually("all closures wait") { waiting.withLock { $0 } == 64 }
      for _ in 0..<20 { await Task.detached { await Task.yield() }.value }
      gate.open()
      try await group.waitForAll()
    }
  }

  /// 64 closures, each of which waits for another one: more than there are threads for the first.
  @Test func closuresMayWaitForClosuresOfTheirOwn() async throws {
    let values = try await withThrowingTaskGroup(of: Int.self) { group in
      for number in 0..<64 {
        group.addTask {
          try await StorageSystem.perform {
            let gate = ThreadGate()
            let value = Locked(0)
            Task {
              let inner = try await StorageSystem.perform { number }
              value.withLock { $0 = inner }
              gate.open()
            }
            gate.wait()
            return value.withLock { $0 }
          }
        }
      }
      return try await group.reduce(into: []) { $0.append($1) }
    }
    #expect(values.sorted() == Array(0..<64))
  }

  @Test func protectsAndUnlocksInTheBackground() async throws {
    let store = SecureVault.shared
    try store.set("tok", forKey: "token")
    try await store.perform {
      try $0.protect(with: .passphrase("one", logN: QuickPassphrases.logN))
    }
    #expect(SecureVault.protection == .passphrase)
    try store.lock()
    let error = await #expect(throws: StorageError.self) {
      try await store.perform { try $0.unlock(passphrase: "two") }
    }
    #expect(error?.code == .wrongPassphrase && error?.operation == "unlock")
    #expect(SecureVault.isLocked)
    try await store.perform { try $0.unlock(passphrase: "one") }
    #expect(SecureVault.get("token") == "tok")
    try await store.perform { try $0.protect(with: .keyFile) }
    #expect(try store.protection == .keyFile)
  }

  @Test(.enabled(if: Keyring.isAvailable)) func remembersAKeyInTheBackground() async throws {
    let store = SecureVault.shared
    try await store.perform {
      try $0.protect(with: .passphrase("one", logN: QuickPassphrases.logN))
    }
    let header = try store.folderURL.appending(path: "vault.hdr").path
    let name = try Keyring.name(ofHeader: header)
    try store.lock()
    await #expect(throws: StorageError.self) {
      try await store.perform { try $0.unlock(passphrase: "two", rememberFor: .hours(1)) }
    }
    #expect(SecureVault.isLocked && Keyring.find(name) == nil)
    try await store.perform { try $0.unlock(passphrase: "one", rememberFor: .hours(1)) }
    #expect(!SecureVault.isLocked && Keyring.find(name) != nil)
    try store.lock()
    #expect(Keyring.find(name) == nil)
  }
}
