#if SecureVault
internal import CKeepsake
internal import KeepsakeLibc

/// The kernel's keyring of this login (`keyrings(7)`), where other processes find a key until it
/// expires.
///
/// Every process of the login that runs as the same user can read a key here. Other users and
/// other logins cannot.
enum SessionKeyring {
  private static let thread: Int32 = -1  // KEY_SPEC_THREAD_KEYRING
  /// All permissions for processes that have the key in a keyring of theirs, and none for others.
  private static let possessorOnly: UInt32 = 0x3F00_0000

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
  /// process alone, in place of the user's.
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
    try check(control(.setPermissions, id, possessorOnly, of: name))
    try check(control(.setTimeout, id, seconds, of: name))
    try check(control(.link, id, session, of: name))
  }

  /// Reads a key into `memory`; false if there is none of that length, or no keyring.
  static func read(_ name: String, into memory: UnsafeMutableRawBufferPointer) -> Bool {
    guard let start = memory.baseAddress, case .success(let id) = find(name) else { return false }
    let count = systemCall(.keyring, name) {
      Int(keepsake_read_key(Int32(truncatingIfNeeded: id), start, memory.count))
    }
    // A longer key is not copied, and its length is returned.
    return (try? count.get()) == memory.count
  }

  /// Destroys a key, also for processes that have found it already. A missing key is not an error.
  static func remove(_ name: String) throws(StorageError) {
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
    [ENOKEY, EKEYEXPIRED, EKEYREVOKED, ENOSYS, EPERM].contains(error.code)
    #else
    true
    #endif
  }
}
#endif
