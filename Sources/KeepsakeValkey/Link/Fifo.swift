/// Elements that leave in the order in which they came.
struct Fifo<Element> {
  private var elements: [Element?] = []
  private var start = 0

  var count: Int { elements.count - start }
  var isEmpty: Bool { count == 0 }
  var first: Element? { isEmpty ? nil : elements[start] }

  mutating func append(_ element: Element) { elements.append(element) }

  mutating func popFirst() -> Element? {
    if isEmpty { return nil }
    let element = elements[start]
    elements[start] = nil
    start += 1
    if start == elements.count {
      elements.removeAll(keepingCapacity: elements.capacity <= 1_024)
      start = 0
    } else if start >= 64, 2 * start >= elements.count {
      elements.removeFirst(start)
      start = 0
    }
    return element
  }

  /// All elements, which are removed.
  mutating func take() -> [Element] {
    defer { self = Fifo() }
    return all
  }

  /// From the first to the last.
  var all: [Element] { elements[start...].compactMap { $0 } }

  func first(where isFound: (Element) -> Bool) -> Element? {
    for case let element? in elements[start...] where isFound(element) { return element }
    return nil
  }
}
