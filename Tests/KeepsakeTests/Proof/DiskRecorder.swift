import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Records the changes that system calls make to a directory.
final class DiskRecorder: Sendable {
  private struct State {
    var disk = RecordedDisk()
    /// The names in each directory now, for resolving the paths of calls.
    var names: [[String: Int]] = [[:]]
    /// The nodes by inode number.
    var nodes: [UInt64: Int] = [:]
    /// Calls that changed something in a way that the recording cannot represent.
    var unknown: [String] = []
  }

  private let directoryPath: String
  private let state = Locked(State())
  /// Serializes the calls of several threads, so that they are recorded in the order in which they
  /// took effect.
  private let serial = DispatchSemaphore(value: 1)

  init(_ directory: TemporaryDirectory) throws {
    directoryPath = directory.path
    // The modes of some files follow the mode of their directory.
    try #require(chmod(directoryPath, 0o700) == 0)
    let status = try #require(try FileSystem.status(directoryPath))
    state.withLock { $0.nodes[status.inode] = 0 }
  }

  var disk: RecordedDisk { state.withLock { $0.disk } }
  var unknown: [String] { state.withLock { $0.unknown } }
  var count: Int { state.withLock { $0.disk.operations.count } }

  /// The contents after all recorded operations, which must equal the contents of the directory.
  var contents: DiskContents {
    let disk = disk
    var contents = DiskContents(disk.nodes)
    for operation in disk.operations { contents.apply(operation) }
    return contents
  }

  var plan: FaultPlan {
    FaultPlan(
      decide: { [serial] _ in
        serial.wait()
        return .proceed
      },
      observe: { [self] event, result in
        if case .success(let value) = result { state.withLock { record(event, value, &$0) } }
        serial.signal()
      })
  }

  private func record(_ event: SystemCallEvent, _ value: Int, _ state: inout State) {
    let paths = event.path.split(separator: "\0").map(String.init)
    let isInside = paths.contains { $0.hasPrefix(directoryPath + "/") }
    switch event.call {
    case .open, .openNoSymlinks:
      guard isInside, let entry = entry(event.path, state) else { return }
      if state.names[entry.directory][entry.name] == nil { add(entry, Int32(value), &state) }
      if node(Int32(value), state) != state.names[entry.directory][entry.name] {
        state.unknown.append("\(event.call) \(event.path)")
      }
    case .mkdir where isInside:
      guard let entry = entry(event.path, state) else { return recordUnknown(event, &state) }
      let directory = open(event.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
      add(entry, directory, &state)
      close(directory)
    case .write, .publish:
      guard let descriptor = event.descriptor, let node = node(descriptor, state) else {
        return recordUnknown(event, &state)
      }
      let offset = event.offset ?? Int(lseek(descriptor, 0, SEEK_CUR)) - value
      state.disk.operations.append(
        .write(node, offset: offset, bytes: Array(event.bytes.prefix(value))))
    case .fsync, .fdatasync:
      guard let node = event.descriptor.flatMap({ node($0, state) }) else {
        // The recorded directory itself is always durable.
        return isInside ? recordUnknown(event, &state) : ()
      }
      state.disk.operations.append(.sync(node, coversTimes: event.call == .fsync))
    case .rename where isInside, .exchange where isInside, .link where isInside:
      guard paths.count == 2, let from = entry(paths[0], state), let to = entry(paths[1], state),
        let node = state.names[from.directory][from.name]
      else { return recordUnknown(event, &state) }
      let left: Int?? =
        switch event.call {
        case .rename: .some(nil)
        case .exchange: .some(state.names[to.directory][to.name])
        default: nil
        }
      var changes = [RecordedDisk.NameChange(directory: to.directory, name: to.name, node: node)]
      if let left {
        changes.insert(.init(directory: from.directory, name: from.name, node: left), at: 0)
      }
      change(changes, &state)
    case .unlink where isInside, .rmdir where isInside:
      guard let entry = entry(event.path, state), state.names[entry.directory][entry.name] != nil
      else { return recordUnknown(event, &state) }
      change([.init(directory: entry.directory, name: entry.name, node: nil)], &state)
    case .times:
      var status = stat()
      let descriptor = event.descriptor ?? open(event.path, O_RDONLY | O_CLOEXEC)
      defer { if event.descriptor == nil { close(descriptor) } }
      guard fstat(descriptor, &status) == 0, let node = node(descriptor, state) else {
        return recordUnknown(event, &state)
      }
      state.disk.operations.append(
        .times(node, accessed: status.st_atim, modified: status.st_mtim))
    case .chmod:
      // Nodes keep the mode that they were created with.
      var status = stat()
      guard let descriptor = event.descriptor, fstat(descriptor, &status) == 0,
        let node = node(descriptor, state),
        state.disk.nodes[node].mode == status.st_mode & 0o7777
      else { return recordUnknown(event, &state) }
    case .chown, .clone, .mkdir, .rename, .exchange, .link, .unlink, .rmdir, .syncfs:
      recordUnknown(event, &state)
    case .read, .stat, .list, .lock, .map, .watch, .space, .resolve, .lockMemory, .adviseMemory,
      .terminal, .keyring, .random, .reserve, .truncate, .accessList:
      // The last four change no contents.
      break
    }
  }

  private typealias Entry = (directory: Int, name: String)

  private func recordUnknown(_ event: SystemCallEvent, _ state: inout State) {
    state.unknown.append("\(event.call) \(event.path)")
  }

  private func node(_ descriptor: Int32, _ state: State) -> Int? {
    var status = stat()
    return fstat(descriptor, &status) == 0 ? state.nodes[UInt64(status.st_ino)] : nil
  }

  /// nil for a path outside of the directory.
  private func entry(_ path: String, _ state: State) -> Entry? {
    guard path.hasPrefix(directoryPath + "/") else { return nil }
    var parts = path.dropFirst(directoryPath.count + 1).split(separator: "/").map(String.init)
    guard let name = parts.popLast() else { return nil }
    var directory = 0
    for part in parts {
      guard let next = state.names[directory][part], state.disk.nodes[next].isDirectory else {
        return nil
      }
      directory = next
    }
    return (directory, name)
  }

  private func add(_ entry: Entry, _ descriptor: Int32, _ state: inout State) {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { return }
    let node = state.disk.nodes.count
    state.disk.nodes.append(
      .init(isDirectory: status.st_mode & S_IFMT == S_IFDIR, mode: status.st_mode & 0o7777))
    state.names.append([:])
    state.nodes[UInt64(status.st_ino)] = node
    change([.init(directory: entry.directory, name: entry.name, node: node)], &state)
  }

  private func change(_ changes: [RecordedDisk.NameChange], _ state: inout State) {
    for change in changes { state.names[change.directory][change.name] = change.node }
    state.disk.operations.append(.names(changes))
  }
}
