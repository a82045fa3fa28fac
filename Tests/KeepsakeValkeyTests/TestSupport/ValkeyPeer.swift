import Foundation
import Testing

/// Other processes, whose source is Tests/ValkeyPeer. Each has its own directories, unless it has
/// the name of another one.
extension TestServer {
  private func peer(_ arguments: [String], as name: String) throws -> [String] {
    let directory = self.directory.path + "/\(name)"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    let peer = Bundle.main.bundleURL.appending(path: "keepsake-valkey-peer").path
    let url = "unix:\(socketPath)?timeout=60s&connect-timeout=60s"
    return [peer, arguments[0], url, directory] + arguments.dropFirst()
  }

  private func outputPath(_ name: String) -> String { directory.path + "/\(name).out" }

  /// What a process prints.
  ///
  /// - Parameter output: What its output is called, if another process has its name.
  func runPeer(
    _ arguments: [String], as name: String = "peer", output: String? = nil
  ) -> [String] {
    do {
      let line = try peer(arguments, as: name).map { "'\($0)'" }.joined(separator: " ")
      let status = system("\(line) >'\(outputPath(output ?? name))' 2>&1")
      let lines = peerOutput(output ?? name)
      #expect(status == 0, "\(lines)")
      return lines
    } catch {
      Issue.record(error)
      return []
    }
  }

  /// What a process has printed so far.
  func peerOutput(_ name: String = "peer") -> [String] {
    let text = (try? String(contentsOfFile: outputPath(name), encoding: .utf8)) ?? ""
    return text.split(separator: "\n").map(String.init)
  }

  /// Starts a process that the test kills.
  func startPeer(_ arguments: [String], as name: String = "peer") throws -> ServerProcess {
    let words = try peer(arguments, as: name)
    return try ServerProcess(words[0], Array(words.dropFirst()), log: outputPath(name))
  }
}
