import Foundation
import Testing

/// Other processes, whose source is Tests/ValkeyPeer.
enum ValkeyPeer {
  static let path = Bundle.main.bundleURL.appending(path: "keepsake-valkey-peer").path
}

/// Each process has its own directories, unless it has the name of another one.
extension TestServer {
  /// What a process prints.
  ///
  /// - Parameters:
  ///   - timeout: How long it waits for the server.
  ///   - status: How it ends.
  ///   - body: As in ``ProgramRun``.
  @discardableResult
  func runPeer(
    _ arguments: [String], as name: String = "peer", timeout: String = "60s", status: Int32 = 0,
    whileRunning body: (pid_t, @escaping @Sendable () -> String) throws -> Void = { _, _ in }
  ) throws -> [String] {
    let path = directory.path + "/" + name
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    let words = [ValkeyPeer.path, arguments[0], url(timeout: timeout), path]
    let run = try ProgramRun(words + arguments.dropFirst(), in: directory, whileRunning: body)
    #expect(run.status == status, "\(run)")
    return run.lines
  }

  /// Whether a process of that name has left a copy of what it knows on its machine.
  func hasCopy(of name: String) -> Bool {
    let path = directory.path + "/" + name
    let names = (try? FileManager.default.subpathsOfDirectory(atPath: path)) ?? []
    return names.contains { $0.hasSuffix(".meta") && names.contains(String($0.dropLast(5))) }
  }

  /// What processes print that run at the same time.
  func runPeers(
    _ count: Int, _ peer: @escaping @Sendable (Int) -> (arguments: [String], name: String)
  ) -> [[String]] {
    let lines = Recorder<[String]>()
    onThreads(count) { number in
      let (arguments, name) = peer(number)
      do {
        lines.append(try self.runPeer(arguments, as: name))
      } catch {
        Issue.record(error)
      }
    }
    return lines.all
  }
}
