// Where the figures were taken: without it they say little.
import Foundation
import Glibc

struct Machine: Codable {
  let processor: String
  let cores: Int
  let kernel: String
  /// Of the directory that was measured in.
  let fileSystem: String
  let swift: String
  let date: String

  init(directory: String) {
    processor = Self.processorName ?? "unknown"
    cores = ProcessInfo.processInfo.activeProcessorCount
    kernel = Self.kernelRelease ?? "unknown"
    fileSystem = Self.fileSystem(of: directory) ?? "unknown"
    swift = Self.compiler
    date = Date().formatted(.iso8601)
  }

  var text: String {
    "\(cores) cores (\(processor)), Linux \(kernel), \(fileSystem), Swift \(swift), \(date)"
  }

  private static var processorName: String? {
    lines(of: "/proc/cpuinfo").first { $0.hasPrefix("model name") }?
      .split(separator: ":").last?.trimmingCharacters(in: .whitespaces)
  }

  private static var kernelRelease: String? {
    lines(of: "/proc/sys/kernel/osrelease").first.map(String.init)
  }

  /// The type of the innermost mount that contains the directory, the last one if there are
  /// several.
  private static func fileSystem(of directory: String) -> String? {
    guard let path = realpath(directory, nil) else { return nil }
    defer { free(path) }
    let components = String(cString: path).split(separator: "/")
    var found: (depth: Int, type: String)?
    for line in lines(of: "/proc/self/mountinfo") {
      let fields = line.split(separator: " ")
      guard let dash = fields.firstIndex(of: "-"), dash + 1 < fields.count, dash > 4 else {
        continue
      }
      let mount = fields[4].split(separator: "/")
      if components.starts(with: mount), mount.count >= found?.depth ?? 0 {
        found = (mount.count, String(fields[dash + 1]))
      }
    }
    return found?.type
  }

  private static func lines(of path: String) -> [Substring] {
    (try? String(contentsOfFile: path, encoding: .utf8))?.split(separator: "\n") ?? []
  }

  /// The version that compiled this program; the one in PATH may be another.
  private static var compiler: String {
    #if compiler(>=6.5)
    "6.5 or later"
    #elseif compiler(>=6.4)
    "6.4"
    #elseif compiler(>=6.3)
    "6.3"
    #else
    "6.2"
    #endif
  }
}
