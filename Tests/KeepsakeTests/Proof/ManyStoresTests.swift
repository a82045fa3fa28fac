import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

extension OneAtATime {
  /// A program may use more stores than it may have descriptors. `KEEPSAKE_STORES` is the number of
  /// suites and of caches.
  @Suite(.singleThreaded) struct ManyStoresTests {
    @Test(arguments: ["suites", "caches"])
    func moreStoresThanDescriptorsAreUsable(kind: String) throws {
      let directory = try TemporaryDirectory(isQuick: true)
      let peer = try Peer.start(directory, "hazards")
      #expect(try peer.ask("limit files \(Coverage.isComplete ? 256 : 64)") == "ok")
      let count = Coverage.count("KEEPSAKE_STORES", sample: 100, complete: 2_000)
      #expect(try peer.ask("many \(kind) \(count)") == "ok")
      let path = "/proc/\(peer.identifier)/fd"
      // It may have inherited others from this process.
      let files = try FileManager.default.contentsOfDirectory(atPath: path).compactMap {
        try? FileManager.default.destinationOfSymbolicLink(atPath: "\(path)/\($0)")
      }
      let own = files.filter { $0.hasPrefix(directory.path + "/") }
      #expect(!own.isEmpty && own.count < (Coverage.isComplete ? 128 : 40), "\(files)")
      #expect(peer.finish() == "")
      print("proof: \(count) \(kind) under a limit on descriptors")
    }
  }
}
