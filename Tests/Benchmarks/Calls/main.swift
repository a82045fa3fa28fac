// Repeats one call for tools that count instructions or system calls: the difference between the
// results for two counts is the cost of the calls, without the preparation.
//
//   keepsake-calls --list
//   keepsake-calls OPERATION COUNT [DIRECTORY]
//
// Files in a given directory are not removed, because their removal would also be counted.
import Foundation
import Keepsake

struct Profile: Codable, Sendable, Equatable {
  var name = "Ada Lovelace"
  var age = 36
  var tags = ["mathematics", "engines"]
}

let entries = 64
func key(_ number: Int) -> String { "article.\(10_000_000 + number % entries)" }
let names = (0..<entries).map(key)
/// Keys for calls that can be made only once for each key.
let many = (0..<2_000).map { "article.\(20_000_000 + $0)" }
let few = many.prefix(640)
let payload = Data((0..<100).map { UInt8(truncatingIfNeeded: $0) })
nonisolated(unsafe) var sink = 0

struct Settings {
  @Default("article.10000000", defaultValue: 0) var first: Int
}
let settings = Settings()

/// Waits for a call that is not synchronous.
func waiting(_ call: @escaping @Sendable () async throws -> Data) {
  let isDone = DispatchSemaphore(value: 0)
  Task {
    defer { isDone.signal() }
    sink &+= try await call().count
  }
  isDone.wait()
}

/// The name of each operation, its preparation, and the call that is counted.
let operations: [(name: String, prepare: () -> Void, call: (Int) throws -> Void)] = [
  ("nothing", {}, { sink &+= $0 }),
  (
    "Defaults.get", { for name in names { Defaults.set(1, forKey: name) } },
    { sink &+= Defaults.get(names[$0 % entries], default: 0) }
  ),
  (
    "Defaults.get-named", { for name in names { Defaults.set(1, forKey: name, suite: "team") } },
    { sink &+= Defaults.get(names[$0 % entries], default: 0, suite: "team") }
  ),
  (
    "@Default", { for name in names { Defaults.set(1, forKey: name) } },
    { _ in sink &+= settings.first }
  ),
  (
    "Defaults.model", { for name in names { Defaults.set(Profile(), forKey: name) } },
    { sink &+= Defaults.model(names[$0 % entries], type: Profile.self)?.age ?? 0 }
  ),
  (
    "Defaults.model-decoded", { for name in names { Defaults.set(Profile(), forKey: name) } },
    { sink &+= (Defaults.get(names[$0 % entries]) as Profile?)?.age ?? 0 }
  ),
  ("Defaults.set", {}, { Defaults.set($0, forKey: names[$0 % entries]) }),
  (
    "Defaults.set-model", {},
    { Defaults.set(Profile(age: $0), forKey: names[$0 % entries]) }
  ),
  (
    "Defaults.update", {},
    { Defaults.update(names[$0 % entries], default: 0) { $0 += 1 } }
  ),
  (
    "Defaults.synchronize", {},
    {
      Defaults.set($0, forKey: names[$0 % entries])
      Defaults.synchronize()
    }
  ),
  (
    "DiskCache.get",
    { for name in names { DiskCache.set(payload, forKey: name, expiry: .days(7)) } },
    { sink &+= DiskCache.get(names[$0 % entries])?.count ?? 0 }
  ),
  (
    "DiskCache.get-missing", { DiskCache.set(payload, forKey: "other") },
    { sink &+= DiskCache.get(names[$0 % entries])?.count ?? 0 }
  ),
  (
    "DiskCache.contains",
    { for name in names { DiskCache.set(payload, forKey: name, expiry: .days(7)) } },
    { sink &+= DiskCache.contains(names[$0 % entries]) ? 1 : 0 }
  ),
  (
    "DiskCache.model",
    { for name in names { DiskCache.set(Profile(), forKey: name, expiry: .days(7)) } },
    { sink &+= DiskCache.model(names[$0 % entries], type: Profile.self)?.age ?? 0 }
  ),
  (
    // So that nearly all subdirectories exist.
    "DiskCache.set-new", { for name in many { DiskCache.set(payload, forKey: name) } },
    { DiskCache.set(payload, forKey: "article.\(30_000_000 + $0)", expiry: .days(7)) }
  ),
  (
    "DiskCache.set", { for name in names { DiskCache.set(payload, forKey: name) } },
    { DiskCache.set(payload, forKey: names[$0 % entries], expiry: .days(7)) }
  ),
  (
    "DiskCache.remove", { for name in names { DiskCache.set(payload, forKey: name) } },
    { DiskCache.remove(names[$0 % entries]) }
  ),
  (
    "DiskCache.fetch", { for name in names { DiskCache.set(payload, forKey: name) } },
    { number in waiting { try await DiskCache.fetch(names[number % entries]) { payload } } }
  ),
  (
    "DiskCache.fetch-produced", { for name in many { DiskCache.set(payload, forKey: name) } },
    { number in waiting { try await DiskCache.fetch("new.\(number)") { payload } } }
  ),
  (
    "DiskCache.fetch-staleFor",
    { for name in names { DiskCache.set(payload, forKey: name) } },
    { number in
      waiting {
        try await DiskCache.fetch(
          names[number % entries], expiry: .days(7), staleFor: .days(7)
        ) { payload }
      }
    }
  ),
  (
    "DiskCache.get-first",
    { for name in many { DiskCache.set(payload, forKey: name, expiry: .days(7)) } },
    { sink &+= DiskCache.get(many[$0])?.count ?? 0 }
  ),
  (
    "DiskCache.remove-present",
    { for name in many { DiskCache.set(payload, forKey: name, expiry: .days(7)) } },
    { DiskCache.remove(many[$0]) }
  ),
  (
    "DiskCache.removeExpired",
    { for name in many { DiskCache.set(payload, forKey: name, expiry: .days(7)) } },
    { _ in DiskCache.removeExpired() }
  ),
  (
    "DiskCache.keys",
    { for name in many { DiskCache.set(payload, forKey: name, expiry: .days(7)) } },
    { _ in sink &+= DiskCache.keys().count }
  ),
  (
    "SecureVault.get", { for name in names { SecureVault.set("tok", forKey: name) } },
    { sink &+= SecureVault.get(names[$0 % entries])?.utf8.count ?? 0 }
  ),
  (
    "SecureVault.get-missing", { SecureVault.set("tok", forKey: "other") },
    { sink &+= SecureVault.get(names[$0 % entries])?.utf8.count ?? 0 }
  ),
  (
    "SecureVault.contains", { for name in names { SecureVault.set("tok", forKey: name) } },
    { sink &+= SecureVault.contains(names[$0 % entries]) ? 1 : 0 }
  ),
  (
    "SecureVault.set", { for name in names { SecureVault.set("tok", forKey: name) } },
    { SecureVault.set("tok", forKey: names[$0 % entries]) }
  ),
  (
    "SecureVault.set-new", { SecureVault.set("tok", forKey: "other") },
    { SecureVault.set("tok", forKey: "article.\(30_000_000 + $0)") }
  ),
  (
    "SecureVault.remove", { SecureVault.set("tok", forKey: "other") },
    { SecureVault.remove(names[$0 % entries]) }
  ),
  (
    "SecureVault.remove-present", { for name in few { SecureVault.set("tok", forKey: name) } },
    { SecureVault.remove(few[$0]) }
  ),
  (
    "SecureVault.keys", { for name in names { SecureVault.set("tok", forKey: name) } },
    { _ in sink &+= SecureVault.keys().count }
  ),
  (
    "Folder.save", {}, { try Folder.caches.save(payload, as: names[$0 % entries]) }
  ),
  (
    "Folder.load", { for name in names { try? Folder.caches.save(payload, as: name) } },
    { sink &+= (try Folder.caches.load(names[$0 % entries]) as Data).count }
  ),
]

let arguments = CommandLine.arguments
if arguments.dropFirst() == ["--list"] {
  for operation in operations { print(operation.name) }
  exit(0)
}
guard arguments.count >= 3, let count = Int(arguments[2]),
  let operation = operations.first(where: { $0.name == arguments[1] })
else {
  print("usage: keepsake-calls --list | OPERATION COUNT [DIRECTORY]")
  exit(2)
}
let directory = arguments.count > 3 ? arguments[3] : nil
let home =
  (directory ?? FileManager.default.temporaryDirectory.path) + "/keepsake-calls-\(getpid())"
try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
defer { if directory == nil { try? FileManager.default.removeItem(atPath: home) } }
try StorageSystem.bootstrap(
  app: "calls",
  directories: .init(
    configuration: URL(filePath: home + "/settings"), data: URL(filePath: home + "/data"),
    state: URL(filePath: home + "/state"), cache: URL(filePath: home + "/cache")))
operation.prepare()
for number in 0..<entries + count { try operation.call(number) }
