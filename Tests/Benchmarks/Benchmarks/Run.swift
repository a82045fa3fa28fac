// Measures section after section, and prints each when it is done.
import Foundation
import Glibc
import Keepsake

struct Run {
  let options: Options
  let home: String

  func measure() throws {
    let machine = Machine(directory: home)
    var bench = Bench(isQuick: options.isQuick)
    var failures: [String] = []
    print("\(machine.text)\nmedians of \(bench.rounds) rounds")
    print("x after a peer: how many times as good Keepsake is; below 1 the peer is better")
    print("ratio: Keepsake divided by the column before")
    for section in Section.allCases where options.sections.contains(section) {
      if section == .valkey, ValkeyServer.executable == nil {
        print("\nvalkey: skipped, because neither valkey-server nor redis-server is installed")
        continue
      }
      let first = bench.rows.count
      bench.section = section
      do {
        try measure(section, &bench)
      } catch {
        failures.append("\(section.rawValue): \(error)")
      }
      print("\n\(section.rawValue)\n\(Table(Array(bench.rows[first...])).text)")
      fflush(nil)
    }
    for failure in failures { print("\nfailed: \(failure)") }
    print("\n\(Verdict(bench.rows, isWhole: failures.isEmpty).text)")
    let report = Report(
      machine: machine, rounds: bench.rounds, rows: bench.rows, failures: failures)
    if let file = options.json { try report.write(to: file) }
    if let directory = options.pictures { try Picture(report).draw(into: directory) }
  }

  private func measure(_ section: Section, _ bench: inout Bench) throws {
    let isQuick = options.isQuick
    // Each section has a directory of its own.
    let directory = try makeDirectory("\(home)/\(section.rawValue)").path
    switch section {
    case .settings:
      var settings = try Settings(directory: directory)
      try settings.fill(to: 1_000)
      try settings.measureReading(&bench)
      try settings.measureWriting(&bench)
      try Models(among: settings).measure(&bench)
    case .cache:
      try Caching(directory: directory).measure(&bench)
      try Chunks(directory: directory, isQuick: isQuick).measure(&bench)
    case .churn: try Churn(directory: directory, isQuick: isQuick).measure(&bench)
    case .secrets: try Secrets(directory: directory).measure(&bench)
    case .files: try Files(directory: directory).measure(&bench)
    case .growth:
      let settings = [10, 1_000, 10_000, 100_000].filter { !isQuick || $0 <= 1_000 }
      let entries = [1_000, 100_000, 1_000_000].filter { !isQuick || $0 <= 1_000 }
      try Growth(
        directory: directory, settingCounts: settings,
        entryCounts: options.hasMillion ? entries : entries.filter { $0 < 1_000_000 }
      ).measure(&bench)
    case .start:
      try Starting(directory: directory, home: home, keys: isQuick ? 1_000 : 10_000).measure(&bench)
    case .size: try Weighing(directory: directory).measure(&bench)
    case .build: try Building(directory: directory).measure(&bench)
    case .memory: try Memory(directory: directory, count: isQuick ? 1_000 : 10_000).measure(&bench)
    case .threads: try scaling(directory).measureThreads(&bench)
    case .processes: try scaling(directory).measureProcesses(&bench)
    case .pool: try Pool(directory: directory, isQuick: isQuick).measure(&bench)
    case .valkey:
      let socket = ValkeyServer.socket(below: home)
      let server = try ValkeyServer(at: socket, in: directory)
      // It ends with its last reference.
      defer { withExtendedLifetime(server) {} }
      print("\n\(server.version) on a Unix socket, which writes nothing to disk")
      try ValkeySettings(at: socket).measure(&bench)
      try ValkeyCaching(at: socket, in: directory).measure(&bench)
    }
  }

  private func scaling(_ directory: String) throws -> Scaling {
    try Scaling(directory: directory, duration: .milliseconds(options.isQuick ? 20 : 200))
  }
}

/// The tasks of this program as a child of itself.
enum ChildTask: String {
  case memory
  case worker
  case lock
  case server
  case caching

  static func run(_ arguments: [String]) throws {
    switch (arguments.first.flatMap(ChildTask.init), arguments.dropFirst().map(\.self)) {
    case (.memory, let rest) where rest.count == 3:
      guard let kind = Memory.Kind(rawValue: rest[0]), let count = Int(rest[2]) else { break }
      return try Memory.run(kind, rest[1], count)
    case (.worker, let rest) where rest.count == 5:
      guard let worker = Int(rest[3]), let milliseconds = Double(rest[4]) else { break }
      return try Scaling.work(
        in: rest[0], rest[1], rest[2], worker: worker, milliseconds: milliseconds)
    case (.lock, let rest) where rest.count == 2:
      guard let milliseconds = Double(rest[1]) else { break }
      return try Pool.holdLock(rest[0], milliseconds: milliseconds)
    case (.server, let rest) where !rest.isEmpty: return try ValkeyServer.run(Array(rest))
    case (.caching, let rest) where rest.count == 4:
      guard let batch = ValkeyCaching.Batch(rawValue: rest[0]), let size = Int(rest[3]) else {
        break
      }
      return try ValkeyCaching.run(batch, rest[1], rest[2], size)
    default: break
    }
    throw Failure("\(Child.flag) is for internal use")
  }
}
