internal import Keepsake
internal import KeepsakeLibc
internal import Synchronization

/// The descriptors of a link's connections, for a forked child to close.
///
/// The child may not use anything else of its parent's link: another thread may have been changing
/// it at the moment of the fork, and whatever is written to a connection would mix with what the
/// parent writes.
final class OpenSockets: Sendable {
  private struct Slot: ~Copyable, Sendable {
    let descriptor = Atomic<Int32>(-1)
    let identity = DescriptorIdentity()

    func set(_ descriptor: Int32?) {
      if let descriptor { identity.note(descriptor) }
      self.descriptor.store(descriptor ?? -1, ordering: .relaxed)
    }

    func closeInherited() {
      let descriptor = descriptor.exchange(-1, ordering: .relaxed)
      if descriptor >= 0, identity.isKept(by: descriptor) { close(descriptor) }
    }
  }

  private let commands = Slot()
  private let subscriptions = Slot()

  func set(_ role: Connection.Role, _ descriptor: Int32?) {
    switch role {
    case .commands: commands.set(descriptor)
    case .subscriptions: subscriptions.set(descriptor)
    }
  }

  func closeInherited() {
    commands.closeInherited()
    subscriptions.closeInherited()
  }
}
