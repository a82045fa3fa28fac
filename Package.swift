// swift-tools-version: 6.2
import PackageDescription

let package = Package(
  name: "Keepsake",
  platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .watchOS(.v11), .visionOS(.v2)],
  products: [
    .library(name: "Keepsake", targets: ["Keepsake"]),
    .library(name: "KeepsakeTesting", targets: ["KeepsakeTesting"]),
    .library(name: "KeepsakeValkey", targets: ["KeepsakeValkey"]),
    .executable(name: "keepsake-quickstart", targets: ["keepsake-quickstart"]),
    .executable(name: "keepsake-textstats", targets: ["keepsake-textstats"]),
    .executable(name: "keepsake-tokens", targets: ["keepsake-tokens"]),
    .executable(name: "keepsake-notes", targets: ["keepsake-notes"]),
    .executable(name: "keepsake-timer", targets: ["keepsake-timer"]),
    .executable(name: "keepsake-shelf", targets: ["keepsake-shelf"]),
    .executable(name: "keepsake-server", targets: ["keepsake-server"]),
    .executable(name: "keepsake-pages", targets: ["keepsake-pages"]),
    .executable(name: "keepsake-shop", targets: ["keepsake-shop"]),
    .executable(name: "keepsakectl", targets: ["keepsakectl"]),
  ],
  traits: [
    .trait(
      name: "SecureVault",
      description:
        "Encrypted secrets. Without this trait, OpenSSL's libcrypto is not needed."),
    .default(enabledTraits: ["SecureVault"]),
  ],
  targets: [
    .target(name: "CKeepsake"),
    .target(name: "KeepsakeLibc"),
    .systemLibrary(
      name: "COpenSSL", pkgConfig: "libcrypto",
      providers: [.apt(["libssl-dev"]), .brew(["openssl@3"])]),
    .target(
      name: "Keepsake",
      dependencies: [
        "CKeepsake", "KeepsakeLibc",
        .target(name: "COpenSSL", condition: .when(traits: ["SecureVault"])),
      ]),
    .target(name: "KeepsakeTesting", dependencies: ["Keepsake"]),
    // Without `pkgConfig`, for which SwiftPM would look in programs that do not depend on this. The
    // directories are those that it finds for COpenSSL.
    .systemLibrary(name: "COpenSSLTLS"),
    .target(name: "KeepsakeValkey", dependencies: ["Keepsake", "KeepsakeLibc", "COpenSSLTLS"]),
    .executableTarget(
      name: "keepsake-quickstart", dependencies: ["Keepsake"], path: "Examples/quickstart"),
    .executableTarget(
      name: "keepsake-textstats", dependencies: ["Keepsake"], path: "Examples/textstats"),
    .executableTarget(name: "keepsake-tokens", dependencies: ["Keepsake"], path: "Examples/tokens"),
    .executableTarget(name: "keepsake-notes", dependencies: ["Keepsake"], path: "Examples/notes"),
    .executableTarget(name: "keepsake-timer", dependencies: ["Keepsake"], path: "Examples/timer"),
    .executableTarget(name: "keepsake-shelf", dependencies: ["Keepsake"], path: "Examples/shelf"),
    .executableTarget(name: "keepsake-server", dependencies: ["Keepsake"], path: "Examples/server"),
    .executableTarget(name: "keepsake-pages", dependencies: ["Keepsake"], path: "Examples/pages"),
    .executableTarget(
      name: "keepsake-shop", dependencies: ["Keepsake", "KeepsakeValkey"], path: "Examples/shop"),
    .executableTarget(
      name: "keepsakectl", dependencies: ["Keepsake", "KeepsakeLibc", "KeepsakeValkey"]),
    // A second process for the tests, which reads and writes on request.
    .executableTarget(name: "keepsake-peer", dependencies: ["Keepsake"], path: "Tests/Peer"),
    // Used by both test targets. A test target itself, because release builds of the package leave
    // those out: the library is testable only in debug builds.
    .testTarget(
      name: "KeepsakeTestSupport", dependencies: ["Keepsake", "keepsake-peer"],
      path: "Tests/TestSupport"),
    .testTarget(
      name: "KeepsakeTests",
      dependencies: [
        "Keepsake", "KeepsakeTesting", "COpenSSL", "KeepsakeTestSupport", "keepsake-peer",
        "keepsakectl", "keepsake-quickstart", "keepsake-textstats", "keepsake-tokens",
        "keepsake-notes", "keepsake-timer", "keepsake-shelf", "keepsake-server", "keepsake-pages",
        "keepsake-shop",
      ]),
    .executableTarget(
      name: "keepsake-valkey-peer", dependencies: ["KeepsakeValkey"], path: "Tests/ValkeyPeer"),
    .testTarget(
      name: "KeepsakeValkeyTests",
      dependencies: [
        "KeepsakeValkey", "KeepsakeTesting", "KeepsakeTestSupport", "keepsake-peer",
        "keepsake-valkey-peer", "keepsakectl", "keepsake-shop",
      ]),
  ]
)

for target in package.targets where !target.name.hasPrefix("C") {
  target.swiftSettings = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
  ]
}
