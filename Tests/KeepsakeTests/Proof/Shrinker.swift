/// Finds a small sequence that still fails: removes ever smaller pieces (delta debugging), then
/// replaces the remaining elements by simpler ones.
struct Shrinker<Element> {
  /// Simpler replacements of an element, the simplest first.
  let simpler: (Element) -> [Element]
  let fails: ([Element]) -> Bool
  /// How often `fails` may still be called.
  var budget = 400

  mutating func shrink(_ elements: [Element]) -> [Element] {
    var smallest = elements
    var isSmaller = true
    while isSmaller, budget > 0 {
      isSmaller = removePieces(of: &smallest)
      isSmaller = simplify(&smallest) || isSmaller
    }
    return smallest
  }

  private mutating func stillFails(_ elements: [Element]) -> Bool {
    guard budget > 0 else { return false }
    budget -= 1
    return fails(elements)
  }

  private mutating func removePieces(of elements: inout [Element]) -> Bool {
    let count = elements.count
    var length = max(1, count / 2)
    while true {
      // From the end, because later elements depend on earlier ones.
      var start = elements.count
      while start > 0 {
        let piece = max(0, start - length)..<min(start, elements.count)
        var rest = elements
        rest.removeSubrange(piece)
        if stillFails(rest) { elements = rest }
        start = piece.lowerBound
      }
      if length == 1 { return elements.count < count }
      length = max(1, length / 2)
    }
  }

  private mutating func simplify(_ elements: inout [Element]) -> Bool {
    var isSimpler = false
    for position in elements.indices {
      for element in simpler(elements[position]) {
        var others = elements
        others[position] = element
        guard stillFails(others) else { continue }
        elements = others
        isSimpler = true
        break
      }
    }
    return isSimpler
  }
}
