import Foundation
import Testing

@testable import KeepsakeTestSupport

extension OneAtATime {
  @Suite(.singleThreaded) struct TimerTests {
    private let timer: Example
    private var directory: TemporaryDirectory { timer.directory }

    init() throws { timer = Example("keepsake-timer", in: try TemporaryDirectory()) }

    @Test func followsChangesFromASecondTerminal() throws {
      let running = try timer.start()
      // On a busy machine a few seconds may pass at once.
      #expect(running.line()?.contains(/^A timer of 4:00: [34]:\d\d$/) == true)
      #expect(try timer.run("set", "style", "bar").text.isEmpty)
      #expect(running.line()?.contains(/^Now as bar: #{10,20}\.*$/) == true)
      #expect(try timer.run("set", "length", "60:30").status == 0)
      #expect(running.line()?.hasPrefix("Now 60:30: ###") == true)
      #expect(try timer.run("more", "0:45").text == "Now 61:15.\n")
      #expect(running.line()?.hasPrefix("Now 61:15: ###") == true)
      #expect(try timer.run("set", "style", "words").status == 0)
      #expect(running.line()?.contains(/^Now as words: 6[12] min left$/) == true)
      #expect(try timer.run("reset").status == 0)
      let lines = [running.line() ?? "", running.line() ?? ""].sorted()
      #expect(lines[0].hasPrefix("Now 4:00: ") && lines[1].hasPrefix("Now as clock: "), "\(lines)")

      #expect(try timer.run("settings").text.contains("rings: 0, none yet"))
      #expect(try timer.run("set", "length", "0:01").status == 0)
      // The time may be up before the new length is shown.
      #expect(running.finish().hasSuffix("Time is up.\n") && running.exitStatus == 0)
      let settings = try timer.run("settings").text
      #expect(settings.contains("length 0:01, style clock\nrings: 1, last at 2"), "\(settings)")
      #expect(settings.contains("in \(directory.path)/config/keepsake-timer/standard.jsonl\n"))
    }

    @Test func redrawsOneLineOnATerminal() throws {
      #expect(try timer.run("set", "length", "0:02").status == 0)
      let terminal = try PseudoTerminal()
      let running = try timer.run(at: terminal, showsOutput: true)
      let screen = terminal.finish()
      running.finish()
      #expect(running.exitStatus == 0)
      // Any number of redrawn lines, as a busy machine may skip some.
      let whole =
        #/
        \r\u{1B}\[KA\ timer\ of\ 0:02:\ 0:0[0-2]\r\n
        (\r\u{1B}\[K0:0[0-2])*
        \r\u{1B}\[K\u{7}\r\u{1B}\[KTime\ is\ up\.\r\n
        /#
      #expect(screen.wholeMatch(of: whole) != nil, "\(screen)")
    }

    /// Users can edit the settings, so any number can be in the file.
    @Test(arguments: [
      (Int.max, "1440:00", "1440:00", "####################"),
      (500_000_000_000_000_000, "1440:00", "1440:00", "####################"),
      (-5, "0:00", "1:00", "...................."),
    ])
    func clampsAnyLengthInTheFile(
      _ number: Int, length: String, lengthAfterMore: String, bar: String
    ) throws {
      let inspector = Example("keepsakectl", in: directory)
      let set = try inspector.run("settings", "set", "keepsake-timer", "length", "\(number)")
      #expect(set.status == 0, "\(set)")
      for (style, display) in [("clock", length), ("bar", bar)] {
        #expect(try timer.run("set", "style", style).status == 0)
        #expect(try timer.run("settings").text.hasPrefix("length \(length), style \(style)\n"))
        let running = try timer.start()
        // A second may have passed.
        let shown = display.prefix(style == "clock" ? 2 : 19)
        #expect(running.line()?.hasPrefix("A timer of \(length): \(shown)") == true)
      }
      let added = try timer.run("more", "1")
      #expect(added.text == "Now \(lengthAfterMore).\n", "\(added)")
    }

    @Test func concurrentAdditionsAllCount() throws {
      let adding = try (0..<8).map { _ in try timer.start("more", "1") }
      for child in adding {
        child.finish()
        #expect(child.exitStatus == 0)
      }
      #expect(try timer.run("settings").text.hasPrefix("length 12:00,"))
    }

    @Test func refusesInvalidValues() throws {
      for length in [
        "", "x", ":", "1:60", "1:2:3", "-1", "0", "0:00", "1440", "9999999999999999999",
      ] {
        for words in [["set", "length", length], ["more", length]] {
          let run = try timer.run(words)
          #expect(run.failed(64, "\"\(length)\" is not a length"), "\(run)")
        }
      }
      let style = try timer.run("set", "style", "loud")
      #expect(
        style.failed(64, "\"loud\" is not a style. Use one of: clock, bar, words."), "\(style)")
      for words in [["set", "color", "red"], ["set", "length"], ["more"], ["reset", "x"]] {
        #expect(try timer.run(words).failed(64, "usage: keepsake-timer"))
      }
      #expect(try timer.run("settings").text.hasPrefix("length 4:00, style clock\n"))
    }

    @Test func failsWhenNothingCanBeStored() throws {
      try directory.write([], to: "config")  // a file where the directory belongs
      for words in [["set", "style", "bar"], ["more", "1"], ["reset"]] {
        let run = try timer.run(words)
        #expect(run.failed(73, " failed"), "\(run)")
      }
    }
  }
}
