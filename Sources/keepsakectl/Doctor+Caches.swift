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
      let result = try await Self.readCopy(of: subdirectory, in: folder)
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
        for entry in try entries(in: folder.subfolder(subdirectory)) {
          try copyEntry(subdirectory + "/" + entry, from: folder)
        }
        for key in try copy.keys() {
          do throws(StorageError) {
            if try copy.get(key) != nil { result.entries += 1 }
          } catch {
            result.errors.append(error)
          }
        }
        result.damaged = copy.statistics.damaged
      } catch  where error.code == .notFound && (try? folder.exists(subdirectory)) == false {
        // The app has emptied its cache in the meantime.
      } catch {
        result.errors.append(error)
      }
      return result
    }
  }

  private static let sidecarSuffix = ".meta"

  /// The names of the payloads in a subdirectory, also of those that are missing.
  private static func entries(in subdirectory: Folder) throws(StorageError) -> Set<String> {
    var entries: Set<String> = []
    for name in try subdirectory.list().map({ $0.prefix { $0 != "/" } }) {
      let isSidecar = name.hasSuffix(sidecarSuffix)
      entries.insert(String(isSidecar ? name.dropLast(sidecarSuffix.count) : name))
    }
    return entries
  }

  /// Copies the files of an entry with their modification times, which show that they belong
  /// together. Leaves out an entry that the app changes in the meantime, so that they may not.
  private static func copyEntry(_ entry: String, from folder: Folder) throws(StorageError) {
    let directory = try folder.url().path(percentEncoded: false)
    let names = [entry, entry + sidecarSuffix]
    let statuses = names.map { status(of: directory + "/" + $0) }
    for (name, status) in zip(names, statuses) {
      guard let status else { continue }
      do throws(StorageError) {
        try folder.copy(name, to: "copy/" + name, in: .temporary)
      } catch  where error.code == .notFound {
        continue
      }
      let copy = try Folder.temporary.url("copy/" + name).path(percentEncoded: false)
      utimensat(AT_FDCWD, copy, [status.st_atim, status.st_mtim], AT_SYMLINK_NOFOLLOW)
    }
    let isUnchanged = zip(names, statuses).allSatisfy { name, old in
      let new = status(of: directory + "/" + name)
      // The nanoseconds of a payload are random.
      return old?.st_ino == new?.st_ino && old?.st_mtim.tv_nsec == new?.st_mtim.tv_nsec
    }
    if isUnchanged { return }
    for name in names { try Folder.temporary.delete("copy/" + name) }
  }
}
