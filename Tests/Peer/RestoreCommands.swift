// A program that keeps running while its files are replaced by those of a backup.
import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// Runs the command if it is "run-beside-restores"; false otherwise.
func runRestoreCommand(_ words: [String], in folder: URL) -> Bool {
  // NAME RATE FILE: counts in a setting of that name, so many times a second, or reads if the name
  // is empty; appends a line to the file for each failure, and "." from time to time
  guard words[0] == "run-beside-restores", words.count == 4, let rate = Int(words[2]) else {
    return false
  }
  let log = open(words[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
  @Sendable func note(_ text: String) {
    let line = Array((text + "\n").utf8)
    _ = write(log, line, line.count)
  }
  StorageSystem.onFailure = { note("report \($0)") }
  let cache = DiskCache.named(DiskCache.Name("own", in: folder))
  var number = 0
  printLine("begins")
  while true {
    number += 1
    if !words[1].isEmpty { Defaults.set(number, forKey: words[1]) }
    _ = Defaults.int("marker")
    do {
      if number.isMultiple(of: 8) { try cache.set(number, forKey: words[1]) }
      _ = try cache.model("marker", type: Int.self)
      _ = try cache.totalSize
    } catch {
      note("report \(error)")
    }
    if number.isMultiple(of: 8) || rate < 100 { note(".") }
    // The rate of this program, which waits for nothing.
    usleep(UInt32(1_000_000 / rate))
  }
}
