// swift-tools-version: 6.2
// The parsers of everything that the library reads, each as a target of libFuzzer: see `run`.
import PackageDescription

let package = Package(
  name: "keepsake-fuzz",
  platforms: [.macOS(.v15)],
  dependencies: [.package(name: "Keepsake", path: "../..")],
  targets: [
    .executableTarget(
      name: "keepsake-fuzz",
      dependencies: [
        .product(name: "Keepsake", package: "Keepsake"),
        .product(name: "KeepsakeValkey", package: "Keepsake"),
      ], path: "Targets")
  ],
  swiftLanguageModes: [.v6]
)
