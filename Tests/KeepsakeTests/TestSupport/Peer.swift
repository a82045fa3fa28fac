import Foundation

/// Second processes that use the library; see Tests/Peer.
enum Peer {
  static let executable = builtProduct("keepsake-peer").path

  /// A program of this package, where the build put it.
  static func builtProduct(_ name: String) -> URL {
    Bundle.main.bundleURL.appending(path: name)
  }

  /// What tells a compiler where the library is, as it is built.
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
