#if canImport(Testing)
internal import FoundationEssentials
internal import Keepsake
internal import Synchronization

/// The rules of mirrors, which suites on a ``/Keepsake/StorageEngines/MirroredEngine`` have.
extension Checker {
  /// Reads two engines on the same values through suites, which have mirrors of them.
  func checkMirrors(and other: any StorageEngines.Engine) async throws {
    try await StorageSystem.withTemporary(engines: ["one": engine, "two": other]) {
      try await blocking {
        let (one, two) = (Defaults.suite("one"), Defaults.suite("two"))
        expect(try one.keys().isEmpty, "a mirror of no values is empty")
        try expectSoon(try two.keys().isEmpty, "a mirror of no values is empty")
        for number in 0..<100 {
          try one.set(number, forKey: "a")
          expect(try one.get("a") == number, "a mirror shows a set when the call returns")
        }
        try expectSoon(try two.get("a") == 99, "a mirror shows what another instance has set")
        try two.update("a", default: 0) { $0 += 1 }
        expect(try two.get("a") == 100, "a mirror shows an update when the call returns")
        try expectSoon(
          try one.get("a") == 100, "a mirror shows what another instance has updated")
        try one.import(Data(#"{"b": [1, 2], "c": "dark"}"#.utf8))
        expect(
          try one.get("b") == [1, 2] && one.get("c") == "dark",
          "a mirror shows an import when the call returns")
        try expectSoon(
          try two.get("b") == [1, 2] && two.get("c") == "dark",
          "a mirror shows what another instance has imported")
        try two.remove("b")
        expect(try two.keys().sorted() == ["a", "c"], "a mirror shows a removal when it returns")
        try expectSoon(
          try one.keys().sorted() == ["a", "c"], "a mirror shows what another instance removed")
        try engine.set(Data("not JSON".utf8), forKey: "c")
        try expectSoon(
          try fails(.damaged) { _ = try two.get("c") as String? },
          "reading a key of a mirror whose bytes are not JSON fails")
        try one.removeAll()
        expect(try one.keys().isEmpty, "a mirror is empty when removeAll returns")
        try expectSoon(
          try two.keys().isEmpty, "a mirror is empty after another instance's removeAll")
      }
    }
  }

  /// Several writers count up in two suites, while readers look at the mirrors.
  func checkOrderInMirrors(and other: any StorageEngines.Engine) async throws {
    try await StorageSystem.withTemporary(engines: ["one": engine, "two": other]) {
      let suites = [Defaults.suite("one"), Defaults.suite("two")]
      let progress = Progress()
      async let readers = sumOfThreads(2) { thread in
        var last = 0
        while !progress.isOver.load(ordering: .relaxed) {
          let number = try suites[thread].int("order")
          expect(number >= last, "a mirror shows changes in the order in which they were made")
          if number != last { progress.overlaps.add(1, ordering: .relaxed) }
          last = number
          // The writers need the processors, too.
          BackgroundThread.sleep(for: .microseconds(20))
        }
        return 0
      }
      let total: Int
      do {
        defer { progress.isOver.store(true, ordering: .relaxed) }
        total = try await sumOfThreads(4) { thread in
          var round = 0
          while round < 25 || !progress.isEnough {
            try suites[thread % 2].update("order", default: 0) { $0 += 1 }
            round += 1
          }
          return round
        }
      }
      _ = try await readers
      try await blocking {
        for suite in suites {
          try expectSoon(try suite.int("order") == total, "updates of two mirrors lose none")
        }
        try suites[0].removeAll()
        try expectSoon(
          try suites[1].keys().isEmpty, "a mirror is empty after another instance's removeAll")
      }
    }
  }

  private func fails(_ code: StorageError.Code, _ body: () throws -> Void) throws -> Bool {
    do {
      try body()
      return false
    } catch let error as StorageError where error.code == code {
      return true
    }
  }
}
#endif
