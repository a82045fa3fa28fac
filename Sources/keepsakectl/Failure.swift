import Keepsake
import KeepsakeValkey

/// Ends the program with one line that says what is wrong and what to do, and with an exit code.
struct Failure: Error {
  var message: String
  /// 1 if something is missing or damaged; otherwise a code from `sysexits.h`.
  var status: Int32 = 1

  static func usage(_ message: String) -> Failure { Failure(message: message, status: 64) }

  static func nothingStored(
    by app: String, on server: ValkeyBacking? = nil, _ what: String
  ) -> Failure {
    guard let server else {
      return Failure(message: "\(app) has \(what) here. Run `keepsakectl list` to see all apps.")
    }
    return Failure(
      message: "\(app) has \(what) on \(server.address). Check the name of the app, and the "
        + "address and the database of the server.")
  }

  /// A suite, service or cache is missing.
  static func missing(_ store: String, of app: String, existing names: [String]) -> Failure {
    Failure(message: "\(app) has no \(store). It has: \(names.joined(separator: ", ")).")
  }

  /// A setting or secret is missing; `listCommand` shows the existing ones.
  static func missing(
    _ kind: String, for arguments: Arguments, listCommand: String
  ) -> Failure {
    let (store, key) = (arguments.words[0], arguments.words[1])
    return Failure(
      message: "\(store) has no \(kind) \"\(key)\". Run `keepsakectl \(listCommand) \(store)`.")
  }
}

extension Failure {
  init(_ error: StorageError) {
    message = Problem(error).line
    status =
      switch error.code {
      case .notFound, .damaged, .unsupportedVersion: 1
      case .misuse: 64
      case .wrongType, .encodingFailed, .decodingFailed: 65
      case .timedOut, .unreachable: 75
      case .accessDenied, .locked, .wrongPassphrase: 77
      default: 74
      }
  }
}
