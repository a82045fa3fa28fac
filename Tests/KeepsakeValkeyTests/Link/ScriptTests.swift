import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

@Suite(.server, .threadPerTest) struct ScriptTests {
  private let script = Script("return {KEYS[1], ARGV[1], redis.call('INCR', KEYS[1])}")
  private let arguments = Script.Arguments(
    keys: ["n"], values: [Array("value".utf8)])

  private func expected(_ count: Int64) -> Reply {
    .array([.bytes(Array("n".utf8)), .bytes(Array("value".utf8)), .integer(count)])
  }

  @Test func namesAScriptByItsDigest() {
    // FIPS 180-4
    #expect(Script("abc").digest == "a9993e364706816aba3e25717850c26c9cd0d89d")
    #expect(Script("").digest == "da39a3ee5e6b4b0d3255bfef95601890afd80709")
  }

  /// Each run happens once, also those for which the server had to be given the source.
  @Test func runsAfterTheServerHasForgottenIt() throws {
    let link = try TestServer().link()
    for count in 1...4 {
      #expect(try script.run(on: link, arguments) == expected(Int64(count)))
      if count == 2 { _ = try link.perform(Command("SCRIPT", "FLUSH")) }
    }
    let statistics = try link.perform(Command("INFO", "commandstats")).text ?? ""
    #expect(statistics.contains("cmdstat_evalsha:calls=4,"), "\(statistics)")
    #expect(statistics.contains("cmdstat_eval:calls=2,"), "\(statistics)")
  }

  @Test func runsWithACompletion() throws {
    let link = try TestServer().link()
    for count in 1...4 {
      let replies = Recorder<Reply?>()
      script.submit(on: link, arguments) { replies.append(try? $0.get()) }
      replies.waitForCount(1, "there was no reply")
      #expect(replies.all == [expected(Int64(count))])
      if count == 2 { _ = try link.perform(Command("SCRIPT", "FLUSH")) }
    }
  }

  @Test func errorOfTheScriptIsItsResult() throws {
    let link = try TestServer().link()
    let failing = Script("return redis.error_reply('GAP expected 3')")
    #expect(try failing.run(on: link, arguments).errorCode == "GAP")
    #expect(try failing.run(on: link, arguments).errorCode == "GAP")
    let wrong = Script("this is no script")
    #expect(try wrong.run(on: link, arguments).errorCode == "ERR")
  }
}
