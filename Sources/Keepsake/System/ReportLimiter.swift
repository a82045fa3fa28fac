/// Limits how often failures are reported, and counts those that are not.
///
/// A failure with the same operation, code, path and key passes at most once a second. Of each
/// operation, code and path, ``maximumKeyCount`` keys pass a second, so that a full disk does not
/// flood the log with every key.
final class ReportLimiter: Sendable {
  static let maximumKeyCount = 10
  /// The number of different operations, codes and paths that pass in one second.
  static let maximumKindCount = 1_000

  /// How long a report holds back others of its kind and key.
  @TaskLocal static var period = Duration.seconds(1)

  private struct Report {
    let key: ExactString?
    let time: ContinuousClock.Instant
  }

  private struct State {
    /// The reports of the last ``period`` by operation, code and path.
    var recentReports = ByteKeyedDictionary<[Report]>()
    /// The failures that were held back since the last report.
    var suppressedCount = 0

    /// Notes a report; returns false if it must be held back.
    mutating func note(_ kind: String, _ report: Report) -> Bool {
      var reports = Self.reports(recentReports[kind] ?? [], since: report.time)
      guard reports.count < maximumKeyCount, !reports.contains(where: { $0.key == report.key })
      else { return false }
      if reports.isEmpty, recentReports.count >= maximumKindCount {
        removeReports(before: report.time)
        guard recentReports.count < maximumKindCount else { return false }
      }
      reports.append(report)
      recentReports.set(kind, reports)
      return true
    }

    private mutating func removeReports(before time: ContinuousClock.Instant) {
      for (kind, reports) in Array(recentReports.elements)
      where Self.reports(reports, since: time).isEmpty {
        recentReports.remove(kind)
      }
    }

    private static func reports(
      _ reports: [Report], since time: ContinuousClock.Instant
    ) -> [Report] {
      reports.filter { time - $0.time < period }
    }
  }

  private let state = Locked(State())

  /// Counts a failure that must not be reported.
  func suppress() { state.withLock { $0.suppressedCount += 1 } }

  /// `error` with the number of failures that were held back before it; nil if it is held back too.
  func admit(
    _ error: StorageError, at time: ContinuousClock.Instant = .now
  ) -> StorageError? {
    let kind = "\(error.operation)\0\(error.code)\0\(error.path ?? "")"
    return state.withLock { state in
      guard state.note(kind, Report(key: error.key.map { ExactString($0) }, time: time)) else {
        state.suppressedCount += 1
        return nil
      }
      defer { state.suppressedCount = 0 }
      return error.reported(suppressedCount: state.suppressedCount)
    }
  }
}
