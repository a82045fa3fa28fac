// Swift 5 mode: top-level code without isolation, shared variables and values that are not
// `Sendable`, and a main thread that waits.
import Checks
import Foundation
import Keepsake
import Observation

/// Not `Sendable`.
final class Caller {
  var count = 0
  var drafts: [Draft] = []
}

/// `@unchecked` because the compiler does not know that the lock protects the table.
final class TableEngine: StorageEngines.Engine, @unchecked Sendable {
  private let lock = NSLock()
  private var table: [String: Data] = [:]

  func data(forKey key: String) -> Data? { lock.withLock { table[key] } }
  func set(_ data: Data?, forKey key: String) { lock.withLock { table[key] = data } }
  func replace(_ old: Data?, with new: Data?, forKey key: String) -> Bool {
    lock.withLock {
      guard table[key] == old else { return false }
      table[key] = new
      return true
    }
  }
  func keys() -> [String] { lock.withLock { Array(table.keys) } }
}

enum Settings {
  @Default("fontSize") static var fontSize = 16
  @Default("static.theme", defaultValue: .light) static var theme: Theme
  @Default(.owner) static var owner
  @DefaultOptional("static.draft", suite: "drafts") static var draft: Draft?
  @DefaultOptional(.nickname) static var nickname: String?
}

/// A view model that counts its notifications in a closure, which Swift 6 mode would not allow.
@Observable final class Window {
  @ObservationIgnored @Default("window.width") var width = 640
  @ObservationIgnored var notifications = 0

  func observe() {
    withObservationTracking {
      _ = width
    } onChange: {
      self.notifications += 1
    }
  }
}

// MARK: Calls from top-level code

let images = DiskCache.named("Images")
Settings.$fontSize.reset()
Settings.fontSize += 1
Settings.$fontSize.update { $0 += 1 }
check(Settings.$fontSize.update { $0 += 1 }, is: 19)
Settings.theme = .dark
Settings.owner.tags.append("x")
check(Settings.theme == .dark && Defaults[.owner].tags == ["x"])
Settings.draft = Draft(text: "d")
Settings.$draft.update { $0?.text += "!" }
check(Settings.draft?.text, is: "d!")
Settings.$nickname.reset()
var calls = 0
Defaults.update("calls", default: 0) {
  calls += 1
  $0 = calls
}
DiskCache[.draft] = Draft(text: "cached")
SecureVault.set("secret", forKey: "k")
SecureVault.withSecret("k") { calls += $0.byteCount }
check(Defaults.int("calls") == 1 && calls == 7)
let window = Window()
window.observe()
window.width += 1
check(window.notifications, is: 1)
StorageSystem.removeAll()
StorageSystem.onFailure = { error in print("failed:", error, calls) }
try Caller().checkSynchronousCalls()
StorageSystem.removeAll()

// MARK: Changes, from a thread without Swift concurrency

let change = DispatchSemaphore(value: 0)
let watch = Task.detached {
  for await size in Defaults.changes("watched", default: 16) where size > 16 {
    change.signal()
    break
  }
}
while change.wait(timeout: .now() + .milliseconds(5)) == .timedOut {
  Defaults.update("watched", default: 16) { $0 += 1 }
}
watch.cancel()

// MARK: Asynchronous calls

let shared = Draft(text: "shared")
let done = DispatchSemaphore(value: 0)
Task.detached {
  do {
    let caller = Caller()
    try await caller.checkSharedCalls()
    // A value that is not `Sendable` is used by several threads.
    let draft = try await DiskCache.fetch("shared") { shared }
    draft.text += "!"
    let stored = try await images.perform { store in
      try store.set(draft, forKey: "draft")
      return try store.model("draft", type: Draft.self)
    }
    check(stored?.text == "shared!" && shared === draft)
  } catch {
    print(error)
    exit(1)
  }
  done.signal()
}
done.wait()
print("ok")
