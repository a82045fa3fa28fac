// The options of the command line.
import Foundation

/// A part of the table that can be measured alone.
enum Section: String, CaseIterable, Codable {
  case settings
  case cache
  case churn
  case secrets
  case files
  case growth
  case start
  case size
  case build
  case memory
  case threads
  case processes
  case pool
  case valkey
}

struct Options {
  var directory = FileManager.default.temporaryDirectory.path
  var sections = Section.allCases
  var isQuick = false
  var hasMillion = false
  var asksForHelp = false
  /// The file to write all figures to as JSON.
  var json: String?
  var source: String?
  /// The directory to draw into.
  var pictures: String?

  static let usage = """
    Compares Keepsake with the minimum that each operation needs (the floor), and with what programs
    use instead (peers). Exits with 0 whatever the figures are.

      keepsake-benchmarks [--directory PATH] [--only SECTION,...] [--quick] [--million]
                          [--json FILE] [--picture PATH]
      keepsake-benchmarks --from FILE --picture PATH

      --directory PATH    measure in a new directory below PATH instead of the temporary directory
      --only SECTION,...  measure only these sections:
                          \(sectionNames)
      --quick             fewer rounds and smaller stores, to check that everything works
      --million           also measure a cache of 1,000,000 entries (minutes, some gigabytes)
      --json FILE         write all figures to FILE
      --picture PATH      draw speed.svg and speed~dark.svg in the directory PATH
      --from FILE         measure nothing; read the figures from FILE, written by --json
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
            throw Failure("unknown section \(name)")
          }
          return section
        }
      case "--quick": isQuick = true
      case "--million": hasMillion = true
      case "--json": json = try value()
      case "--picture": pictures = try value()
      case "--from": source = try value()
      case "--help", "-h": asksForHelp = true
      default: throw Failure("unknown option \(name); see --help")
      }
    }
    if source != nil, pictures == nil { throw Failure("--from needs --picture") }
  }
}

/// An error with a message.
struct Failure: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}
