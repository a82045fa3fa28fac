// Settings, secrets and a cache in one small program. Run it twice, then look at its files:
//
//   swift run keepsake-quickstart README.md
//   swift run keepsake-quickstart --reset        forgets everything

import FoundationEssentials
import Keepsake

/// Any Codable type can be stored.
struct Statistics: Codable {
  var lines: Int
  var words: Int
}

/// Settings can be properties.
struct Settings {
  @DefaultOptional("lastFile") var lastFile: String?
}

func visit(_ file: URL) {
  // Settings: read from memory, and written to a file before the call returns.
  let launches = Defaults.update("launches", default: 0) { $0 += 1 }
  let settings = Settings()
  print("Launch \(launches). The file before this one: \(settings.lastFile ?? "none").")
  settings.lastFile = file.path

  // Secrets: encrypted. A real program would store a password or what a server sent.
  if launches == 1 {
    SecureVault.set(String(UInt64.random(in: .min ... .max), radix: 16), forKey: "token")
  }
  if let token = SecureVault.get("token"), let vault = try? SecureVault.shared.folderURL {
    print("The token \(token.prefix(4))… is sealed in \(vault.path)")
  }

  // The cache: anything that can be made again, kept for as long as you say.
  if let known: Statistics = DiskCache.model(file.path) {
    print("Found in the cache: \(known.lines) lines, \(known.words) words.")
  } else if let text = try? String(contentsOf: file, encoding: .utf8) {
    let words = text.split(whereSeparator: \.isWhitespace).count
    let counted = Statistics(lines: text.count(where: \.isNewline), words: words)
    DiskCache.set(counted, forKey: file.path, expiry: .minutes(5))
    print("Counted: \(counted.lines) lines, \(counted.words) words. The next run need not count.")
  } else {
    print("Cannot read \(file.path). Name a text file, such as README.md.")
  }
  if let journal = try? Defaults.shared.fileURL { print("The settings are in \(journal.path)") }
}

// Call this once, before anything is stored. The app's files are under this name.
try StorageSystem.bootstrap(app: "keepsake-quickstart")

switch CommandLine.arguments.dropFirst().first {
case "--reset": if StorageSystem.removeAll() { print("Everything is forgotten.") }
case let path?: visit(URL(filePath: path))
case nil: print("usage: keepsake-quickstart FILE | --reset")
}
