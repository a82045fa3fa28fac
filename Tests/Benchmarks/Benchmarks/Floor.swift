// The least that each operation could cost: the same look-up and the same system calls, bare.
import CFloor
import Glibc
import Synchronization

/// A plain dictionary of values under a mutex.
final class FloorTable: Sendable {
  enum Value {
    case int(Int)
    case bool(Bool)
    case string(String)
  }

  private let table = Mutex<[String: Value]>([:])

  func set(_ value: Value, forKey key: String) { table.withLock { $0[key] = value } }

  func int(_ key: String) -> Int? {
    guard case .int(let value) = table.withLock({ $0[key] }) else { return nil }
    return value
  }

  func bool(_ key: String) -> Bool? {
    guard case .bool(let value) = table.withLock({ $0[key] }) else { return nil }
    return value
  }

  func string(_ key: String) -> String? {
    guard case .string(let value) = table.withLock({ $0[key] }) else { return nil }
    return value
  }
}

/// A file that is appended to under a lock on another one.
final class FloorJournal {
  private let path: String
  private let file: Int32
  private let lockFile: Int32

  init(in folder: String) throws {
    path = "\(folder)/floor"
    file = try check(open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0o600))
    lockFile = try check(open("\(folder)/floor.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0o600))
  }

  deinit {
    close(file)
    close(lockFile)
  }

  func appendLocked(_ bytes: [UInt8]) throws {
    try check(floor_lock(lockFile, true))
    // By its path: another file may stand there, and a descriptor cannot tell.
    let size = path.withCString { floor_statx($0) }
    if size < 0 { throw SystemFailure(code: errno) }
    try append(bytes)
    try check(floor_lock(lockFile, false))
    sink &+= size
  }

  func appendDurably(_ bytes: [UInt8]) throws {
    try append(bytes)
    try check(fdatasync(file))
  }

  private func append(_ bytes: [UInt8]) throws {
    if write(file, bytes, bytes.count) != bytes.count { throw SystemFailure(code: errno) }
  }
}

struct SystemFailure: Error {
  let code: Int32
}

@discardableResult
func check(_ result: Int32) throws -> Int32 {
  if result < 0 { throw SystemFailure(code: errno) }
  return result
}
