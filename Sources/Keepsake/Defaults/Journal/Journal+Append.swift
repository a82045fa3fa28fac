/// Changing values. Each change is a record that is appended under the journal's lock.
extension Journal {
  func set(_ value: StoredValue?, forKey key: String) throws(StorageError) {
    try withUnsafePointer(to: ValueChange(key: key, value: value)) {
      change throws(StorageError) in
      try append(UnsafeBufferPointer(start: change, count: 1))
    }
  }

  func apply(_ changes: [ValueChange]) throws(StorageError) {
    try changes.withUnsafeBufferPointer { changes throws(StorageError) in try append(changes) }
  }

  func replace(
    _ old: StoredValue?, with new: StoredValue?, forKey key: String
  ) throws(StorageError) -> Bool {
    var isReplaced = false
    try update(key) { current in
      isReplaced = current == old
      return isReplaced ? .some(new) : nil
    }
    return isReplaced
  }

  func update(
    _ key: String, _ change: (StoredValue?) throws(StorageError) -> StoredValue??
  ) throws(StorageError) {
    var isAttempted = false
    defer { if isAttempted { observers.signal(key) } }
    // Made only once, although the first change may find that there is no journal yet.
    var result: StoredValue???
    try locked { writer, deferred throws(StorageError) in
      let old = try loaded.withLock { file throws(StorageError) in
        try file.makeCurrent(writer.handle)
        return file.table.value(forKey: key)
      }
      let generation = ForkGuard.generation
      if result == nil || old != nil { result = .some(try change(old)) }
      guard case .some(.some(let new)) = result, new != nil || old != nil else { return true }
      guard generation == ForkGuard.generation else {
        throw StorageError(
          .misuse, operation: "update", path: path, reason: "the closure forked the process",
          remedy: "Fork outside the closure.")
      }
      guard writer.handle != nil else { return false }
      isAttempted = true
      try withUnsafePointer(to: ValueChange(key: key, value: new)) {
        change throws(StorageError) in
        try write(UnsafeBufferPointer(start: change, count: 1), &writer, &deferred)
      }
      return true
    }
  }

  func removeAll() throws(StorageError) {
    try maintain { writer, deferred throws(StorageError) in
      guard let handle = writer.handle, handle.file.isWritable else { throw writingError() }
      defer { loaded.withLock { $0.passOn(to: &deferred) } }
      // The removal counts from the moment that this record is published. The new file only spares
      // the space; without it, the record has to survive a power cut.
      do throws(StorageError) {
        try write(nil, &writer, &deferred)
      } catch  where error.code == .diskFull {
        return try delete(handle, &writer)
      }
      do throws(StorageError) {
        try rewrite(&writer, asEmpty: true)
      } catch {
        if loaded.withLock({ $0.isCondemned }) { throw error }
        try handle.file.synchronize()
      }
    }
  }

  /// Removes all values by deleting the file, durably: that needs no space. The caller holds the
  /// lock.
  private func delete(_ handle: JournalHandle, _ writer: inout Writer) throws(StorageError) {
    let word = handle.word
    try handle.publish(.replaced)
    do throws(StorageError) {
      try FileSystem.unlink(location.target())
    } catch {
      try? handle.publish(word)
      throw error
    }
    writer.word = nil
    try loaded.withLock { file throws(StorageError) in _ = try file.validate() }
    try synchronizeDirectory()
  }

  // MARK: Appending

  /// Appends the changes, unless all of them remove keys that do not exist.
  private func append(_ changes: UnsafeBufferPointer<ValueChange>) throws(StorageError) {
    var isAttempted = false
    // Even after an error: a part of the changes may have been written.
    defer { if isAttempted { observers.signal(changes.count == 1 ? changes[0].key : nil) } }
    let isRemoval = changes.hasNoValue
    try locked { writer, deferred throws(StorageError) in
      if isRemoval {
        let isDone = try loaded.withLock { file throws(StorageError) in
          try file.makeCurrent(writer.handle)
          return changes.allSatisfy { file.table[$0.key] == nil }
        }
        if isDone { return true }
      }
      guard writer.handle != nil else { return false }
      isAttempted = true
      try write(changes, &writer, &deferred)
      return true
    }
  }

  /// Appends the changes in one write, under the lock, and publishes them.
  ///
  /// - Parameter changes: nil to remove all keys.
  @inline(never)
  private func write(
    _ changes: UnsafeBufferPointer<ValueChange>?, _ writer: inout Writer,
    _ deferred: inout DeferredWork
  ) throws(StorageError) {
    guard let handle = writer.handle, handle.file.isWritable else {
      throw writingError()
    }
    defer {
      writer.buffer.removeAll(keepingCapacity: writer.buffer.capacity <= Writer.largestBuffer)
    }
    if let changes {
      for index in changes.indices {
        JournalFormat.append(
          changes[index].value, key: changes[index].key, seed: writer.id, to: &writer.buffer)
      }
    } else {
      JournalFormat.appendCleared(seed: writer.id, to: &writer.buffer)
    }
    let (start, end) = (writer.end, writer.end + writer.buffer.count)
    if end + JournalHandle.reservedSize > writer.reservedEnd {
      try reserveSpace(beyond: end, handle, &writer, isRemoval: changes?.hasNoValue ?? true)
    }
    writer.word = nil
    let word = JournalWord(id: writer.id, end: end)
    do throws(StorageError) {
      let bytes = writer.buffer.span
      try handle.file.overwrite(bytes.bytes, at: start)
    } catch {
      // If this fails, the next writer cuts off what was written.
      try? handle.file.truncate(to: start)
      writer.reservedEnd = start
      throw error
    }
    try loaded.withLock { file throws(StorageError) in
      file.lastWrite = CoarseClock.now
      file.isUnsynced = true
      if !file.isSyncScheduled {
        file.isSyncScheduled = true
        deferred.isSyncDue = true
      }
      try file.publish(changes, word, handle, from: start, to: end)
      file.passOn(to: &deferred)
      // After a removal of all values, an empty file replaces this one anyway.
      if changes != nil { deferred.compaction = file.takeDueCompaction() }
    }
    writer.end = end
    writer.word = handle.isLost ? nil : word
  }

  /// Has space beyond `end`, which is left to removals once the disk is full.
  private func reserveSpace(
    beyond end: Int, _ handle: JournalHandle, _ writer: inout Writer, isRemoval: Bool
  ) throws(StorageError) {
    guard end <= JournalWord.largestEnd - JournalHandle.reservedSize else {
      throw StorageError(
        .misuse, operation: "write", path: location.path,
        reason: "the settings would take more than 4 GB",
        remedy: "Keep large values in files, with Folder or DiskCache.")
    }
    do throws(StorageError) {
      writer.reservedEnd = try handle.reserve(beyond: end, from: writer.end)
    } catch {
      if !isRemoval { throw error }
    }
  }
}

extension UnsafeBufferPointer<ValueChange> {
  fileprivate var hasNoValue: Bool { allSatisfy { $0.value == nil } }
}
