// Commands on files in directories.
import Dispatch
import FoundationEssentials
import Keepsake
import KeepsakeLibc

/// Runs the command if it belongs to files; false otherwise.
func runFolderCommand(_ words: [String], in url: URL) -> Bool {
  let directory = Folder(url)
  switch words[0] {
  case "files-stress":  // WRITER MILLISECONDS: repeatedly saves and reads one file
    let end = ContinuousClock.now + .milliseconds(number(2))
    var index = 0
    while ContinuousClock.now < end {
      index += 1
      let value = SelfCheckingValue(
        key: 0, writer: number(1), number: index, size: Int.random(in: 32...100_000))
      printingErrors {
        try directory.save(value.bytes, as: "d/f")
        let data: Data? = try directory.load("d/f")
        if let data, SelfCheckingValue(data, key: 0) == nil {
          printLine("wrong \(data.count) bytes")
        }
      }
    }
  case "files-acknowledge":  // START: saves one file repeatedly, and prints the number of each save
    acknowledge(from: number(1)) { index in
      // Small values, so that most kills hit the save and not the making of the value.
      let value = SelfCheckingValue(
        key: 0, writer: 0, number: index, size: Int.random(in: 32...2_000))
      try directory.save(value.bytes, as: "d/f")
    }
  case "files-create":  // WRITER COUNT: saves files that must be new, and prints those that were
    for index in 0..<number(2) {
      let value = SelfCheckingValue(key: 0, writer: number(1), number: index, size: 1_000)
      do {
        try directory.save(value.bytes, as: "d/\(index)", replacing: false)
        printLine("\(index)")
      } catch {
        if error.code != .alreadyExists { printLine("error \(error)") }
      }
    }
  case "files-hold":  // begins a file, and finishes it with the next line of its input
    let (chunks, continuation) = AsyncStream.makeStream(of: [UInt8].self)
    continuation.yield([1])
    let done = DispatchSemaphore(value: 0)
    Task {
      do {
        try await directory.save(chunks: chunks, as: "d/f") { bytes, _ in
          if bytes == 1 { printLine("ready") }
        }
        printLine("done")
      } catch {
        printLine("error \(error)")
      }
      done.signal()
    }
    _ = readLine()
    continuation.yield([2])
    continuation.finish()
    done.wait()
  case "files-as-nobody":  // makes calls as the user "nobody", who may not access the files
    guard setgid(65_534) == 0, setuid(65_534) == 0 else { exit(2) }
    printingErrors { _ = try directory.load("d/f") as String }
    printingErrors { try directory.save("y", as: "d/f") }
    printingErrors { try directory.delete("d/f") }
    printingErrors { try directory.subfolder("d").clear() }
  default: return false
  }
  return true
}
