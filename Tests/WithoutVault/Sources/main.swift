// Stores a setting, an entry of a cache and files, and prints what it then finds.
//
//   without-vault                  where the environment says
//   without-vault fetch            with a fetch
//   FOLDER=/data without-vault     all of it in this folder

import Dispatch
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

struct Settings: Sendable {
  @Default("launches", defaultValue: 0) var launches: Int
}

struct Article: Codable {
  var title: String
}

if let path = ProcessInfo.processInfo.environment["FOLDER"] {
  let folder = URL(filePath: path)
  try StorageSystem.bootstrap(
    app: "without-vault",
    directories: .init(
      configuration: folder, data: folder, state: folder, cache: folder,
      documents: folder.appending(path: "documents"),
      temporary: folder.appending(path: "temporary")))
}

let settings = Settings()
settings.launches += 1
print("launches: \(settings.launches)")
print("theme before: \(Defaults.get("theme", default: "none"))")
Defaults.set("dark", forKey: "theme")

let before: Article? = DiskCache.model("article")
DiskCache.set(Article(title: "Front page"), forKey: "article", expiry: .days(1))
let article: Article? = DiskCache.model("article")
print("cached: \(article?.title ?? "nothing"), before: \(before?.title ?? "nothing")")

let folders = [
  ("support", Folder.applicationSupport), ("documents", Folder.documents),
  ("temporary", Folder.temporary),
]
for (name, folder) in folders {
  do {
    try folder.save("written", as: "note.txt")
    print("\(name): \(try folder.load("note.txt") as String)")
  } catch {
    StorageSystem.onFailure(error)
    print("\(name): nothing")
  }
}

// Not with `await` up here: Swift's tasks end a program that has no /proc, and the rest needs none.
if CommandLine.arguments.contains("fetch") {
  Task {
    print("fetch: \(try await DiskCache.fetch("title") { "fetched" })")
    exit(0)
  }
  dispatchMain()
}
