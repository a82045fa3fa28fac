import Foundation
import Testing

/// A certificate authority, and certificates that it issued, made by `openssl` in a directory.
struct Certificates {
  let directory: ServerDirectory

  init() throws {
    directory = try ServerDirectory()
    for name in ["authority", "stranger"] {
      try openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj '/CN=\(name)'",
        "-keyout \(path("\(name).key")) -out \(path("\(name).pem"))",
        "-addext basicConstraints=critical,CA:TRUE")
    }
  }

  func path(_ name: String) -> String { "\(directory.path)/\(name)" }

  /// Makes `<name>.pem` and `<name>.key`, for hosts such as `DNS:localhost` or `IP:127.0.0.1`.
  ///
  /// - Parameter key: What kind of key, for `openssl req`.
  func issue(
    _ name: String, for hosts: String, by authority: String = "authority", subject: String? = nil,
    key: String = "ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
  ) throws {
    try "subjectAltName=\(hosts)\n".write(
      toFile: path("\(name).ext"), atomically: true, encoding: .utf8)
    try openssl(
      "req -newkey \(key) -subj '/CN=\(subject ?? name)'",
      "-keyout \(path("\(name).key")) -out \(path("\(name).csr"))")
    try openssl(
      "x509 -req -days 2 -in \(path("\(name).csr")) -CA \(path("\(authority).pem"))",
      "-CAkey \(path("\(authority).key")) -CAcreateserial -extfile \(path("\(name).ext"))",
      "-out \(path("\(name).pem"))")
  }

  private func openssl(_ words: String...) throws {
    let command = "openssl " + words.joined(separator: " ") + " >/dev/null 2>&1"
    try #require(system(command) == 0, "openssl failed: \(command)")
  }
}
