import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Damage to a file from outside the library.
enum Damage: CustomStringConvertible, Sendable {
  case flipped(Int, UInt8)
  case cut(Int)
  case zeroed(Range<Int>)
  case longer(Int)
  case exchanged(String)
  case deleted
  case directory
  case link
  case pipe

  /// The target of a link that replaces a file.
  static let decoy = "decoy"

  func apply(_ file: Snapshot.File, in directory: TemporaryDirectory) throws {
    let path = directory.path + "/" + file.name
    var bytes = file.bytes
    switch self {
    case .flipped(let position, let mask): bytes[position] ^= mask
    case .cut(let length): bytes = Array(bytes[..<length])
    case .zeroed(let range):
      bytes.replaceSubrange(range, with: repeatElement(0, count: range.count))
    case .longer(let count):
      bytes += (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 151 &+ 7) }
    case .exchanged(let other):
      #expect(try FileSystem.exchange(path, with: directory.path + "/" + other))
      return
    case .deleted, .directory, .link, .pipe:
      try FileSystem.unlink(path)
      switch self {
      case .directory: try directory.makeDirectory(file.name)
      case .link: try directory.link(file.name, to: directory.path + "/" + Self.decoy)
      case .pipe: try #require(mkfifo(path, 0o600) == 0)
      default: break
      }
      return
    }
    // In place and with unchanged times, as by a failing disk.
    try Bytes.write(bytes, to: path)
    try File(path, .readWrite).setTimes(
      accessed: file.status.accessed, modified: file.status.modified)
  }

  /// Whether the file still exists, with other bytes.
  var changesBytes: Bool {
    switch self {
    case .flipped, .cut, .zeroed, .longer: true
    default: false
    }
  }

  var description: String {
    switch self {
    case .flipped(let position, let mask): "byte \(position) ^ \(mask)"
    case .cut(let length): "cut to \(length)"
    case .zeroed(let range): "zeroed \(range)"
    case .longer(let count): "\(count) bytes more"
    case .exchanged(let other): "exchanged with \(other)"
    case .deleted: "deleted"
    case .directory: "a directory"
    case .link: "a link"
    case .pipe: "a pipe"
    }
  }
}
