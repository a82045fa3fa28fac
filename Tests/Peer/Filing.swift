// What the peer does with files in directories.
import Dispatch
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// What the arguments after the directory ask for; false when that has nothing to do with files.
func runFiling(_ words: [String], in url: URL) -> Bool {
  func number(_ index: Int) -> Int { words.indices.contains(index) ? Int(words[index]) ?? 0 : 0 }
  let directory = Folder(url)
  switch words[0] {
  case "files-storm":  // WRITER MILLISECONDS: saves one file again and again, and reads it
    let end = ContinuousClock.now + .milliseconds(number(2))
    var index = 0
    while ContinuousClock.now < end {
      index += 1
      let value = Certificate(
        key: 0, writer: number(1), number: index, size: Int.random(in: 32...100_000))
      do {
        try directory.save(value.bytes, as: "d/f")
        let data: Data? = try directory.load("d/f")
        if let data, Certificate(data, key: 0) == nil { say("wrong \(data.count) bytes") }
      } catch {
        say("error \(error)")
      }
    }
  case "files-acknowledge":  // START: saves one file again and again, and says each number
    var index = number(1)
    while true {
      index += 1
      // Small ones, so that it is killed while it saves and not while it makes one.
      let value = Certificate(key: 0, writer: 0, number: index, size: Int.random(in: 32...2_000))
      do {
        try directory.save(value.bytes, as: "d/f")
        say("\(index)")
      } catch {
        say("error \(error)")
      }
    }
  case "files-hold":  // begins a file, and ends it with the next line of its input
    let (chunks, continuation) = AsyncStream.makeStream(of: [UInt8].self)
    continuation.yield([1])
    let done = DispatchSemaphore(value: 0)
    Task {
      do {
        try await directory.save(chunks: chunks, as: "d/f") { bytes, _ in
          if bytes == 1 { say("ready") }
        }
        say("done")
      } catch {
        say("error \(error)")
      }
      done.signal()
    }
    _ = readLine()
    continuation.yield([2])
    continuation.finish()
    done.wait()
  case "files-as-nobody":  // calls that somebody without rights may not make
    guard setgid(65_534) == 0, setuid(65_534) == 0 else { exit(2) }
    func attempt(_ body: () throws -> Void) {
      do {
        try body()
        say("nothing happened")
      } catch {
        say("\(error)")
      }
    }
    attempt { _ = try directory.load("d/f") as String }
    attempt { try directory.save("y", as: "d/f") }
    attempt { try directory.delete("d/f") }
    attempt { try directory.subfolder("d").clear() }
  default: return false
  }
  return true
}
