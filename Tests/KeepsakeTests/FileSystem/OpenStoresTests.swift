import Testing

@testable import Keepsake

@Suite struct OpenStoresTests {
  private final class FakeStore: FileHoldingStore {
    private let state: Locked<(lastUse: Int64?, isOpen: Bool)>

    init(lastUse: Int64?) { state = Locked((lastUse, true)) }

    var lastUse: Int64? { state.withLock { $0.lastUse } }
    var isOpen: Bool { state.withLock { $0.isOpen } }

    func closeIdleFiles() -> Bool {
      state.withLock { state in
        if state.lastUse == nil { return false }
        state.isOpen = false
        return true
      }
    }
  }

  @Test func closesTheLeastRecentlyUsedFirst() {
    let open = OpenStores(limit: 8)
    let stores = [5, 3, 8, 1, 7, 2, 6, 4].map { FakeStore(lastUse: $0) }
    for store in stores { open.add(store) }
    #expect(stores.allSatisfy { $0.isOpen })
    open.add(FakeStore(lastUse: 9))
    // One too many, and a quarter of the limit.
    #expect(stores.filter { !$0.isOpen }.map { $0.lastUse } == [3, 1, 2])
  }

  @Test func neverClosesTheStoreThatIsAddedOrOneInUse() {
    let open = OpenStores(limit: 4)
    let busy = (0..<4).map { _ in FakeStore(lastUse: nil) }
    for store in busy { open.add(store) }
    let idle = (0..<20).map { _ in FakeStore(lastUse: 0) }
    for store in idle {
      open.add(store)
      #expect(store.isOpen)
    }
    #expect(busy.allSatisfy { $0.isOpen })
    #expect(idle.count { $0.isOpen } == 1)
  }

  @Test func countsAStoreOnceAndForgetsReleasedOnes() {
    let open = OpenStores(limit: 4)
    let kept = FakeStore(lastUse: 0)
    for _ in 0..<10 { open.add(kept) }
    for _ in 0..<10 { open.add(FakeStore(lastUse: 1)) }
    #expect(kept.isOpen)
  }
}
