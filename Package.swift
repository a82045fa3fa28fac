// swift-tools-version: 6.2
import PackageDescription

let package = Package(
  name: "Keepsake",
  platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .watchOS(.v11), .visionOS(.v2)],
  products: [
    .library(name: "Keepsake", targets: ["Keepsake"]),
    .library(name: "KeepsakeTesting", targets: ["KeepsakeTesting"]),
    .executable(name: "quickstart", targets: ["quickstart"]),
    .executable(name: "textstats", targets: ["textstats"]),
    .executable(name: "tokens", targets: ["tokens"]),
    .executable(name: "notes", targets: ["notes"]),
    .executable(name: "timer", targets: ["timer"]),
    .executable(name: "shelf", targets: ["shelf"]),
    .executable(name: "keepsakectl", targets: ["keepsakectl"]),
  ],
  traits: [
    .trait(
      name: "SecureVault",
      description:
        "Sealed secrets, which need OpenSSL's libcrypto. Without it nothing of it is needed."),
    .default(enabledTraits: ["SecureVault"]),
  ],
  targets: [
    .target(name: "CKeepsake"),
    .systemLibrary(
      name: "COpenSSL", pkgConfig: "libcrypto",
      providers: [.apt(["libssl-dev"]), .brew(["openssl@3"])]),
    .target(
      name: "Keepsake",
      dependencies: [
        "CKeepsake", .target(name: "COpenSSL", condition: .when(traits: ["SecureVault"])),
      ]),
    .target(name: "KeepsakeTesting", dependencies: ["Keepsake"]),
    .executableTarget(name: "quickstart", dependencies: ["Keepsake"], path: "Examples/quickstart"),
    .executableTarget(name: "textstats", dependencies: ["Keepsake"], path: "Examples/textstats"),
    .executableTarget(name: "tokens", dependencies: ["Keepsake"], path: "Examples/tokens"),
    .executableTarget(name: "notes", dependencies: ["Keepsake"], path: "Examples/notes"),
    .executableTarget(name: "timer", dependencies: ["Keepsake"], path: "Examples/timer"),
    .executableTarget(name: "shelf", dependencies: ["Keepsake"], path: "Examples/shelf"),
    .executableTarget(
      name: "keepsakectl", dependencies: ["Keepsake"], path: "Examples/keepsakectl"),
    // A second process for the tests: sets, updates, reads and dies on command.
    .executableTarget(name: "keepsake-peer", dependencies: ["Keepsake"], path: "Tests/Peer"),
    .testTarget(
      name: "KeepsakeTests",
      dependencies: [
        "Keepsake", "KeepsakeTesting", "COpenSSL", "keepsake-peer", "quickstart", "textstats",
        "tokens", "notes", "timer", "shelf", "keepsakectl",
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
