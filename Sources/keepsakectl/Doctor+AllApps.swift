import Keepsake
@preconcurrency import KeepsakeLibc
import Synchronization

extension Doctor {
  /// Examines one app after the other, each in a separate process, because a process can open the
  /// stores of one app only.
  enum AllApps {
    /// The process that examines an app; 0 if there is none.
    private static let child = Atomic<pid_t>(0)

    static func examine(_ arguments: Arguments) throws {
      let names = try AppList.names()
      let isJSON = arguments.hasOption("json")
      if names.isEmpty, !isJSON { Output.note("No app has stored anything here.") }
      // These signals end the examination of the current app, which removes its copies, and with it
      // this program.
      for number in endingSignals {
        signal(number) { number in
          Doctor.receivedSignal.store(number, ordering: .relaxed)
          let child = AllApps.child.load(ordering: .relaxed)
          if child > 0 { kill(child, number) }
        }
      }
      let options = arguments.options.map { $1.isEmpty ? $0 : "\($0)=\($1)" }
      if isJSON { try Output.write("[") }
      for (index, name) in names.enumerated() {
        if isJSON, index > 0 { try Output.write(",") }
        try Output.flush()
        let result = try run(["doctor"] + options + ["--", name])
        let signal = receivedSignal.load(ordering: .relaxed)
        if signal != 0 {
          Diagnostics.status = 128 + signal
          return
        }
        // An app that cannot be examined prints only an error.
        if isJSON, result > 1 { try Output.write("null") }
        if Diagnostics.status == 0 { Diagnostics.status = result }
      }
      if isJSON { try Output.write("]") }
    }

    /// Runs this program with other arguments; its exit code.
    private static func run(_ arguments: [String]) throws -> Int32 {
      var words: [UnsafeMutablePointer<CChar>?] =
        (["keepsakectl"] + arguments).map { strdup($0) } + [nil]
      defer { for word in words { free(word) } }
      var identifier: pid_t = 0
      let path = CommandLine.unsafeArgv[0].map { String(cString: $0) } ?? "keepsakectl"
      let code = posix_spawnp(&identifier, path, nil, nil, &words, environ)
      guard code == 0 else {
        throw Failure(
          message: "\(path) cannot be started: \(String(cString: strerror(code))). "
            + "Name one app.", status: 74)
      }
      child.store(identifier, ordering: .relaxed)
      defer { child.store(0, ordering: .relaxed) }
      var status: Int32 = 0
      while waitpid(identifier, &status, 0) == -1, errno == EINTR {}
      return status & 0x7F == 0 ? status >> 8 & 0xFF : 128 + status & 0x7F
    }
  }
}
