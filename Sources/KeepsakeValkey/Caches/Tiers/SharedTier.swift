internal import Keepsake

/// The tier of a cache that several machines share: bytes by key on a server, each with a lifetime.
///
/// Calls block the thread for a round trip unless noted. All lifetimes are in nanoseconds. The
/// server numbers all changes, and tells all machines of each, in this order.
protocol SharedTier: AnyObject, Sendable {
  /// Where it is, for errors.
  var address: String { get }
  /// How long a lease is valid.
  var leaseTime: Duration { get }

  /// Reads so many of the first bytes, or all of them.
  func read(_ key: String, count: Int?) throws(StorageError) -> SharedAnswer

  /// Stores bytes, and ends all leases of the key.
  ///
  /// - Parameters:
  ///   - name: That of the version, which the bytes contain.
  ///   - production: The one that must still go on; nil for a change that needs no lease.
  /// - Returns: nil if nothing was changed, because the production is over: the key was changed in
  ///   the meantime.
  func write(
    _ bytes: [UInt8], name: UInt64, lifetime: Int64, forKey key: String, production: UInt64?
  ) throws(StorageError) -> ChangeReply?
  /// Removes the bytes of a key as ``write(_:name:lifetime:forKey:production:)`` replaces them.
  func remove(_ key: String, production: UInt64?) throws(StorageError) -> ChangeReply?
  /// Removes the bytes of all keys, ends all leases, and tells all machines.
  func removeAll() throws(StorageError) -> ChangeReply

  /// Gives the bytes of a key a new lifetime if they have the version of this name, without waiting
  /// for that.
  ///
  /// - Parameter onMissing: Called if they do not. It must not wait.
  func touch(
    _ key: String, name: UInt64, lifetime: Int64, onMissing: @escaping @Sendable () -> Void)

  /// Takes the lease of a key, unless another fetch has it.
  func takeLease(_ key: String, token: UInt64, headCount: Int) throws(StorageError) -> LeaseReply
  /// Ends a lease, and tells the machines that wait for its end.
  ///
  /// - Parameter waits: Whether to wait until the server has done so.
  func releaseLease(of key: String, token: UInt64, waits: Bool)

  /// Tells the follower, which is not retained, what happens to the tier. The call does not wait.
  func follow(_ follower: any TierFollower) throws(StorageError)
}

/// What the second tier has of a key.
enum SharedAnswer: Sendable {
  case bytes(SharedBytes)
  /// Nothing. With the number of the last change of any key; 0 if the server knows of none.
  case nothing(number: UInt64)
}

/// Bytes of the second tier.
struct SharedBytes: Sendable {
  let bytes: ArraySlice<UInt8>
  /// The number of the change that stored them.
  let number: UInt64
  /// How long the server keeps them, in nanoseconds.
  let remaining: Int64

  init(_ bytes: ArraySlice<UInt8>, number: UInt64, remaining: Int64) {
    self.bytes = bytes
    self.number = number
    self.remaining = max(0, remaining)
  }
}

/// What the second tier replies to a change that it has made.
struct ChangeReply: Sendable {
  /// The number of the change.
  let number: UInt64
  /// Why the value was not stored, or that fewer replicas than required have confirmed the change.
  var failure: StorageError?
  /// False if the value was not stored, for example because the server's memory is full. The old
  /// one was removed, and the machines were still informed of the version.
  var isStored = true
}

/// What the second tier replies to a request for a lease.
enum LeaseReply: Sendable {
  /// With the first bytes of the key. The production is common to all its leases, one after
  /// the other, until the key is changed: the first one that is done stores its value.
  case granted(production: UInt64, SharedBytes?)
  /// Another machine has the lease. With the time after which that ends, in nanoseconds.
  case busy(Int64)
}

/// Receives what other machines, and this one, do to the second tier. Its calls must not wait.
protocol TierFollower: AnyObject, Sendable {
  /// All changes from now on are told.
  func tierIsFollowed()
  /// Changes may be missed from now on.
  func tierIsLost(_ error: StorageError)
  /// There is a message; nil if it cannot be understood. Then it may be about any key.
  func tierDidSend(_ message: CacheMessage?)
}
