#if canImport(Testing)
public import Keepsake
public import Testing

/// Gives each test its own empty stores, in a directory that is removed after the test.
///
/// ```swift
/// @Suite(.temporaryStorage) struct SettingsTests {
///   @Test func startsWithDefaults() { #expect(Defaults.int("launches") == 0) }
/// }
/// ```
///
/// On a suite, the trait applies to each test in it, and to each case of a parameterized test.
public struct TemporaryStorageTrait: TestTrait, SuiteTrait, TestScoping {
  /// Runs a test with its own stores.
  private let run: @Sendable (_ test: @Sendable () async throws -> Void) async throws -> Void

  init(_ run: @escaping @Sendable (_ test: @Sendable () async throws -> Void) async throws -> Void)
  {
    self.run = run
  }

  /// Always true: the trait also applies to nested suites and their tests.
  public var isRecursive: Bool { true }

  /// Runs one test, or one case of a parameterized test, inside
  /// ``/Keepsake/StorageSystem/withTemporary(engines:keySources:authenticate:isolation:_:)``.
  public func provideScope(
    for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
  ) async throws {
    // A suite has no test case; its tests get their stores one by one.
    guard testCase != nil else { return try await function() }
    try await run(function)
  }
}

extension Trait where Self == TemporaryStorageTrait {
  /// Gives each test its own empty stores, in a directory that is removed after the test.
  public static var temporaryStorage: TemporaryStorageTrait { temporaryStorage() }

  #if SecureVault
  /// Gives each test its own empty stores, with the given engines, key sources and answers to
  /// passphrase prompts.
  ///
  /// ```swift
  /// @Test(.temporaryStorage(authenticate: { _ in "swordfish" })) func keepsThePIN() { … }
  /// ```
  ///
  /// - Parameters:
  ///   - engines: The engines of suites, created for each test.
  ///   - keySources: The key sources that may open the vault.
  ///   - authenticate: Returns the passphrase that a user would type.
  public static func temporaryStorage(
    engines:
      @autoclosure @escaping @Sendable () throws -> [Defaults.Suite: any StorageEngines.Engine] =
      [:],
    keySources: [SecureVault.KeySource] = SecureVault.KeySource.standard,
    authenticate: SecureVault.Authenticator? = nil
  ) -> TemporaryStorageTrait {
    TemporaryStorageTrait { test in
      try await StorageSystem.withTemporary(
        engines: engines(), keySources: keySources, authenticate: authenticate
      ) { try await test() }
    }
  }
  #else
  /// Gives each test its own empty stores, with the given engines.
  ///
  /// - Parameter engines: The engines of suites, created for each test.
  public static func temporaryStorage(
    engines:
      @autoclosure @escaping @Sendable () throws -> [Defaults.Suite: any StorageEngines.Engine] =
      [:]
  ) -> TemporaryStorageTrait {
    TemporaryStorageTrait { test in
      try await StorageSystem.withTemporary(engines: engines()) { try await test() }
    }
  }
  #endif
}
#endif
