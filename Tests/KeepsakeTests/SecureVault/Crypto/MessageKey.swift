import COpenSSL

@testable import Keepsake

extension XAES {
  /// The key of the message with this nonce, from OpenSSL's own CMAC: of a counter, an "X", a zero
  /// and half the nonce, twice (https://c2sp.org/XAES-256-GCM).
  static func messageKey(_ key: [UInt8], _ nonce: [UInt8]) -> [UInt8] {
    var codes: [UInt8] = []
    for counter in 1...2 as ClosedRange<UInt8> {
      let block = [0, counter, UInt8(ascii: "X"), 0] + nonce[..<12]
      var code = [UInt8](repeating: 0, count: 16)
      _ = EVP_Q_mac(
        nil, "CMAC", nil, "AES-256-CBC", nil, key, key.count, block, block.count, &code, code.count,
        nil)
      codes += code
    }
    return codes
  }
}
