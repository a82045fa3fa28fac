// Stores settings, a cache entry and files, and prints what the last run has left.
//
//   without-vault                     uses the directories that the environment determines
//   without-vault fetch               also fetches a value
//   DIRECTORY=/data without-vault     keeps everything in one directory

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

if let path = ProcessInfo.processInfo.environment["DIRECTORY"] {
  let directory = URL(filePath: path)
  try StorageSystem.bootstrap(
    app: "without-vault",
    directories: .init(
      configuration: directory, data: directory, state: directory, cache: directory,
      documents: directory.appending(path: "documents"),
      temporary: directory.appending(path: "temporary")))
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

// No top-level `await`: Swift's concurrency runtime ends a program that has no /proc, and only
// fetch needs it.
if CommandLine.arguments.contains("fetch") {
  Task {
    print("fetch: \(try await DiskCache.fetch("title") { "fetched" })")
    exit(0)
  }
  dispatchMain()
}
