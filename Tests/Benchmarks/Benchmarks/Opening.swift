// What comes before the first value: opening a large suite, and starting a program that reads.
import Foundation
import Keepsake

struct Opening {
  let folder: String
  let home: String
  let keys: Int

  private let domain = "com.example.opening"

  /// Opens copies of one suite that nobody in this process has opened before.
  func measureOpening(_ bench: inout Bench) throws {
    let files = FileManager.default
    let original = try makeFolder("\(folder)/original")
    var values: [String: Any] = [:]
    let source = Defaults.Suite("large", in: URL(filePath: original))
    for number in 0..<keys {
      Defaults.set(number, forKey: Settings.key(number), suite: source)
      values[Settings.key(number)] = number
    }
    guard Defaults.synchronize(suite: source) else { throw SystemFailure(code: EIO) }
    UserDefaults.standard.setPersistentDomain(values, forName: domain)
    UserDefaults.standard.synchronize()
    let peerFile = files.enumerator(atPath: home)?.compactMap { $0 as? String }
      .first { $0.hasSuffix("/\(domain).plist") }.map { "\(home)/\($0)" }
    guard let peerFile else { throw SystemFailure(code: ENOENT) }

    var opened = 0
    func copy() throws -> String {
      opened += 1
      let copy = "\(folder)/copy-\(opened)"
      try files.copyItem(atPath: original, toPath: copy)
      try files.copyItem(
        atPath: peerFile,
        toPath: peerFile.replacingOccurrences(of: domain, with: "\(domain).\(opened)"))
      return copy
    }
    // One for the warm-up and one for each round.
    var fresh = try (0...bench.rounds).map { _ in try copy() }
    var unread = Array(1...fresh.count)
    try bench.measure(
      "open a suite", keys: keys, target: "<= 5 ms", batch: .nanoseconds(1),
      keepsake: { _ in
        let suite = Defaults.Suite("large", in: URL(filePath: fresh.removeLast()))
        sink &+= try Defaults.suite(suite).int(Settings.key(keys / 2))
      },
      floor: { _ in sink &+= try Data(contentsOf: URL(filePath: "\(original)/large.jsonl")).count },
      peers: [
        (
          "first read",
          { _ in
            let peer = UserDefaults(suiteName: "\(domain).\(unread.removeLast())")
            sink &+= peer?.integer(forKey: Settings.key(keys / 2)) ?? 0
          }
        )
      ])
  }

  /// Starts programs and waits for their end.
  func measureStarting(_ bench: inout Bench) throws {
    let programs = try programs
    let settings = try makeFolder("\(home)/.config/keepsake-start-reading")
    let suite = Defaults.Suite("standard", in: URL(filePath: settings))
    guard Defaults.set(7, forKey: "launches", suite: suite), Defaults.synchronize(suite: suite)
    else { throw SystemFailure(code: EIO) }
    try bench.measure(
      "start a program, read one setting", keys: 1, target: "<= 1.25", batch: .milliseconds(100),
      keepsake: { for _ in 0..<$0 { try run("\(programs)/keepsake-start-reading") } },
      floor: { for _ in 0..<$0 { try run("\(programs)/keepsake-start-empty") } })
  }

  /// Likewise for a program that opens a vault and reads its only secret.
  func measureStartingWithSecret(_ bench: inout Bench) throws {
    let programs = try programs
    try run("\(programs)/keepsake-start-secret", "store")
    try bench.measure(
      "start a program, read one secret", keys: 1, target: "none", batch: .milliseconds(100),
      keepsake: { for _ in 0..<$0 { try run("\(programs)/keepsake-start-secret") } },
      floor: { for _ in 0..<$0 { try run("\(programs)/keepsake-start-empty") } })
  }

  /// The folder with what is built beside this program.
  private var programs: String {
    get throws {
      let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
      return URL(filePath: own).deletingLastPathComponent().path
    }
  }

  private func run(_ program: String, _ argument: String? = nil) throws {
    var child: pid_t = 0
    var arguments = [strdup(program), argument.flatMap { strdup($0) }, nil]
    defer { for text in arguments { free(text) } }
    let code = posix_spawn(&child, program, nil, nil, &arguments, environ)
    var status: Int32 = 0
    guard code == 0, waitpid(child, &status, 0) == child, status == 0 else {
      throw SystemFailure(code: code)
    }
  }

  private func makeFolder(_ path: String) throws -> String {
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    return path
  }
}
