import Foundation

@testable import Keepsake

/// A table that several engines share, as a server's clients do.
final class SharedServer: Sendable {
  fileprivate let table = Locked<[String: Data]>([:])
  fileprivate let clients = Locked<[WeakClient]>([])
  /// Runs before each call of an engine, and may throw.
  let hook = Locked<@Sendable (String) throws -> Void>({ _ in })

  /// Learns how many changes each call of `apply` makes.
  let onApply = Locked<@Sendable (Int) -> Void>({ _ in })

  var isEmpty: Bool { table.withLock { $0.isEmpty } }

  func data(forKey key: String) -> Data? { table.withLock { $0[key] } }
}

private struct WeakClient: Sendable {
  weak let engine: ServerEngine?
}

/// What is wrong with a ``ServerEngine``, by the rule that it breaks.
enum MirrorFlaw: String, CaseIterable {
  case startsFull = "a mirror of no values is empty"
  case showsSetsLate = "a mirror shows a set when the call returns"
  case keepsSets = "a mirror shows what another instance has set"
  case showsUpdatesLate = "a mirror shows an update when the call returns"
  case keepsUpdates = "a mirror shows what another instance has updated"
  case showsImportsLate = "a mirror shows an import when the call returns"
  case keepsImports = "a mirror shows what another instance has imported"
  case showsRemovalsLate = "a mirror shows a removal when it returns"
  case keepsRemovals = "a mirror shows what another instance removed"
  case hidesTornBytes = "reading a key of a mirror whose bytes are not JSON fails"
  case emptiesLate = "a mirror is empty when removeAll returns"
  case keepsRemoveAll = "a mirror is empty after another instance's removeAll"
  case swapsOrder = "a mirror shows changes in the order in which they were made"
  case losesUpdates = "updates of two mirrors lose none"

  var rule: String { rawValue }

  /// The call whose changes the other engines do not hear of.
  var untoldCall: String? {
    switch self {
    case .keepsSets: "set"
    case .keepsUpdates: "replace"
    case .keepsImports: "apply"
    case .keepsRemovals: "remove"
    case .keepsRemoveAll: "removeAll"
    default: nil
    }
  }

  /// The call that does not wait until the engine's own mirrors have its changes.
  var hastyCall: String? {
    switch self {
    case .showsSetsLate: "set"
    case .showsUpdatesLate: "replace"
    case .showsImportsLate: "apply"
    case .showsRemovalsLate: "remove"
    case .emptiesLate: "removeAll"
    default: nil
    }
  }
}

/// An engine on a ``SharedServer``, which learns of changes with a delay.
final class ServerEngine: StorageEngines.MirroredEngine {
  /// What the server sends to each client.
  private enum Message: Sendable {
    case all([StorageEngines.Entry])
    case changed([StorageEngines.Entry])
  }

  private struct Local {
    var mirrors: [WeakMirror] = []
    var copy: [String: Data] = [:]
    var heldBack: [Message] = []
  }

  private struct WeakMirror: Sendable {
    weak let mirror: StorageEngines.Mirror?
  }

  let server: SharedServer
  private let flaw: MirrorFlaw?
  private let delay: useconds_t
  private let delayOfOthers: useconds_t
  /// Whether reads are answered from a copy of the values.
  private let readsCopy: Bool
  private let local = Locked(Local())
  /// Held back until the next call, by a flaw.
  private let nextCall = DispatchSemaphore(value: 0)
  private let isHeldBack = Locked(false)
  /// The messages that have not arrived yet.
  private let inbox = DispatchQueue(label: "keepsake-test-inbox")

  /// - Parameters:
  ///   - delay: How long each message takes, in microseconds.
  ///   - delayOfOthers: How much longer the messages of other engines take.
  init(
    _ server: SharedServer, delay: useconds_t = 0, delayOfOthers: useconds_t = 0,
    readsCopy: Bool = false, flaw: MirrorFlaw? = nil
  ) {
    (self.server, self.readsCopy, self.flaw) = (server, readsCopy, flaw)
    (self.delay, self.delayOfOthers) = (delay, delayOfOthers)
    let copy = server.table.withLock { table in
      server.clients.withLock { $0.append(WeakClient(engine: self)) }
      return table
    }
    local.withLock { $0.copy = copy }
  }

  /// How many mirrors are in use.
  var mirrorCount: Int { local.withLock { $0.mirrors.count { $0.mirror != nil } } }

  func fill(_ mirror: StorageEngines.Mirror) throws {
    try begin("fill")
    server.table.withLock { table in
      var entries = table.map { StorageEngines.Entry(key: $0.key, data: $0.value) }
      if flaw == .startsFull {
        entries.append(StorageEngines.Entry(key: "ghost", data: Data("1".utf8)))
      }
      inbox.async { [entries] in
        self.local.withLock { $0.mirrors.append(WeakMirror(mirror: mirror)) }
        mirror.replaceAll(with: entries)
      }
    }
    inbox.sync {}
  }

  func data(forKey key: String) throws -> Data? {
    try begin("data")
    return readsCopy ? local.withLock { $0.copy[key] } : server.data(forKey: key)
  }

  func keys() throws -> [String] {
    try begin("keys")
    return readsCopy
      ? local.withLock { Array($0.copy.keys) } : server.table.withLock { Array($0.keys) }
  }

  func set(_ data: Data?, forKey key: String) throws {
    _ = try write(data == nil ? "remove" : "set", [StorageEngines.Entry(key: key, data: data)])
  }

  func replace(_ old: Data?, with new: Data?, forKey key: String) throws -> Bool {
    let isBlind = flaw == .losesUpdates && key == "order"
    let conditions = isBlind ? [] : [StorageEngines.Entry(key: key, data: old)]
    return try write("replace", [StorageEngines.Entry(key: key, data: new)], ifCurrent: conditions)
  }

  func apply(_ changes: [StorageEngines.Entry], ifCurrent conditions: [StorageEngines.Entry]) throws
    -> Bool
  {
    server.onApply.withLock { $0 }(changes.count)
    return try write("apply", changes, ifCurrent: conditions)
  }

  func removeAll() throws {
    try begin("removeAll")
    server.table.withLock { table in
      table = [:]
      tell(.all([]), of: "removeAll")
    }
    if flaw?.hastyCall != "removeAll" { inbox.sync {} }
  }

  /// Begins each call: what a flaw holds back arrives now.
  private func begin(_ call: String) throws {
    let isHeldBack = isHeldBack.withLock { isHeldBack in
      defer { isHeldBack = false }
      return isHeldBack
    }
    if isHeldBack { nextCall.signal() }
    try server.hook.withLock { $0 }(call)
  }

  private func write(
    _ call: String, _ changes: [StorageEngines.Entry],
    ifCurrent conditions: [StorageEngines.Entry] = []
  ) throws -> Bool {
    try begin(call)
    let isDone = server.table.withLock { table in
      guard conditions.allSatisfy({ table[$0.key] == $0.data }) else { return false }
      for change in changes { table[change.key] = change.data }
      tell(.changed(changes), of: call)
      return true
    }
    if flaw?.hastyCall != call { inbox.sync {} }
    return isDone
  }

  /// Sends a message to every client, in the order of the changes.
  private func tell(_ message: Message, of call: String) {
    for client in server.clients.withLock({ $0.compactMap(\.engine) })
    where client === self || flaw?.untoldCall != call {
      let isHasty = client === self && flaw?.hastyCall == call
      if isHasty { isHeldBack.withLock { $0 = true } }
      client.inbox.async {
        if client !== self, client.delayOfOthers > 0 { usleep(client.delayOfOthers) }
        // Until the next call, when the test has looked; it may be the last one.
        if isHasty { _ = client.nextCall.wait(timeout: .now() + 60) }
        client.receive(message)
      }
    }
  }

  private func receive(_ message: Message) {
    if delay > 0 { usleep(delay) }
    guard flaw == .swapsOrder, case .changed(let changes) = message, changes[0].key == "order"
    else { return show(message) }
    // The first of two messages in a row is shown after the second, when the third comes.
    let shown = local.withLock { local in
      switch local.heldBack.count {
      case 0:
        local.heldBack = [message]
        return [Message]()
      case 1:
        local.heldBack.append(message)
        return [message]
      default:
        defer { local.heldBack = [message] }
        return [local.heldBack[0]]
      }
    }
    shown.forEach(show)
  }

  private func show(_ message: Message) {
    let mirrors = local.withLock { local in
      switch message {
      case .all(let entries):
        local.copy = [:]
        for entry in entries { local.copy[entry.key] = entry.data }
      case .changed(let changes):
        for change in changes { local.copy[change.key] = change.data }
      }
      return local.mirrors.compactMap(\.mirror)
    }
    for mirror in mirrors {
      switch message {
      case .all(let entries): mirror.replaceAll(with: entries)
      case .changed(let changes): mirror.apply(changes.map(shown))
      }
    }
  }

  private func shown(_ change: StorageEngines.Entry) -> StorageEngines.Entry {
    let isTorn = flaw == .hidesTornBytes && change.data?.first == UInt8(ascii: "n")
    return isTorn ? StorageEngines.Entry(key: change.key, data: nil) : change
  }
}
