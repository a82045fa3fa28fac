// The minimum that each operation needs: only the lookup and the system calls.
import CFloor
import Foundation
import Glibc
import Synchronization

/// A dictionary of values, protected by a mutex.
final class FloorTable: Sendable {
  private let table = Mutex<[String: Setting]>([:])

  func set(_ value: Setting, forKey key: String) { table.withLock { $0[key] = value } }

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

/// A file to which records are appended while it is locked.
final class FloorJournal {
  private let path: String
  private let file: Int32
  private var end = 0

  init(in directory: String) throws {
    path = "\(directory)/floor"
    file = try check(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600))
  }

  deinit { close(file) }

  func appendLocked(_ bytes: [UInt8]) throws {
    try check(floor_lock(file, true))
    // By path, because the file may have been replaced.
    let size = path.withCString { floor_statx($0) }
    if size < 0 { throw SystemFailure(code: errno) }
    try append(bytes)
    try check(floor_lock(file, false))
    sink &+= size
  }

  func appendDurably(_ bytes: [UInt8]) throws {
    try append(bytes)
    try check(fdatasync(file))
  }

  /// The record that Keepsake appends for a value of the key.
  static func record(_ key: String, _ json: String) -> [UInt8] {
    Array("[\"0123456789abcdefj20\",\"\(key)\",\(json)]\n".utf8)
  }

  static func records(_ keys: [String]) -> [[UInt8]] { keys.map { record($0, "1000000") } }

  private func append(_ bytes: [UInt8]) throws {
    if pwrite(file, bytes, bytes.count, end) != bytes.count { throw SystemFailure(code: errno) }
    end += bytes.count
  }
}

/// Only the system calls of a cache: each entry has a payload and a sidecar in one of many
/// subdirectories.
final class FloorCache {
  struct Entry {
    let path: String
    let sidecar: String
    let temporary: String
    /// The byte of the lock file that is locked.
    let byte: UInt64
  }

  static let directoryCount = 256

  private let base: String
  private let lockFile: Int32
  private let metadata = [UInt8](repeating: 7, count: 80)

  init(in base: String, lockFile: String) throws {
    self.base = base
    self.lockFile = try check(open(lockFile, O_RDWR | O_CREAT | O_CLOEXEC, 0o600))
  }

  deinit { close(lockFile) }

  static func directoryName(_ number: Int) -> String {
    (number < 16 ? "0" : "") + String(number, radix: 16)
  }

  /// The name is as long as one of Keepsake's; the dot tells them apart.
  func entry(_ number: Int) -> Entry {
    let hash = UInt64(number) &* 0x9E37_79B9_7F4A_7C15
    let directory = "\(base)/\(Self.directoryName(Int(hash >> 56)))"
    let path = "\(directory)/floor-file.\(10_000_000_000 + number)"
    return Entry(
      path: path, sidecar: path + ".meta",
      temporary: "\(directory)/.0123456789abcdef-\(String(number, radix: 16)).floor",
      byte: hash & (1 << 62 - 1))
  }

  func set(_ value: Data, _ entry: Entry) throws {
    try write(entry.temporary, O_WRONLY | O_CREAT | O_EXCL, value)
    try check(floor_lock_byte(lockFile, entry.byte, true))
    try check(entry.temporary.withCString { old in entry.path.withCString { rename(old, $0) } })
    try write(entry.sidecar, O_WRONLY | O_CREAT, metadata)
    try check(floor_lock_byte(lockFile, entry.byte, false))
  }

  func remove(_ entry: Entry) throws {
    try check(floor_lock_byte(lockFile, entry.byte, true))
    try check(entry.path.withCString { unlink($0) })
    try check(entry.sidecar.withCString { unlink($0) })
    try check(floor_lock_byte(lockFile, entry.byte, false))
  }

  private func write(_ path: String, _ flags: Int32, _ bytes: some ContiguousBytes) throws {
    let file = try check(path.withCString { open($0, flags | O_CLOEXEC, 0o600) })
    defer { close(file) }
    let isWhole = bytes.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) == $0.count }
    if !isWhole { throw SystemFailure(code: errno) }
  }

  static func get(_ path: String) throws -> Data {
    let file = try check(path.withCString { open($0, O_RDONLY | O_CLOEXEC) })
    defer { close(file) }
    var status = stat()
    try check(fstat(file, &status))
    guard let memory = malloc(Int(status.st_size)),
      read(file, memory, Int(status.st_size)) == status.st_size
    else { throw SystemFailure(code: errno) }
    return Data(bytesNoCopy: memory, count: Int(status.st_size), deallocator: .free)
  }

  static func contains(_ path: String) -> Bool {
    var status = stat()
    return path.withCString { fstatat(AT_FDCWD, $0, &status, 0) == 0 }
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
