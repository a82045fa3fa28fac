// The minimum that a durable file for each secret needs.
import CFloor
import Foundation
import Glibc

/// Only the system calls of a vault: a file for each secret, in a subdirectory.
final class FloorVault {
  struct Entry {
    let path: String
    let temporary: String
  }

  private let directory: String
  private let header: String
  private let lockPath: String
  private let lock: Int32
  private let key = (0..<32).map { _ in UInt8.random(in: .min ... .max) }
  private var buffer = [UInt8](repeating: 0, count: 64 << 10)

  init(in base: String, directory name: String) throws {
    directory = "\(base)/\(name)"
    header = "\(base)/vault.hdr"
    lockPath = "\(base)/vault.lock"
    try FileManager.default.createDirectory(
      atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    for path in [header, lockPath] { FileManager.default.createFile(atPath: path, contents: nil) }
    lock = try check(lockPath.withCString { open($0, O_RDWR | O_CLOEXEC) })
  }

  deinit { close(lock) }

  /// Its name is as long as one of Keepsake's.
  func entry(_ number: Int) -> Entry {
    let digits = String(1 << 62 | number, radix: 16)
    return Entry(
      path: "\(directory)/fedcba9876543210\(digits)",
      temporary: "\(directory)/.entry.\(digits).tmp")
  }

  func set(_ bytes: some ContiguousBytes, _ entry: Entry) throws {
    try set(entry) { file in
      bytes.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) == $0.count }
    }
  }

  func seal(_ message: [UInt8], _ entry: Entry) throws {
    try set(entry) { floor_seal($0, key, message, message.count, &buffer, buffer.count) }
  }

  /// Makes all system calls of a set in Keepsake: it also reads the old file, of which the new one
  /// keeps the creation date, and looks at the lock file and the header while it locks one byte.
  func setWithAllCalls(_ bytes: some ContiguousBytes, _ entry: Entry) throws {
    let old = entry.path.withCString { open($0, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) }
    if old >= 0 {
      defer { close(old) }
      try check(Int32(pread(old, &buffer, 4_096, 0)))
    }
    try Self.setDurably(entry.path, temporary: entry.temporary, in: directory) { file in
      bytes.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) == $0.count }
    } moving: { move in
      try check(floor_lock_byte(lock, 7, true))
      guard floor_statx(lockPath) >= 0, floor_statx(header) >= 0 else {
        throw SystemFailure(code: errno)
      }
      try move()
      try check(floor_lock_byte(lock, 7, false))
    }
  }

  private func set(_ entry: Entry, _ write: (Int32) -> Bool) throws {
    try Self.setDurably(entry.path, temporary: entry.temporary, in: directory, write)
  }

  /// Creates a file durably, with all its contents.
  static func setDurably(
    _ path: String, temporary: String, in directory: String, _ write: (Int32) -> Bool,
    moving: (() throws -> Void) throws -> Void = { try $0() }
  ) throws {
    let flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC
    let file = try check(temporary.withCString { open($0, flags, 0o600) })
    defer { close(file) }
    guard write(file) else { throw SystemFailure(code: errno) }
    try check(fdatasync(file))
    try moving {
      try check(temporary.withCString { old in path.withCString { rename(old, $0) } })
    }
    let descriptor = try check(directory.withCString { open($0, O_RDONLY | O_CLOEXEC) })
    defer { close(descriptor) }
    try check(fsync(descriptor))
  }

  /// Reads a file of that size.
  static func get(_ path: String, _ size: Int) throws -> Data {
    let file = try check(path.withCString { open($0, O_RDONLY | O_CLOEXEC) })
    defer { close(file) }
    guard let memory = malloc(size), read(file, memory, size) == size else {
      throw SystemFailure(code: errno)
    }
    return Data(bytesNoCopy: memory, count: size, deallocator: .free)
  }
}
