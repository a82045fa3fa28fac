#if canImport(Testing)
public import Keepsake
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
  private let engines: @Sendable () throws -> [Defaults.Suite: any StorageEngine]
  private let keySources: [SecureVault.KeySource]
  private let authenticate: SecureVault.Authenticator?

  init(
    engines: @escaping @Sendable () throws -> [Defaults.Suite: any StorageEngine],
    keySources: [SecureVault.KeySource],
    authenticate: SecureVault.Authenticator?
  ) {
    self.engines = engines
    self.keySources = keySources
    self.authenticate = authenticate
  }

  /// Whether it reaches the suites and tests inside: it does.
  public var isRecursive: Bool { true }

  /// Runs one test, or one case of it, inside ``StorageSystem/withTemporary(engines:keySources:authenticate:isolation:_:)``.
  public func provideScope(
    for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
  ) async throws {
    // A suite has no case: its tests come one by one.
    guard testCase != nil else { return try await function() }
    try await StorageSystem.withTemporary(
      engines: engines(), keySources: keySources, authenticate: authenticate
    ) { try await function() }
  }
}

extension Trait where Self == TemporaryStorageTrait {
  /// Gives each test stores of its own, in a folder that is removed after it.
  public static var temporaryStorage: TemporaryStorageTrait { temporaryStorage() }

  /// The same with engines for suites, with key sources of the vault, and with the answers of the person
  /// who would be asked. The engines are made anew for each test.
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
    TemporaryStorageTrait(
      engines: engines, keySources: keySources, authenticate: authenticate)
  }
}
#endif
