// The app's own files: a notebook in its user's documents, where every note is a file that people
// can read.
//
//   swift run keepsake-notes add shopping "milk, bread"    a note in a folder for each topic
//   swift run keepsake-notes list                          all notes with their sizes, the oldest
//   first swift run keepsake-notes show shopping/1               one of them
//   swift run keepsake-notes move shopping/1 done/1        to another topic
//   swift run keepsake-notes delete done                   a note, or a topic with all its notes
//   swift run keepsake-notes export FILE                   all notes in one file, outside the
//   notebook swift run keepsake-notes import FILE                   the notes of such a file

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

/// As in an exported file: a list, as two names can look alike and be different ones.
struct NamedNote: Codable {
  var name: String
  var note: Note
}

extension Defaults.Key<Int> {
  static let lastNumber = Self("lastNumber", default: 0)
}

/// What ends the program: a line on standard error, and an exit code of sysexits.h.
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

  /// What people call `shopping/1` is the file `shopping/1.json`.
  private func file(_ name: String) -> String { name + ".json" }

  private func names() throws -> [String] {
    try folder.list(recursively: true).filter { $0.hasSuffix(".json") }.map {
      String($0.dropLast(5))
    }
  }

  /// Two that add at once never get the same number, as it is given out in one step.
  func add(_ text: String, to topic: String) throws -> String {
    _ = try folder.exists(file("\(topic)/0"))  // what can be no topic takes no number
    var name: String
    repeat {
      let number = try Defaults.shared.update(.lastNumber) { $0 += 1 }
      name = "\(topic)/\(number)"
    } while try folder.exists(file(name))
    try folder.save(Note(text: text), as: file(name))
    return name
  }

  func show(_ name: String) throws -> Note {
    // Of an optional type, as a missing note is nothing that the library has to complain of.
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

  /// The library's move replaces what is at the target, as that of the shell does; a notebook does
  /// not.
  func move(_ name: String, to newName: String) throws {
    guard try folder.exists(file(name)) else { throw missing("note \"\(name)\"") }
    guard try !folder.exists(file(newName)) else { throw alreadyThere(newName) }
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

  /// A folder of one's own is as good as a standard one.
  func export(to path: String) throws -> Int {
    let url = URL(filePath: path)
    let notes = try names().map { NamedNote(name: $0, note: try show($0)) }
    try Folder(url.deletingLastPathComponent()).save(notes, as: url.lastPathComponent)
    return notes.count
  }

  /// Before any is taken in, all have their place: no other note is replaced, and nothing is done
  /// by halves.
  func read(_ path: String) throws -> Int {
    let url = URL(filePath: path)
    let notes: [NamedNote]? = try Folder(url.deletingLastPathComponent())
      .load(url.lastPathComponent)
    guard let notes else { throw missing("file \"\(path)\"") }
    for new in notes {
      let old: Note? = try folder.load(file(new.name))
      if let old, old.text != new.note.text { throw alreadyThere(new.name) }
    }
    for new in notes { try folder.save(new.note, as: file(new.name)) }
    return notes.count
  }

  private func alreadyThere(_ name: String) -> Exit {
    Exit(message: "there is a note \"\(name)\" already", status: 73)
  }

  private func missing(_ thing: String) -> Exit {
    Exit(message: "there is no \(thing)", status: 66)
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
  case ("import", 2): print("imported", try notebook.read(arguments[1]))
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
  // Its text names the file and says what to do.
  let status: Int32 =
    switch error.code {
    case .misuse: 64
    case .decodingFailed: 65
    default: 73
    }
  fail("\(error)", status: status)
}
if fflush(stdout) != 0 { fail("The output cannot be written.", status: 74) }
