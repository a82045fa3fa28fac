// DiskCache with the main actor as default isolation.
import Checks
import Foundation
import Keepsake
import Observation

extension DiskCache.Key<Note> {
  static let frontNote = Self("frontNote", expiry: .minutes(5))
}

extension DiskCache.Key<[Note]> {
  static let notes = DiskCache.Key<[Note]>("notes", expiry: .idle(.minutes(30)), cache: "Notes")
}

// A model and a key that can be used off the main actor.
nonisolated struct Thumbnail: Codable, Equatable {
  var name: String
  var pixels = Data()
}

nonisolated extension DiskCache.Key<Thumbnail> {
  static let thumbnail = Self("thumbnail")
}

enum Caches {
  // Computed, because a constant would stay the store of the scope in which it was first used.
  static var images: DiskCache.Store { DiskCache.named("Images") }
}

func downloadNote() async throws -> Note { Note(title: "loaded") }

@concurrent func downloadThumbnail(_ name: String) async throws -> Thumbnail {
  try await DiskCache.fetch("thumbnail_\(name)", expiry: .hours(1)) {
    Thumbnail(name: name, pixels: Data([1]))
  }
}

@Observable final class Reader {
  var note: Note?
  var draft: Draft?
  var downloads = 0
  var progress = 0.0

  func load() async throws {
    note = try await DiskCache.fetch("note_1", expiry: .minutes(5)) {
      downloads += 1
      return try await downloadNote()
    }
    draft = try await DiskCache.fetch("draft_1") { Draft(text: "made \(downloads)") }
    note = try await DiskCache.fetch(.frontNote) {
      self.downloads += 1
      return try await downloadNote()
    }
  }

  func receive(_ body: AsyncStream<Data>) async {
    await DiskCache.set(chunks: body, forKey: "film", total: 4) { bytes, total in
      progress = Double(bytes) / Double(total ?? 1)
    }
  }
}

/// A sequence on the main actor.
struct Countdown: AsyncSequence {
  var start: UInt8

  struct AsyncIterator: AsyncIteratorProtocol {
    var rest: UInt8
    mutating func next() async -> [UInt8]? {
      rest -= 1
      return rest > 0 ? [rest] : nil
    }
  }

  func makeAsyncIterator() -> AsyncIterator { AsyncIterator(rest: start) }
}

func checkCachedValues() throws {
  DiskCache.set(Note(title: "first"), forKey: "note", expiry: .days(7))
  let note: Note? = DiskCache.model("note")
  check(note?.title, is: "first")
  DiskCache.set(Draft(text: "d"), forKey: "draft", cache: "Drafts")
  check(DiskCache.model("draft", type: Draft.self, cache: "Drafts")?.text, is: "d")
  DiskCache.set(Sorting.date, forKey: "sorting", cache: "user-\(note?.title ?? "")")
  check(DiskCache.model("sorting", cache: "user-first") == Sorting.date)
  DiskCache.set(nil, forKey: "note")
  check(DiskCache.contains("note"), is: false)
  DiskCache[.frontNote] = Note(title: "front")
  DiskCache[.frontNote]?.pinned = true
  check(DiskCache[.frontNote]?.pinned == true)
  DiskCache[.frontNote] = nil
  DiskCache[.notes] = [Note(title: "n")]
  check(DiskCache[.notes]?.map(\.title), is: ["n"])
  DiskCache.remove(.notes)
  DiskCache[.thumbnail] = Thumbnail(name: "t")
  check(DiskCache.contains(.thumbnail))

  try Caches.images.set(Note(title: "a"), for: .frontNote)
  check(try Caches.images.get(.frontNote)?.title, is: "a")
  check(try Caches.images.model("frontNote", type: Note.self)?.title, is: "a")
  do {
    try Caches.images.set(Data([1]), forKey: "data", expiry: .idle(.minutes(30)))
  } catch StorageError.Code.diskFull {
    check(false)
  } catch {
    // Without this clause the Swift 6.3 compiler crashes.
    throw error
  }
  Caches.images.sizeLimit = 200_000_000
  check(DiskCache.named("Images").sizeLimit, is: 200_000_000)
  DiskCache.sizeLimit = nil
  check(DiskCache.totalSize > 0 && DiskCache.totalSize(cache: "Images") > 0)
  check(DiskCache.entry("draft", cache: "Drafts")?.expires == nil)
  check(DiskCache.statistics.damaged, is: 0)
}

func checkCacheInTasks() async throws {
  let reader = Reader()
  try await reader.load()
  try await reader.load()
  check(reader.downloads, is: 2)
  check(reader.note?.title, is: "loaded")
  check(reader.draft?.text, is: "made 1")
  await reader.receive(
    AsyncStream { continuation in
      continuation.yield(Data(count: 4))
      continuation.finish()
    })
  check(reader.progress, is: 1)
  var steps = 0
  try await Caches.images.set(chunks: Countdown(start: 4), forKey: "count") { _, _ in steps += 1 }
  check(steps, is: 3)

  async let left = downloadThumbnail("left")
  async let right: Thumbnail = DiskCache.fetch("right") { try await downloadThumbnail("right") }
  check(try await left.name, is: "left")
  check(try await right.name, is: "right")
  let name = try await Task.detached {
    try await DiskCache.fetch(.thumbnail) { Thumbnail(name: "other") }.name
  }.value
  check(name, is: "t")
  let title = try await Task { try await DiskCache.fetch(.frontNote) { Note(title: "x") } }.value
  check(title.title, is: "loaded")

  check(try await DiskCache.shared.perform { try $0.keys() }.contains("count"), is: false)
  let thumbnail = try await Caches.images.perform { store in
    try store.set(Thumbnail(name: "p"), for: .thumbnail)
    return try store.get(.thumbnail)
  }
  check(thumbnail?.name, is: "p")
  try await Caches.images.perform { try $0.removeAll() }
}
