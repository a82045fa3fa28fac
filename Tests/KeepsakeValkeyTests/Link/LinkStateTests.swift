import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// The state of a link, without its thread.
@Suite(.threadPerTest) struct LinkStateTests {
  /// As after a pause of the process: the replies are there when their time is over.
  @Test(arguments: [true, false]) func repliesCountBeforeTheirTime(_ isLinkFirst: Bool) throws {
    let fake = try FakeServer { connection, _ in
      for _ in 0..<2 { _ = connection.command() }
      connection.send("+one\r\n+two\r\n")
      connection.waitForEnd()
    }
    defer { withExtendedLifetime(fake) {} }
    // On a busy machine, the calls may expire before they are sent.
    try waitUntil("the calls had no replies") {
      try repliesAfterAPause(of: fake, isLinkFirst: isLinkFirst) == ["one", "two"]
    }
  }

  /// The replies to two calls, of which the first one's thread waits for input, while the other one
  /// or the link's thread has been told that their time is over.
  private func repliesAfterAPause(of fake: FakeServer, isLinkFirst: Bool) throws -> [String?] {
    var address = fake.address
    address.requestTimeout = .milliseconds(100)
    var state = try connectedState(address)
    let calls = ["a", "b"].map { key in
      Call(
        [Command("SET", key, "1")], timeout: address.requestTimeout, replyTime: .seconds(60),
        completion: nil)
    }
    for call in calls { try state.submit(call) }
    guard case .read(let socket, let events, _, _) = state.nextStep(of: calls[0], hasRead: false)
    else { return [] }
    socket.wait(for: events, timeout: .seconds(60))
    waitUntil("no time passed") { state.commands.connection?.isFrozen != false }
    if isLinkFirst {
      _ = state.nextLoopStep()
    } else {
      _ = state.nextStep(of: calls[1], hasRead: false)
    }
    _ = state.nextStep(of: calls[0], hasRead: true)
    return calls.map { call in try? call.outcome?.get().first?.text }
  }

  private func connectedState(_ address: ServerAddress) throws -> LinkState {
    let options = LinkOptions()
    var state = LinkState(address, options, LinkHandlers(), OpenSockets(), channels: [:])
    state.connectIfIdle()
    while !state.commands.isReady {
      switch state.nextLoopStep() {
      case .deliver(let events, _): for event in events { event() }
      case .prepare(let role, let context):
        let setup = Result { () throws(StorageError) in
          try ConnectionSetup(role, address, options, reusing: context)
        }
        state.finishPreparing(role, setup)
      case .poll(let sockets, _):
        for (role, socket, events) in sockets {
          socket.wait(for: events, timeout: .seconds(60))
          state.process(role, socket, events)
        }
      }
    }
    return state
  }
}
