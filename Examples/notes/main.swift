// A notebook: files of its user's in the documents folder, and settings that a running program follows.
//
//   swift run notes add shopping "milk, bread"    a note in a folder for each topic
//   swift run notes list                          all notes, with their sizes
//   swift run notes show shopping/1               one of them
//   swift run notes move shopping/1 done/1        to another topic
//   swift run notes delete done                   a note, or a topic with all its notes
//   swift run notes order newest                  a setting: newest or oldest first
//   swift run notes watch                         shows the list again when that setting changes
//   swift run notes export FILE                   all notes in one file, outside the notebook
//   swift run notes import FILE                   the notes of such a file

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

enum Order: String, Codable, Sendable {
  case oldest, newest
}

extension Defaults.Key<Order> {
  static let order = Self("order", default: .oldest)
}

struct Misused: Error {}

let usage = """
  usage: notes add TOPIC TEXT | list | show NOTE | move NOTE NOTE | delete NOTE-OR-TOPIC
         notes order oldest|newest | watch | export FILE | import FILE
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

  /// Looks first and saves then: a notebook has one writer.
  func add(_ text: String, to topic: String) throws -> String {
    var number = 1
    while try folder.exists(file("\(topic)/\(number)")) { number += 1 }
    let name = "\(topic)/\(number)"
    try folder.save(Note(text: text), as: file(name))
    return name
  }

  func show(_ name: String) throws -> Note { try folder.load(file(name)) }

  func list() throws {
    var notes = try names().map { name in (name: name, note: try show(name)) }
    notes.sort { $0.note.written < $1.note.written }
    if Defaults[.order] == .newest { notes.reverse() }
    for (name, note) in notes {
      print("\(name): \(note.text) (\(ByteCount(try folder.size(file(name)))))")
    }
    print("notes: \(notes.count), \(ByteCount(try folder.totalSize())) in \(try folder.url().path)")
  }

  func move(_ name: String, to newName: String) throws {
    try folder.move(file(name), to: file(newName))
  }

  func delete(_ name: String) throws {
    let isNote = try folder.exists(file(name))
    try folder.delete(isNote ? file(name) : name)
  }

  /// A folder of one's own is as good as a standard one.
  func export(to path: String) throws {
    let url = URL(filePath: path)
    let notes = try names().map { name in (name, try show(name)) }
    try Folder(url.deletingLastPathComponent()).save(
      Dictionary(uniqueKeysWithValues: notes), as: url.lastPathComponent)
  }

  func read(_ path: String) throws -> Int {
    let url = URL(filePath: path)
    let notes: [String: Note] = try Folder(url.deletingLastPathComponent())
      .load(url.lastPathComponent)
    for (name, note) in notes { try folder.save(note, as: file(name)) }
    return notes.count
  }
}

func main() async throws {
  let notebook = Notebook()
  let arguments = Array(CommandLine.arguments.dropFirst())
  switch (arguments.first, arguments.count) {
  case ("add", 3): print("added", try notebook.add(arguments[2], to: arguments[1]))
  case ("list", 1): try notebook.list()
  case ("show", 2): print(try notebook.show(arguments[1]).text)
  case ("move", 3): try notebook.move(arguments[1], to: arguments[2])
  case ("delete", 2): try notebook.delete(arguments[1])
  case ("order", 2):
    guard let order = Order(rawValue: arguments[1]) else { throw Misused() }
    try Defaults.shared.set(order, for: .order)
  case ("watch", 1):
    let changes = Defaults.changes(.order)
    try notebook.list()
    for await order in changes {
      print("-- \(order.rawValue) first")
      try notebook.list()
    }
  case ("export", 2): try notebook.export(to: arguments[1])
  case ("import", 2): print("imported", try notebook.read(arguments[1]))
  default: throw Misused()
  }
}

func fail(_ message: String, status: Int32) -> Never {
  print(message)
  exit(status)
}

setvbuf(stdout, nil, _IOLBF, 0)  // `watch` is read by other programs, line by line
try StorageSystem.bootstrap(app: "keepsake-notes")
do {
  try await main()
} catch is Misused {
  fail(usage, status: 64)
} catch let error as StorageError where error.code == .notFound {
  fail("there is no such thing: \(error)", status: 66)
} catch {
  fail("\(error)", status: 73)
}
