import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// The commands `backup` and `restore`, which are safe while programs read and write.
///
/// The copies are made by the library, under its locks.
enum BackupCommands {
  static func backUp(_ arguments: Arguments) throws {
    try arguments.bootstrapApp()
    let suites = try Diagnostics.names { try Defaults.shared.suites() }
    let vault = SecureVault.shared
    let protection = try vault.protection
    if suites.isEmpty, protection == nil {
      throw Failure.nothingStored(by: arguments.app, "no settings or secrets")
    }
    let path = try makeDirectory(arguments.words[1])
    let directory = Folder(URL(filePath: path))
    var manifest = BackupManifest(app: arguments.app)
    do {
      for suite in suites {
        let file = try BackupManifest.file(ofSuite: suite.name)
        try directory.subfolder("settings").create()
        try Defaults.suite(suite).backUp(to: path + "/" + file)
        manifest.suites.append(BackupManifest.Suite(name: suite.name, file: file))
      }
      if let protection {
        manifest.hasVault = true
        manifest.hasKeyFile = protection == .keyFile && !arguments.hasOption("without-key")
        try vault.backUp(
          to: path + "/" + BackupManifest.vault,
          keyFile: manifest.hasKeyFile ? path + "/" + BackupManifest.keyFile : nil)
      }
      try manifest.write(to: directory)
    } catch {
      // Without its last file the backup could not be restored. One by one: `clear` refuses a
      // folder that contains a store.
      for name in (try? directory.list(includingHidden: true)) ?? [] {
        try? directory.delete(name)
      }
      rmdir(path)
      throw error
    }
    let counts = Output.count(suites.count, "suite") + (protection == nil ? "" : " and the vault")
    try Output.write("Backed up \(counts) of \(Output.escaped(arguments.app)).")
    if manifest.hasKeyFile {
      Output.note("The backup has the vault's key file: keep it as safe as the secrets.")
    }
  }

  /// Creates the directory that a backup is written to, or uses an empty one.
  ///
  /// - Returns: Its path, without what would follow a link at its end.
  private static func makeDirectory(_ name: String) throws -> String {
    var path = URL(filePath: name).path(percentEncoded: false)
    while path.utf8.count > 1, path.hasSuffix("/") || path.hasSuffix("/.") { path.removeLast() }
    do {
      _ = try BackupDirectory(creating: path)
    } catch {
      switch error.code {
      case .misuse: throw Failure.usage("\(name) is not empty. Name a new directory.")
      case .accessDenied where error.operation == "backUp": throw error
      default:
        throw Failure(
          message: "\(name) cannot be created: \(error.reason ?? ""). "
            + "Name a new directory in one that you can write to.", status: 74)
      }
    }
    return path
  }

  // MARK: Restoring

  static func restore(_ arguments: Arguments) throws {
    let directory = Folder(URL(filePath: arguments.words[1]))
    let path = try directory.url().path(percentEncoded: false)
    let manifest = try BackupManifest.read(from: directory)
    guard manifest.app == arguments.app else {
      throw Failure.usage(
        "\(path) is a backup of \(manifest.app). Restore it with that name.")
    }
    try arguments.bootstrapApp()
    if !arguments.hasOption("replace") { try requireNothingToReplace(manifest) }

    // Everything that can fail for want of space comes before the first replacement.
    var prepared: [(name: String, restore: PreparedRestore)] = []
    if manifest.hasVault {
      let keyFile = manifest.hasKeyFile ? path + "/" + BackupManifest.keyFile : nil
      let restore = try SecureVault.shared.prepareRestore(
        from: path + "/" + BackupManifest.vault, keyFile: keyFile)
      prepared.append(("the vault", restore))
    }
    for suite in manifest.suites {
      let store = Defaults.suite(Defaults.Suite(suite.name))
      let restore = try store.prepareRestore(from: path + "/" + suite.file)
      prepared.append(("suite \(suite.name)", restore))
    }
    var restored: [String] = []
    for (name, restore) in prepared {
      do {
        if let kept = try restore.commit() {
          try Output.write("Kept what was replaced as \(Output.escaped(kept)).")
        }
        restored.append(name)
      } catch {
        Diagnostics.report(error)
      }
    }
    if !restored.isEmpty {
      let names = Output.escaped(restored.joined(separator: ", "))
      try Output.write("Restored \(names) of \(Output.escaped(arguments.app)).")
    }
  }

  private static func requireNothingToReplace(_ manifest: BackupManifest) throws {
    var present: [String] = []
    for suite in manifest.suites {
      if try !Defaults.suite(Defaults.Suite(suite.name)).keys().isEmpty {
        present.append("suite \(suite.name)")
      }
    }
    if manifest.hasVault, try SecureVault.shared.protection != nil { present.append("a vault") }
    if present.isEmpty { return }
    throw Failure.usage(
      "\(manifest.app) has \(present.joined(separator: " and ")) here. "
        + "Add --replace to replace them; "
        + "what is replaced is kept under another name.")
  }
}
