import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

@Suite(.server, .threadPerTest) struct TLSTests {
  private static let hosts = "DNS:localhost,IP:127.0.0.1"

  @Test(arguments: ["localhost", "127.0.0.1"]) func connectsByNameAndByAddress(
    _ host: String
  ) throws {
    let server = try TLSServer(hosts: Self.hosts)
    let link = try server.link("valkeys://\(host):\(server.port)")
    #expect(try link.perform(Command("SET", "k", "v")).text == "OK")
    #expect(try link.perform(Command("GET", "k")).text == "v")
  }

  /// Values of many records, in both directions, while other threads use the connection.
  @Test func movesLargeValuesBesideOthers() throws {
    let server = try TLSServer(hosts: Self.hosts)
    let link = try server.link("valkeys://localhost:\(server.port)")
    let mistakes = Recorder<String>()
    onThreads(6) { thread in
      do {
        let bytes = randomBytes(thread < 2 ? 3_000_000 : 100)
        for _ in 0..<(thread < 2 ? 5 : 300) {
          var set = Command("SET", "k\(thread)")
          set.append(bytes)
          let replies = try link.perform([set, Command("GET", "k\(thread)")])
          if replies.last != .bytes(bytes) { mistakes.append("\(thread)") }
        }
      } catch {
        mistakes.append("\(error)")
      }
    }
    #expect(mistakes.all == [])
  }

  @Test func deliversMessages() throws {
    let server = try TLSServer(hosts: Self.hosts)
    let link = try server.link("valkeys://localhost:\(server.port)")
    let numbers = Recorder<String>()
    let subscribed = DispatchSemaphore(value: 0)
    try link.subscribe(
      to: Array("c".utf8),
      ChannelHandler(
        onSubscribed: { subscribed.signal() },
        onMessage: { numbers.append(String(decoding: $0.prefix(8), as: UTF8.self)) }))
    subscribed.wait()
    for number in 10_000_000..<10_000_200 {
      let text = "\(number)" + String(repeating: "x", count: number % 7 * 9_000)
      #expect(try link.perform(Command("PUBLISH", "c", text)) == .integer(1))
    }
    numbers.waitForCount(200, "messages are missing")
    #expect(numbers.all == (10_000_000..<10_000_200).map { "\($0)" })
  }

  /// OpenSSL would clean up in a handler of its own, beside threads that use it.
  @Test func aProgramExitsWhileThreadsUseTheConnection() throws {
    let server = try TLSServer(hosts: Self.hosts)
    let authorities = server.certificates.path("authority.pem")
    let url = "valkeys://localhost:\(server.port)?ca=\(authorities)&timeout=60s&connect-timeout=60s"
    for round in 0..<Coverage.count(sample: 10, complete: 100) {
      let run = try ProgramRun([ValkeyPeer.path, "exit", url], in: server.certificates.directory)
      try #require(run.status == 0 && run.text.hasPrefix("status("), "round \(round): \(run)")
    }
  }

  // MARK: What is refused

  /// A server without TLS waits for the end of the first line.
  @Test func serverWithoutTLS() throws {
    let server = try TLSServer(hosts: Self.hosts)
    let link = try server.link("valkeys://localhost:\(server.plainPort)") {
      $0.connectTimeout = .seconds(1)
    }
    // On a busy machine, the time may be over before the handshake has begun.
    waitForFailure(.unreachable, reason: "TLS") { _ = try link.perform(Command("PING")) }
  }

  @Test func serverThatWantsTLS() throws {
    let server = try TLSServer(hosts: Self.hosts)
    let link = try server.link("valkey://localhost:\(server.port)", authorities: nil)
    expectFailure(.unreachable) { _ = try link.perform(Command("PING")) }
  }

  @Test func oldProtocol() throws {
    let server = try TLSServer(hosts: Self.hosts, ["--tls-protocols", "TLSv1.1"])
    let link = try server.link("valkeys://localhost:\(server.port)")
    expectFailure(.unreachable, reason: "TLS") { _ = try link.perform(Command("PING")) }
  }

  /// Also if the subject is the host.
  @Test func certificateWithoutTheNameInItsList() throws {
    let server = try TLSServer(hosts: "email:localhost@example.com", subject: "localhost")
    let link = try server.link("valkeys://localhost:\(server.port)")
    expectFailure(.accessDenied, reason: "hostname mismatch") {
      _ = try link.perform(Command("PING"))
    }
  }

  // MARK: Ciphers

  /// Makes the handshake in this process, with a server of OpenSSL that offers these ciphers.
  private func handshake(_ arguments: String) throws {
    let certificates = try Certificates()
    // A cipher can also be refused because the certificate has another kind of key.
    if arguments.contains("ECDSA") {
      try certificates.issue("server", for: Self.hosts)
    } else {
      try certificates.issue("server", for: Self.hosts, key: "rsa:2048 -nodes")
    }
    let (process, _, session) = try connect(certificates, arguments)
    defer { process.end() }
    var isDone = false
    while !isDone { isDone = try session.handshake() }
  }

  /// Starts a server of OpenSSL, and connects to it.
  private func connect(
    _ certificates: Certificates, _ arguments: String, input: String = "/dev/zero"
  ) throws -> (process: ServerProcess, socket: Socket, session: TLSSession) {
    // OpenSSL prints the path of the socket, and fails if it is long.
    let script = """
      cd \(certificates.directory.path)
      exec openssl s_server -unix s \(arguments) -cert server.pem -key server.key <\(input)
      """
    let process = try ServerProcess("/bin/sh", ["-c", script], log: certificates.path("log"))
    var server = try ServerAddress("valkeys://localhost")
    server.authorities = certificates.path("authority.pem")
    let address = try #require(SocketAddress(path: certificates.path("s")))
    var connected: Socket?
    waitUntil("the server did not start") {
      connected = try? Socket.connect(to: address)
      return connected != nil
    }
    let socket = try #require(connected)
    return (process, socket, try TLSSession(try TLSContext(server), socket, server))
  }

  @Test(arguments: [
    "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-AES128-GCM-SHA256",
  ]) func modernCiphersAreAccepted(_ cipher: String) throws {
    try handshake("-tls1_2 -cipher \(cipher)")
  }

  /// Without a certificate, without forward secrecy, or without authenticated encryption.
  @Test(arguments: [
    "ADH-AES128-GCM-SHA256", "AECDH-AES128-SHA", "AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA256",
  ]) func otherCiphersAreRefused(_ cipher: String) throws {
    expectFailure(.unreachable, reason: "TLS") {
      try handshake("-tls1_2 -cipher \(cipher):@SECLEVEL=0")
    }
  }

  /// A configuration of OpenSSL that allows everything does not change that.
  @Test func theConfigurationOfOpenSSLAllowsNoOtherCiphers() throws {
    let certificates = try Certificates()
    let port = try ReservedPort()
    try """
    openssl_conf = all
    [all]
    ssl_conf = modules
    [modules]
    system_default = weak
    [weak]
    MinProtocol = TLSv1
    CipherString = ALL:eNULL:aNULL:@SECLEVEL=0
    """.write(toFile: certificates.path("weak.cnf"), atomically: true, encoding: .utf8)
    // With -www it sends only what is asked for. A client that is kept reading does not end.
    let arguments = "-www -tls1_2 -nocert -cipher 'ALL:@SECLEVEL=0:aNULL'"
    let server = try ServerProcess(
      "/bin/sh",
      ["-c", "exec openssl s_server -accept 127.0.0.1:\(port.number) \(arguments)"],
      log: certificates.path("log"))
    defer { server.end() }
    waitUntil("the server does not listen") { port.acceptsConnections }
    func run(_ words: String...) throws -> ProgramRun {
      try ProgramRun(
        ["env", "OPENSSL_CONF=" + certificates.path("weak.cnf")] + words,
        in: certificates.directory)
    }
    // The positive control: another client of OpenSSL accepts it.
    let other = try run("openssl", "s_client", "-connect", "127.0.0.1:\(port.number)")
    #expect(other.text.contains("New, TLSv1.2, Cipher is A"), "\(other)")
    let url = "valkeys://127.0.0.1:\(port.number)?timeout=60s&connect-timeout=60s"
    let output = try run(ValkeyPeer.path, "ping", url).text
    #expect(output.hasPrefix("unreachable ") && output.contains("TLS handshake"), "\(output)")
  }

  // MARK: The client's certificate

  @Test(arguments: ["TLSv1.2", "TLSv1.3"]) func serversThatAskForACertificate(
    _ version: String
  ) throws {
    let server = try TLSServer(
      hosts: Self.hosts, ["--tls-auth-clients", "yes", "--tls-protocols", version])
    try server.certificates.issue("client", for: "email:shop@example.com")
    try server.certificates.issue("other", for: "email:shop@example.com", by: "stranger")
    try server.certificates.issue(
      "rsa", for: "email:shop@example.com", key: "rsa:2048 -nodes")
    try server.certificates.issue(
      "secret", for: "email:shop@example.com", key: "rsa:2048 -passout pass:secret")
    let url = "valkeys://localhost:\(server.port)"
    func link(_ certificate: String?, _ key: String?) throws -> Link {
      try server.link(url) {
        $0.certificate = certificate.map(server.certificates.path)
        $0.key = key.map(server.certificates.path)
      }
    }
    #expect(try link("client.pem", "client.key").perform(Command("PING")).text == "PONG")
    let both = try ["client.pem", "client.key"].map {
      try String(contentsOfFile: server.certificates.path($0), encoding: .utf8)
    }
    try both.joined().write(
      toFile: server.certificates.path("both.pem"), atomically: true, encoding: .utf8)
    #expect(try link("both.pem", nil).perform(Command("PING")).text == "PONG")

    let error = #expect(throws: StorageError.self) {
      _ = try link(nil, nil).perform(Command("PING"))
    }
    #expect(error?.code == .accessDenied && error?.remedy.contains("?cert=") == true)
    // With TLS 1.3, the server says so after the handshake.
    let refused = #expect(throws: StorageError.self) {
      _ = try link("other.pem", "other.key").perform(Command("PING"))
    }
    #expect(refused?.code == .accessDenied && refused?.remedy.contains("cert=") == true)
    #expect(
      refused?.reason?.contains("client certificate") == true, "\(String(describing: refused))")
    #expect(refused?.reason?.contains("(tlsv1 alert unknown ca)") == true)
    for (certificate, key) in [
      ("missing.pem", "client.key"), ("client.pem", "missing.key"), ("client.pem", "other.key"),
      ("client.pem", nil), ("rsa.pem", "client.key"), ("client.pem", "rsa.key"),
      ("secret.pem", "secret.key"),
    ] {
      expectFailure(.misuse, reason: "client's certificate") {
        _ = try link(certificate, key).perform(Command("PING"))
      }
    }
  }

  /// The files are read again, because the link may live longer than a certificate.
  @Test func renewedCertificateIsUsed() throws {
    let server = try TLSServer(hosts: Self.hosts, ["--tls-auth-clients", "yes"])
    func renew(by authority: String) throws {
      try server.certificates.issue("client", for: "email:shop@example.com", by: authority)
    }
    try renew(by: "stranger")
    let link = try server.link("valkeys://localhost:\(server.port)", options: .quick) {
      $0.certificate = server.certificates.path("client.pem")
      $0.key = server.certificates.path("client.key")
    }
    expectFailure(.accessDenied) { _ = try link.perform(Command("PING")) }
    try renew(by: "authority")
    waitUntil("the certificate was not read") {
      (try? link.perform(Command("PING")).text) == "PONG"
    }
  }

  // MARK: No encryption

  @Test func aPlainConnectionToAnotherMachineIsReportedOnce() throws {
    let server = try TLSServer(hosts: Self.hosts)
    var options = LinkOptions()
    options.resolve = { [plainPort = server.plainPort] _ throws(StorageError) in
      try SocketAddress.resolve(try ServerAddress("valkey://127.0.0.1:\(plainPort)"))
    }
    let reports = Recorder<String>()
    for (host, count) in [("cache.internal", 1), ("localhost", 1), ("127.evil.example", 2)] {
      let client = Server(
        try server.address("valkey://\(host)", authorities: nil), options: options,
        report: { reports.append($0.reason ?? "") })
      #expect(try client.perform(Command("PING")).text == "PONG")
      reports.waitForCount(count, "nothing was reported")
      server.server.kill()
      try server.server.start()
      waitUntil("the server was not reached again") {
        (try? client.perform(Command("PING")).text) == "PONG"
      }
      #expect(reports.all.count == count && reports.all[0].contains("not encrypted"))
    }
  }

  @Test func unreadableAuthorities() throws {
    let server = try TLSServer(hosts: Self.hosts)
    let link = try server.link("valkeys://localhost:\(server.port)", authorities: "missing.pem")
    expectFailure(.misuse, reason: "authorities cannot be read") {
      _ = try link.perform(Command("PING"))
    }
  }

  /// Both sides agree on new keys (TLS 1.2), and the server is slow: sending has to wait for input.
  @Test(.enabled(if: FileManager.default.fileExists(atPath: "/proc/self/stat")))
  func newKeys() throws {
    let certificates = try Certificates()
    try certificates.issue("server", for: Self.hosts)
    let commands = certificates.path("commands")
    try #require(mkfifo(commands, 0o600) == 0)
    let input = open(commands, O_RDWR | O_CLOEXEC)
    try #require(input >= 0)
    defer { withExtendedLifetime(certificates) { _ = close(input) } }
    let (process, socket, session) = try connect(certificates, "-tls1_2", input: "commands")
    defer { process.end() }
    try waitUntil("there was no handshake") { try session.handshake() }
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1_024, alignment: 16)
    defer { buffer.deallocate() }
    func send() -> Bool {
      if case .count = session.send(UnsafeRawBufferPointer(buffer)) { return true }
      return false
    }
    buffer.initializeMemory(as: UInt8.self, repeating: 10)
    #expect(send() && !session.sendWantsInput)
    // s_server(1ssl): the command to renegotiate.
    try #require(write(input, "r\n", 2) == 2)
    var entry = pollfd(fd: socket.descriptor, events: Int16(POLLIN), revents: 0)
    waitUntil("the server asked for no keys") { poll(&entry, 1, 0) == 1 }
    process.signal(SIGSTOP)
    waitUntil("the server was not stopped") { process.isStopped }
    if case .wouldBlock = session.receive(buffer) {} else { Issue.record("something was received") }
    #expect(!send() && session.sendWantsInput)
    process.signal(SIGCONT)
    waitUntil("nothing can be sent") {
      _ = session.receive(buffer)
      return send()
    }
    #expect(!session.sendWantsInput)
  }

  /// The server ends the connection while requests are written: no signal ends the process.
  @Test func killedServer() throws {
    let server = try TLSServer(hosts: Self.hosts)
    var options = LinkOptions()
    options.maximumBackoff = .milliseconds(50)
    let link = try server.link("valkeys://localhost:\(server.port)", options: options)
    _ = try link.perform(Command("PING"))
    onThreads(4) { thread in
      if thread == 0 { server.server.kill() }
      for _ in 0..<200 {
        _ = try? link.perform(Command("SET", "k", String(repeating: "0", count: 100_000)))
      }
    }
    try server.server.start()
    waitUntil("the server was not reached again") {
      (try? link.perform(Command("PING")).text) == "PONG"
    }
  }
}
