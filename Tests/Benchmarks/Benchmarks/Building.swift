// The time of a clean release build of a program that sets one value, and of keepsakectl.
import Foundation

struct Building {
  let directory: String

  /// The directory of the package that is measured.
  private let root = URL(filePath: #filePath).appending(path: "../../../..").standardized.path

  func measure(_ bench: inout Bench) throws {
    let own = try package("own", "import Keepsake\nDefaults.set(25, forKey: \"age\")\n")
    let small = try package(
      "small", "import Keepsake\nDefaults.set(25, forKey: \"age\")\n", traits: ", traits: []")
    let bare = try package("bare", "")
    let foundation = try package(
      "foundation",
      """
      import Foundation
      UserDefaults.standard.set(25, forKey: "age")
      UserDefaults.standard.synchronize()

      """)
    func time(_ directory: String, _ product: String) -> () throws -> Double {
      { try build(directory, product) }
    }
    try bench.compare(
      "build a program that sets a value", unit: .nanoseconds, rounds: 1,
      keepsake: time(own, "program"),
      base: Peer("imports nothing", target: .infinity, time(bare, "program")),
      peers: [Peer(Settings.foundation, weaker: "is built already", time(foundation, "program"))])
    try bench.compare(
      "the same without the vault", unit: .nanoseconds, rounds: 1,
      keepsake: time(small, "program"), base: nil)
    try bench.compare(
      "build keepsakectl", unit: .nanoseconds, rounds: 1, keepsake: time(root, "keepsakectl"),
      base: nil)
    try compareSizes(&bench, own: own, small: small, bare: bare)
  }

  private func compareSizes(
    _ bench: inout Bench, own: String, small: String, bare: String
  ) throws {
    func size(_ directory: String) throws -> (bytes: Int, note: String?) {
      try Weight.strippedSize(of: "\(directory)/program", at: "\(directory)/program.stripped")
    }
    for (operation, directory) in [
      ("program that sets a value, stripped", own), ("the same without the vault", small),
    ] {
      let (bytes, note) = try size(directory)
      try bench.compare(
        operation, unit: .bytes, rounds: 1, note: note,
        keepsake: { Double(bytes) },
        base: Peer("imports nothing", target: .infinity) { Double(try size(bare).bytes) })
    }
  }

  /// Makes a package with a program.
  ///
  /// - Parameter traits: The argument for those of Keepsake.
  private func package(
    _ name: String, _ source: String, traits: String = ""
  ) throws -> String {
    let path = "\(directory)/\(name)"
    let sources = try makeDirectory("\(path)/Sources/program")
    let usesKeepsake = source.contains("import Keepsake")
    let dependency = ".package(name: \"Keepsake\", path: \"\(root)\"\(traits))"
    let product = ".product(name: \"Keepsake\", package: \"Keepsake\")"
    try Data(source.utf8).write(to: sources.appending(path: "main.swift"))
    try Data(
      """
      // swift-tools-version: 6.2
      import PackageDescription

      let package = Package(
        name: "program", dependencies: [\(usesKeepsake ? dependency : "")],
        targets: [
          .executableTarget(name: "program", dependencies: [\(usesKeepsake ? product : "")])
        ])

      """.utf8
    ).write(to: URL(filePath: "\(path)/Package.swift"))
    return path
  }

  /// Builds a product from the beginning, and keeps a copy of it beside the package's manifest.
  ///
  /// - Returns: How long that took, in nanoseconds. What was fetched or resolved does not count.
  private func build(_ path: String, _ product: String) throws -> Double {
    guard let swift = Child.installed("swift") else { throw Failure("swift is not in PATH") }
    let scratch = "\(directory)/build"
    defer { try? FileManager.default.removeItem(atPath: scratch) }
    let place = ["--package-path", path, "--scratch-path", scratch]
    // Locks are left in the temporary directory.
    let environment = ["TMPDIR=\(directory)"]
    try Child.run(swift, ["package", "resolve"] + place, environment: environment)
    let start = ContinuousClock.now
    try Child.run(
      swift, ["build", "-c", "release", "--quiet", "--product", product] + place,
      environment: environment)
    let taken = ContinuousClock.now - start
    if path != root {
      try FileManager.default.copyItem(
        atPath: "\(scratch)/release/\(product)", toPath: "\(path)/\(product)")
    }
    return taken / .nanoseconds(1)
  }
}
