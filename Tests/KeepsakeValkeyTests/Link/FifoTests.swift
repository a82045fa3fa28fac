import Testing

@testable import KeepsakeValkey

@Suite struct FifoTests {
  /// Random operations, with an array as the model.
  @Test func keepsTheOrder() {
    var fifo = Fifo<Int>()
    var model: [Int] = []
    for number in 0..<50_000 {
      switch Int.random(in: 0..<100) {
      case 0 where number % 7 == 0:
        #expect(fifo.take() == model)
        model = []
      case ..<52:
        fifo.append(number)
        model.append(number)
      default:
        #expect(fifo.popFirst() == (model.isEmpty ? nil : model.removeFirst()))
      }
      #expect(fifo.count == model.count && fifo.isEmpty == model.isEmpty)
      #expect(fifo.first == model.first)
      if number % 1_000 == 0 {
        #expect(fifo.all == model)
        #expect(fifo.first { $0 % 5 == 0 } == model.first { $0 % 5 == 0 })
      }
    }
  }
}
