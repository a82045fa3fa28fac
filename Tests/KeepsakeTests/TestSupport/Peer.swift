import Foundation

@testable import KeepsakeTestSupport

/// A second process that uses the library; its source is Tests/Peer.
enum Peer {
  static let executable = builtProduct("keepsake-peer").path

  /// An executable of this package in the build directory.
  static func builtProduct(_ name: String) -> URL {
    Bundle.main.bundleURL.appending(path: name)
  }

  /// Compiler flags that make the built library importable.
  static var compilerFlags: [String] {
    let openSSL = Repository.file("Sources/COpenSSL")
    let shim = builtProduct("CKeepsake.build/module.modulemap")
    return [
      "-I", builtProduct("Modules").path, "-I", openSSL.path,
      "-Xcc", "-fmodule-map-file=\(shim.path)",
    ]
  }

  static func start(_ directory: TemporaryDirectory, _ arguments: String...) throws -> Child {
    try Child(executable, [directory.path] + arguments)
  }
}
