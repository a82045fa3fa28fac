// Settings in Swift 6 mode with the main actor as default isolation. Models, keys and settings need
// no annotations.
import Checks
import Foundation
import Keepsake
import Observation

struct Note: Codable, Equatable {
  var title: String
  var pinned = false
  var edited: Date?
}

enum Sorting: String, Codable {
  case title, date
}

final class Draft: Codable {
  var text: String
  init(text: String) { self.text = text }
}

enum Settings {
  @Default("fontSize") static var fontSize = 16
  @Default("sorting", defaultValue: .title) static var sorting: Sorting
  @Default("notes") static var notes: [Note] = []
  @Default(.draft) static var draft: Draft
  @DefaultOptional("lastNote") static var lastNote: Note?
  @DefaultOptional("lastLogin") static var lastLogin: Date?
}

// Can also be used off the main actor.
nonisolated extension Defaults.Key<Int> {
  static let fontSize = Defaults.Key("fontSize", default: 16)
}

extension Defaults.Key<Sorting> {
  static let sorting = Defaults.Key("sorting", default: Sorting.title)
}

extension Defaults.Key<Note?> {
  static let lastNote = Defaults.Key<Note?>("lastNote")
}

extension Defaults.Key<Draft> {
  static let draft = Defaults.Key("draft", default: Draft(text: "empty"))
}

/// A user interface that redraws after a change.
final class Drawing {
  let model: Model
  private(set) var frames: [String] = []

  init(_ model: Model) { self.model = model }

  func draw() {
    withObservationTracking {
      frames.append("\(model.accent) \(model.fontSize) \(model.lastNote?.title ?? "-")")
    } onChange: {
      Task { @MainActor in self.draw() }
    }
  }

  /// Whether a frame is drawn within half a minute.
  func hasDrawn(_ frame: String) async -> Bool {
    for _ in 0..<6_000 where frames.last != frame {
      try? await Task.sleep(for: .milliseconds(5))
    }
    return frames.last == frame
  }
}

@concurrent func resizeOffMainActor() async { Defaults.set(40, forKey: "fontSize") }

@Observable final class Model {
  @ObservationIgnored @Default("accent") var accent = "blue"
  @ObservationIgnored @Default(.fontSize) var fontSize
  @ObservationIgnored @DefaultOptional("lastNote") var lastNote: Note?
  var selection = 0

  func load() async -> Int {
    fontSize += 1
    await Task.yield()
    return $fontSize.update { $0 += 1 }
  }
}

func save<T: Codable>(_ value: T, as key: String) -> Bool { Defaults.set(value, forKey: key) }
func load<T: Codable>(_ key: String) -> T? { Defaults.model(key) }

nonisolated func countOffMainActor() -> Int {
  Defaults.update("offMainActor", default: 0) { $0 += 1 }
}

@concurrent func readOffMainActor() async -> Int {
  Defaults.set(5, forKey: "offMainActor")
  return Defaults[.fontSize] + Defaults.int("offMainActor")
}

func checkStore() throws {
  let store = Defaults.suite("store")
  try store.set(Note(title: "a"), forKey: "note")
  let note: Note? = try store.model("note")
  check(note?.title == "a")
  check(try store.model("note", type: Note.self)?.pinned == false)
  check(try store.get("note", default: Note(title: "b")).title, is: "a")
  try store.set(.date, for: .sorting)
  check(try store.get(.sorting) == .date)
  try store.update("note", default: Note(title: "c")) { $0.pinned = true }
  try store.update(.sorting) { $0 = .title }
  try store.set(nil, forKey: "note")
  try store.remove(.sorting)
  check(try store.keys(), is: [])
}

// MARK: Synchronous calls

Defaults.set(Note(title: "first"), forKey: "note")
let note: Note? = Defaults.model("note")
check(note?.title, is: "first")
check(Defaults.model("note", type: Note.self)?.title, is: "first")
check(Defaults.get("note", default: Note(title: "other")).title, is: "first")
Defaults.update("note", default: Note(title: "new")) { $0.edited = .now }
check(Defaults.get("note", default: Note(title: "")).edited != nil)
Defaults.set(Draft(text: "x"), forKey: "drafted")
let draft: Draft? = Defaults.model("drafted")
check(draft?.text, is: "x")
Defaults.set(Optional<Note>.none, forKey: "note")
check(!Defaults.contains("note"))
Defaults.set(nil, forKey: "drafted", suite: "suite-\(note?.title ?? "")")

Settings.fontSize += 2
Settings.$fontSize.update { $0 += 1 }
check(Defaults[.fontSize], is: 19)
Defaults[.fontSize] += 1
Defaults.update(.fontSize) { $0 += 1 }
check(Settings.fontSize, is: 21)
Settings.$fontSize.reset()
check(Settings.$fontSize.key.defaultValue, is: 16)
Settings.sorting = .date
check(Defaults[.sorting] == .date)
Settings.notes.append(Note(title: "n"))
check(Settings.notes.map(\.title), is: ["n"])
Settings.notes[0].pinned = true
check(Settings.notes[0].pinned)
Settings.draft = Draft(text: "letter")
check(Defaults[.draft].text, is: "letter")
check(Settings.lastNote == nil)
Defaults[.lastNote] = Note(title: "last")
check(Settings.lastNote?.title, is: "last")
Settings.$lastNote.update { $0?.title += "!" }
check(Settings.lastNote?.title, is: "last!")
Settings.lastLogin = .now
Settings.$lastLogin.reset()
check(Settings.lastLogin == nil)

check(save([Note(title: "a")], as: "generic"))
let notes: [Note]? = load("generic")
check(notes?.count, is: 1)
check(countOffMainActor(), is: 1)

// MARK: Asynchronous calls

let model = Model()
check(await model.load(), is: 18)
check(model.lastNote?.title, is: "last!")
model.lastNote = nil
model.accent = "red"
model.$accent.reset()
check(model.accent, is: "blue")
check(await readOffMainActor(), is: 23)

let drawing = Drawing(model)
drawing.draw()
check(drawing.frames, is: ["blue 18 -"])
model.accent = "red"
check(await drawing.hasDrawn("red 18 -"))
await resizeOffMainActor()
check(await drawing.hasDrawn("red 40 -"))
Settings.lastNote = Note(title: "drawn")
check(await drawing.hasDrawn("red 40 drawn"))
model.$accent.reset()
check(await drawing.hasDrawn("blue 40 drawn"))
let nameChange = Task {
  for await names in Defaults.changes(suite: "named") { return names }
  return []
}

let noteChange = Task {
  for await note in Settings.$lastNote.changes { return note?.title }
  return nil
}
let sizeChange = Task {
  for await size in Defaults.changes("fontSize", default: 16) { return size }
  return 0
}
let updater = Task {
  while !Task.isCancelled {
    Settings.fontSize += 1
    Defaults.update("count", default: 0, suite: "named") { $0 += 1 }
    Settings.lastNote = Note(title: "changed \(Settings.fontSize)")
    try? await Task.sleep(for: .milliseconds(5))
  }
}
check(await noteChange.value?.hasPrefix("changed") == true)
check(await sizeChange.value > 16)
check(await nameChange.value, is: ["count"])
updater.cancel()

StorageSystem.onFailure = { error in print("failed:", error.description) }
do {
  try checkStore()
  try await StorageSystem.withTemporary {
    Settings.notes = []
    check(Defaults.keys(), is: ["notes"])
  }
  check(Settings.notes.count, is: 1)
  try checkCachedValues()
  try await checkCacheInTasks()
  try await StorageSystem.withTemporary {
    check(DiskCache.caches(), is: [])
    try checkCachedValues()
  }
  try checkSecrets()
  try await checkSecretsInTasks()
  try await checkEngines()
  try await StorageSystem.withTemporary {
    check(SecureVault.services(), is: [])
    try checkSecrets()
  }
} catch {
  print(error)
  exit(1)
}
Defaults.removeAll()
StorageSystem.removeAll()
print("ok")
