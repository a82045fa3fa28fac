import Foundation
import Testing

@testable import Keepsake

/// The operations on a directory's file system, in order, from which the possible contents of the
/// disk after a power cut at any moment follow.
///
/// After Pillai et al., "All File Systems Are Not Created Equal" (OSDI 2014), whose ALICE replays
/// recorded system calls in each order that a file system may write them out in.
struct RecordedDisk: Sendable {
  /// A file or a directory, independent of its names. The first node is the recorded directory.
  struct Node: Sendable {
    let isDirectory: Bool
    let mode: mode_t
  }

  /// A name that is given to a node, or removed.
  struct NameChange: Sendable {
    let directory: Int
    let name: String
    let node: Int?
  }

  enum Operation: Sendable {
    /// Atomic changes of names.
    case names([NameChange])
    case write(Int, offset: Int, bytes: [UInt8])
    case times(Int, accessed: timespec, modified: timespec)
    /// `fdatasync(2)` does not cover times.
    case sync(Int, coversTimes: Bool)
  }

  var nodes = [Node(isDirectory: true, mode: 0o700)]
  var operations: [Operation] = []

  /// For each operation, the number of the sync that makes it durable, or `Int.max`. By POSIX,
  /// syncing a file covers its bytes and not its names; syncing a directory covers its names and no
  /// bytes.
  ///
  /// A rename reaches the disk in both directories or in neither, so the sync of either is enough.
  var syncs: [Int] {
    var syncs = [Int](repeating: .max, count: operations.count)
    for (number, operation) in operations.enumerated() {
      guard case .sync(let node, let coversTimes) = operation else { continue }
      for earlier in 0..<number where syncs[earlier] == .max {
        let isCovered =
          switch operations[earlier] {
          case .names(let changes): changes.contains { $0.directory == node }
          case .write(let file, _, _): file == node
          case .times(let file, _, _): coversTimes && file == node
          case .sync: false
          }
        if isCovered { syncs[earlier] = number }
      }
    }
    return syncs
  }
}

/// How much of an operation survives a power cut.
enum Survival: Hashable, Sendable {
  case nothing, all
  /// The length of a write with zeros for its bytes, as delayed allocation leaves it.
  case length
  case firstBytes(Int)
  /// The length, and the bytes of the pages whose bits are set.
  case pages(UInt64)

  static let pageSize = 4_096
}

/// The contents of a directory, in memory.
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

  /// Equal for equal contents.
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

  /// Writes the contents to an empty directory, with times two hours ago where they were lost.
  func write(to directory: String) throws {
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
    // Lost times get an arbitrary value, with odd and even nanoseconds among them.
    let then = timespec(tv_sec: time(nil) - 7_200, tv_nsec: 500 + node)
    let known = times[node]
    var pair = [known?.accessed ?? then, known?.modified ?? then]
    return futimens(descriptor, &pair) == 0 && count == bytes[node].count
  }
}
