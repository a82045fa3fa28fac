import Foundation

/// Ends the program with exit code 1 unless `condition` holds.
public func check(_ condition: Bool, file: String = #fileID, line: Int = #line) {
  if condition { return }
  print("\(file):\(line): the condition is false")
  exit(1)
}

/// Ends the program with exit code 1 unless both are equal.
public func check<T: Equatable>(
  _ found: T, is expected: T, file: String = #fileID, line: Int = #line
) {
  if found == expected { return }
  print("\(file):\(line): \(found) is not \(expected)")
  exit(1)
}
