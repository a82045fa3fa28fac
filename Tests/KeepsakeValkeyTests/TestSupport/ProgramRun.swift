import Foundation
import Testing

@testable import KeepsakeTestSupport

/// A program that has ended, and what it has printed.
struct ProgramRun {
  /// Its exit status, or 128 plus the number of the signal that ended it.
  let status: Int32
  let text: String
  let errors: String

  /// Everything that it has printed.
  var lines: [String] { (text + errors).split(separator: "\n").map(String.init) }

  /// - Parameters:
  ///   - words: The program and its arguments.
  ///   - input: What it reads from standard input.
  ///   - directory: Where files with its output are made.
  ///   - body: Called while it runs, with its process and a function that reads what it has printed
  ///     so far.
  init(
    _ words: [String], input: String = "", in directory: ServerDirectory,
    whileRunning body: (pid_t, @escaping @Sendable () -> String) throws -> Void = { _, _ in }
  ) throws {
    let files = directory.path + "/" + UUID().uuidString
    try input.write(toFile: files + ".in", atomically: true, encoding: .utf8)
    @Sendable func text(_ name: String) -> String {
      (try? String(contentsOfFile: files + name, encoding: .utf8)) ?? ""
    }
    let script = "exec \"$@\" <'\(files).in' >'\(files).out' 2>'\(files).err'"
    let child = try Child("/bin/sh", ["-c", script, "sh"] + words)
    try body(child.identifier) { text(".out") }
    waitUntil("it does not end") { !child.isRunning }
    child.killAndWait()
    status = child.exitStatus
    self.text = text(".out")
    errors = text(".err")
  }
}
