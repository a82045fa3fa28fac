// Alternatives to the disk cache, with a common interface.
import Foundation

struct CachePeers {
  struct Work {
    let get: (_ key: String) throws -> Data?
    let contains: (_ key: String) throws -> Bool
    let set: (_ value: Data, _ key: String) throws -> Void
  }

  let all: [Peer<Work>]
  private static let syncing = [PeerDocuments.name, PeerDatedFiles.name]

  init(in parent: String) throws {
    let (documents, dated) = (try PeerDocuments(in: parent), try PeerDatedFiles(in: parent))
    let table = try PeerTable(at: "\(parent)/table.sqlite")
    all = [
      Peer(
        PeerDocuments.name,
        Work(
          get: { try documents.get($0) }, contains: { documents.contains($0) },
          set: { try documents.set($0, forKey: $1) })),
      Peer(
        PeerDatedFiles.name,
        Work(
          get: { try dated.get($0) }, contains: { try dated.contains($0) },
          set: { try dated.set($0, forKey: $1) })),
      Peer(
        PeerTable.name,
        Work(
          get: { try table.get($0) }, contains: { try table.contains($0) },
          set: { try table.set($0, forKey: $1, lifetime: lifetime) })),
    ]
  }

  /// The operation with each peer.
  func each(isSet: Bool = false, _ subject: (Work) -> Subject) -> [Peer<Subject>] {
    all.map { peer in
      var result = peer.map(subject)
      if isSet, Self.syncing.contains(peer.name) { result.stronger = Atomic.isStronger }
      return result
    }
  }
}
