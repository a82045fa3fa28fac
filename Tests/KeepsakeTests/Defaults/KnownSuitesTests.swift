import Testing

@testable import Keepsake

@Suite struct KnownSuitesTests {
  private func makeStore(_ name: String) -> Defaults.Store {
    Defaults.Store(suite: .memory, scope: StorageScope(finder: DirectoryFinder(app: "test")))
  }

  private func found(_ name: String, _ suites: KnownSuites) -> Defaults.Store? {
    suites.store(named: name)?.takeUnretainedValue()
  }

  @Test func findsAStoreByTheSameName() {
    for name in ["team", "com.example.shared", "", "é"] {
      // One for each name, because two names may have the same place.
      let suites = KnownSuites()
      let store = makeStore(name)
      #expect(found(name, suites) == nil)
      suites.add(store, named: name)
      #expect(found(name, suites) === store)
      #expect(found(String(Array(name)), suites) != nil || name.utf8.count > 15)
      #expect(found(name + "2", suites) == nil && found("e\u{301}", suites) == nil)
    }
  }

  /// Names that are made anew for each call have other addresses each time.
  @Test func namesMadeAtRuntimeDoNotFillTheTable() {
    let suites = KnownSuites()
    let store = makeStore("long")
    for number in 0..<1_000 {
      let name = "a name that is too long to be stored inline \(number % 7)"
      if let known = found(name, suites) { #expect(known === store) }
      suites.add(store, named: name)
    }
    // Only four of 64 places are taken.
    let names = (0..<64).map { "n\($0)" }
    for name in names { suites.add(makeStore(name), named: name) }
    #expect(names.count { found($0, suites) != nil } > 25)
  }
}
