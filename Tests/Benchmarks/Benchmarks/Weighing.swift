// The size of a program that reads one setting, and of the libraries that it loads.
import Foundation

struct Weighing {
  let directory: String

  func measure(_ bench: inout Bench) throws {
    let own = try Weight(.setting, directory)
    let (bare, foundation) = (try Weight(.bare, directory), try Weight(.foundation, directory))
    func compare(
      _ what: String, _ unit: Unit, weaker: String? = nil, _ value: (Weight) -> Int?
    ) throws {
      guard let ours = value(own), let least = value(bare), let other = value(foundation) else {
        throw Failure("\(what): the loader does not list libraries")
      }
      try bench.compare(
        what, unit: unit, rounds: 1, note: own.note,
        keepsake: { Double(ours) },
        base: Peer("imports nothing", target: .infinity) { Double(least) },
        peers: [Peer(Settings.foundation, weaker: weaker) { Double(other) }])
    }
    try compare("program, stripped", .bytes, weaker: "its code is in a library") { $0.program }
    try compare("libraries loaded", .items) { $0.libraries?.count }
    try compare("libraries in total", .bytes) { $0.inLibraries }
    try compare("program and libraries", .bytes) { weight in
      weight.inLibraries.map { weight.program + $0 }
    }
  }
}

struct Weight {
  let program: Int
  /// The size of each library that it loads; nil if the loader does not list them.
  let libraries: [Int]?
  let note: String?

  var inLibraries: Int? { libraries?.reduce(0, +) }

  init(_ program: StartProgram, _ directory: String) throws {
    let path = try program.path
    (self.program, note) = try Self.strippedSize(
      of: path, at: "\(directory)/\(program.rawValue).stripped")
    libraries = try? Self.libraries(of: path)
  }

  /// The size of a program without its symbols, if they can be removed.
  ///
  /// - Parameter stripped: The path for the program without them.
  static func strippedSize(
    of path: String, at stripped: String
  ) throws -> (bytes: Int, note: String?) {
    guard let tool = Child.installed("strip", "llvm-strip") else {
      return (try size(of: path), "strip is not installed: includes symbols")
    }
    try Child.run(tool, ["-o", stripped, path])
    return (try size(of: stripped), nil)
  }

  /// As with `ldd`, the loader lists the libraries.
  private static func libraries(of path: String) throws -> [Int] {
    try Child(path, environment: ["LD_TRACE_LOADED_OBJECTS=1"]).text().split(separator: "\n")
      .compactMap { line in
        line.split(whereSeparator: \.isWhitespace).first { $0.hasPrefix("/") }.map(String.init)
      }.map(size)
  }

  private static func size(of path: String) throws -> Int {
    let real = URL(filePath: path).resolvingSymlinksInPath().path
    let attributes = try FileManager.default.attributesOfItem(atPath: real)
    guard let size = attributes[.size] as? Int else { throw Failure("\(path) has no size") }
    return size
  }
}
