internal import Keepsake

/// A dictionary that compares its keys byte by byte, and knows how many bytes they take.
///
/// Keepsake's `ByteKeyedDictionary` does the same, but the compiler does not specialize generic
/// code of another module: look-ups would be slower, and programs without this module larger.
struct ExactKeyDictionary<Value> {
  private var values: [ExactString: Value] = [:]
  /// How many bytes the keys take.
  private(set) var keyByteCount = 0

  var count: Int { values.count }

  /// All keys with their values.
  var elements: some Sequence<(key: String, value: Value)> {
    values.lazy.map { ($0.key.text, $0.value) }
  }

  subscript(key: String) -> Value? {
    get { values[ExactString(key)] }
    set {
      let count = values.count
      values[ExactString(key)] = newValue
      // One key more, one less, or the same ones.
      keyByteCount += (values.count - count) * key.utf8.count
    }
  }

  func filter(_ isIncluded: (String, Value) -> Bool) -> Self {
    var result = Self()
    result.values = values.filter { isIncluded($0.key.text, $0.value) }
    result.keyByteCount = result.values.keys.reduce(0) { $0 + $1.text.utf8.count }
    return result
  }

}

extension ExactKeyDictionary: Sendable where Value: Sendable {}
