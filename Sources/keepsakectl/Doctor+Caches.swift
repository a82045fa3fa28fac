import FoundationEssentials
import Keepsake
import KeepsakeLibc

extension Doctor {
  mutating func examineCaches() async throws {
    guard let caches else { return }
    let names = try caches.list(includingHidden: true)
    try noteAbandonedFiles(names, in: caches)
    try noteLinkedLockFiles(names, in: caches)
    for name in try Diagnostics.names({ try DiskCache.shared.caches() }) {
      guard let url = try DiskCache.named(name).folderURL else { continue }
      try await noteErrors { try await $0.examineCache(name, in: Folder(url)) }
    }
  }

  private mutating func examineCache(_ name: DiskCache.Name, in folder: Folder) async throws {
    defer { Progress.clear() }
    // Only the directory: it protects its files, and there may be a million of them.
    try examinePermissions(of: folder, [])
    try noteAbandonedFiles(try folder.list(recursively: true, includingHidden: true), in: folder)
    let subdirectories = try folder.list().filter { $0.count == 3 && $0.hasSuffix("/") }
    var progress = Progress("Reading cache \(name)", of: subdirectories.count)
    for subdirectory in subdirectories.map({ String($0.dropLast()) }) {
      try Task.checkCancellation()
      progress.step()
      var result = try await Self.readCopy(of: subdirectory, in: folder)
      // A writer may have replaced one of an entry's two files between the copies of both.
      if result.damaged > 0 { result = try await Self.readCopy(of: subdirectory, in: folder) }
      report.entries += result.entries
      let path = try path(subdirectory, in: folder)
      for error in result.errors { try note(error, at: path) }
      if result.damaged > 0 {
        note(
          path, "\(Output.count(result.damaged, "entry is", "entries are")) damaged",
          "Do nothing: the app treats a damaged entry as missing and replaces it.")
      }
    }
  }

  private struct ReadResult {
    var entries = 0
    var damaged = 0
    var errors: [StorageError] = []
  }

  /// Reads all entries in a copy of one subdirectory, so that a cache is copied in small parts.
  private static func readCopy(
    of subdirectory: String, in folder: Folder
  ) async throws -> ReadResult {
    try await StorageSystem.withTemporary {
      var result = ReadResult()
      do throws(StorageError) {
        let copy = DiskCache.named(DiskCache.Name("copy", in: try Folder.temporary.create()))
        // Creates the cache's lock files: damage is counted only where it can be removed.
        try copy.set(true, forKey: subdirectory)
        try copy.remove(subdirectory)
        try folder.copy(subdirectory, to: "copy/" + subdirectory, in: .temporary)
        try copyTimes(of: subdirectory, in: folder)
        for key in try copy.keys() {
          do throws(StorageError) {
            if try copy.get(key) != nil { result.entries += 1 }
          } catch {
            result.errors.append(error)
          }
        }
        result.damaged = copy.statistics.damaged
      } catch  where error.code == .notFound && !exists(subdirectory, in: folder) {
        // The app has emptied its cache in the meantime.
      } catch {
        result.errors.append(error)
      }
      return result
    }
  }

  private static func exists(_ name: String, in folder: Folder) -> Bool {
    (try? folder.exists(name)) ?? false
  }

  /// Copies the modification times, which show that the two files of an entry belong together.
  private static func copyTimes(of subdirectory: String, in folder: Folder) throws(StorageError) {
    for name in try Folder.temporary.list("copy/" + subdirectory) {
      let original = try folder.url(subdirectory + "/" + name).path(percentEncoded: false)
      let copy = try Folder.temporary.url("copy/\(subdirectory)/\(name)")
      guard let status = status(of: original) else { continue }
      utimensat(AT_FDCWD, copy.path(percentEncoded: false), [status.st_atim, status.st_mtim], 0)
    }
  }
}
