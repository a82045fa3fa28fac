import Foundation

/// A second process that uses the library; see Tests/Peer.
final class Peer {
  let process = Process()
  private let input = Pipe()
  private let output = Pipe()
  private var pending = Data()

  static let executable = builtProduct("keepsake-peer")

  /// A program of this package, where the build put it.
  static func builtProduct(_ name: String) -> URL {
    Bundle.main.executableURL!.deletingLastPathComponent().appending(path: name)
  }

  init(_ folder: TemporaryFolder, _ arguments: [String], environment: [String: String] = [:]) throws {
    process.executableURL = Self.executable
    process.arguments = [folder.path] + arguments
    process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
    process.standardInput = input
    process.standardOutput = output
    try process.run()
  }

  convenience init(_ folder: TemporaryFolder, _ arguments: String...) throws {
    try self.init(folder, arguments)
  }

  deinit {
    if process.isRunning {
      kill(process.processIdentifier, SIGKILL)
      process.waitUntilExit()
    }
  }

  /// The next line the process says; nil at the end of its output.
  func line() -> String? {
    while true {
      if let end = pending.firstIndex(of: 10) {
        let line = String(decoding: pending[..<end], as: UTF8.self)
        pending = Data(pending[(end + 1)...])
        return line
      }
      let more = output.fileHandleForReading.availableData
      if more.isEmpty { return nil }
      pending.append(more)
    }
  }

  /// The answer of a serving peer.
  func ask(_ request: String) throws -> String? {
    try input.fileHandleForWriting.write(contentsOf: Data((request + "\n").utf8))
    return line()
  }

  /// All it still says, once it has ended.
  func finish() -> String {
    try? input.fileHandleForWriting.close()
    let rest = output.fileHandleForReading.readDataToEndOfFile()
    process.waitUntilExit()
    return String(decoding: pending + rest, as: UTF8.self)
  }

  func kill9() {
    kill(process.processIdentifier, SIGKILL)
    process.waitUntilExit()
  }
}
