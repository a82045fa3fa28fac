internal import FoundationEssentials

/// Times as people read them: `2026-11-22T00:13:28.5Z` for the seconds since 2001 that are stored.
package enum ISO8601Time {
  private static let secondsPerDay: Int64 = 86_400
  /// From the year 1 to 2001. No time since the year 1 is negative.
  private static let epoch: Decimal = 63_113_904_000
  /// From the year 1 to the year 10000.
  private static let end: Decimal = 315_537_897_600

  /// The time in UTC and the Gregorian calendar, which ``seconds(of:)`` reads back to the last bit.
  ///
  /// - Parameter seconds: The decimal digits of the seconds since 2001, as in a stored value.
  /// - Returns: nil for a time before the year 1 or after 9999, and for digits with an exponent.
  package static func text(ofSeconds seconds: some StringProtocol) -> String? {
    let parts = seconds.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count <= 2, Int64(parts[0]) != nil,
      parts.count == 1 || !parts[1].isEmpty && parts[1].utf8.allSatisfy(isDigit),
      let value = Decimal(string: String(seconds)), value != 0 || !seconds.hasPrefix("-"),
      value >= -epoch, value + epoch < end
    else { return nil }
    let sum = (value + epoch).description.split(separator: ".")
    guard let whole = Int64(sum[0]) else { return nil }
    var fraction = sum.count == 2 ? sum[1] : ""
    while fraction.last == "0" { fraction.removeLast() }
    let (days, time) = whole.quotientAndRemainder(dividingBy: secondsPerDay)
    let (year, month, day) = date(days)
    let clock = [time / 3_600, time / 60 % 60, time % 60].map { digits($0, 2) }
    return "\(digits(year, 4))-\(digits(month, 2))-\(digits(day, 2))"
      + "T\(clock.joined(separator: ":"))\(fraction.isEmpty ? "" : ".")\(fraction)Z"
  }

  /// The seconds since 2001 of a time such as `2026-11-22T00:13:28Z`, with or without a fraction of
  /// a second, in UTC or with an offset such as `+01:00`; nil for any other text.
  package static func seconds(of text: some StringProtocol) -> Double? {
    var rest = Array(text.utf8)[...]
    func number(_ count: Int) -> Int64? {
      guard rest.count >= count, rest.prefix(count).allSatisfy(isDigit) else { return nil }
      defer { rest = rest.dropFirst(count) }
      return rest.prefix(count).reduce(0) { $0 * 10 + Int64($1 - UInt8(ascii: "0")) }
    }
    func skip(_ character: Unicode.Scalar) -> Bool {
      guard rest.first == UInt8(ascii: character) else { return false }
      rest = rest.dropFirst()
      return true
    }
    guard let year = number(4), skip("-"), let month = number(2), skip("-"), let day = number(2),
      skip("T"), let hour = number(2), skip(":"), let minute = number(2), skip(":"),
      let second = number(2), hour < 24, minute < 60, second < 60,
      let days = days(year, month, day)
    else { return nil }
    var fraction: [UInt8] = []
    if skip(".") {
      fraction = Array(rest.prefix(while: isDigit))
      rest = rest.dropFirst(fraction.count)
      if fraction.isEmpty { return nil }
    }
    var offset: Int64 = 0
    if !skip("Z") {
      let isAhead = skip("+")
      guard isAhead || skip("-"), let hours = number(2), skip(":"), let minutes = number(2),
        hours < 24, minutes < 60
      else { return nil }
      offset = (hours * 3_600 + minutes * 60) * (isAhead ? 1 : -1)
    }
    let whole = days * secondsPerDay + hour * 3_600 + minute * 60 + second - offset
    guard rest.isEmpty,
      let fraction = Decimal(string: "0.\(String(decoding: fraction, as: UTF8.self))0")
    else { return nil }
    return Double((Decimal(whole) + fraction - epoch).description)
  }

  // MARK: Digits

  private static func isDigit(_ byte: UInt8) -> Bool {
    (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
  }

  private static func digits(_ number: Int64, _ count: Int) -> String {
    let text = String(number)
    return String(repeating: "0", count: max(0, count - text.count)) + text
  }

  // MARK: The calendar

  /// The days from 1 March of the year 0 to 1 January of the year 1.
  private static let daysBeforeYear1: Int64 = 306

  /// The date that is this many days after 1 January of the year 1. Counts years from March, so
  /// that a leap day is the last day of its year.
  private static func date(_ days: Int64) -> (year: Int64, month: Int64, day: Int64) {
    let (era, dayOfEra) = (days + daysBeforeYear1).quotientAndRemainder(dividingBy: 146_097)
    let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let month = (5 * dayOfYear + 2) / 153
    let day = dayOfYear - (153 * month + 2) / 5 + 1
    let isNextYear = month >= 10
    return (
      era * 400 + yearOfEra + (isNextYear ? 1 : 0), month + (isNextYear ? -9 : 3), day
    )
  }

  /// The days since 1 January of the year 1; nil if there is no such day.
  private static func days(_ year: Int64, _ month: Int64, _ day: Int64) -> Int64? {
    guard (1...12).contains(month), (1...31).contains(day), year >= 1 else { return nil }
    let (era, yearOfEra) = (month <= 2 ? year - 1 : year).quotientAndRemainder(dividingBy: 400)
    let dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    let days = era * 146_097 + dayOfEra - daysBeforeYear1
    // 31 February would be a day in March.
    return date(days) == (year, month, day) ? days : nil
  }
}
