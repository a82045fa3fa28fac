/// Limits how often failures are reported, and counts those that are not.
///
/// A failure with the same operation, code, path and key passes at most once a second. Of each
/// operation and code, ``maximumCount`` pass a second, so that a full disk does not flood the log
/// with every key.
final class ReportLimiter: Sendable {
  static let maximumCount = 10

  /// How long a report holds back others like it.
  @TaskLocal static var period = Duration.seconds(1)

  private struct Report {
    /// The path and the key.
    let subject: ExactString
    let time: ContinuousClock.Instant
  }

  private struct State {
    /// The reports of the last ``period`` by operation and code, of which there are few.
    var recentReports: [String: [Report]] = [:]
    /// The failures that were held back since the last report.
    var suppressedCount = 0

    /// Notes a report; returns false if it must be held back.
    mutating func note(_ kind: String, _ report: Report) -> Bool {
      var reports = recentReports[kind, default: []].filter { report.time - $0.time < period }
      guard reports.count < maximumCount, !reports.contains(where: { $0.subject == report.subject })
      else { return false }
      reports.append(report)
      recentReports[kind] = reports
      return true
    }
  }

  private let state = Locked(State())

  /// Counts a failure that must not be reported.
  func suppress() { state.withLock { $0.suppressedCount += 1 } }

  /// `error` with the number of failures that were held back before it; nil if it is held back too.
  func admit(
    _ error: StorageError, at time: ContinuousClock.Instant = .now
  ) -> StorageError? {
    let kind = "\(error.operation)\0\(error.code)"
    // No path contains a zero.
    let subject = error.key.map { "\(error.path ?? "")\0\($0)" } ?? error.path ?? ""
    return state.withLock { state in
      guard state.note(kind, Report(subject: ExactString(subject), time: time)) else {
        state.suppressedCount += 1
        return nil
      }
      defer { state.suppressedCount = 0 }
      return error.reported(suppressedCount: state.suppressedCount)
    }
  }
}
