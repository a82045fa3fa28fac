// swift-tools-version: 6.2
// Programs that use the library as any other package does, built and run by ClientTests: one for
// each configuration of Swift's isolation checks. Their warnings are errors. The files of
// Sources/Shared are part of several programs, by symbolic links.
import PackageDescription

/// A program that uses Keepsake.
func program(
  _ name: String, _ settings: [SwiftSetting], dependencies: [Target.Dependency] = []
) -> Target {
  .executableTarget(
    name: name,
    dependencies: [.product(name: "Keepsake", package: "Keepsake"), "Checks"] + dependencies,
    swiftSettings: settings + [.treatAllWarnings(as: .error)])
}

let package = Package(
  name: "Clients",
  platforms: [.macOS(.v15)],
  dependencies: [.package(name: "Keepsake", path: "../..")],
  targets: [
    .target(name: "Checks"),
    .target(name: "Models", swiftSettings: [.treatAllWarnings(as: .error)]),
    program("Swift5", [.swiftLanguageMode(.v5)]),
    program("Swift6MainActor", [.swiftLanguageMode(.v6)]),
    program("Swift6Sendable", [.swiftLanguageMode(.v6)]),
    program(
      "Swift6DefaultMainActor", [.swiftLanguageMode(.v6), .defaultIsolation(MainActor.self)]),
    program("ModelsUser", [.swiftLanguageMode(.v6)], dependencies: ["Models"]),
  ]
)
