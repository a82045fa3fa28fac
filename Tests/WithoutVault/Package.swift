// swift-tools-version: 6.2
// A program that uses the library without SecureVault and so without OpenSSL. SetUpTests builds and
// runs it.
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
