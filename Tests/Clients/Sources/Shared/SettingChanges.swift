// Changes of settings as sequences.
import Checks
import FoundationEssentials
import Keepsake

/// The values of a setting as a stream.
func sums() -> AsyncStream<Int> {
  AsyncStream { continuation in
    let task = Task {
      for await sum in Defaults.changes("sum", default: 0) { continuation.yield(sum) }
      continuation.finish()
    }
    continuation.onTermination = { _ in task.cancel() }
  }
}

extension Caller {
  func checkSettingChanges() async {
    let changes = Defaults.changes(.nickname)
    Defaults[.nickname] = "Al"
    for await name in changes {
      check(name, is: "Al")
      break
    }
    let names = Defaults.changes(suite: "named")
    Defaults.set(1, forKey: "k", suite: "named")
    for await names in names where !names.isEmpty {
      check(names, is: ["k"])
      break
    }
    var storeNames = Defaults.shared.changes().makeAsyncIterator()
    Defaults.set(1, forKey: "k")
    check(await storeNames.next(isolation: nil)?.contains("k") == true)
    let updater = Task {
      while !Task.isCancelled {
        Preferences().$size.update { $0 += 1 }
        Preferences().$lastLogin.update { $0 = ($0 ?? Date()).addingTimeInterval(1) }
        Defaults.update("token", default: Data()) { $0.append(1) }
        Defaults.update("sum", default: 0) { $0 += 1 }
        try? await Task.sleep(for: .milliseconds(5))
      }
    }
    for await size in Preferences().$size.changes where size > 16 { break }
    for await date in Preferences().$lastLogin.changes where date != nil { break }
    for await token in Defaults.changes("token", type: Data.self) {
      if let token, token.count > 0 { break }
    }
    let sum = Task {
      for await sum in sums() where sum > 0 { return sum }
      return 0
    }
    check(await sum.value > 0)
    updater.cancel()
    await updater.value
  }
}
