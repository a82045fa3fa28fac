internal import FoundationEssentials
internal import Keepsake
internal import Synchronization

/// What was last known of a table, in the cache directory of the app, for a start while the server
/// is away.
final class TableCopy: Sendable {
  private let cache: DiskCache.Store
  private let key: String
  private let content: TableName.Content
  private let report: @Sendable (StorageError) -> Void
  /// Whether the first save has begun.
  private let hasBegun = Atomic(false)
  private let isSavePlanned = Atomic(false)
  /// Held by one save at a time, or a slow one could put back what a later one has replaced.
  private let saving = Locked(())

  init(
    of table: TableName, on server: Server, in cache: DiskCache.Store,
    report: @escaping @Sendable (StorageError) -> Void
  ) {
    self.cache = cache
    self.report = report
    key = table.copyKey(server.address)
    content = table.content
  }

  /// nil if there is no copy, or none that can be used, which is reported.
  func load() -> TableContents? {
    do throws(StorageError) {
      guard let data = try cache.get(key) else { return nil }
      if let message = TableMessage(Array(data)), let changes = message.changes {
        return TableContents(
          id: message.id, version: message.version, name: message.name, entries: changes.entries)
      }
      throw StorageError(
        .damaged, operation: "changes", path: key, reason: "the copy on disk is damaged",
        remedy: "Connect to the server once to write it again.")
    } catch {
      report(error)
      return nil
    }
  }

  /// Writes the copy in the background for the first time, which a normal exit waits for.
  func saveFirst(of table: SettingsTable) {
    if hasBegun.exchange(true, ordering: .relaxed) { return }
    BackgroundWork.run { [self, weak table] in save(table) }
  }

  /// Writes the copy after a second, once for all changes until then.
  func saveSoon(of table: SettingsTable) {
    if isSavePlanned.exchange(true, ordering: .acquiringAndReleasing) { return }
    BackgroundWork.run(after: .seconds(1)) { [self, weak table] in
      isSavePlanned.store(false, ordering: .releasing)
      save(table)
    }
  }

  private func save(_ table: SettingsTable?) {
    saving.withLock { _ in if let contents = table?.currentContents { write(contents) } }
  }

  /// Writes the copy before the call returns, or removes it if what the table has is not known.
  func replace(by table: SettingsTable) {
    saving.withLock { _ in write(table.currentContents ?? TableContents()) }
  }

  private func write(_ contents: TableContents) {
    do throws(StorageError) {
      if contents.id.isEmpty { return try cache.remove(key) }
      let changes = TableChanges(contents.entries, removesAll: true)
      let message = TableMessage.bytes(
        id: contents.id, version: contents.version, name: contents.name, changes)
      try cache.set(Data(message), forKey: key)
    } catch {
      report(error)
    }
  }

  /// The report that the server does not answer.
  ///
  /// - Parameter isShown: Whether the values are those of the copy, so that its time counts.
  func describe(_ error: StorageError, isShown: Bool) -> StorageError {
    var reason = "the \(content) are the ones last known on this machine"
    // Without its time, the copy is as good: the report is about the server.
    if isShown, let created = try? cache.entry(key)?.created {
      reason += ", stored at \(created.ISO8601Format())"
    }
    return StorageError(
      error.code, operation: "changes", path: error.path,
      reason: "\(reason): \(error.reason ?? error.code.description)",
      remedy: error.remedy, underlyingError: error
    ).asWarning
  }
}
