import Testing

@testable import Keepsake

/// Runs tests with passphrases that are derived at a low cost: the real one takes half a second.
///
/// The tests of the format do not use it: they check the cost that is recorded.
struct QuickPassphrases: SuiteTrait, TestTrait, TestScoping {
  static let logN: UInt8 = 10

  let isRecursive = true

  func provideScope(
    for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
  ) async throws {
    try await KeySlot.$defaultLogN.withValue(Self.logN, operation: function)
  }
}

extension Trait where Self == QuickPassphrases {
  static var quickPassphrases: Self { Self() }
}
