// An app's own files: a notebook in the user's documents, one readable JSON file per note.
//
//   swift run keepsake-notes add shopping "milk, bread"    adds a note under a topic
//   swift run keepsake-notes list                          lists all notes, oldest first
//   swift run keepsake-notes show shopping/1               prints one note
//   swift run keepsake-notes move shopping/1 done/1        moves a note to another topic
//   swift run keepsake-notes delete done                   deletes a note, or all of a topic
//   swift run keepsake-notes export FILE                   writes all notes to one file
//   swift run keepsake-notes import FILE                   adds the notes of such a file

import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

struct Note: Codable {
  var text: String
  var written = Date()
}

/// A note in an exported file.
///
/// The file is a list and not an object by name: names that are equal as Swift strings can differ
/// in their bytes, and are then different notes.
struct NamedNote: Codable {
  var name: String
  var note: Note
}

extension Defaults.Key<Int> {
  static let lastNumber = Self("lastNumber", default: 0)
}

/// Ends the program with a line on standard error and an exit code from sysexits.h.
struct Exit: Error {
  var message: String
  var status: Int32
}

let usage = """
  usage: keepsake-notes add TOPIC TEXT | list | show NOTE | move NOTE NOTE | delete NOTE-OR-TOPIC
         keepsake-notes export FILE | import FILE
  """

struct Notebook {
  let folder = Folder.documents.subfolder("notebook")

  /// The note `shopping/1` is the file `shopping/1.json`.
  private func file(_ name: String) -> String { name + ".json" }

  private func names() throws -> [String] {
    try folder.list(recursively: true).filter { $0.hasSuffix(".json") }.map {
      String($0.dropLast(5))
    }
  }

  /// Saves a note under the next free number.
  ///
  /// Processes that add notes at the same time get different numbers, because `update` is atomic.
  func add(_ text: String, to topic: String) throws -> String {
    _ = try folder.exists(file("\(topic)/0"))  // throws for an invalid topic
    var name: String
    repeat {
      let number = try Defaults.shared.update(.lastNumber) { $0 += 1 }
      name = "\(topic)/\(number)"
    } while try folder.exists(file(name))
    try folder.save(Note(text: text), as: file(name))
    return name
  }

  func show(_ name: String) throws -> Note {
    // With an optional type, `load` returns nil for a missing file instead of throwing.
    let note: Note? = try folder.load(file(name))
    if let note { return note }
    throw missing("note \"\(name)\"")
  }

  func list() throws {
    let notes = try names().map { name in (name: name, note: try show(name)) }
    for (name, note) in notes.sorted(by: { $0.note.written < $1.note.written }) {
      print("\(name): \(note.text) (\(ByteCount(try folder.size(file(name)))))")
    }
    print("notes: \(notes.count), \(ByteCount(try folder.totalSize())) in \(try folder.url().path)")
  }

  /// Moves a note, but never over another one: `Folder.move` would replace it, as `mv` does.
  func move(_ name: String, to newName: String) throws {
    guard try folder.exists(file(name)) else { throw missing("note \"\(name)\"") }
    guard try !folder.exists(file(newName)) else { throw alreadyExists(newName) }
    try folder.move(file(name), to: file(newName))
  }

  func delete(_ name: String) throws {
    if try folder.exists(file(name)) {
      try folder.delete(file(name))
    } else if try folder.exists(name) {
      try folder.delete(name)
    } else {
      throw missing("note or topic \"\(name)\"")
    }
  }

  /// Writes all notes to a file. Any directory can be a `Folder`.
  func export(to path: String) throws -> Int {
    let url = URL(filePath: path)
    let notes = try names().map { NamedNote(name: $0, note: try show($0)) }
    try Folder(url.deletingLastPathComponent()).save(notes, as: url.lastPathComponent)
    return notes.count
  }

  /// Adds the notes of an exported file, all or none: no existing note is replaced.
  func importNotes(from path: String) throws -> Int {
    let url = URL(filePath: path)
    let notes: [NamedNote]? = try Folder(url.deletingLastPathComponent())
      .load(url.lastPathComponent)
    guard let notes else { throw missing("file \"\(path)\"") }
    for imported in notes {
      let existing: Note? = try folder.load(file(imported.name))
      if let existing, existing.text != imported.note.text { throw alreadyExists(imported.name) }
    }
    for imported in notes { try folder.save(imported.note, as: file(imported.name)) }
    return notes.count
  }

  private func alreadyExists(_ name: String) -> Exit {
    Exit(message: "The note \"\(name)\" already exists.", status: 73)
  }

  private func missing(_ thing: String) -> Exit {
    Exit(message: "There is no \(thing).", status: 66)
  }
}

func run(_ arguments: [String]) throws {
  let notebook = Notebook()
  switch (arguments.first, arguments.count) {
  case ("add", 3): print("added", try notebook.add(arguments[2], to: arguments[1]))
  case ("list", 1): try notebook.list()
  case ("show", 2): print(try notebook.show(arguments[1]).text)
  case ("move", 3): try notebook.move(arguments[1], to: arguments[2])
  case ("delete", 2): try notebook.delete(arguments[1])
  case ("export", 2): print("exported", try notebook.export(to: arguments[1]))
  case ("import", 2): print("imported", try notebook.importNotes(from: arguments[1]))
  case ("--help", _), ("-h", _): print(usage)
  default: throw Exit(message: usage, status: 64)
  }
}

func fail(_ message: String, status: Int32) -> Never {
  fputs("\(message)\n", stderr)
  exit(status)
}

do {
  try StorageSystem.bootstrap(app: "keepsake-notes")
  try run(Array(CommandLine.arguments.dropFirst()))
} catch let exit as Exit {
  fail(exit.message, status: exit.status)
} catch let error as StorageError {
  // The description names the file and says what to do.
  let status: Int32 =
    switch error.code {
    case .misuse: 64
    case .decodingFailed: 65
    default: 73
    }
  fail("\(error)", status: status)
}
if fflush(stdout) != 0 { fail("The output cannot be written.", status: 74) }
