// swift-tools-version: 6.2
import PackageDescription

// A package of its own, so that what Keepsake is measured against never becomes its dependency.
let package = Package(
  name: "keepsake-benchmarks",
  platforms: [.macOS(.v15)],
  dependencies: [
    .package(name: "Keepsake", path: "../.."),
    .package(url: "https://github.com/groue/GRDB.swift", exact: "7.10.0"),
    .package(url: "https://github.com/apple/swift-crypto", exact: "4.5.2"),
  ],
  targets: [
    .target(name: "CFloor", path: "CFloor", linkerSettings: [.linkedLibrary("crypto")]),
    .executableTarget(
      name: "keepsake-benchmarks",
      dependencies: [
        .product(name: "Keepsake", package: "Keepsake"),
        .product(name: "GRDB", package: "GRDB.swift"),
        .product(name: "Crypto", package: "swift-crypto"), "CFloor", "keepsake-start-empty",
        "keepsake-start-reading", "keepsake-start-secret",
      ],
      path: "Benchmarks"),
    .executableTarget(
      name: "keepsake-calls",
      dependencies: [.product(name: "Keepsake", package: "Keepsake")], path: "Calls"),
    .executableTarget(
      name: "keepsake-start-empty",
      dependencies: [.product(name: "Keepsake", package: "Keepsake")], path: "StartEmpty"),
    .executableTarget(
      name: "keepsake-start-reading",
      dependencies: [.product(name: "Keepsake", package: "Keepsake")], path: "StartReading"),
    .executableTarget(
      name: "keepsake-start-secret",
      dependencies: [.product(name: "Keepsake", package: "Keepsake")], path: "StartSecret"),
  ],
  swiftLanguageModes: [.v6]
)
