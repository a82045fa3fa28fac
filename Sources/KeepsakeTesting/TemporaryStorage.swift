#if canImport(Testing)
public import Keepsake
public import Testing

/// Gives each test stores of its own, in a directory that is removed after it.
///
/// ```swift
/// @Suite(.temporaryStorage) struct SettingsTests {
///   @Test func startsWithDefaults() { #expect(Defaults.int("launches") == 0) }
/// }
/// ```
///
/// On a suite it holds for each test in it, and for each case of a test with arguments.
public struct TemporaryStorageTrait: TestTrait, SuiteTrait, TestScoping {
  /// Runs a test with stores of its own.
  private let run: @Sendable (_ test: @Sendable () async throws -> Void) async throws -> Void

  init(_ run: @escaping @Sendable (_ test: @Sendable () async throws -> Void) async throws -> Void)
  {
    self.run = run
  }

  /// Whether it reaches the suites and tests inside: it does.
  public var isRecursive: Bool { true }

  /// Runs one test, or one case of it, inside
  /// ``StorageSystem/withTemporary(engines:keySources:authenticate:isolation:_:)``.
  public func provideScope(
    for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
  ) async throws {
    // A suite has no case: its tests come one by one.
    guard testCase != nil else { return try await function() }
    try await run(function)
  }
}

extension Trait where Self == TemporaryStorageTrait {
  /// Gives each test stores of its own, in a directory that is removed after it.
  public static var temporaryStorage: TemporaryStorageTrait { temporaryStorage() }

  #if SecureVault
  /// The same with engines for suites, with key sources of the vault, and with the answers of the
  /// person who would be asked. The engines are made anew for each test.
  ///
  /// ```swift
  /// @Test(.temporaryStorage(authenticate: { _ in "swordfish" })) func keepsThePIN() { … }
  /// ```
  public static func temporaryStorage(
    engines: @autoclosure @escaping @Sendable () throws -> [Defaults.Suite: any StorageEngine] =
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
  /// The same with engines for suites, which are made anew for each test.
  public static func temporaryStorage(
    engines: @autoclosure @escaping @Sendable () throws -> [Defaults.Suite: any StorageEngine] =
      [:]
  ) -> TemporaryStorageTrait {
    TemporaryStorageTrait { test in
      try await StorageSystem.withTemporary(engines: engines()) { try await test() }
    }
  }
  #endif
}
#endif
