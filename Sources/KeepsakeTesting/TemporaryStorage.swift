#if canImport(Testing)
  import Keepsake
  public import Testing

  /// Gives each test stores of its own, in a folder that is removed after it.
  ///
  /// ```swift
  /// @Suite(.temporaryStorage) struct SettingsTests {
  ///   @Test func startsWithDefaults() { #expect(Defaults.int("launches") == 0) }
  /// }
  /// ```
  ///
  /// On a suite it holds for each test in it, and for each case of a test with arguments.
  public struct TemporaryStorageTrait: TestTrait, SuiteTrait, TestScoping {
    /// Whether it reaches the suites and tests inside: it does.
    public var isRecursive: Bool { true }

    /// Runs one test, or one case of it, inside ``StorageSystem/withTemporary(keySources:authenticate:isolation:_:)``.
    public func provideScope(
      for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
      // A suite has no case: its tests come one by one.
      guard testCase != nil else { return try await function() }
      try await StorageSystem.withTemporary { try await function() }
    }
  }

  extension Trait where Self == TemporaryStorageTrait {
    /// Gives each test stores of its own, in a folder that is removed after it.
    public static var temporaryStorage: TemporaryStorageTrait { TemporaryStorageTrait() }
  }
#endif
