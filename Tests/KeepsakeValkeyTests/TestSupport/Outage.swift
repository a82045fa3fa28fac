import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What can happen to a server, so that it does not accept changes.
enum Outage: String, CaseIterable, CustomTestStringConvertible {
  case killedWithoutLog = "kill -9, appendonly no"
  case killedEverySecond = "kill -9, appendfsync everysec"
  case killedAlways = "kill -9, appendfsync always"
  case frozen = "SIGSTOP"
  case cut = "connection cut in the middle of a reply"
  case full = "maxmemory reached, noeviction"
  case password = "another password"
  case certificate = "certificate of another name"
  case failover = "failover to a replica"
  case emptied = "FLUSHALL"
  case newerFormat = "newer format"

  var testDescription: String { rawValue }

  /// The error of writes, sooner or later.
  var code: StorageError.Code {
    switch self {
    case .full: .diskFull
    case .password, .certificate: .accessDenied
    case .emptied: .notFound
    case .newerFormat: .unsupportedVersion
    default: .unreachable
    }
  }

  /// Whether the server, or its connections, end first.
  var cutsConnections: Bool { ![.full, .emptied, .newerFormat].contains(self) }

  /// Whether a server without its settings comes back, and a process has to decide.
  var losesSettings: Bool { self == .killedWithoutLog || self == .emptied }
}

/// A server that a test takes away from its clients and gives back.
final class OutageServer {
  let outage: Outage
  let server: TestServer
  /// How clients reach it.
  let address: ServerAddress
  /// The hash that has the format of the clients' table.
  private let state: String
  private let failover: Failover?
  private let front: Forwarder?
  private let tls: TLSServer?
  /// Made before the outage, because it may concern logins.
  private let administrator: Link
  private static let hosts = "DNS:localhost,IP:127.0.0.1"

  init(_ outage: Outage, state: String = "keepsake:{app:suite}:s") throws {
    self.outage = outage
    self.state = state
    failover = outage == .failover ? try Failover() : nil
    let isDurable = ["--appendonly", "yes", "--appendfsync", "always"]
    tls = outage == .certificate ? try TLSServer(hosts: Self.hosts, isDurable) : nil
    let log: [String] =
      switch outage {
      case .killedEverySecond: ["--appendonly", "yes", "--appendfsync", "everysec"]
      case .killedAlways: isDurable
      default: []
      }
    server = try failover?.primary ?? tls?.server ?? TestServer(log)
    front = outage == .cut ? try Forwarder(to: server.socketPath) : nil
    var address = failover?.front.address ?? front?.address ?? server.address
    if let tls { address = try tls.address("valkeys://localhost:\(tls.port)") }
    if outage == .frozen {
      // The default.
      address.requestTimeout = .seconds(1)
      address.connectTimeout = .seconds(1)
    }
    self.address = address
    administrator = server.link()
    _ = try administrator.perform(Command("PING"))
  }

  deinit {
    if outage == .frozen { server.unfreeze() }
    front?.end()
  }

  func begin() throws {
    switch outage {
    case .killedEverySecond:
      // It may reply before it has written, while it waits for the disk.
      try waitUntil("the log is not written") {
        let state = try administrator.perform(Command("INFO", "persistence")).text
        return state?.contains("aof_buffer_length:0\r\n") == true
      }
      server.kill()
    case .killedWithoutLog, .killedAlways: server.kill()
    case .frozen: server.freeze()
    case .cut:
      front?.forward(to: nil)
      front?.cut(after: 3, .toClient)
    case .full: try send("CONFIG", "SET", "maxmemory", "1")
    case .password:
      try send("CONFIG", "SET", "requirepass", "another")
      try send("CLIENT", "KILL", "TYPE", "normal")
      try send("CLIENT", "KILL", "TYPE", "pubsub")
    case .certificate: try restart(withCertificateFor: "DNS:other.example")
    case .failover:
      try failover?.waitUntilReplicated()
      server.kill()
      failover?.replication.cut()
    case .emptied: try send("FLUSHALL")
    case .newerFormat: try send("HSET", state, "format", "2")
    }
  }

  func end() throws {
    switch outage {
    case .killedWithoutLog, .killedEverySecond, .killedAlways: try server.start()
    case .frozen: server.unfreeze()
    case .cut: front?.forward(to: server.socketPath)
    case .full: try send("CONFIG", "SET", "maxmemory", "0")
    case .password: try send("CONFIG", "SET", "requirepass", "")
    case .certificate: try restart(withCertificateFor: Self.hosts)
    case .failover:
      guard let failover else { return }
      try failover.replica.command("REPLICAOF", "NO", "ONE")
      failover.front.forward(to: failover.replica.socketPath)
    case .emptied: break
    case .newerFormat: try send("HSET", state, "format", "1")
    }
  }

  private func send(_ words: String...) throws {
    let reply = try administrator.perform(Command(words: words))
    try #require(reply.errorCode == nil, "\(words): \(reply)")
  }

  private func restart(withCertificateFor hosts: String) throws {
    try tls?.certificates.issue("server", for: hosts)
    server.kill()
    try server.start()
  }
}
