import Dispatch
import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// Interruptions at any moment: what was reported about a change is true, and all processes agree
/// afterwards.
@Suite(.server, .threadPerTest) struct SettingsRecoveryTests {
  // MARK: Cuts

  /// A connection that ends after so many bytes of a request, of a reply or of a message.
  @Test(arguments: Forwarder.Direction.allCases) func cutAfterEachByte(
    _ direction: Forwarder.Direction
  ) throws {
    let server = try TestServer()
    let front = try Forwarder(to: server.socketPath)
    defer { front.end() }
    let (one, two) = (TestClient(server) { $0 = front.address }, TestClient(server))
    let size = direction == .toServer ? 450 : 120
    let step = Coverage.isComplete ? 2 : size / 18
    var outcomes: [String: Int] = [:]
    for count in stride(from: 0, to: size, by: step) {
      one.setEventually("n", "\(count)")
      try two.set("ready", "\(count)")
      one.expectEventually("ready", "\(count)")
      front.cut(after: count, direction)
      var code: StorageError.Code?
      do {
        try one.set("n", "\(count + 1)")
        #expect(try one.get("n") == "\(count + 1)")
      } catch {
        code = (error as? StorageError)?.code
        #expect(code == .unreachable || code == .outcomeUnknown, "\(error)")
      }
      let isSet = try server.values()["n"] == "\(count + 1)"
      if code == nil { #expect(isSet, "lost after \(count) bytes") }
      if code == .unreachable { #expect(!isSet, "set after \(count) bytes") }
      outcomes[code?.description ?? "set", default: 0] += 1
      one.expectEventuallyEqual(to: server)
      two.expectEventuallyEqual(to: server)
    }
    // Otherwise the range is not the right one.
    #expect(outcomes["set"] ?? 0 > 0 && outcomes["outcome unknown"] ?? 0 > 0, "\(outcomes)")
    one.setEventually("n", "0")
    two.expectEventually("n", "0")
    #expect(one.faults.isEmpty && two.faults.isEmpty)
  }

  // MARK: Restarts

  /// What the server has written to its file survives a kill; what it had not is reported.
  @Test(arguments: ["always", "everysec"]) func acknowledgedChangesSurviveAKill(
    _ policy: String
  ) throws {
    let server = try TestServer(["--appendonly", "yes", "--appendfsync", policy])
    let clients = [TestClient(server), TestClient(server)]
    for client in clients { #expect(try client.all() == [:]) }
    let acknowledged = Recorder<String>()
    // The second client may hear of no other change before the kill.
    for (number, client) in clients.enumerated() {
      try client.set("first \(number)", "1")
      acknowledged.append("first \(number)")
    }
    onThreads(4) { thread in
      if thread == 3 {
        acknowledged.waitForCount(100, "nothing was stored")
        return server.kill()
      }
      for number in 0..<1_000_000 {
        let key = "\(thread).\(number)"
        do {
          try clients[thread % 2].set(key, "1")
          acknowledged.append(key)
        } catch {
          return
        }
      }
    }
    #expect(acknowledged.count >= 100)
    for client in clients { #expect(try acknowledged.all.contains { try client.get($0) == "1" }) }
    try server.start()
    // It refuses requests while it reads its file.
    waitUntil("the server was not reached again") { (try? server.values()) != nil }
    let values = try server.values()
    let missing = acknowledged.all.filter { values[$0] == nil }
    for client in clients { client.expectEventuallyEqual(to: server) }
    if !missing.isEmpty {
      #expect(policy != "always", "\(missing)")
      // Reports are made in the background.
      waitUntil("the loss was not reported") {
        clients.contains { $0.reports.all.contains { $0.code == .damaged } }
      }
    }
    clients[0].setEventually("last", "1")
    clients[1].expectEventually("last", "1")
  }

  /// A server that reads its data accepts connections and refuses requests.
  @Test func loadingServerIsWaitedFor() throws {
    let server = try TestServer(["--rdbcompression", "no"])
    let (one, two) = (TestClient(server), TestClient(server))
    try one.set("a", "1")
    #expect(try one.get("a") == "1" && two.get("a") == "1")
    let fill = "for i = 1, 12000 do redis.call('SET', 'x' .. i, string.rep('x', 1100)) end"
    try server.command("EVAL", fill, "0")
    try server.command("SAVE")
    server.kill()
    // Ten minutes for all keys, unless that is changed.
    let loading = try TestServer(
      ["--key-load-delay", "50000", "--loading-process-events-interval-bytes", "1024"],
      in: server.directory)
    for client in [one, two] {
      waitUntil("the server's state was not noticed") {
        do {
          try client.set("a", "2")
          Issue.record("a server has accepted a change while it was loading")
          return true
        } catch {
          let error = error as? StorageError
          #expect(error?.code == .unreachable)
          return error?.reason?.contains("LOADING") == true
        }
      }
      #expect(try client.get("a") == "1")
    }
    try loading.write("CONFIG SET key-load-delay 0\r\n")
    one.setEventually("a", "3")
    two.expectEventually("a", "3")
    #expect(one.faults.isEmpty && two.faults.isEmpty)
  }
}

extension TestServer {
  /// Sends bytes without waiting for a reply, also to a server that refuses requests.
  fileprivate func write(_ text: String) throws {
    let address = try #require(SocketAddress(path: socketPath))
    let socket = try Socket.connect(to: address)
    let bytes = Array(text.utf8)
    #expect(send(socket.descriptor, bytes, bytes.count, Socket.noSignal) == bytes.count)
    // The server reads it before it sees the end.
    var byte: UInt8 = 0
    waitUntil("there was no reply") { recv(socket.descriptor, &byte, 1, 0) == 1 }
  }
}
