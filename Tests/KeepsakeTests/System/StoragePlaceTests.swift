import Foundation
import KeepsakeTesting
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Names are compared by their bytes, as file names are.
@Suite(.temporaryStorage) struct StoragePlaceTests {
  /// The same letter in two Unicode normalizations.
  private static let names = ["caf\u{E9}", "cafe\u{301}"]

  /// The names of two places that keep the values that were set in them.
  private func expectSeparate<Place>(
    _ places: [Place], set: (Int, Place) -> Bool, get: (Place) -> Int?
  ) {
    for (number, place) in places.enumerated() { #expect(set(number, place)) }
    for (number, place) in places.enumerated() { #expect(get(place) == number) }
  }

  @Test func suitesOfTwoNormalizationsAreSeparate() async throws {
    let directory = try TemporaryDirectory()
    let named = Self.names.map { Defaults.Suite($0) }
    let inDirectory = Self.names.map { Defaults.Suite($0, in: directory.url) }
    for suites in [named, inDirectory] {
      #expect(suites[0] != suites[1] && Set(suites).count == 2)
      expectSeparate(suites) {
        Defaults.set($0, forKey: "k", suite: $1)
      } get: {
        Defaults.get("k", suite: $0)
      }
    }
    #expect(try Set(Defaults.shared.suites()) == Set(named))
    #expect(try directory.names().filter { $0.hasSuffix(".jsonl") }.count == 2)
    let engines = [MemoryEngine(), MemoryEngine()]
    try await StorageSystem.withTemporary(engines: [named[0]: engines[0], named[1]: engines[1]]) {
      Defaults.set(1, forKey: "k", suite: named[1])
      #expect(engines[0].keys().isEmpty && engines[1].keys() == ["k"])
    }
  }

  @Test func cachesOfTwoNormalizationsAreSeparate() throws {
    let directory = try TemporaryDirectory()
    for caches in [
      Self.names.map { DiskCache.Name($0) },
      Self.names.map { DiskCache.Name($0, in: directory.url) },
    ] {
      expectSeparate(caches) {
        DiskCache.set($0, forKey: "k", cache: $1)
      } get: {
        DiskCache.model("k", cache: $0)
      }
    }
  }

  @Test func servicesOfTwoNormalizationsAreSeparate() throws {
    let services = Self.names.map { SecureVault.Service($0) }
    expectSeparate(services) {
      SecureVault.set($0, forKey: "k", service: $1)
    } get: {
      SecureVault.model("k", service: $0)
    }
    #expect(Set(SecureVault.services()) == Set(services))
    expectSeparate(Self.names) {
      SecureVault.set($0, forKey: $1)
    } get: {
      SecureVault.model($0)
    }
  }

  @Test func theServicesOfAFolderAreInThatFolder() throws {
    let directory = try TemporaryDirectory()
    let services = ["a", "standard"].map { SecureVault.Service($0, in: directory.url) }
    for service in services { try SecureVault.service(service).set("v", forKey: "k") }
    for service in try SecureVault.service(services[0]).services() {
      try SecureVault.service(service).removeAll()
    }
    #expect(try SecureVault.service(services[1]).services() == [])
  }

  @Test func aVaultIsLockedWhicheverLinkLeadsToIt() throws {
    let directory = try TemporaryDirectory()
    try directory.makeDirectory("team")
    try directory.link("link", to: directory.path + "/team")
    let stores = ["team", "link"].map {
      SecureVault.service(SecureVault.Service("a", in: directory.url.appending(path: $0)))
    }
    for store in stores { try store.set("v", forKey: "k") }
    try stores[0].lock()
    expectFailure(.locked) { _ = try stores[1].get("k") }
    try stores[0].unlock()
    #expect(try stores[1].get("k") == "v")
  }

  /// `URL` adds a slash to the path of a directory that exists.
  @Test func aSlashAtTheEndMakesNoOtherPlace() throws {
    let directory = try TemporaryDirectory()
    let urls = ["", "/", "//"].map { URL(string: "file://" + directory.path + $0)! }
    #expect(Set(urls).count == 3)
    #expect(Set(urls.map { DiskCache.Name("a", in: $0) }).count == 1)
    #expect(Set(urls.map { Defaults.Suite("a", in: $0) }).count == 1)
    #expect(Set(urls.map { SecureVault.Service("a", in: $0) }).count == 1)
    #expect(DiskCache.named(.init("a", in: urls[0])) === DiskCache.named(.init("a", in: urls[1])))
    #expect(DiskCache.set(1, forKey: "k", cache: .init("a", in: urls[1])))
    #expect(try directory.names() == [".a.ledger", "a"])
    let root = DiskCache.Name("a", in: URL(filePath: "/"))
    #expect(try root.directory(in: DirectoryFinder(app: "a"), .cache).path == "/")
  }

  @Test func foldersOfTwoNormalizationsAreSeparate() throws {
    let directory = try TemporaryDirectory()
    let folders = Self.names.map { Folder(directory.url.appending(path: $0)) }
    #expect(folders[0] != folders[1])
    for (number, folder) in folders.enumerated() { try folder.save(number, as: "k.json") }
    for (number, folder) in folders.enumerated() { #expect(try folder.load("k.json") == number) }
    #expect(try directory.names().count == 2)
    #expect(Folder.documents.subfolder(Self.names[0]) != .documents.subfolder(Self.names[1]))
  }

  @Test func typedKeysOfTwoNormalizationsDiffer() {
    #expect(Set(Self.names.map { SecureVault.Key<Int>($0) }).count == 2)
    #expect(Set(Self.names.map { DiskCache.Key<Int>($0) }).count == 2)
    #expect(SecureVault.Key<Int>("k") == SecureVault.Key<Int>("k"))
    #expect(SecureVault.Key<Int>("k") != SecureVault.Key<Int>("k", service: "s"))
    #expect(DiskCache.Key<Int>("k") != DiskCache.Key<Int>("k", expiry: .days(1)))
  }

  @Test func engineValuesOfTwoNormalizationsAreSeparate() throws {
    let directory = try TemporaryDirectory()
    defer { withExtendedLifetime(directory) {} }
    let files = FileEngine(Folder(directory.url))
    for engine in [MemoryEngine(), files] as [any StorageEngines.Engine] {
      for (number, key) in Self.names.enumerated() {
        try engine.set(Data("\(number)".utf8), forKey: key)
      }
      for (number, key) in Self.names.enumerated() {
        #expect(try engine.data(forKey: key) == Data("\(number)".utf8))
      }
      #expect(try engine.keys().count == 2)
    }
  }
}
