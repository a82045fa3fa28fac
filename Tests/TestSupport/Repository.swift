import Foundation

/// The checkout that the tests were built from.
enum Repository {
  static let url = URL(filePath: #filePath).appending(path: "../../..").standardizedFileURL

  /// A file or directory by its path in the checkout, such as `Sources/COpenSSL`.
  static func file(_ path: String) -> URL { url.appending(path: path) }
}
