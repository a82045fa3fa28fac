import Foundation

/// Second processes that use the library; see Tests/Peer.
enum Peer {
  static let executable = builtProduct("keepsake-peer").path

  /// A program of this package, where the build put it.
  static func builtProduct(_ name: String) -> URL {
    Bundle.main.bundleURL.appending(path: name)
  }

  static func start(_ folder: TemporaryFolder, _ arguments: String...) throws -> Child {
    try Child(executable, [folder.path] + arguments)
  }
}
