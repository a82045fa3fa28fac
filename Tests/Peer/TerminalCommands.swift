// Commands that ask at the terminal.
import Dispatch
import Keepsake
import KeepsakeLibc

func runTerminalCommand(_ words: [String]) -> Bool {
  switch words[0] {
  case "unlock-at-terminal":  // [remember]: prints whether the vault is open, and a secret
    var isOpen = false
    printingErrors {
      isOpen = try SecureVault.shared.unlockAtTerminal(
        reason: "Unlock the peer", rememberFor: words.last == "remember" ? .minutes(1) : nil)
    }
    printLine("\(isOpen) \(isOpen ? SecureVault.get("token") ?? "nil" : "nil")")
  case "ask":  // [exiting | twice | handling]: asks for a line and prints it
    // A test that runs under nohup would pass on that SIGHUP is ignored.
    for number in [SIGHUP, SIGQUIT, SIGTERM] { signal(number, SIG_DFL) }
    if words.last == "handling" {
      signal(SIGTERM) { _ in printLine("terminated") }
      signal(SIGCONT) { _ in printLine("continued") }
    }
    if words.last == "exiting" {
      DispatchQueue.global().async {
        while readLine() != nil {}
        exit(3)
      }
    }
    @Sendable func ask() {
      let line = try? SecureVault.askTerminal(.init(prompt: "Secret: "))
      printLine(line ?? "nil")
    }
    let group = DispatchGroup()
    if words.last == "twice" {
      let isAsking = DispatchSemaphore(value: 0)
      DispatchQueue(label: "second").async(group: group) {
        isAsking.signal()
        ask()
      }
      isAsking.wait()
    }
    ask()
    group.wait()
  default: return false
  }
  return true
}
