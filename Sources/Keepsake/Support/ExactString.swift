/// A string that equals another one only if both have the same bytes, as file names do.
///
/// `String` treats canonically equivalent texts as equal: an "é" of one scalar (NFC) and one of
/// two (NFD).
@usableFromInline
package struct ExactString: Hashable, Sendable {
  @usableFromInline package let text: String

  @inlinable
  package init(_ text: String) { self.text = text }

  @usableFromInline
  package static func == (a: Self, b: Self) -> Bool {
    b.text.utf8.span.bytes.withUnsafeBytes { a.text.utf8.hasSameBytes(as: $0) }
  }

  @usableFromInline
  package func hash(into hasher: inout Hasher) {
    var text = text
    text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    // No byte of UTF-8 has this value, so it ends the text.
    hasher.combine(0xFF as UInt8)
  }
}
