import Keepsake

/// What ends the program: one line with what to do, and the exit code, which is one of `sysexits.h`.
struct Failure: Error {
  var message: String
  /// 1: it is not there, or something is wrong with it.
  var status: Int32 = 1

  static func usage(_ message: String) -> Failure { Failure(message: message, status: 64) }

  static func status(of code: StorageError.Code) -> Int32 {
    switch code {
    case .notFound, .damaged, .unsupportedVersion: 1
    case .misuse: 64
    case .wrongType, .encodingFailed, .decodingFailed: 65
    case .timedOut: 75
    case .accessDenied, .locked, .wrongPassphrase: 77
    default: 74
    }
  }
}
