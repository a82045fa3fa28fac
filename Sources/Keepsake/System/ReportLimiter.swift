/// Limits reports of the same failure to one a second.
final class ReportLimiter: Sendable {
  private struct Kind: Hashable {
    let operation: String
    let code: StorageError.Code
    let path: String?
  }

  private let lastReports = Locked<[Kind: ContinuousClock.Instant]>([:])

  func shouldReport(_ error: StorageError) -> Bool {
    let kind = Kind(operation: error.operation, code: error.code, path: error.path)
    let now = ContinuousClock.now
    return lastReports.withLock { lastReports in
      if let last = lastReports[kind], now - last < .seconds(1) { return false }
      if lastReports.count > 1_000 { lastReports = [:] }
      lastReports[kind] = now
      return true
    }
  }
}
