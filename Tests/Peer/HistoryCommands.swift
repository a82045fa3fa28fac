// A command that records its calls and their times. The tests also use this file: they record the
// calls of their own process, and read the recordings of all.
import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// A call on one key of a store, as its process saw it.
struct RegisterCall: Hashable, Sendable {
  var key: Int
  var isWrite: Bool
  /// The number that the call wrote or read; each write has its own. 0 stands for no value, which a
  /// removal writes.
  var value: Int
  /// When it began, by a clock that all processes share.
  var began: UInt64
  /// When it returned; nil if the process was killed before that, or if it threw an error.
  var ended: UInt64?
  var process = 0

  static var now: UInt64 {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
  }
}

/// Records the calls of one process, for one thread at a time, even a call within another one.
///
/// The recording is a mapped file, so it survives a kill at any moment and costs no system calls.
///
/// Unchecked because its state is not guarded.
final class CallRecording: @unchecked Sendable {
  private static let capacity = 1 << 16
  private static let wordsPerCall = 4
  private static let size = capacity * wordsPerCall * MemoryLayout<UInt64>.size

  private let words: UnsafeMutablePointer<UInt64>
  private var count = 0

  init(_ path: String) throws {
    let descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
    defer { close(descriptor) }
    guard descriptor >= 0, ftruncate(descriptor, off_t(Self.size)) == 0,
      let mapping = mmap(nil, Self.size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0),
      mapping != MAP_FAILED
    else { throw CocoaError(.fileWriteUnknown) }
    words = mapping.assumingMemoryBound(to: UInt64.self)
  }

  deinit { munmap(words, Self.size) }

  var isFull: Bool { count + 100 > Self.capacity }

  private func begin(_ key: Int, isWrite: Bool, value: Int) -> UnsafeMutablePointer<UInt64> {
    let call = words + count * Self.wordsPerCall
    count += 1
    (call[0], call[1]) = (UInt64(key) << 1 | (isWrite ? 1 : 0), UInt64(value))
    call[2] = RegisterCall.now
    return call
  }

  /// Records writes of one value to several keys, as one call.
  func write(_ value: Int, keys: Range<Int>, _ body: () throws -> Void) rethrows {
    let calls = keys.map { begin($0, isWrite: true, value: value) }
    try body()
    for call in calls { call[3] = RegisterCall.now }
  }

  func read(key: Int, _ body: () throws -> Int) rethrows {
    let call = begin(key, isWrite: false, value: 0)
    call[1] = UInt64(try body())
    call[3] = RegisterCall.now
  }

  /// The calls in a recording, in order.
  static func calls(_ path: String, process: Int) throws -> [RegisterCall] {
    let data = try Data(contentsOf: URL(filePath: path))
    return data.withUnsafeBytes { bytes in
      let words = bytes.bindMemory(to: UInt64.self)
      return stride(from: 0, to: words.count, by: wordsPerCall).lazy
        .prefix { words[$0 + 2] > 0 }.map { index in
          RegisterCall(
            key: Int(words[index] >> 1), isWrite: words[index] & 1 == 1,
            value: Int(words[index + 1]), began: words[index + 2],
            ended: words[index + 3] > 0 ? words[index + 3] : nil, process: process)
        }
    }
  }
}

/// Makes calls on a few keys of one kind of store, and records them.
struct RegisterClient: Sendable {
  static let keys = 0..<3

  let stores: MixedStores
  let kind: MixedStores.Kind
  let recording: CallRecording

  private var store: any ByteStore { stores[kind] }

  func read(_ key: Int) throws {
    try recording.read(key: key) {
      guard let data = try store.bytes("\(key)") else { return 0 }
      return Int(String(decoding: data, as: UTF8.self)) ?? -1
    }
  }

  func write(_ value: Int, _ key: Int) throws {
    try recording.write(value, keys: key..<key + 1) {
      try store.set(Data(String(value).utf8), "\(key)")
    }
  }

  func remove(_ key: Int) throws {
    try recording.write(0, keys: key..<key + 1) { try store.remove("\(key)") }
  }

  func removeAll() throws {
    try recording.write(0, keys: Self.keys) { try store.removeAll() }
  }

  /// Makes random calls until the recording is full.
  func run(process: Int) throws {
    var generator = SplitMix64(seed: UInt64(process))
    var number = process << 32
    while !recording.isFull {
      let key = Int.random(in: Self.keys, using: &generator)
      switch Int.random(in: 0..<100, using: &generator) {
      case 0..<60: try read(key)
      case 60..<65: try remove(key)
      case 65 where Bool.random(using: &generator): try removeAll()
      case 66: try store.maintain(.random(in: 0..<100, using: &generator))
      default:
        number += 1
        try write(number, key)
      }
    }
  }
}

/// Runs the command if it is "history"; false otherwise.
func runHistoryCommand(_ words: [String], in folder: URL) -> Bool {
  // KIND PROCESS FILE: makes random calls and records them in a file
  guard words[0] == "history", words.count == 4, let process = Int(words[2]),
    let kind = MixedStores.Kind.allCases.first(where: { "\($0)" == words[1] })
  else { return false }
  printingErrors {
    let client = RegisterClient(
      stores: MixedStores(in: folder), kind: kind, recording: try CallRecording(words[3]))
    printLine("begins")
    try client.run(process: process)
    while true { pause() }
  }
  return true
}
