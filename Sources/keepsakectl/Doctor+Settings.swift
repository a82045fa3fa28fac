import FoundationEssentials
import Keepsake
import KeepsakeLibc

extension Doctor {
  mutating func examineSettings() async throws {
    guard let settings else { return }
    // The app may keep its own files in the same directory.
    let names = try settings.list(includingHidden: true)
    try examinePermissions(of: settings, names.filter { $0.contains(".jsonl") })
    for name in names where name.hasSuffix(".jsonl") {
      try noteBrokenLink(path(name, in: settings))
    }
    for name in names where !name.hasSuffix(".tmp") {
      guard let kept = Self.keptFiles.first(where: { name.contains(".jsonl.\($0.kind)") }) else {
        continue
      }
      note(try path(name, in: settings), kept.description, kept.remedy)
    }
    for suite in try Diagnostics.names({ try Defaults.shared.suites() }) {
      try Task.checkCancellation()
      guard let file = try Defaults.suite(suite).fileURL else { continue }
      // The copy of a link would lead to the app's own file.
      let (keyCount, errors) = try await Self.openCopy(of: file.resolvingSymlinksInPath())
      report.suites += keyCount == nil ? 0 : 1
      for error in errors {
        let path = file.path(percentEncoded: false)
        if error.code == .damaged, keyCount != nil {
          // The error's remedy is about the copy, which has been repaired.
          note(
            path, error.failureReason ?? "",
            "Restore a backup, or let the next program that opens it keep all intact values.")
        } else {
          try note(error, at: path)
        }
      }
    }
  }

  /// Notes a link that leads nowhere, not even to where a set could make a file.
  private mutating func noteBrokenLink(_ link: String) {
    var target = link
    // As many as the kernel follows.
    for _ in 0..<40 {
      guard let next = try? FileManager.default.destinationOfSymbolicLink(atPath: target) else {
        let directory = URL(filePath: target).deletingLastPathComponent()
        guard access(directory.path(percentEncoded: false), F_OK) != 0, errno == ENOENT else {
          return
        }
        return note(
          link, "the link leads to a directory that is missing, so no value can be set",
          "Restore that directory, or remove the link.")
      }
      target = URL(filePath: next, relativeTo: URL(filePath: target)).path(percentEncoded: false)
    }
    note(link, "the link leads to itself", "Remove the link.")
  }

  /// The files that the library keeps beside a suite, so that no values are lost.
  private static let keptFiles: [(kind: String, description: String, remedy: String)] = [
    ("damaged-", "the file is a copy of a damaged file", takeAndDelete),
    (
      "replaced-", "the file has settings as they were before a restore replaced them",
      takeAndDelete
    ),
    (
      "previous", "the file has settings as they were before another program replaced them",
      takeAndDelete
    ),
    (
      "next", "a program was ended while it wrote these settings",
      "Start the app: it finishes writing when it next changes a setting."
    ),
  ]

  private static let takeAndDelete = "Take from it what you need, then delete it."

  /// The number of keys in a suite, or nil if it cannot be read, and the errors of opening it.
  private static func openCopy(
    of file: URL
  ) async throws -> (keyCount: Int?, [StorageError]) {
    let folder = Folder(file.deletingLastPathComponent())
    return try await StorageSystem.withTemporary {
      Diagnostics.startReporting()
      let (result, errors) = Diagnostics.collectingErrors {
        Result { () throws(StorageError) in
          try folder.copy(file.lastPathComponent, to: "copy.jsonl", in: .temporary)
          let copy = Defaults.suite(Defaults.Suite("copy", in: try Folder.temporary.url()))
          let count = try copy.keys().count
          // A reader does not report that a file is cut off, which may still be growing. A writer
          // waits until the file counts, which takes two seconds.
          try copy.remove("keepsakectl")
          return count
        }
      }
      return switch result {
      case .success(let count): (count, errors)
      case .failure(let error): (nil, errors + [error])
      }
    }
  }
}
