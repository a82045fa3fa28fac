import Foundation
import Testing

@testable import Keepsake

/// What a directory's file system was asked to do, in order: enough to tell what may be on the disk
/// after a power cut at any moment.
///
/// After Pillai et al., "All File Systems Are Not Created Equal" (OSDI 2014), whose ALICE replays
/// recorded system calls in each order that a file system may write them out in.
struct RecordedDisk: Sendable {
  /// A file or a directory, whatever names it has; the first one is the directory that is recorded.
  struct Node: Sendable {
    let isDirectory: Bool
    let mode: mode_t
  }

  /// A name that comes to stand for a node, or for nothing.
  struct NameChange: Sendable {
    let directory: Int
    let name: String
    let node: Int?
  }

  enum Operation: Sendable {
    /// All of them in one step.
    case names([NameChange])
    case write(Int, offset: Int, bytes: [UInt8])
    case times(Int, accessed: timespec, modified: timespec)
    /// `fdatasync(2)` does not speak of times.
    case sync(Int, coversTimes: Bool)
  }

  var nodes = [Node(isDirectory: true, mode: 0o700)]
  var operations: [Operation] = []

  /// For each operation the sync that makes it safe, as POSIX has it: a file's makes its bytes safe
  /// and none of its names, a directory's the names in it and no bytes. `Int.max` where there is
  /// none.
  ///
  /// What a rename changes in two directories is on the disk in both or in neither, so either one's
  /// sync will do.
  var securing: [Int] {
    var securing = [Int](repeating: .max, count: operations.count)
    for (number, operation) in operations.enumerated() {
      guard case .sync(let node, let coversTimes) = operation else { continue }
      for earlier in 0..<number where securing[earlier] == .max {
        let isCovered =
          switch operations[earlier] {
          case .names(let changes): changes.contains { $0.directory == node }
          case .write(let file, _, _): file == node
          case .times(let file, _, _): coversTimes && file == node
          case .sync: false
          }
        if isCovered { securing[earlier] = number }
      }
    }
    return securing
  }
}

/// How much of an operation is on the disk after a power cut.
enum Survival: Hashable, Sendable {
  case nothing, all
  /// A file has its length, and zeros where the bytes should be: what delayed allocation leaves.
  case length
  case firstBytes(Int)
  /// The length, and of the bytes those in the pages whose bits are set.
  case pages(UInt64)

  static let pageSize = 4_096
}

/// A directory with all that is in it, in memory.
struct DiskContents {
  private let nodes: [RecordedDisk.Node]
  private var names: [[String: Int]]
  private var bytes: [[UInt8]]
  private var times: [(accessed: timespec, modified: timespec)?]

  init(_ nodes: [RecordedDisk.Node]) {
    self.nodes = nodes
    names = Array(repeating: [:], count: nodes.count)
    bytes = Array(repeating: [], count: nodes.count)
    times = Array(repeating: nil, count: nodes.count)
  }

  mutating func apply(_ operation: RecordedDisk.Operation, _ survival: Survival = .all) {
    if survival == .nothing { return }
    switch operation {
    case .names(let changes):
      for change in changes { names[change.directory][change.name] = change.node }
    case .write(let file, let offset, let added):
      write(added, to: file, at: offset, survival)
    case .times(let file, let accessed, let modified): times[file] = (accessed, modified)
    case .sync: break
    }
  }

  private mutating func write(
    _ added: [UInt8], to file: Int, at offset: Int, _ survival: Survival
  ) {
    let count = if case .firstBytes(let count) = survival { count } else { added.count }
    let missing = offset + count - bytes[file].count
    if missing > 0 { bytes[file].append(contentsOf: [UInt8](repeating: 0, count: missing)) }
    func copy(_ range: Range<Int>, into file: inout [UInt8]) {
      file.replaceSubrange(
        (offset + range.lowerBound)..<(offset + range.upperBound), with: added[range])
    }
    switch survival {
    case .nothing, .length: break
    case .all, .firstBytes: copy(0..<count, into: &bytes[file])
    case .pages(let pages):
      for page in offset / Survival.pageSize...(offset + count) / Survival.pageSize
      where pages >> (page % 64) & 1 == 1 {
        let start = max(0, page * Survival.pageSize - offset)
        let end = min(count, (page + 1) * Survival.pageSize - offset)
        if start < end { copy(start..<end, into: &bytes[file]) }
      }
    }
  }

  /// Each path with its file's bytes; nil for a directory.
  func files() -> [String: [UInt8]?] {
    var found: [String: [UInt8]?] = [:]
    visit { path, node in
      found.updateValue(nodes[node].isDirectory ? nil : bytes[node], forKey: path)
    }
    return found
  }

  /// The same for states that look the same.
  var fingerprint: Int {
    var hasher = Hasher()
    visit { path, node in
      hasher.combine(path)
      hasher.combine(node)
      bytes[node].withUnsafeBytes { hasher.combine(bytes: $0) }
      hasher.combine(times[node]?.modified.tv_nsec)
    }
    return hasher.finalize()
  }

  private func visit(_ body: (_ path: String, _ node: Int) -> Void) {
    var pending = [("", 0)]
    while let (path, directory) = pending.popLast() {
      for (name, node) in names[directory].sorted(by: { $0.key < $1.key }) {
        body(path + name, node)
        if nodes[node].isDirectory { pending.append((path + name + "/", node)) }
      }
    }
  }

  /// Makes it all in an empty directory, as it is found when the power is back hours later.
  func materialise(in directory: String) throws {
    var made: [Int: String] = [:]
    var failed: String?
    visit { name, node in
      let path = directory + "/" + name
      if nodes[node].isDirectory {
        if mkdir(path, nodes[node].mode) != 0 { failed = path }
      } else if let other = made[node] {
        if link(other, path) != 0 { failed = path }
      } else {
        made[node] = path
        if !makeFile(path, node) { failed = path }
      }
    }
    try #require(failed == nil)
  }

  private func makeFile(_ path: String, _ node: Int) -> Bool {
    let descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, nodes[node].mode)
    guard descriptor >= 0 else { return false }
    defer { close(descriptor) }
    let count = bytes[node].withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
    // Where its times were lost it has those of some moment: odd and even nanoseconds among them.
    let then = timespec(tv_sec: time(nil) - 7_200, tv_nsec: 500 + node)
    let known = times[node]
    var pair = [known?.accessed ?? then, known?.modified ?? then]
    return futimens(descriptor, &pair) == 0 && count == bytes[node].count
  }
}
