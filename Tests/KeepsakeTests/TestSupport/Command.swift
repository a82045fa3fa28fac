import Foundation

@testable import KeepsakeTestSupport

/// A command of the toolchain.
enum Command {
  /// Waits for a child process on a thread of its own, so that a build does not block other tests.
  static func run(
    _ arguments: [String], environment: [String: String] = [:]
  ) async throws -> (status: Int32, output: String) {
    try await withCheckedThrowingContinuation { continuation in
      Thread.detachNewThread {
        continuation.resume(
          with: Result {
            let child = try Child(
              arguments[0], Array(arguments.dropFirst()), environment: environment,
              mergesErrors: true)
            let output = child.finish()
            return (child.exitStatus, output)
          })
      }
    }
  }
}
