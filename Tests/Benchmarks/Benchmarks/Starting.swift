// The time to the first value: opening a large suite, and starting a program that reads a value.
import Foundation
import Keepsake

struct Starting {
  let directory: String
  let home: String
  let keys: Int

  private let domain = "com.example.opening"

  func measure(_ bench: inout Bench) throws {
    try measureOpening(&bench)
    try measurePrograms(&bench)
  }

  /// Opens copies of a suite, each of which is new to this process.
  private func measureOpening(_ bench: inout Bench) throws {
    let files = FileManager.default
    // Without a trailing slash, with which FileManager would copy only the contents.
    let original = try makeDirectory("\(directory)/original").path
    var values: [String: Any] = [:]
    let source = Defaults.Suite("large", in: URL(filePath: original))
    for number in 0..<keys {
      Defaults.set(number, forKey: Settings.key(number), suite: source)
      values[Settings.key(number)] = number
    }
    guard Defaults.synchronize(suite: source) else { throw Failure("a suite cannot be written") }
    UserDefaults.standard.setPersistentDomain(values, forName: domain)
    UserDefaults.standard.synchronize()
    let peerFile = files.enumerator(atPath: home)?.compactMap { $0 as? String }
      .first { $0.hasSuffix("/\(domain).plist") }.map { "\(home)/\($0)" }
    guard let peerFile else { throw Failure("UserDefaults wrote no file below HOME") }

    var opened = 0
    func copy() throws -> String {
      opened += 1
      let copy = "\(directory)/copy-\(opened)"
      try files.copyItem(atPath: original, toPath: copy)
      try files.copyItem(
        atPath: peerFile,
        toPath: peerFile.replacingOccurrences(of: domain, with: "\(domain).\(opened)"))
      return copy
    }
    // One for the warm-up, and one for each round.
    var fresh = try (0...bench.rounds).map { _ in try copy() }
    var unread = Array(1...fresh.count)
    try bench.measure(
      "open a suite, read one setting", count: keys, limit: 5_000_000, batch: .nanoseconds(1),
      keepsake: { _ in
        let suite = Defaults.Suite("large", in: URL(filePath: fresh.removeLast()))
        guard try Defaults.suite(suite).int(Settings.key(keys / 2)) == keys / 2 else {
          throw Failure("the opened suite has other values")
        }
      },
      floor: { _ in sink &+= try FloorCache.get("\(original)/large.jsonl").count },
      floorName: "floor",
      peers: [
        Peer(Settings.foundation) { _ in
          let peer = UserDefaults(suiteName: "\(domain).\(unread.removeLast())")
          sink &+= peer?.integer(forKey: Settings.key(keys / 2)) ?? 0
        }
      ])
  }

  /// Starts programs and waits until they end.
  private func measurePrograms(_ bench: inout Bench) throws {
    func starts(_ program: StartProgram) throws -> Subject {
      let path = try program.prepared()
      return { for _ in 0..<$0 { try Child.run(path) } }
    }
    let (bare, empty) = (try starts(.bare), try starts(.empty))
    try bench.measure(
      "start: imports Keepsake, does nothing", batch: .milliseconds(100),
      keepsake: empty, floor: bare, floorName: "imports nothing",
      peers: [Peer(Settings.foundation, try starts(.emptyFoundation))])
    for (program, what, target) in [
      (StartProgram.setting, "setting", 1.25), (.secret, "secret", nil), (.cached, "value", nil),
    ] {
      let peers =
        program == .setting ? [Peer(Settings.foundation, try starts(.foundation))] : []
      try bench.measure(
        "start: reads one \(what)", target: target, batch: .milliseconds(100),
        keepsake: try starts(program), floor: empty, floorName: "only imports", peers: peers)
    }
  }
}

/// A program of this package that is started, and whose size is measured.
enum StartProgram: String {
  case bare
  case empty
  case setting
  case secret
  case cached
  case emptyFoundation = "empty-foundation"
  case foundation

  /// The path, after the program has stored the value that it reads later.
  func prepared() throws -> String {
    let path = try path
    if ![.bare, .empty, .emptyFoundation].contains(self) { try Child.run(path, ["store"]) }
    return path
  }

  var path: String { get throws { try Child.program("keepsake-start-\(rawValue)") } }
}
