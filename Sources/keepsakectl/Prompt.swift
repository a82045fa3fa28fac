import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// Asks a person at the terminal, or takes each answer from the next line of the descriptor that
/// `--passphrase-fd` names.
struct Prompt: Sendable {
  /// nil for the terminal.
  private let descriptor: Int32?

  static let option = "passphrase-fd"
  static let missingAnswer = Failure(
    message: "no passphrase was given. Type it at the prompt, or pass it with --\(option).",
    status: 77)
  private static let maxCount = 65_536

  /// The failure of a vault whose key is away, which can be recovered.
  static func withoutKey(_ error: StorageError) -> Failure {
    Failure(
      message: "\(Problem(error).finding). Type a recovery code at the prompt, pass it with "
        + "--\(option), or restore the key file from a backup.", status: 77)
  }

  init(_ arguments: Arguments) throws {
    descriptor = try arguments.options["--" + Self.option].map { number in
      guard let descriptor = Int32(number), fcntl(descriptor, F_GETFD) != -1 else {
        throw Failure.usage(
          "--\(Self.option) needs the number of an open descriptor, such as 3 after 3< FILE.")
      }
      return descriptor
    }
  }

  /// - Returns: nil if the user ends the input, or no line is left.
  func ask(_ request: SecureVault.PassphraseRequest) throws -> String? {
    guard let descriptor else { return try SecureVault.askTerminal(request) }
    return try Self.line(of: descriptor)
  }

  /// Opens a vault that may need a passphrase or a recovery code; false if none is given.
  func unlock(
    _ vault: SecureVault.Store, reason: String, rememberFor period: Duration?
  ) throws -> Bool {
    guard let descriptor else {
      return try vault.unlockAtTerminal(reason: reason, rememberFor: period)
    }
    do {
      try vault.unlock()
      return true
    } catch {
      guard let answer = try Self.line(of: descriptor), !answer.isEmpty else {
        if try vault.protection == .passphrase { return false }
        throw error
      }
      try vault.unlock(passphrase: answer, rememberFor: period)
      return true
    }
  }

  /// The next line, without the end of it; nil if there is none. Takes nothing that follows it,
  /// which may be a secret to store.
  private static func line(of descriptor: Int32) throws -> String? {
    var line: [UInt8] = []
    var byte: [UInt8] = [0]
    while true {
      switch Input.read(descriptor, &byte) {
      case ..<0:
        throw Failure(
          message: "descriptor \(descriptor) cannot be read: \(String(cString: strerror(errno))). "
            + "Open it for reading.", status: 66)
      case 0 where line.isEmpty: return nil
      case 1 where byte[0] != UInt8(ascii: "\n"):
        line += byte
        if line.count <= maxCount { continue }
        throw Failure(message: "the passphrase is too long. Pass a shorter one.", status: 65)
      default:
        guard let text = String(validating: line, as: UTF8.self) else {
          throw Failure(message: "the passphrase is not UTF-8. Pass UTF-8 text.", status: 65)
        }
        return text
      }
    }
  }

  // MARK: Secrets to store

  /// The bytes of a secret that a person types, or that standard input has.
  ///
  /// - Parameters:
  ///   - name: What to ask for.
  ///   - asBytes: Whether a newline at the end belongs to the secret.
  static func secret(_ name: String, asBytes: Bool) throws -> Data {
    if isatty(STDIN_FILENO) == 1 {
      let text = try SecureVault.askTerminal(.init(prompt: "\(name): "))
      guard let text, !text.isEmpty else {
        throw Failure(message: "no secret was typed. Nothing was stored.", status: 77)
      }
      return Data(text.utf8)
    }
    var data = try SettingsCommands.contents(remedy: "Pass the secret in a pipe.")
    if !asBytes, data.last == UInt8(ascii: "\n") { data.removeLast() }
    if data.isEmpty {
      throw Failure(
        message: "standard input has no secret. Pass it in a pipe, or run the command at a "
          + "terminal.", status: 66)
    }
    return data
  }
}
