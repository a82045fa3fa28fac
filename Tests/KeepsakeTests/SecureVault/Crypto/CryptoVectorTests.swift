import COpenSSL
import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Checks the ciphers and key derivations against published test vectors.
@Suite(.proofThread, .singleThreaded) struct CryptoVectorTests {
  /// In hexadecimal.
  struct Vector: Sendable {
    let key, nonce: String
    var plaintext = ""
    var authenticated = ""
    var ciphertext = ""
    var tag = ""
  }

  /// From NIST CAVP, gcmEncryptExtIV256.rsp: one vector for each of several lengths.
  static let aesGCM: [Vector] = [
    .init(
      key: "b52c505a37d78eda5dd34f20c22540ea1b58963cf8e5bf8ffa85f9f2492505b4",
      nonce: "516c33929df5a3284ff463d7",
      tag: "bdc1ac884d332457a1d2664f168c76f0"),
    .init(
      key: "886cff5f3e6b8d0e1ad0a38fcdb26de97e8acbe79f6bed66959a598fa5047d65",
      nonce: "3a8efa1cd74bbab5448f9945",
      authenticated: "519fee519d25c7a304d6c6aa1897ee1eb8c59655",
      tag: "f6d47505ec96c98a42dc3ae719877b87"),
    .init(
      key: "03ccb7dbc7b8425465c2c3fc39ed0593929ffd02a45ff583bd89b79c6f646fe9",
      nonce: "fd119985533bd5520b301d12",
      authenticated: "98e68c10bf4b5ae62d434928fc6405147c6301417303ef3a703dcfd2c0c339a4"
        + "d0a89bd29fe61fecf1066ab06d7a5c31a48ffbfed22f749b17e9bd0dc1c6f8fb"
        + "d6fd4587184db964d5456132106d782338c3f117ec05229b0899",
      tag: "cf54e7141349b66f248154427810c87a"),
    .init(
      key: "82c4f12eeec3b2d3d157b0f992d292b237478d2cecc1d5f161389b97f999057a",
      nonce: "7b40b20f5f397177990ef2d1",
      plaintext: "982a296ee1cd7086afad976945",
      ciphertext: "ec8e05a0471d6b43a59ca5335f", tag: "113ddeafc62373cac2f5951bb9165249"),
    .init(
      key: "69b458f2644af9020463b40ee503cdf083d693815e2659051ae0d039e606a970",
      nonce: "8d1da8ab5f91ccd09205944b",
      plaintext: "f3e0e09224256bf21a83a5de8d",
      authenticated: "036ad5e5494ef817a8af2f5828784a4bfedd1653",
      ciphertext: "c0a62d77e6031bfdc6b13ae217", tag: "a794a9aaee48cd92e47761bf1baff0af"),
    .init(
      key: "ff9506b4d46ba54128876fadfcc673a4c927c618ea7d95cfcaa508cbc8f7fc66",
      nonce: "3742ad2208a0484345eee1be",
      plaintext: "7fd0d6cadc92cad27bb2d7d8c8",
      authenticated: "f1360a27fdc244be8739d85af6491c762a693aafe668c449515fdeeedb6a90ae"
        + "ee3891bbc8b69adc6a6426cb12fcdebc32c9f58c5259d128b91efa28620a3a9a"
        + "0168b0ff5e76951cb41647ba4aa1f87fac0d97ac580e42cffc7e",
      ciphertext: "bdb8346b28eb4d7226493611a6", tag: "7484d827b767647f44c7f94a39f8175c"),
    .init(
      key: "31bdadd96698c204aa9ce1448ea94ae1fb4a9a0b3c9d773b51bb1822666b8f22",
      nonce: "0d18e06c7c725ac9e362e1ce",
      plaintext: "2db5168e932556f8089a0622981d017d",
      ciphertext: "fa4362189661d163fcd6a56d8bf0405a", tag: "d636ac1bbedd5cc3ee727dc2ab4a9489"),
    .init(
      key: "83688deb4af8007f9b713b47cfa6c73e35ea7a3aa4ecdb414dded03bf7a0fd3a",
      nonce: "0b459724904e010a46901cf3",
      plaintext: "33d893a2114ce06fc15d55e454cf90c3",
      authenticated: "794a14ccd178c8ebfd1379dc704c5e208f9d8424",
      ciphertext: "cc66bee423e3fcd4c0865715e9586696", tag: "0fb291bd3dba94a1dfd8b286cfb97ac5"),
    .init(
      key: "80d755e24d129e68a5259ec2cf618e39317074a83c8961d3768ceb2ed8d5c3d7",
      nonce: "7598c07ba7b16cd12cf50813",
      plaintext: "5e7fd1298c4f15aa0f1c1e47217aa7a9",
      authenticated: "0e94f4c48fd0c9690c853ad2a5e197c5de262137b69ed0cdfa28d8d12413e4ff"
        + "ff15374e1cccb0423e8ed829a954a335ed705a272ad7f9abd1057c849bb0d54b"
        + "768e9d79879ec552461cc04adb6ca0040c5dd5bc733d21a93702",
      ciphertext: "5762a38cf3f2fdf3645d2f6696a7eead", tag: "8a6708e69468915c5367573924fe1ae3"),
    .init(
      key: "268ed1b5d7c9c7304f9cae5fc437b4cd3aebe2ec65f0d85c3918d3d3b5bba89b",
      nonce: "9ed9d8180564e0e945f5e5d4",
      plaintext: "fe29a40d8ebf57262bdb87191d01843f4ca4b2de97d88273154a0b7d9e2fdb80",
      ciphertext: "791a4a026f16f3a5ea06274bf02baab469860abde5e645f3dd473a5acddeecfc",
      tag: "05b2b74db0662550435ef1900e136b15"),
    .init(
      key: "5853c020946b35f2c58ec427152b840420c40029636adcbb027471378cfdde0f",
      nonce: "eec313dd07cc1b3e6b068a47",
      plaintext: "ce7458e56aef9061cb0c42ec2315565e6168f5a6249ffd31610b6d17ab64935e",
      authenticated: "1389b522c24a774181700553f0246bbabdd38d6f",
      ciphertext: "eadc3b8766a77ded1a58cb727eca2a9790496c298654cda78febf0da16b6903b",
      tag: "3d49a5b32fde7eafcce90079217ffb57"),
    .init(
      key: "26bf255bee60ef0f653769e7034db95b8c791752754e575c761059e9ee8dcf78",
      nonce: "cecd97ab07ce57c1612744f5",
      plaintext: "96983917a036650763aca2b4e927d95ffc74339519ed40c4336dba91edfbf9ad",
      authenticated: "afebbe9f260f8c118e52b84d8880a34622675faef334cdb41be9385b7d059b79"
        + "c0f8a432d25f8b71e781b177fce4d4c57ac5734543e85d7513f96382ff4b2d4b"
        + "95b2f1fdbaf9e78bbd1db13a7dd26e8a4ac83a3e8ab42d1d545f",
      ciphertext: "e34b1540a769f7913331d66796e00bdc3ee0f258cf244eb7663375cc5ad6c658",
      tag: "3841f02beb7a7fca7e578922d0a2f80c"),
    .init(
      key: "1fded32d5999de4a76e0f8082108823aef60417e1896cf4218a2fa90f632ec8a",
      nonce: "1f3afa4711e9474f32e70462",
      plaintext: "06b2c75853df9aeb17befd33cea81c630b0fc53667ff45199c629c8e15dce41e"
        + "530aa792f796b8138eeab2e86c7b7bee1d40b0",
      ciphertext: "91fbd061ddc5a7fcc9513fcdfdc9c3a7c5d4d64cedf6a9c24ab8a77c36eefbf1"
        + "c5dc00bc50121b96456c8cd8b6ff1f8b3e480f", tag: "30096d340f3d5c42d82a6f475def23eb"),
    .init(
      key: "24501ad384e473963d476edcfe08205237acfd49b5b8f33857f8114e863fec7f",
      nonce: "9ff18563b978ec281b3f2794",
      plaintext: "27f348f9cdc0c5bd5e66b1ccb63ad920ff2219d14e8d631b3872265cf117ee86"
        + "757accb158bd9abb3868fdc0d0b074b5f01b2c",
      authenticated: "adb5ec720ccf9898500028bf34afccbcaca126ef",
      ciphertext: "eb7cb754c824e8d96f7c6d9b76c7d26fb874ffbf1d65c6f64a698d839b0b0614"
        + "5dae82057ad55994cf59ad7f67c0fa5e85fab8", tag: "bc95c532fecc594c36d1550286a7a3f0"),
    .init(
      key: "148579a3cbca86d5520d66c0ec71ca5f7e41ba78e56dc6eebd566fed547fe691",
      nonce: "b08a5ea1927499c6ecbfd4e0",
      plaintext: "9d0b15fdf1bd595f91f8b3abc0f7dec927dfd4799935a1795d9ce00c9b879434"
        + "420fe42c275a7cd7b39d638fb81ca52b49dc41",
      authenticated: "e4f963f015ffbb99ee3349bbaf7e8e8e6c2a71c230a48f9d59860a29091d2747"
        + "e01a5ca572347e247d25f56ba7ae8e05cde2be3c97931292c02370208ecd097e"
        + "f692687fecf2f419d3200162a6480a57dad408a0dfeb492e2c5d",
      ciphertext: "2097e372950a5e9383c675e89eea1c314f999159f5611344b298cda45e628437"
        + "16f215f82ee663919c64002a5c198d7878fd3f", tag: "adbecdb0d5c2224d804d2886ff9a5760"),
  ]

  /// From Wycheproof (github.com/C2SP/wycheproof), aes_gcm_test.json: the known and the special
  /// cases for these lengths of key, nonce and tag.
  static let wycheproof: [Vector] = [
    .init(
      key: "92ace3e348cd821092cd921aa3546374299ab46209691bc28b8752d17f123c20",
      nonce: "00112233445566778899aabb",
      plaintext: "00010203040506070809",
      authenticated: "00000000ffffffff",
      ciphertext: "e27abdd2d2a53d2f136b",
      tag: "9a4a2579529301bcfb71c78d4060f52c"),
    .init(
      key: "29d3a44f8723dc640239100c365423a312934ac80239212ac3df3421a2098123",
      nonce: "00112233445566778899aabb",
      authenticated: "aabbccddeeff",
      tag: "2a7d77fa526b8250cb296078926b5020"),
    .init(
      key: "00112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f",
      nonce: "000000000000000000000000",
      plaintext: "561008fa07a68f5c61285cd013464eaf",
      ciphertext: "23293e9b07ca7d1b0cae7cc489a973b3",
      tag: "ffffffffffffffffffffffffffffffff"),
    .init(
      key: "00112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f",
      nonce: "ffffffffffffffffffffffff",
      plaintext: "c6152244cea1978d3e0bc274cf8c0b3b",
      ciphertext: "7cb6fc7c6abc009efe9551a99f36a421",
      tag: "00000000000000000000000000000000"),
  ]

  /// Also from there: a message, with tags that were changed.
  static let altered = Vector(
    key: "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    nonce: "505152535455565758595a5b",
    plaintext: "202122232425262728292a2b2c2d2e2f",
    ciphertext: "b2061457c0759fc1749f174ee1ccadfa")
  static let alteredTags = [
    "9de8fef6d8ab1bf1bf887232eab590dd", "9ee8fef6d8ab1bf1bf887232eab590dd",
    "1ce8fef6d8ab1bf1bf887232eab590dd", "9ce9fef6d8ab1bf1bf887232eab590dd",
    "9ce8fe76d8ab1bf1bf887232eab590dd", "9ce8fef6d9ab1bf1bf887232eab590dd",
    "9ce8fef6daab1bf1bf887232eab590dd", "9ce8fef6d8ab1b71bf887232eab590dd",
    "9ce8fef6d8ab1bf1be887232eab590dd", "9ce8fef6d8ab1bf13f887232eab590dd",
    "9ce8fef6d8ab1bf1bfa87232eab590dd", "9ce8fef6d8ab1bf1bf887332eab590dd",
    "9ce8fef6d8ab1bf1bf887232ebb590dd", "9ce8fef6d8ab1bf1bf887232e8b590dd",
    "9ce8fef6d8ab1bf1bf8872326ab590dd", "9ce8fef6d8ab1bf1bf887232eab590dc",
    "9ce8fef6d8ab1bf1bf887232eab590df", "9ce8fef6d8ab1bf1bf887232eab5909d",
    "9ce8fef6d8ab1bf1bf887232eab5905d", "9de8fef6d8ab1bf1be887232eab590dd",
    "9ce8fe76d8ab1b71bf887232eab590dd", "9ce8fef6d8ab1b71bf887232eab5905d",
    "631701092754e40e40778dcd154a6f22", "00000000000000000000000000000000",
    "ffffffffffffffffffffffffffffffff", "1c687e76582b9b713f08f2b26a35105d",
    "9de9fff7d9aa1af0be897333ebb491dc",
  ]

  /// Processes a message in pieces of `size` bytes, and then ends it in some way.
  private func process<R>(
    _ direction: XAES.Direction, _ vector: Vector, _ input: [UInt8], size: Int,
    end: (borrowing XAES) throws -> R
  ) throws -> (output: [UInt8], end: R) {
    try bytes(vector.key).withBytes { key in
      let cipher = try XAES(key: key)
      try bytes(vector.nonce).withBytes { nonce in
        try bytes(vector.authenticated).withBytes {
          try cipher.begin(direction, key: key, nonce: nonce, authenticating: $0)
        }
      }
      var output = [UInt8](repeating: 0, count: input.count)
      for start in stride(from: 0, to: input.count, by: size) {
        let range = start..<min(start + size, input.count)
        try output.withUnsafeMutableBytes { output in
          try input.withUnsafeBytes { input in
            try cipher.update(input[part: range], into: output[part: range])
          }
        }
      }
      return (output, try end(cipher))
    }
  }

  /// The message, and whether the tag is the right one.
  private func open(
    _ vector: Vector, _ ciphertext: [UInt8], tag: [UInt8], size: Int = 16
  ) throws -> (output: [UInt8], end: Bool) {
    try process(.opening, vector, ciphertext, size: size) { cipher in
      try tag.withBytes { try cipher.verify(tag: $0) }
    }
  }

  @Test(arguments: alteredTags) func aesGCMRefusesAnAlteredTag(_ tag: String) throws {
    let (opened, isTrue) = try open(
      Self.altered, bytes(Self.altered.ciphertext), tag: bytes(tag))
    // The tag alone is wrong.
    #expect(try opened == bytes(Self.altered.plaintext) && !isTrue)
  }

  @Test(arguments: aesGCM + wycheproof)
  func aesGCMMatchesPublishedVectors(vector: Vector) throws {
    let plaintext = try bytes(vector.plaintext)
    // Also in pieces.
    for size in [1, 7, 16, 1_000] {
      let (sealed, tag) = try process(.sealing, vector, plaintext, size: size) { cipher in
        var tag = [UInt8](repeating: 0, count: 16)
        try tag.withUnsafeMutableBytes { try cipher.finish(tag: $0) }
        return tag
      }
      #expect(try sealed + tag == bytes(vector.ciphertext + vector.tag))
      for mask: UInt8 in [0, 1] {
        let (opened, isTrue) = try open(
          vector, sealed, tag: Bytes.put(tag[15] ^ mask, at: 15, in: tag), size: size)
        #expect(opened == plaintext && isTrue == (mask == 0))
      }
    }
  }

  /// OpenSSL itself accepts a tag of 1 byte, which a guess gets right once in 256 times.
  @Test(arguments: 0...16) func onlyAWholeTagIsAccepted(count: Int) throws {
    let vector = Self.aesGCM[3]
    let (_, isTrue) = try open(
      vector, bytes(vector.ciphertext), tag: Array(bytes(vector.tag).prefix(count)))
    #expect(isTrue == (count == 16))
  }

  /// The test vectors of C2SP's XAES-256-GCM.md; the third one is from tink-go.
  static let xaes: [Vector] = [
    .init(
      key: "0101010101010101010101010101010101010101010101010101010101010101",
      nonce: "4142434445464748494a4b4c4d4e4f505152535455565758",
      plaintext: "584145532d3235362d47434d",
      ciphertext: "ce546ef63c9cc60765923609",
      tag: "b33a9a1974e96e52daf2fcf7075e2271"),
    .init(
      key: "0303030303030303030303030303030303030303030303030303030303030303",
      nonce: "4142434445464748494a4b4c4d4e4f505152535455565758",
      plaintext: "584145532d3235362d47434d",
      authenticated: "633273702e6f72672f584145532d3235362d47434d",
      ciphertext: "986ec1832593df5443a17943",
      tag: "7fd083bf3fdb41abd740a21f71eb769d"),
    .init(
      key: "0202020202020202020202020202020202020202020202020202020202020202",
      nonce: "1836e1ba8e24f42f39fa06030310caa4bc08a2788b790e6c",
      authenticated: "633273702e6f72672f584145532d3235362d47434d",
      tag: "376f92ec763e3b423b00fc05800376f8"),
  ]

  @Test(arguments: xaes)
  func xaesMatchesC2SP(vector: Vector) throws {
    let message = try bytes(vector.plaintext)
    let box = try bytes(vector.nonce + vector.ciphertext + vector.tag)
    let key = try bytes(vector.key)
    let authenticated = try bytes(vector.authenticated)
    #expect(try seal(message, box, key, authenticated) == box)
    #expect(try open(box, key, authenticated) == message)
    for position in box.indices {
      var damaged = box
      damaged[position] ^= 0x80
      #expect(try open(damaged, key, authenticated) == nil)
    }
    #expect(try open(box, key, authenticated + [0]) == nil)
    for count in 0..<box.count {
      #expect(try open(Array(box[..<count]), key, authenticated) == nil)
    }
  }

  /// C2SP's accumulated vector: keys, nonces and messages come from SHAKE-128, and SHAKE-128 of all
  /// ciphertexts is compared. `KEEPSAKE_XAES=1000000` runs the long version.
  @Test func xaesMatchesC2SPsAccumulatedVector() throws {
    let setting = ProcessInfo.processInfo.environment["KEEPSAKE_XAES"].flatMap(Int.init)
    let count = setting ?? 10_000
    let expected = [
      10_000: "e6b9edf2df6cec60c8cbd864e2211b597fb69a529160cd040d56c0c210081939",
      1_000_000: "2163ae1445985a30b60585ee67daa55674df06901b890593e824b8a7c885ab15",
    ]
    let stream = try shake([], count: count * (32 + 24 + 2 + 2 * 255))
    var position = 0
    func take(_ count: Int) -> [UInt8] {
      defer { position += count }
      return Array(stream[position..<(position + count)])
    }
    var sealed: [UInt8] = []
    for _ in 0..<count {
      let (key, nonce) = (take(32), take(24))
      let message = take(Int(take(1)[0]))
      let authenticated = take(Int(take(1)[0]))
      let box = try seal(message, nonce, key, authenticated)
      if try open(box, key, authenticated) != message { Issue.record("does not open again") }
      sealed += box[24...]
    }
    let sum = try shake(sealed, count: 32)
    #expect(try sum == bytes(#require(expected[count])))
  }

  private func shake(_ input: [UInt8], count: Int) throws -> [UInt8] {
    let context = EVP_MD_CTX_new()
    defer { EVP_MD_CTX_free(context) }
    try #require(EVP_DigestInit_ex(context, EVP_shake128(), nil) == 1)
    try #require(EVP_DigestUpdate(context, input, input.count) == 1)
    var output = [UInt8](repeating: 0, count: count)
    try #require(EVP_DigestFinalXOF(context, &output, count) == 1)
    return output
  }

  /// A box under the nonce that `box` begins with.
  private func seal(
    _ message: [UInt8], _ box: [UInt8], _ key: [UInt8], _ authenticated: [UInt8]
  ) throws -> [UInt8] {
    var sealed = box[..<24] + message + Array(repeating: 0, count: 16)
    try key.withBytes { key in
      try authenticated.withBytes { authenticated in
        try sealed.withUnsafeMutableBytes {
          try XAES(key: key).seal($0, authenticating: authenticated)
        }
      }
    }
    return Array(sealed)
  }

  private func open(
    _ box: [UInt8], _ key: [UInt8], _ authenticated: [UInt8]
  ) throws -> [UInt8]? {
    var message = [UInt8](repeating: 0xAA, count: max(0, box.count - XAES.overhead))
    let isOpen = try key.withBytes { key in
      try box.withBytes { box in
        try message.withUnsafeMutableBytes {
          try XAES.open(box, key: key, authenticating: authenticated, into: $0)
        }
      }
    }
    return isOpen ? message : nil
  }

  /// RFC 5869, appendix A: secret, salt, info, output.
  static let hkdf: [(String, String, String, String)] = [
    (
      "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b",
      "000102030405060708090a0b0c",
      "f0f1f2f3f4f5f6f7f8f9",
      "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
        + "34007208d5b887185865"
    ),
    (
      "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        + "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
        + "404142434445464748494a4b4c4d4e4f",
      "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f"
        + "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"
        + "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
      "b0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecf"
        + "d0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeef"
        + "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
      "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
        + "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
        + "cc30c58179ec3e87c14c01d5c1f3434f1d87"
    ),
    (
      "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b",
      "",
      "",
      "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
        + "9d201395faa4b61a96c8"
    ),
  ]

  @Test(arguments: hkdf)
  func hkdfMatchesTheRFC(
    secret: String, salt: String, info: String, output: String
  ) throws {
    let expected = try bytes(output)
    let derived = try KeyDerivation.hkdf(
      bytes(secret), salt: bytes(salt), info: bytes(info), count: expected.count)
    #expect(derived == expected)
  }

  /// RFC 7914, section 12: passphrase, salt, binary logarithm of N, r, p, output. The last one
  /// takes 1 GiB and seconds.
  static let scrypt: [(String, String, UInt8, UInt64, UInt64, String)] = [
    (
      "", "", 4, 1, 1,
      "77d6576238657b203b19ca42c18a0497f16b4844e3074ae8dfdffa3fede21442"
        + "fcd0069ded0948f8326a753a0fc81f17e8d3e0fb2e0d3628cf35e20c38d18906"
    ),
    (
      "password", "NaCl", 10, 8, 16,
      "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b373162"
        + "2eaf30d92e22a3886ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640"
    ),
    (
      "pleaseletmein", "SodiumChloride", 14, 8, 1,
      "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
        + "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
    ),
    (
      "pleaseletmein", "SodiumChloride", 20, 8, 1,
      "2101cb9b6a511aaeaddbbe09cf70f881ec568d574a2ffd4dabe5ee9820adaa47"
        + "8e56fd8f4ba5d09ffa1c6d927c40f4c337304049e8a952fbcbf45c6fa77a41a4"
    ),
  ]

  @Test(arguments: Coverage.isComplete ? scrypt : scrypt.dropLast())
  func scryptMatchesTheRFC(
    passphrase: String, salt: String, logN: UInt8, r: UInt64, p: UInt64, output: String
  ) throws {
    let derived = try KeyDerivation.scrypt(
      passphrase, salt: Array(salt.utf8), logN: logN, r: r, p: p)
    #expect(try derived == bytes(output))
  }

  @Test(arguments: xaes) func aMessageHasAKeyThatOpenSSLDerivesToo(vector: Vector) throws {
    let key = try XAES.messageKey(bytes(vector.key), bytes(vector.nonce))
    let message = Vector(
      key: key.map { String(format: "%02x", $0) }.joined(),
      nonce: String(vector.nonce.dropFirst(24)), authenticated: vector.authenticated)
    let (opened, isTrue) = try open(message, bytes(vector.ciphertext), tag: bytes(vector.tag))
    #expect(try opened == bytes(vector.plaintext) && isTrue)
  }

  /// RFC 4231, test cases 2 and 6. The second key is longer than a block.
  @Test(arguments: [
    (
      Array("Jefe".utf8), "what do ya want for nothing?",
      "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    ),
    (
      [UInt8](repeating: 0xAA, count: 131),
      "Test Using Larger Than Block-Size Key - Hash Key First",
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
    ),
  ]) func hmacMatchesTheRFC(key: [UInt8], message: String, expected: String) throws {
    #expect(try Digest.hmac(key: key, Array(message.utf8)) == bytes(expected))
  }

  private func bytes(_ hexadecimal: String) throws -> [UInt8] {
    let digits = Array(hexadecimal.utf8)
    return try stride(from: 0, to: digits.count, by: 2).map {
      try #require(UInt8(String(decoding: digits[$0..<($0 + 2)], as: UTF8.self), radix: 16))
    }
  }
}
