import ArgumentParser
import Keepsake

@main struct Tool: ParsableCommand {
  static let configuration = CommandConfiguration(
    subcommands: [SetToken.self, ShowToken.self, RemoveToken.self])
}

struct SetToken: ParsableCommand {
  func run() throws {
    guard let token = try SecureVault.askTerminal(.init(prompt: "Token: ")) else {
      throw ExitCode.failure
    }
    try SecureVault.shared.set(token, forKey: "token")
  }
}

struct ShowToken: ParsableCommand {
  func run() throws {
    guard let token = try SecureVault.shared.get("token") else {
      throw ValidationError("There is no token: run `tool set-token`.")
    }
    print(token)
  }
}

struct RemoveToken: ParsableCommand {
  func run() throws { try SecureVault.shared.remove("token") }
}
