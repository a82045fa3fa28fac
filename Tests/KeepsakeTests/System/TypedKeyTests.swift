import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake

extension Defaults.Key<String> {
  fileprivate static let name = Self("name", default: "none")
  fileprivate static let teamName = Self("name", default: "none", suite: "team")
  fileprivate static let passingName = Self("name", default: "none", suite: .memory)
}
extension SecureVault.Key<String> {
  fileprivate static let name = Self("name")
  fileprivate static let teamName = Self("name", service: "team")
}
extension DiskCache.Key<String> {
  fileprivate static let name = Self("name")
  fileprivate static let teamName = Self("name", cache: "team")
  fileprivate static let passingName = Self("name", cache: .memory)
}

/// A value that is accessed through a typed key, and by name and place.
private struct Holder: Sendable, CustomTestStringConvertible {
  let testDescription: String
  let byKey: @Sendable () -> String?
  let byName: @Sendable () -> String?
  let set: @Sendable (String) -> Void
  let remove: @Sendable () -> Bool

  static let all = [
    setting("settings", .name, .standard), setting("settings, team", .teamName, "team"),
    setting("settings, memory", .passingName, .memory),
    secret("secrets", .name, .standard), secret("secrets, team", .teamName, "team"),
    entry("entries", .name, .standard), entry("entries, team", .teamName, "team"),
    entry("entries, memory", .passingName, .memory),
  ]

  private static func setting(
    _ description: String, _ key: Defaults.Key<String>, _ suite: Defaults.Suite
  ) -> Self {
    Self(
      testDescription: description, byKey: { Defaults[key] == "none" ? nil : Defaults[key] },
      byName: { Defaults.string("name", suite: suite) }, set: { Defaults[key] = $0 },
      remove: { Defaults.remove(key) })
  }

  private static func secret(
    _ description: String, _ key: SecureVault.Key<String>, _ service: SecureVault.Service
  ) -> Self {
    Self(
      testDescription: description, byKey: { SecureVault[key] },
      byName: { SecureVault.get("name", service: service) }, set: { SecureVault[key] = $0 },
      remove: { SecureVault.remove(key) })
  }

  private static func entry(
    _ description: String, _ key: DiskCache.Key<String>, _ cache: DiskCache.Name
  ) -> Self {
    Self(
      testDescription: description, byKey: { DiskCache[key] },
      byName: { DiskCache.model("name", cache: cache) }, set: { DiskCache[key] = $0 },
      remove: { DiskCache.remove(key) })
  }
}

/// The same name under three facades and in several places of each.
@Suite(.temporaryStorage) struct TypedKeyPlaceTests {
  @Test(arguments: Holder.all) private func settingOneValueSetsNoOther(_ holder: Holder) {
    holder.set("value")
    #expect(holder.byKey() == "value" && holder.byName() == "value")
    for other in Holder.all where other.testDescription != holder.testDescription {
      #expect(other.byKey() == nil && other.byName() == nil, "\(other.testDescription)")
    }
  }

  /// Sets all values, and expects `body` to change only one of them, or none.
  private func expectChange(
    of changed: String?, to value: String?, _ body: () async throws -> Void
  ) async throws {
    for holder in Holder.all { holder.set(holder.testDescription) }
    try await body()
    for other in Holder.all {
      let name = other.testDescription
      #expect(other.byKey() == (name == changed ? value : name), "\(name)")
    }
  }

  @Test(arguments: Holder.all)
  private func removingOneValueKeepsTheOthers(_ holder: Holder) async throws {
    try await expectChange(of: holder.testDescription, to: nil) { #expect(holder.remove()) }
  }

  /// Facades use the place of a key; a store always uses its own.
  @Test func storeIgnoresThePlaceOfAKey() async throws {
    try await expectChange(of: nil, to: nil) { () async throws in
      try Defaults.suite("other").set("another", for: .teamName)
      try SecureVault.service("other").set("another", for: .teamName)
      try DiskCache.named("other").set("another", for: .teamName)
      #expect(try Defaults.suite("other").get(.name) == "another")
      #expect(try SecureVault.service("other").get(.name) == "another")
      #expect(try DiskCache.named("other").get(.name) == "another")
    }
  }

  @Test func updatingOneValueKeepsTheOthers() async throws {
    try await expectChange(of: "settings, team", to: "settings, team, updated") {
      #expect(Defaults.update(.teamName) { $0 += ", updated" } == "settings, team, updated")
    }
  }

  @Test func fetchingOneValueKeepsTheOthers() async throws {
    try await expectChange(of: "entries, team", to: "fetched") { () async throws in
      #expect(DiskCache.remove(.teamName))
      #expect(try await DiskCache.fetch(.teamName) { "fetched" } == "fetched")
    }
  }

  @Test func wrapperUsesTheValueOfItsKey() {
    struct Settings {
      @Default(.name) var name: String
      @Default(.teamName) var teamName: String
    }
    let settings = Settings()
    settings.teamName = "value"
    #expect(settings.name == "none" && Defaults[.teamName] == "value")
    #expect(SecureVault[.teamName] == nil && DiskCache[.teamName] == nil)
  }
}
