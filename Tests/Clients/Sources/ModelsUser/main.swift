// Swift 6 mode, with values whose public types belong to another module, and calls on an actor.
import Checks
import Foundation
import Keepsake
import Models

/// Makes the shared calls on an actor.
actor Caller {
  var count = 0
  var drafts: [Draft] = []
}

// A key of a type that is not `Sendable` is computed: a static constant would have to be
// `Sendable`.
extension Defaults.Key<Plain> {
  static var plain: Defaults.Key<Plain> { Defaults.Key("plain", default: Plain(name: "new")) }
}

extension Defaults.Key<Shape?> {
  static var shape: Defaults.Key<Shape?> { Defaults.Key("shape") }
}

extension Defaults.Key<Shared> {
  static let shared = Defaults.Key("shared", default: Shared())
}

extension Defaults.Key<Page<Shared>?> {
  static let page = Defaults.Key<Page<Shared>?>("page")
}

/// Not `Sendable`, because some of its values are not.
struct Settings {
  @Default(.plain) var plain: Plain
  @Default("color", defaultValue: .named("blue")) var color: Color
  @Default("frozen", defaultValue: Frozen(text: "ice")) var frozen: Frozen
  @DefaultOptional(.shape) var shape: Shape?
}

let settings = Settings()
check(settings.plain.name, is: "new")
settings.plain.name = "renamed"
check(Defaults[.plain].name, is: "renamed")
settings.$plain.update { $0.created = .distantPast }
check(Defaults.model("plain", type: Plain.self)?.created, is: .distantPast)
settings.color = .mixed(red: 0.5, green: 0, blue: 1)
check(Defaults.get("color", default: Color.named("red")), is: settings.color)
settings.frozen = Frozen(text: "snow")
check(Defaults.model("frozen", type: Frozen.self)?.text, is: "snow")
check(settings.shape == nil)
settings.shape = Shape(sides: 3)
Defaults.update(.shape) { $0?.sides += 1 }
check(settings.shape?.sides, is: 4)
Defaults[.shape] = nil
check(!Defaults.contains(.shape))

Defaults.set(Shared(), forKey: "shared")
let first: Shared? = Defaults.model("shared")
check(first, is: Defaults[.shared])
Defaults.set(Page(items: [Plain(name: "a")]), forKey: "pages")
let page: Page<Plain>? = Defaults.model("pages")
check(page?.items.first?.name, is: "a")
Defaults[.page] = Page(items: [Shared()])
check(Defaults[.page]?.items.count, is: 1)
Defaults.set([Shared(): "x"], forKey: "table")
check(Defaults.get("table", default: [Shared: String]()).count, is: 1)

// A value that is not `Sendable` can be read in the task that uses it.
let name = await Task.detached { Defaults[.plain].name }.value
check(name, is: "renamed")

func describe(_ plain: sending Plain) async -> String { plain.name }
if let plain: Plain = Defaults.model("plain") { check(await describe(plain), is: "renamed") }

let changes = Defaults.changes(.plain)
Defaults.update(.plain) { $0.name += "." }
for await plain in changes where plain.name == "renamed." { break }

let store = Defaults.suite("models")
try store.set(Plain(name: "p"), for: .plain)
check(try store.get(.plain).name, is: "p")
let shape: Shape? = try store.model("shape")
try store.set(shape, forKey: "shape")

// MARK: The cache

// A key is `Sendable` even if its values are not.
extension DiskCache.Key<Plain> {
  static let plain = Self("plain", expiry: .minutes(5))
}

extension DiskCache.Key<Page<Plain>> {
  static let pages = Self("pages", cache: "Pages")
}

DiskCache.set(Plain(name: "a"), forKey: "a", expiry: .days(7))
let cached: Plain? = DiskCache.model("a")
check(cached?.name, is: "a")
DiskCache[.plain] = Plain(name: "b")
DiskCache[.plain]?.name += "!"
check(DiskCache[.plain]?.name, is: "b!")
DiskCache.set(Frozen(text: "ice"), forKey: "frozen", expiry: .idle(.minutes(30)))
check(DiskCache.model("frozen", type: Frozen.self)?.text, is: "ice")
DiskCache.set(Color.mixed(red: 0, green: 1, blue: 0), forKey: "color")
check(DiskCache.model("color") == Color.mixed(red: 0, green: 1, blue: 0))
DiskCache.set([Shared(): [Plain]()], forKey: "table")
DiskCache.set(Optional<Plain>.none, forKey: "table")
check(!DiskCache.contains("table"))

func download(_ name: String) async throws -> Plain { Plain(name: name) }

actor Shelf {
  var plains: [Plain] = []

  func load(_ name: String) async throws -> Int {
    plains.append(try await DiskCache.fetch(name) { try await download(name) })
    return try await DiskCache.fetch("shape") { Shape(sides: plains.count) }.sides
  }
}

let fetched = try await DiskCache.fetch("fetched") { try await download("fetched") }
check(fetched.name, is: "fetched")
check(try await DiskCache.fetch(.plain) { try await download("other") }.name, is: "b!")
check(try await Shelf().load("shelf"), is: 1)
let fetchedName = try await Task.detached {
  let plain: Plain = try await DiskCache.fetch("detached") { try await download("detached") }
  return plain.name
}.value
check(fetchedName, is: "detached")
let pages = try await DiskCache.fetch(.pages) { Page(items: [Plain(name: "p")]) }
check(pages.items.count, is: 1)
let made = try await DiskCache.named("Shapes").perform { store in
  try store.set(Shape(sides: 3), forKey: "shape")
  return try store.model("shape", type: Shape.self)
}
made?.sides += 1
check(made?.sides, is: 4)
StorageSystem.removeAll()
try await Caller().checkSharedCalls()
print("ok")
