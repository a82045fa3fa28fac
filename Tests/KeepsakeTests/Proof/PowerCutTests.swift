import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import keepsake_peer

/// Replays a power cut at each moment of a store's system calls: the store opens, and has all
/// values that were promised to be durable and no wrong ones.
@Suite(.singleThreaded, .proofThread, .serialized) struct PowerCutTests {
  /// How many states of each workload are checked.
  private let stateLimit = Coverage.count("KEEPSAKE_STATES", sample: 60, complete: 600)

  @Test(arguments: PowerCutWorkload.all)
  func durableValuesSurviveAPowerCut(_ workload: PowerCutWorkload) async throws {
    let recording = try await record(workload)
    let cuts = PowerCuts(recording.disk)
    var random = SplitMix64(seed: 1)
    // First the moments at which a call has just returned.
    let plain = Set(recording.calls.map(\.upperBound)).sorted().flatMap { cuts.plain($0) }
    let others = cuts.all(random: max(2, stateLimit / 250)).shuffled(using: &random)
    var seen: Set<[Int]> = []
    var failed = 0
    for cut in plain + others where seen.count < stateLimit && failed < 3 {
      let (returned, begun) = recording.calls(at: cut.count)
      let contents = cuts.contents(after: cut)
      guard seen.insert([contents.fingerprint, returned, begun]).inserted else { continue }
      let problems = try problems(of: workload, contents, returned: returned, begun: begun)
      if problems.isEmpty { continue }
      failed += 1
      Issue.record(
        """
        \(problems.joined(separator: "\n"))
        after \(cut.count) operations, \(returned) calls returned, \(begun) begun; \
        rest \(cut.rest), but \(cut.exceptions)
        """)
    }
    print("proof: power cuts in \(workload.testDescription): \(seen.count) states")
    #expect(seen.count > 50)
  }

  /// The operations of a workload, and the range of them that each call made.
  private struct Recording {
    let disk: RecordedDisk
    let calls: [Range<Int>]

    func calls(at count: Int) -> (returned: Int, begun: Int) {
      let returned = calls.prefix { $0.upperBound <= count }.count
      return (returned, max(returned, calls.prefix { $0.lowerBound < count }.count))
    }
  }

  private func record(_ workload: PowerCutWorkload) async throws -> Recording {
    let directory = try TemporaryDirectory(isQuick: true)
    let recorder = try DiskRecorder(directory)
    let stage = PowerCutWorkload.Stage(TemporaryDirectory("home/app", in: directory))
    var calls: [Range<Int>] = []
    for step in workload.steps {
      let begin = recorder.count
      try FaultPlan.$current.withValue(recorder.plan) { try step.run(stage) }
      calls.append(begin..<recorder.count)
    }
    // The replay proves nothing if an operation was not recorded.
    try #require(recorder.unknown == [])
    // Work in the background may still be removing files.
    try await eventually("the recording matches the directory") {
      recorder.contents.files() == (try? Self.files(in: directory))
    }
    #expect(stage.failures.all.isEmpty)
    return Recording(disk: recorder.disk, calls: calls)
  }

  private static func files(in directory: TemporaryDirectory) throws -> [String: [UInt8]?] {
    var found: [String: [UInt8]?] = [:]
    for name in try FileManager.default.subpathsOfDirectory(atPath: directory.path) {
      let isDirectory = try FileSystem.status(directory.file(name).path)?.isDirectory == true
      found.updateValue(isDirectory ? nil : try directory.bytes(of: name), forKey: name)
    }
    return found
  }

  /// What is wrong with the store after a power cut.
  private func problems(
    of workload: PowerCutWorkload, _ contents: DiskContents, returned: Int, begun: Int
  ) throws -> [String] {
    let parent = try TemporaryDirectory(isQuick: true)
    try contents.write(to: parent.path)
    let directory = TemporaryDirectory("home/app", in: parent)
    let keys = workload.keys
    var problems: [String] = []
    do {
      let (hasHole, isBeingReplaced) = Self.journal(in: directory)
      let stage = PowerCutWorkload.Stage(directory)
      let found = try workload.read(stage)
      func isAllowed(_ key: String, _ value: String?) -> Bool {
        let allowed = workload.allowed(key, returned: returned, begun: begun)
        if allowed.contains(value) { return true }
        problems.append("\(key): \(Self.short(value)), not of \(allowed.map(Self.short))")
        return false
      }
      for key in keys.union(found.keys) { _ = isAllowed(key, found[key]) }
      if begun > returned, workload.steps[returned].isAtomic {
        let changes = workload.steps[returned].changes
        let isOld = changes.keys.allSatisfy {
          [found[$0]] == workload.allowed($0, returned: returned, begun: returned)
        }
        if !isOld, !changes.allSatisfy({ found[$0.key] == $0.value }) {
          problems.append("a part of a step: \(found.mapValues(Self.short))")
        }
      }
      if !hasHole, !workload.isDamaged, !stage.failures.all.isEmpty {
        problems.append("intact data is reported as damaged: \(stage.failures.all)")
      }
      let next = PowerCutWorkload.Stage(directory)
      problems += try workload.continueUsing(next)
      // A file that is being replaced looks damaged while it is filled: a writer knows more.
      let reports = stage.failures.all + (isBeingReplaced ? next.failures.all : [])
      if hasHole, !reports.contains(where: { $0.code == .damaged }) {
        problems.append("damage is not reported")
      }
      let after = try workload.read(PowerCutWorkload.Stage(directory))
      for key in keys where after[key] != found[key] {
        // A reader may have to leave undecided which value is current; a writer decides it.
        let mayAppear =
          workload.createdByNextWrite.contains(key)
          || workload.replacedMayBeMissing && isAllowed(key, after[key])
        if found[key] != nil || !mayAppear {
          problems.append("\(key): \(Self.short(found[key])), then \(Self.short(after[key]))")
        }
      }
    } catch {
      problems.append("the store does not open: \(error)")
    }
    return problems
  }

  private static func short(_ value: String?) -> String {
    value.map { String($0.prefix(12)) } ?? "nothing"
  }

  /// Whether a line of the journal never reached the disk although the word that covers it did, and
  /// whether a writer was replacing the file.
  private static func journal(
    in directory: TemporaryDirectory
  ) -> (hasHole: Bool, isBeingReplaced: Bool) {
    guard let bytes = try? directory.bytes(of: TemporaryDirectory.journal) else {
      return (false, false)
    }
    let hole = bytes.firstIndex(of: 0) ?? bytes.count
    if hole < JournalFormat.headerSize { return (false, false) }
    return bytes.withUnsafeBytes { bytes in
      let word = JournalFormat.word(of: bytes)
      guard case .valid(let id, _) = JournalFormat.header(of: bytes) else { return (true, false) }
      return (hole < word.end(of: id) ?? bytes.count, word == .replaced)
    }
  }
}
