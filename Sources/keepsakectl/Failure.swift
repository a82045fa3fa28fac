import Keepsake

/// What ends the program: one line with what to do, and the exit code, which is one of
/// `sysexits.h`.
struct Failure: Error {
  var message: String
  /// 1: it is not there, or something is wrong with it.
  var status: Int32 = 1

  static func usage(_ message: String) -> Failure { Failure(message: message, status: 64) }

  static func nothing(
    of app: String, _ what: String = "no settings, secrets or caches"
  ) -> Failure {
    Failure(message: "\(app) has \(what) here. `keepsakectl list` shows who has.")
  }

  static func missing(_ what: String, of app: String, has names: [String]) -> Failure {
    Failure(message: "\(app) has no \(what). It has: \(names.joined(separator: ", ")).")
  }

  static func missing(_ what: String, in arguments: Arguments, list verb: String) -> Failure {
    let (place, name) = (arguments.words[0], arguments.words[1])
    return Failure(
      message: "\(place) has no \(what) \"\(name)\". "
        + "`keepsakectl \(verb) \(place)` shows what it has.")
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
      case .timedOut: 75
      case .accessDenied, .locked, .wrongPassphrase: 77
      default: 74
      }
  }
}

/// What is wrong with what, and what to do about it: how an error is told to who has not made the
/// call.
struct Problem: Encodable, Sendable {
  var path: String
  var key: Nullable<String>
  var problem: String
  var remedy: String

  init(_ path: String, key: String? = nil, _ problem: String, _ remedy: String) {
    self.path = path
    self.key = Nullable(value: key)
    self.problem = problem
    self.remedy = remedy
  }

  init(_ error: StorageError, at path: String? = nil) {
    let code = error.code.description
    let reason = error.failureReason ?? code
    // These say what is wrong; the others say the reason in other words.
    let isPlain = [.wrongType, .wrongPassphrase].contains(error.code) && reason != code
    let problem = isPlain ? "\(code) (\(reason))" : reason
    self.init(path ?? error.path ?? "", key: error.key, problem, error.remedy)
  }

  /// Where it is and what it is.
  var finding: String {
    let place = path + (key.value.map { (path.isEmpty ? "key " : ", key ") + $0 } ?? "")
    return place.isEmpty ? problem : "\(place): \(problem)"
  }

  var line: String { "\(finding). \(remedy)" }
}
