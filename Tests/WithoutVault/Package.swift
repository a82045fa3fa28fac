// swift-tools-version: 6.2
// A program of somebody who has no secrets to keep and no OpenSSL, built and run by SetUpTests.
import PackageDescription

let package = Package(
  name: "WithoutVault",
  platforms: [.macOS(.v15)],
  dependencies: [.package(name: "Keepsake", path: "../..", traits: [])],
  targets: [
    .executableTarget(
      name: "without-vault",
      dependencies: [.product(name: "Keepsake", package: "Keepsake")],
      path: "Sources",
      swiftSettings: [.swiftLanguageMode(.v6), .treatAllWarnings(as: .error)])
  ]
)
