@testable import keepsake_peer

extension SplitMix64 {
  mutating func below(_ limit: Int) -> Int { Int.random(in: 0..<limit, using: &self) }
}
