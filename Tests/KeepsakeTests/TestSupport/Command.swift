import Foundation

/// A command of the toolchain.
enum Command {
  /// Waits for a child process on a thread of its own: a build must not keep other tests waiting.
  static func run(
    _ words: [String], environment: [String: String] = [:]
  ) async throws -> (status: Int32, output: String) {
    try await withCheckedThrowingContinuation { continuation in
      Thread.detachNewThread {
        continuation.resume(
          with: Result {
            let child = try Child(
              words[0], Array(words.dropFirst()), environment: environment, mergesErrors: true)
            let output = child.finish()
            return (child.exitStatus, output)
          })
      }
    }
  }
}
