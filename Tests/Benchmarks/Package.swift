// swift-tools-version: 6.2
import PackageDescription

// A package of its own, so that what Keepsake is measured against never becomes its dependency.
let package = Package(
  name: "keepsake-benchmarks",
  platforms: [.macOS(.v15)],
  dependencies: [
    .package(name: "Keepsake", path: "../.."),
    .package(url: "https://github.com/groue/GRDB.swift", exact: "7.10.0"),
  ],
  targets: [
    .target(name: "CFloor", path: "CFloor"),
    .executableTarget(
      name: "keepsake-benchmarks",
      dependencies: [
        .product(name: "Keepsake", package: "Keepsake"),
        .product(name: "GRDB", package: "GRDB.swift"), "CFloor", "keepsake-start-empty",
        "keepsake-start-reading",
      ],
      path: "Benchmarks"),
    .executableTarget(
      name: "keepsake-start-empty",
      dependencies: [.product(name: "Keepsake", package: "Keepsake")], path: "StartEmpty"),
    .executableTarget(
      name: "keepsake-start-reading",
      dependencies: [.product(name: "Keepsake", package: "Keepsake")], path: "StartReading"),
  ],
  swiftLanguageModes: [.v6]
)
