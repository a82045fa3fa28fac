#if SecureVault
internal import CKeepsake
internal import KeepsakeLibc

/// The kernel's keyring of this login (`keyrings(7)`), where other processes find a key until it
/// expires.
///
/// Every process of the login that runs as the same user can read a key here. Other users and
/// other logins cannot.
///
/// The kernel grants access to the processes that have a key in one of their keyrings, or to the
/// processes of a user, but cannot require both. `su` keeps the keyring and changes the user, so a
/// key is stored as two that give it only together: a random one for its possessors, and their
/// exclusive or for the user.
enum SessionKeyring {
  private static let thread: Int32 = -1  // KEY_SPEC_THREAD_KEYRING
  private static let allForPossessors: UInt32 = 0x3F00_0000
  private static let allForUser: UInt32 = 0x003F_0000
  /// Follows the name of the second key.
  private static let userSuffix = ":user"

  private enum Operation: Int32 {
    case keyringID = 0
    case revoke = 3
    case setPermissions = 5
    case link = 8
    case unlink = 9
    case setTimeout = 15
  }

  @discardableResult
  private static func control(
    _ operation: Operation, _ key: Int32, _ argument: UInt32 = 0, of name: String
  ) -> Result<Int, Errno> {
    systemCall(.keyring, name) {
      Int(keepsake_control_key(operation.rawValue, key, argument))
    }
  }

  /// The identifier of the login's keyring, or of the user's if the process has none of a login.
  ///
  /// With the constant for "this process's keyring", some calls would make a keyring for this
  /// process alone, instead of the user's.
  private static func session(_ name: String) -> Result<Int32, Errno> {
    let session: Int32 = -3  // KEY_SPEC_SESSION_KEYRING
    return control(.keyringID, session, of: name).map { Int32(truncatingIfNeeded: $0) }
  }

  /// The key of this name in the keyring of the login.
  static func find(_ name: String) -> Result<Int, Errno> {
    session(name).flatMap { session in
      systemCall(.keyring, name) { name.withCString { Int(keepsake_find_key($0, session)) } }
    }
  }

  /// Puts a key in the keyring. It replaces one of the same name.
  static func add(
    _ key: UnsafeRawBufferPointer, named name: String, seconds: UInt32
  ) throws(StorageError) {
    let mask = try SecretBytes(count: key.count)
    try SystemRandom.fill(mask.bytes)
    let masked = try SecretBytes(copying: key)
    combine(masked.bytes, with: mask.bytes)
    // Last the one that is looked for first.
    try put(masked.bytes, named: name + userSuffix, allForUser, seconds)
    try put(mask.bytes, named: name, allForPossessors, seconds)
  }

  private static func combine(
    _ bytes: UnsafeMutableRawBufferPointer, with mask: UnsafeMutableRawBufferPointer
  ) {
    for (index, byte) in mask.enumerated() { bytes[index] ^= byte }
  }

  private static func put(
    _ key: UnsafeMutableRawBufferPointer, named name: String, _ permissions: UInt32,
    _ seconds: UInt32
  ) throws(StorageError) {
    guard let start = key.baseAddress else { return }
    let session = UInt32(truncatingIfNeeded: try check(session(name).map { Int($0) }))
    // First in the keyring of this thread, which ends with the process: a kill leaves no key that
    // does not expire.
    let id = Int32(
      truncatingIfNeeded: try check(
        systemCall(.keyring, name) {
          name.withCString { Int(keepsake_add_key($0, start, key.count, thread)) }
        }))
    defer { control(.unlink, id, UInt32(bitPattern: thread), of: name) }
    try check(control(.setPermissions, id, permissions, of: name))
    try check(control(.setTimeout, id, seconds, of: name))
    try check(control(.link, id, session, of: name))
  }

  /// Reads a key into `memory`; false if there is none of that length for this process, or no
  /// keyring.
  static func read(
    _ name: String, into memory: UnsafeMutableRawBufferPointer
  ) throws(StorageError) -> Bool {
    let mask = try SecretBytes(count: memory.count)
    guard get(name, into: mask.bytes), get(name + userSuffix, into: memory) else { return false }
    combine(memory, with: mask.bytes)
    return true
  }

  private static func get(_ name: String, into memory: UnsafeMutableRawBufferPointer) -> Bool {
    guard let start = memory.baseAddress, case .success(let id) = find(name) else { return false }
    let count = systemCall(.keyring, name) {
      Int(keepsake_read_key(Int32(truncatingIfNeeded: id), start, memory.count))
    }
    // A longer key is not copied, and its length is returned.
    return (try? count.get()) == memory.count
  }

  /// The names of the keys in the keyring of the login that begin with `prefix`.
  ///
  /// - Throws: An error also if the calls are forbidden, and the kernel shows a key with one of
  ///   `parts` in its name: a sandbox may have kept the keyring of the login.
  static func names(
    startingWith prefix: String, orShownWith parts: [String]
  ) throws(StorageError) -> [String] {
    let keyring: Int32
    switch session(prefix) {
    case .success(let found): keyring = found
    case .failure(let error):
      if !isAbsence(error) || isForbidden(error) && showsKey(parts) { try check(.failure(error)) }
      return []
    }
    var names: [String] = []
    // A login's keyring often has the user's in it, and the kernel searches that too.
    var keyrings = [keyring]
    var next = 0
    while next < keyrings.count {
      let listed = try bytes(prefix) { keepsake_read_key(keyrings[next], $0, $1) }
      next += 1
      for start in stride(from: 0, to: listed.count - 3, by: 4) {
        let id = listed.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: start, as: Int32.self) }
        let text = try bytes(prefix) { keepsake_describe_key(id, $0, $1) }
        let fields = text.dropLast().split(
          separator: UInt8(ascii: ";"), maxSplits: 4, omittingEmptySubsequences: false)
        guard fields.count == 5 else { continue }
        let name = String(decoding: fields[4], as: UTF8.self)
        if fields[0].elementsEqual("keyring".utf8) {
          if !keyrings.contains(id) { keyrings.append(id) }
        } else if fields[0].elementsEqual("user".utf8), name.hasPrefix(prefix) {
          names.append(name)
        }
      }
    }
    return names
  }

  /// Whether the kernel's list of the keys that this process can see has one with one of `parts` in
  /// its name. Containers hide the list, and have a keyring of their own.
  private static func showsKey(_ parts: [String]) -> Bool {
    guard let list = try? File("/proc/keys", .read).read(from: 0, count: 1 << 20) else {
      return false
    }
    return String(decoding: list, as: UTF8.self).split(separator: "\n").contains { line in
      // Its number, flags with R for a key that is revoked, its users, and when it expires.
      let fields = line.split(separator: " ", maxSplits: 4)
      return fields.count == 5 && !fields[1].contains("R") && fields[3] != "expd"
        && parts.contains { fields[4].contains($0) }
    }
  }

  /// What a call writes to a buffer that is large enough; empty if there is no such key, or it is
  /// not for this process.
  private static func bytes(
    _ name: String, _ call: (UnsafeMutableRawPointer, Int) -> Int64
  ) throws(StorageError) -> [UInt8] {
    var buffer = [UInt8](repeating: 0, count: 512)
    while true {
      let result = buffer.withUnsafeMutableBytes { memory in
        systemCall(.keyring, name) { memory.baseAddress.map { Int(call($0, memory.count)) } ?? 0 }
      }
      if case .failure(let error) = result, isAbsence(error) || error.code == EACCES { return [] }
      // The length is returned also if the buffer is too small.
      let count = try check(result)
      if count <= buffer.count { return Array(buffer[..<max(0, count)]) }
      buffer = [UInt8](repeating: 0, count: count)
    }
  }

  /// Destroys a key, also for processes that have found it already. A missing key is not an error.
  static func remove(_ name: String) throws(StorageError) {
    try removeSingle(name)
    try removeSingle(name + userSuffix)
  }

  private static func removeSingle(_ name: String) throws(StorageError) {
    switch find(name) {
    case .success(let found):
      let id = Int32(truncatingIfNeeded: found)
      let result = control(.revoke, id, of: name)
      if case .success(let session) = session(name) {
        control(.unlink, id, UInt32(bitPattern: session), of: name)
      }
      try check(result)
    // There is none, it has expired or is revoked, or there are no keyrings.
    case .failure(let error) where isAbsence(error): return
    case .failure(let error): try check(.failure(error))
    }
  }

  /// - Throws: An error whose reason names the call.
  @discardableResult
  private static func check(_ result: Result<Int, Errno>) throws(StorageError) -> Int {
    switch result {
    case .success(let value): return value
    case .failure(let error):
      let call = SystemCall.keyring.rawValue
      throw StorageError(
        StorageError(errno: error.code, operation: call, path: "").code, operation: call,
        reason: "\(call): \(String(cString: strerror(error.code)))",
        remedy: "Allow the calls of keyrings(7) in this container or sandbox.")
    }
  }

  private static func isAbsence(_ error: Errno) -> Bool {
    #if os(Linux)
    [ENOKEY, EKEYEXPIRED, EKEYREVOKED].contains(error.code) || isForbidden(error)
    #else
    true
    #endif
  }

  private static func isForbidden(_ error: Errno) -> Bool { [ENOSYS, EPERM].contains(error.code) }
}
#endif
