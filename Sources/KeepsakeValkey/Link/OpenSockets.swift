internal import KeepsakeLibc
internal import Synchronization

/// The descriptors of a link's connections, for a forked child to close.
///
/// The child may not use anything else of its parent's link: another thread may have been changing
/// it at the moment of the fork, and whatever is written to a connection would mix with what the
/// parent writes.
final class OpenSockets: Sendable {
  private let commands = Atomic<Int32>(-1)
  private let subscriptions = Atomic<Int32>(-1)

  func set(_ role: Connection.Role, _ descriptor: Int32?) {
    switch role {
    case .commands: commands.store(descriptor ?? -1, ordering: .relaxed)
    case .subscriptions: subscriptions.store(descriptor ?? -1, ordering: .relaxed)
    }
  }

  func closeInherited() {
    for descriptor in [
      commands.exchange(-1, ordering: .relaxed), subscriptions.exchange(-1, ordering: .relaxed),
    ] where descriptor >= 0 {
      close(descriptor)
    }
  }
}
