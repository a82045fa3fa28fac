// What the command line asks for.
import Foundation

/// A part of the table that can be measured alone.
enum Section: String, CaseIterable, Codable {
  case settings
  case cache
  case secrets
  case files
  case growth
  case start
  case size
  case memory
  case threads
  case processes
}

struct Options {
  var directory = FileManager.default.temporaryDirectory.path
  var sections = Section.allCases
  var isQuick = false
  var hasMillion = false
  var asksForHelp = false
  /// Where all figures go as JSON, or come from for a picture.
  var json: String?
  var source: String?
  /// The directory to draw into.
  var pictures: String?

  static let usage = """
    Measures Keepsake against the least that each operation could cost (the floor) and against what
    a program would use instead. Exits with 0 whatever the figures are.

      keepsake-benchmarks [--directory FOLDER] [--only SECTION,...] [--quick] [--million]
                          [--json FILE] [--picture FOLDER]
      keepsake-benchmarks --from FILE --picture FOLDER

      --directory FOLDER    measure in a new directory in this one; otherwise in the temporary directory
      --only SECTION,... measure only these: \(sectionNames)
      --quick            fewer rounds and smaller stores, to see that all works
      --million          also a cache of 1,000,000 entries: takes minutes and some gigabytes
      --json FILE        write all figures to this file
      --picture FOLDER   draw speed.svg and speed~dark.svg from the figures
      --from FILE        measure nothing: take the figures that --json has written
    """

  private static let sectionNames = Section.allCases.map(\.rawValue).joined(separator: ", ")

  init(_ arguments: some Sequence<String>) throws {
    var rest = Array(arguments)[...]
    while let name = rest.popFirst() {
      func value() throws -> String {
        guard let value = rest.popFirst() else { throw Failure("\(name) needs a value") }
        return value
      }
      switch name {
      case "--directory": directory = try value()
      case "--only":
        sections = try value().split(separator: ",").map { name in
          guard let section = Section(rawValue: String(name)) else {
            throw Failure("there is no section \(name)")
          }
          return section
        }
      case "--quick": isQuick = true
      case "--million": hasMillion = true
      case "--json": json = try value()
      case "--picture": pictures = try value()
      case "--from": source = try value()
      case "--help", "-h": asksForHelp = true
      default: throw Failure("there is no option \(name); --help shows all")
      }
    }
    if source != nil, pictures == nil { throw Failure("--from needs --picture") }
  }
}

/// What went wrong, in words.
struct Failure: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}
