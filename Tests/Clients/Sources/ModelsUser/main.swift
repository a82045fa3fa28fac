// Swift 6 mode, with values whose public types belong to another module.
import Checks
import Foundation
import Keepsake
import Models

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
let second: Shared? = Defaults.get("shared")
check(first, is: second)
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

let change = Task {
  for await plain in Defaults.changes(.plain) where plain.name != "renamed" { return plain.name }
  return ""
}
let updater = Task {
  while !Task.isCancelled {
    Defaults.update(.plain) { $0.name += "." }
    try await Task.sleep(for: .milliseconds(5))
  }
}
check(await change.value.hasPrefix("renamed."))
updater.cancel()

do {
  let store = Defaults.suite("models")
  try store.set(Plain(name: "p"), for: .plain)
  check(try store.get(.plain).name, is: "p")
  let shape: Shape? = try store.model("shape")
  check(shape == nil)
  try store.set(shape, forKey: "shape")
  try store.removeAll()
} catch {
  print(error.remedy)
  exit(1)
}

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
    let plain = try await DiskCache.fetch(name) {
      plains.append(Plain(name: "producing"))
      return try await download(name)
    }
    plains.append(plain)
    let shape = try await DiskCache.fetch("shape") { Shape(sides: plains.count) }
    return shape.sides
  }
}

do {
  let fetched = try await DiskCache.fetch("fetched") { try await download("fetched") }
  check(fetched.name, is: "fetched")
  check(try await DiskCache.fetch(.plain) { try await download("other") }.name, is: "b!")
  check(try await Shelf().load("shelf"), is: 2)
  let fetchedName = try await Task.detached {
    let plain: Plain = try await DiskCache.fetch("detached") { try await download("detached") }
    return plain.name
  }.value
  check(fetchedName, is: "detached")
  let pages = try await DiskCache.fetch(.pages) { Page(items: [Plain(name: "p")]) }
  check(pages.items.count, is: 1)
  let shape = try await DiskCache.named("Shapes").perform { store in
    try store.set(Shape(sides: 3), forKey: "shape")
    return try store.model("shape", type: Shape.self)
  }
  shape?.sides += 1
  check(shape?.sides, is: 4)
} catch {
  print(error)
  exit(1)
}
StorageSystem.removeAll()
print("ok")
