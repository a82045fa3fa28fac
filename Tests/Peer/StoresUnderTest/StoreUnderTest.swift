// The stores as all proofs use them. The tests also use these files, so that both processes make
// the same calls and describe the results in the same way.
import FoundationEssentials
import Keepsake

/// A store with its calls as data, which another process can make as well, and with everything that
/// it stores as text.
protocol StoreUnderTest: Sendable {
  associatedtype Call: Codable, Sendable

  /// Makes the call and describes what it returned.
  func perform(_ call: Call) throws -> String
  /// The names of all values, which differ in more than their composition.
  func names() throws -> [String]
  /// The value of that name as text; nil if there is none.
  func value(named name: String) throws -> String?
  /// Everything that is stored, by name.
  func contents() throws -> [String: String]
}

extension StoreUnderTest {
  /// Makes the call; errors that a store documents become part of the answer.
  func answer(_ call: Call) -> String {
    do {
      return try perform(call)
    } catch let error as StorageError {
      switch error.code {
      // Which of the two is thrown depends on the decoder of the other type.
      case .wrongType, .decodingFailed: return "error: type"
      case .locked: return "error: locked"
      case .wrongPassphrase: return "error: wrong passphrase"
      case .notFound: return "error: not found"
      case .misuse: return "error: misuse"
      default: return "error: \(error)"
      }
    } catch {
      return "error: \(error)"
    }
  }
}

/// Stored data that cannot be described.
struct UnexpectedContents: Error {
  let text: String
}

// MARK: - Keys

enum ModelKeys {
  static let longName = String(repeating: "k", count: 3_000)
  /// The keys by number. From the third on they contain characters that stores often mishandle.
  static let all = [
    "a", "b", "", "é", "e\u{301}", longName, longName + "k", "nul\0", "nul", "line\nbreak",
    "\"quoted\\\"", "../up", ".", "🗝️\u{2028}", "A", String(repeating: "n", count: 300),
  ]

  /// The key of a name, which is its number.
  static func key(named name: String) -> String { all[Int(name) ?? 0] }

  static func number(of key: String) throws -> Int {
    // Compares bytes: strings are also equal to other compositions of the same characters.
    let number = all.firstIndex { $0.utf8.elementsEqual(key.utf8) }
    guard let number else {
      throw UnexpectedContents(text: "the unknown key \(key.debugDescription)")
    }
    return number
  }
}

// MARK: - What all stores have in common

/// A store as bytes by name.
protocol ByteStore: Sendable {
  func set(_ bytes: Data, _ name: String) throws
  /// Does nothing if there is no value.
  func remove(_ name: String) throws
  func bytes(_ name: String) throws -> Data?
  func removeAll() throws
  /// Makes one of the calls that change no value, chosen by the number, while other processes use
  /// the store.
  func maintain(_ number: Int) throws
}

extension ByteStore where Self: StoreUnderTest {
  func perform(oneOf calls: [Call], _ number: Int) throws {
    _ = try perform(calls[number % calls.count])
  }
}

// MARK: - Another process

/// A request to a process that uses the same store.
enum StoreRequest<Call: Codable & Sendable>: Codable, Sendable {
  case call(Call)
  case contents
}

enum StoreReply: Codable, Sendable {
  case text(String)
  case contents([String: String])
}

/// Runs the command if it is "model"; false otherwise.
func runModelCommand(_ words: [String], in folder: URL) -> Bool {
  guard words.count == 2, words[0] == "model" else { return false }
  switch words[1] {
  case "settings":
    serve(SettingsUnderTest(store: Defaults.shared, backup: folder.appending(path: "backup")))
  case "cache", "limited cache":
    let store = DiskCache.named(DiskCache.Name("x", in: folder))
    if words[1] == "limited cache" { store.sizeLimit = CacheUnderTest.limit }
    serve(CacheUnderTest(store: store))
  case "vault": serve(VaultUnderTest(in: folder))
  case "directory":
    serve(
      FilesUnderTest(
        directory: Folder(folder.appending(path: "files")),
        incoming: folder.appending(path: "incoming")))
  default: return false
  }
  return true
}

/// Answers requests until its input ends.
private func serve<Store: StoreUnderTest>(_ store: Store) {
  while let line = readLine() {
    do {
      let request = try JSONDecoder().decode(
        StoreRequest<Store.Call>.self, from: Data(line.utf8))
      let reply: StoreReply =
        switch request {
        case .call(let call): .text(store.answer(call))
        case .contents: try .contents(store.contents())
        }
      printLine(String(decoding: try JSONEncoder().encode(reply), as: UTF8.self))
    } catch {
      printLine("error \(error)")
    }
  }
}
