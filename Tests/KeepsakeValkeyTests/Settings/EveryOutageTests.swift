import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What holds in every outage: no read loses its value, no write is said to be made that is not, no
/// thread of Swift's pool waits, and the memory of a process does not grow. The time that calls
/// take is printed.
@Suite(.server, .threadPerTest) struct EveryOutageTests {
  private struct Latency {
    private(set) var first: Duration?
    private var others: [Duration] = []

    mutating func add(_ time: Duration) {
      if first == nil { first = time } else { others.append(time) }
    }

    var description: String {
      "first failing write \(milliseconds(first ?? .zero)), later ones "
        + milliseconds(others.sorted()[others.count / 2])
    }
  }

  private static func milliseconds(_ time: Duration) -> String {
    String(format: "%.2f ms", time / .milliseconds(1))
  }

  @Test(arguments: Outage.allCases) func readsKeepTheirValue(_ outage: Outage) throws {
    let server = try OutageServer(outage)
    let client = TestClient(server.server) { $0 = server.address }
    client.setEventually("kept", "1")
    client.setEventually("n", "0")
    client.expectEventually("kept", "1")

    let (isDone, reads, bad) = (Flag(), Recorder<Int>(), Recorder<String>())
    let hasEnded = startThread {
      var count = 0
      while !isDone.value {
        let value = Result { try client.get("kept") }
        if case .success("1") = value { count += 1 } else { bad.append("\(value)") }
      }
      reads.append(count)
    }
    defer {
      isDone.value = true
      hasEnded.wait()
    }

    try server.begin()
    var (latency, codes, number) = (Latency(), Set<StorageError.Code>(), 0)
    var (last, possible) = (0, Set([0]))
    let deadline = ContinuousClock.now + .seconds(600)
    var failureCount = 0
    func hasFailedLongEnough() -> Bool {
      failureCount >= 100 && (codes.contains(outage.code) || !outage.cutsConnections)
    }
    while !hasFailedLongEnough(), ContinuousClock.now < deadline {
      number += 1
      let start = ContinuousClock.now
      do {
        try client.set("n", "\(number)")
        (last, possible) = (number, [number])
      } catch {
        latency.add(ContinuousClock.now - start)
        failureCount += 1
        let code = (error as? StorageError)?.code ?? .misuse
        codes.insert(code)
        if code == .outcomeUnknown { possible.insert(number) }
      }
    }
    var expected: Set = [outage.code]
    if outage.cutsConnections { expected.formUnion([.unreachable, .outcomeUnknown]) }
    #expect(codes.contains(outage.code) && codes.isSubset(of: expected), "\(codes)")
    #expect(try client.get("kept") == "1")

    try server.end()
    let end = ContinuousClock.now
    if outage.losesSettings {
      waitUntil("the settings were not pushed") { (try? client.table.push()) == true }
    }
    if outage == .frozen {
      // What was sent is carried out only now.
      client.setEventually("probe", "1")
    }
    // A process that starts now reads what was said to be stored.
    let reader = TestClient(server.server) { $0 = server.address }
    waitUntil("the server was not reached") { (try? reader.all()) != nil }
    let found = try reader.get("n").flatMap { Int($0) }
    #expect(possible.contains(found ?? -1), "\(found ?? -1) is not \(last)")
    #expect(try reader.get("kept") == "1")
    client.setEventually("n", "-1")
    let delay = ContinuousClock.now - end
    reader.expectEventually("n", "-1")
    isDone.value = true
    hasEnded.wait()
    #expect(bad.count == 0, "\(bad.all.prefix(3))")
    print(
      "proof: outage, \(outage.rawValue): \(latency.description), writes again after",
      "\(Self.milliseconds(delay)), \(reads.all[0]) reads, \(bad.count) without the value")
  }

  /// A server that takes its time: writes wait for it, reads do not.
  @Test func slowServer() async throws {
    let server = try TestServer()
    let front = try Forwarder(to: server.socketPath)
    defer { front.end() }
    let client = TestClient(server) {
      $0 = front.address
      $0.requestTimeout = .seconds(600)
    }
    try client.set("a", "1")
    #expect(try client.get("a") == "1")
    front.hold(.toClient)
    let ended = Recorder<Int>()
    let tasks = (0..<40).map { number in
      Task.detached {
        try await StorageSystem.perform { try client.set("\(number)", "1") }
        ended.append(number)
      }
    }
    // The server has carried all of them out, and its replies are on their way.
    waitUntil("the server got no requests") { (try? server.values().count) == 41 }
    for _ in 0..<1_000 { #expect(try client.get("a") == "1") }
    // More tasks than the pool has threads.
    for _ in 0..<100 { await Task.detached { await Task.yield() }.value }
    #expect(ended.count == 0)
    front.hold(.toClient, false)
    for task in tasks { try await task.value }
    #expect(ended.count == 40)
    #expect(try client.all().count == 41 && client.faults.isEmpty)
  }

  /// The source of the process is Tests/ValkeyPeer.
  @Test(
    .disabled(
      if: ProcessInfo.processInfo.environment["KEEPSAKE_SANITIZER"] != nil,
      "a sanitizer takes memory of its own"),
    arguments: [
      Outage.killedWithoutLog, .frozen, .full, .password, .emptied, .newerFormat,
    ])
  func failingWritesTakeNoMemory(_ outage: Outage) throws {
    let server = try OutageServer(outage, state: "keepsake:{shop:standard}:s")
    // Those that ask no server are quick.
    let isQuick = [.killedWithoutLog, .frozen].contains(outage)
    let count = isQuick ? 100_000 : Coverage.count(sample: 5_000, complete: 20_000)
    let lines = try server.server.runPeer(
      ["outage", "\(count)"], timeout: outage == .frozen ? "300ms" : "60s"
    ) { _, output in
      waitUntil("the process has not started") { output().contains("ready\n") }
      try server.begin()
      waitUntil("the writes have not ended") { output().contains("grown ") }
      try server.end()
    }
    let growth = lines.first { $0.hasPrefix("grown ") }.flatMap { Int($0.dropFirst(6)) } ?? .max
    #expect(growth < min(8 << 10, 400 * count / 1024), "\(lines)")
    print("proof: outage, \(outage.rawValue): \(count) failing writes took \(growth) KiB of memory")
  }
}
