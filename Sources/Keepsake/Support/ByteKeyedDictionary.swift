/// A dictionary that compares its keys byte by byte.
///
/// `Dictionary` treats canonically equivalent strings as one key, hashes with SipHash and takes
/// twice as long per lookup. The seed is random per process, so that no one can prepare colliding
/// keys.
struct ByteKeyedDictionary<Value> {
  private var index = KeyIndex()
  /// By the positions of their keys.
  private var values: [Value] = []

  /// Some of the keys at one moment, each with an element that belongs to it.
  ///
  /// Copying them takes little time, so that it can be done under a lock. Making strings of the
  /// keys takes longer.
  struct Copies<Element> {
    fileprivate var bytes: [UInt8] = []
    fileprivate var parts: [(range: Range<Int>, element: Element)] = []

    var keys: [String] { parts.map { String(decoding: bytes[$0.range], as: UTF8.self) } }

    var elements: [(key: String, element: Element)] {
      parts.map { (String(decoding: bytes[$0.range], as: UTF8.self), $0.element) }
    }
  }

  var count: Int { values.count }
  var keys: [String] { copiedKeys.keys }
  var copiedKeys: Copies<Void> { copies { _ in () } }

  /// What `transform` makes of the values, with their keys; leaves out those for which it returns
  /// nil. Counts no references of the values.
  func copies<Element>(_ transform: (borrowing Value) -> Element?) -> Copies<Element> {
    var copies = Copies<Element>()
    for position in values.indices {
      guard let element = transform(values[position]) else { continue }
      copies.parts.append((index.range(at: position), element))
    }
    if !copies.parts.isEmpty { copies.bytes = index.bytes }
    return copies
  }

  subscript(key: String) -> Value? {
    @inline(never)
    get { index.position(of: key).map { values[$0] } }
  }

  /// Passes the value of a key to `body` without copying it; nil if the key has none.
  @inline(__always)
  func withValue<R>(of key: String, _ body: (borrowing Value) -> R?) -> R? {
    guard let position = KeyIndex.withBytes(of: key, { index.position(of: $0) }) else {
      return nil
    }
    // The subscript of the array would also count references of the array.
    return values.withUnsafeBufferPointer { body($0[position]) }
  }

  /// Stores `value` and returns the one it replaces.
  @inline(never)
  @discardableResult
  mutating func set(_ key: String, _ value: Value) -> Value? {
    let position = index.insert(key)
    guard position < values.count else {
      values.append(value)
      return nil
    }
    let old = values[position]
    values[position] = value
    return old
  }

  /// Removes `key` and returns its value.
  @inline(never)
  @discardableResult
  mutating func remove(_ key: String) -> Value? {
    guard let position = index.remove(key) else { return nil }
    values.swapAt(position, values.count - 1)
    return values.removeLast()
  }

  /// Changes a value in place; false if there is none.
  @inline(never)
  @discardableResult
  mutating func modify(_ key: String, _ change: (inout Value) -> Void) -> Bool {
    guard let position = index.position(of: key) else { return false }
    change(&values[position])
    return true
  }

  /// All keys with their values.
  var elements: some Sequence<(key: String, value: Value)> {
    values.indices.lazy.map { (index.key(at: $0), values[$0]) }
  }
}

extension ByteKeyedDictionary: Sendable where Value: Sendable {}
extension ByteKeyedDictionary.Copies: Sendable where Element: Sendable {}
