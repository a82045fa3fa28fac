import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Expects a vault in its old or its new state after any failing system call.
@Suite(.proofThread, .singleThreaded) struct VaultFaultTests {
  @Test func eachFailingCallLeavesTheOldOrTheNewState() async throws {
    try await FaultSweep<VaultModel>().run()
  }

  @Test func aCallThatIsKilledLeavesTheOldOrTheNewState() throws {
    try FaultSweep<VaultModel>().runKills()
  }

  @Test func synchronizesFilesBeforeTheirNamesAndTheHeaderBeforeDroppingKeys() throws {
    let directory = try TemporaryDirectory()
    let store = directory.secrets()
    // The key file comes before the header, and the header before a secret.
    let first = try events { try store.set("old", forKey: "k") }
      .filter { $0.call == .fsync }.map(\.path)
    let key = first.firstIndex { $0.hasSuffix("/state") }
    let header = first.firstIndex { $0.hasSuffix("/vault") }
    #expect(try #require(key) < #require(header))
    #expect(first.last == FileSystem.parent(of: try directory.secretPath("k")))
    let calls = try systemCalls { try store.set("new", forKey: "k") }
    let sync = calls.firstIndex(of: .fdatasync)
    let rename = calls.firstIndex(of: .rename)
    #expect(try #require(sync) < #require(rename) && calls.last == .fsync)
    let removal = try systemCalls { try store.remove("k") }
    #expect(removal.last == .fsync)
    try store.set("new", forKey: "k")
    let steps = try events { try store.rotateKeys() }
      .filter { [.rename, .fsync].contains($0.call) }
      .map { event in
        let name = FileSystem.name(of: event.path)
        return "\(event.call) \(name.count == 32 ? "secret" : name)"
      }
    #expect(
      steps == [
        "rename vault.hdr", "fsync vault", "rename secret", "fsync secret", "rename vault.hdr",
        "fsync vault",
      ])
  }

  private func events(_ body: () throws -> Void) rethrows -> [SystemCallEvent] {
    let events = Locked<[SystemCallEvent]>([])
    let plan = FaultPlan(decide: { event in
      events.withLock { $0.append(event) }
      return .proceed
    })
    try FaultPlan.$current.withValue(plan, operation: body)
    return events.withLock { $0 }
  }

  @Test(arguments: [SystemCall.lockMemory, .adviseMemory])
  func reportsUnshieldedMemoryOnceAndContinues(call: SystemCall) throws {
    let directory = try TemporaryDirectory()
    let failures = Failures()
    let store = directory.secrets(failures: failures)
    // A failure is reported at most once a second; a different code would be reported again.
    for code in [EPERM, ENOMEM, EAGAIN] {
      let plan = FaultPlan(decide: { $0.call == call ? .fail(code) : .proceed })
      try FaultPlan.$current.withValue(plan) {
        try store.set("new", forKey: "k")
        #expect(try store.get("k") == "new")
        try store.rotateKeys()
        try store.lock()
        try store.unlock()
        #expect(try store.keys() == ["k"])
      }
    }
    // Another thread reports it.
    waitUntil("the failure is reported") { !failures.all.isEmpty }
    #expect(failures.all.count == 1)
    let failure = try #require(failures.all.first)
    #expect(failure.code == .system(EPERM) && failure.operation == "SecureVault." + call.rawValue)
    #expect(failure.remedy.contains("ulimit -l"))
    #expect(failure.description.contains("keys"))
  }

  @Test func removesStaleTemporaryFiles() throws {
    let directory = try TemporaryDirectory(isQuick: true)
    try directory.secrets().set("old", forKey: "k")
    let path = try directory.openVault().entryPath(service: "standard", key: "k")
    let entry = "vault/\(path.directoryName)/.entry"
    let stale = ["\(entry).abc.tmp", "vault/.vault.hdr.abc.tmp"]
    let fresh = ["\(entry).def.tmp", "vault/.vault.hdr.def.tmp"]
    let keys = "state/.vault.key.abc.tmp"
    for name in stale + fresh + [keys] { try directory.write([1, 2, 3], to: name) }
    // Writers take less than ten minutes.
    for name in stale { try directory.age(name, seconds: 601) }
    for name in fresh { try directory.age(name, seconds: 60) }
    // A set removes temporary files of entries in the directory of its service; a write of the
    // header removes temporary files of headers.
    try directory.secrets().set("new", forKey: "k")
    try directory.secrets().rotateKeys()
    #expect(try directory.temporaries().sorted() == ([keys] + fresh).sorted())
    // Temporary files of the key file contain keys, so they are removed at any age, under the lock;
    // so are those in a directory whose name comes from an old key.
    try directory.secrets().protect(with: .keyFile)
    #expect(try directory.temporaries() == [fresh[1]])
    #expect(try directory.secrets().get("k") == "new")
  }

  @Test(.multiprocess) func aSecretThatDoesNotFitIntoMemoryIsAnError() async {
    await #expect(processExitsWith: .success) {
      let directory = try TemporaryDirectory()
      let store = directory.secrets()
      let large = Data(count: 64 << 20)
      try store.set(large, forKey: "k")
      try withoutNewThreads {
        expectFailure(.system(ENOMEM)) { try store.set(large, forKey: "k") }
        expectFailure(.system(ENOMEM)) { try store.rotateKeys() }
      }
      #expect(try store.getData("k") == large)
    }
  }
}
