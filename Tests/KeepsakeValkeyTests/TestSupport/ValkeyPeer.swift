import Foundation
import Testing

extension TestServer {
  /// What another process prints, which has its own directories. Its source is Tests/ValkeyPeer.
  func runPeer(_ arguments: [String], as name: String = "peer") -> [String] {
    let peer = Bundle.main.bundleURL.appending(path: "keepsake-valkey-peer").path
    let directory = self.directory.path + "/\(name)"
    let output = directory + ".out"
    let url = "unix:\(socketPath)?timeout=60s"
    let words = [peer, arguments[0], url, directory] + arguments.dropFirst()
    let line = words.map { "'\($0)'" }.joined(separator: " ")
    let status = system("mkdir -p '\(directory)' && \(line) >'\(output)' 2>&1")
    let text = (try? String(contentsOfFile: output, encoding: .utf8)) ?? "no output"
    #expect(status == 0, "\(text)")
    return text.split(separator: "\n").map(String.init)
  }
}
