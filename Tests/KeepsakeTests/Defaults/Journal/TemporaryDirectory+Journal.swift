@testable import Keepsake
@testable import KeepsakeTestSupport

extension TemporaryDirectory {
  /// A new journal of the standard suite, whose writers wait that long for the file.
  func journal(
    timeout: Duration = .milliseconds(50),
    report: @escaping @Sendable (StorageError) -> Void = { _ in }
  ) -> Journal {
    let location = JournalPaths(
      directory: StoreDirectory(path: path, isCallerOwned: false), name: "standard")
    return Journal(location: location, timeout: timeout, report: report)
  }
}
