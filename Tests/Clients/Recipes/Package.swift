// swift-tools-version: 6.2
// The snippets of the article "With other packages", compiled against these packages and run. A
// package of its own, so that Tests/Clients builds without dependencies.
import PackageDescription

let settings: [SwiftSetting] = [.swiftLanguageMode(.v6), .treatAllWarnings(as: .error)]
let keepsake: Target.Dependency = .product(name: "Keepsake", package: "Keepsake")

let package = Package(
  name: "Recipes",
  platforms: [.macOS(.v15)],
  dependencies: [
    .package(name: "Keepsake", path: "../../.."),
    .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
    .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
    .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1"),
  ],
  targets: [
    .target(
      name: "Recipes",
      dependencies: [
        keepsake, .product(name: "Logging", package: "swift-log"),
        .product(name: "Metrics", package: "swift-metrics"),
        .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
        .product(name: "Hummingbird", package: "hummingbird"),
      ],
      swiftSettings: settings),
    .executableTarget(
      name: "tool",
      dependencies: [
        keepsake, .product(name: "ArgumentParser", package: "swift-argument-parser"),
      ],
      swiftSettings: settings),
    .testTarget(
      name: "RecipesTests",
      dependencies: [
        "Recipes", "tool", keepsake,
        .product(name: "KeepsakeTesting", package: "Keepsake"),
        .product(name: "MetricsTestKit", package: "swift-metrics"),
        .product(name: "HummingbirdTesting", package: "hummingbird"),
        .product(name: "ServiceLifecycleTestKit", package: "swift-service-lifecycle"),
      ],
      swiftSettings: settings),
  ]
)
