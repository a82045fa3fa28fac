import Keepsake

/// What is wrong with a file or a key, and what the user can do about it.
struct Problem: Encodable, Sendable {
  var path: String
  @Nullable var key: String?
  var problem: String
  var remedy: String

  init(_ path: String, key: String? = nil, _ problem: String, _ remedy: String) {
    self.path = path
    self.key = key
    self.problem = Remedies.withoutSwift(problem)
    self.remedy = Remedies.withoutSwift(remedy)
  }

  /// Omits the name of the call that failed, which means nothing to this program's user.
  init(_ error: StorageError, at path: String? = nil) {
    let code = error.code.description
    let reason = error.failureReason ?? code
    // The reasons of these codes are details; the other reasons say all that their code says.
    let needsCode = [.wrongType, .wrongPassphrase].contains(error.code) && reason != code
    let problem = needsCode ? "\(code) (\(reason))" : reason
    self.init(path ?? error.path ?? "", key: error.key, problem, error.remedy)
  }

  /// The path, the key and the problem.
  var finding: String {
    let subject = path + (key.map { (path.isEmpty ? "key " : ", key ") + $0 } ?? "")
    return subject.isEmpty ? problem : "\(subject): \(problem)"
  }

  var line: String { "\(finding). \(remedy)" }
}
