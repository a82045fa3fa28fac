import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// The directories of an app in different environments.
@Suite struct DirectoriesTests {
  func finder(
    _ environment: [String: String], home: String? = "/home/registered",
    chosen: StorageSystem.Directories = .init()
  ) -> DirectoryFinder {
    DirectoryFinder(
      app: "com.example.app", chosen: chosen, environment: { environment[$0] },
      registeredHome: { home }, problemOfHome: { _ in nil })
  }

  @Test(arguments: [
    (["HOME": "/home/ann"], "/home/ann/.config/com.example.app"),
    (["HOME": "/home/ann", "XDG_CONFIG_HOME": "/x"], "/x/com.example.app"),
    (["HOME": "/home/ann", "XDG_CONFIG_HOME": ""], "/home/ann/.config/com.example.app"),
    (["HOME": "/home/ann", "XDG_CONFIG_HOME": "rel/x"], "/home/ann/.config/com.example.app"),
    ([:], "/home/registered/.config/com.example.app"),
    (["HOME": ""], "/home/registered/.config/com.example.app"),
    (["HOME": "rel"], "/home/registered/.config/com.example.app"),
    (["HOME": "/"], "/home/registered/.config/com.example.app"),
    (["XDG_CONFIG_HOME": "/x", "CONFIGURATION_DIRECTORY": "/etc/app"], "/etc/app"),
    (["CONFIGURATION_DIRECTORY": "/etc/app:/etc/other"], "/etc/app"),
    (["CONFIGURATION_DIRECTORY": "rel", "HOME": "/home/ann"], "/home/ann/.config/com.example.app"),
  ])
  func settingsLieWhereTheSpecificationsSay(
    _ environment: [String: String], _ directory: String
  ) throws {
    #expect(try finder(environment).directory(.configuration) == directory)
  }

  @Test func purposesHaveDifferentDirectories() throws {
    let home = finder(["HOME": "/h"])
    #expect(try home.directory(.data) == "/h/.local/share/com.example.app")
    #expect(try home.directory(.state) == "/h/.local/state/com.example.app")
    #expect(try home.directory(.cache) == "/h/.cache/com.example.app")
    let unit = finder([
      "STATE_DIRECTORY": "/var/lib/app", "CACHE_DIRECTORY": "/var/cache/app",
    ])
    #expect(try unit.directory(.data) == "/var/lib/app")
    #expect(try unit.directory(.cache) == "/var/cache/app")
    // A service without a home directory keeps its settings there, too.
    for home in [nil, "/"] {
      let bare = finder(["STATE_DIRECTORY": "/var/lib/app:/var/lib/other"], home: home)
      #expect(try bare.directory(.configuration) == "/var/lib/app")
    }
    #expect(try unit.directory(.configuration) == "/home/registered/.config/com.example.app")
    let chosen = finder([:], chosen: .init(configuration: URL(filePath: "/own directory/")))
    #expect(try chosen.directory(.configuration) == "/own directory")
  }

  @Test(arguments: [nil, "", "/", "relative"])
  func missingHomeIsAnErrorAndNeverADirectoryUnderTheRoot(_ home: String?) {
    let error = expectFailure(.notFound) {
      _ = try finder([:], home: home).directory(.configuration)
    }
    #expect(error?.remedy.contains("HOME") == true)
  }

  /// The homes of system users, which can hold nothing.
  @Test(arguments: [
    ("/dev/null", "is not a directory"), ("/nonexistent/home", "does not exist"),
  ])
  func unusableHomeSaysWhatToSet(_ home: String, _ problem: String) throws {
    for environment in [["HOME": home], [:]] {
      let finder = DirectoryFinder(
        app: "app", environment: { environment[$0] }, registeredHome: { home })
      let error = #expect(throws: StorageError.self) { try finder.directory(.cache) }
      #expect(error?.code == .notFound && error?.path == home)
      #expect(error?.description.contains("the home directory \(problem) at \(home)") == true)
      #expect(error?.remedy.hasPrefix("Set HOME or the XDG variables") == true)
      // The variables need no home.
      let variables = ["HOME": home, "XDG_CACHE_HOME": "/x"]
      let other = DirectoryFinder(app: "app", environment: { variables[$0] })
      #expect(try other.directory(.cache) == "/x/app")
    }
  }

  @Test func nonFileURLIsAnError() throws {
    let web = try #require(URL(string: "https://example.com/x"))
    #expect(throws: StorageError.self) {
      try finder([:], chosen: .init(configuration: web)).directory(.configuration)
    }
    let suite = Defaults.Suite("team", in: web)
    expectFailure(.misuse) { try Defaults.suite(suite).set(1, forKey: "k") }
  }

  /// Without HOME, a process uses the home directory in the user database, or reports an error.
  @Test func storeWithoutDirectoryReportsEachCall() throws {
    let scope = StorageScope(finder: finder([:], home: nil))
    let store = scope.defaults(.standard)
    let error = expectFailure(.notFound) { try store.set(1, forKey: "k") }
    #expect(error?.key == "k")
    expectFailure(.notFound) { _ = try store.int("k") }
  }
}

@Suite struct FileNameTests {
  @Test(arguments: [
    "", "a", "A.b", ".", "..", "../x", "ü", "a b", "%", "%41", "nul\u{0}", "x.jsonl",
  ])
  func namesRoundTrip(_ name: String) throws {
    let encoded = try #require(FileName.encode(name))
    #expect(FileName.decode(encoded) == name)
    #expect(!encoded.contains("/") && !encoded.hasPrefix(".") && !encoded.utf8.contains(0))
  }

  @Test(arguments: ["%4", "%ZZ", "a b", "%41", ".hidden", "%C3", "%%"])
  func foreignFileNamesAreNotSuites(_ fileName: String) {
    #expect(FileName.decode(fileName) == nil)
  }
}
