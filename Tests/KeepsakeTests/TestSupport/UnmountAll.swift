import Foundation

@testable import KeepsakeTestSupport

extension TemporaryDirectory {
  /// Unmounts everything below the directory, under whatever name it is by now.
  func unmountAll() {
    let mounts = (try? String(contentsOfFile: "/proc/self/mountinfo", encoding: .utf8)) ?? ""
    for line in mounts.split(separator: "\n").reversed() {
      let fields = line.split(separator: " ")
      guard fields.count > 4, fields[4].hasPrefix(path + "/") else { continue }
      umount2(String(fields[4]), Int32(MNT_DETACH))  // stores may be open
    }
  }
}
