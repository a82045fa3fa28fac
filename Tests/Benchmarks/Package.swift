// swift-tools-version: 6.2
import PackageDescription

let keepsake: Target.Dependency = .product(name: "Keepsake", package: "Keepsake")

// Programs that are started, and whose sizes are measured.
let starts: [(name: String, path: String, dependencies: [Target.Dependency])] = [
  ("keepsake-start-bare", "StartBare", []),
  ("keepsake-start-empty", "StartEmpty", [keepsake]),
  ("keepsake-start-setting", "StartSetting", [keepsake]),
  ("keepsake-start-secret", "StartSecret", [keepsake]),
  ("keepsake-start-cached", "StartCached", [keepsake]),
  ("keepsake-start-empty-foundation", "StartEmptyFoundation", []),
  ("keepsake-start-foundation", "StartFoundation", []),
]

// A separate package, so that Keepsake does not depend on the libraries that it is compared with.
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
        keepsake, .product(name: "KeepsakeValkey", package: "Keepsake"),
        .product(name: "GRDB", package: "GRDB.swift"),
        .product(name: "Crypto", package: "swift-crypto"), "CFloor",
      ] + starts.map { .target(name: $0.name) },
      path: "Benchmarks"),
    .executableTarget(name: "keepsake-calls", dependencies: [keepsake], path: "Calls"),
  ]
    + starts.map {
      .executableTarget(name: $0.name, dependencies: $0.dependencies, path: $0.path)
    },
  swiftLanguageModes: [.v6]
)
