import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport

/// Opens vaults that were written in each version of the format, as every later version must.
///
/// The library wrote the bytes below once, and they never change. If a test fails here, users would
/// lose their secrets with the next release.
@Suite struct GoldenVaultTests {
  private struct Credentials: Codable, Equatable {
    var user: String
    var scopes: [String]
  }

  static func make(_ files: [String: String]) throws -> TemporaryDirectory {
    let directory = try TemporaryDirectory()
    for (name, text) in files {
      let bytes = try #require(Data(base64Encoded: text, options: .ignoreUnknownCharacters))
      let path = directory.file(name).path
      try FileSystem.createDirectory(FileSystem.parent(of: path))
      try File(path, .create).writeAll(Array(bytes))
    }
    return directory
  }

  /// Nanoseconds since 1970.
  private typealias Dates = (service: String, key: String, created: Int64, modified: Int64)

  private func expect(_ dates: [Dates], in vault: Vault) throws {
    for (service, key, created, modified) in dates {
      let names = try #require(try vault.names(service, key)?.names, "\(service), \(key)")
      #expect(names.created == created && names.modified == modified, "\(service), \(key)")
      #expect(names.service == service && names.key == key)
    }
  }

  @Test func opensAVaultWithAKeyFile() throws {
    let directory = try Self.make(Self.underKeyFile)
    let before = try directory.contents()
    let failures = Failures()
    let store = directory.secrets(failures: failures)
    #expect(try store.protection == .keyFile && !store.isLocked)
    #expect(try store.get("text") == "tok-\u{2713}")
    #expect(try store.getData("data") == Data([0, 1, 254, 255]))
    #expect(try store.getData("text") == Data("tok-\u{2713}".utf8))
    #expect(
      try store.model("model") == Credentials(user: "ada", scopes: ["read", "write"]))
    #expect(try store.model("date") == Date(timeIntervalSince1970: 1_700_000_000.25))
    #expect(try store.keys() == ["data", "date", "model", "text"])
    #expect(try store.storedServices() == ["com.example.auth", .standard])
    let auth = directory.secrets("com.example.auth", failures: failures)
    #expect(try auth.keys() == ["", "number", "text"])
    #expect(try auth.model("number") == Double.infinity)
    #expect(try auth.get("") == "" && auth.get("text") == "second")
    #expect(try auth.get("data") == nil && auth.entry("text")?.access == .whenUnlocked)
    try expect(Self.datesUnderKeyFile, in: directory.vault())
    let entry = try #require(try auth.entry("text"))
    #expect(abs(entry.created.timeIntervalSince1970 - 1_795_253_424.294579) < 1e-5)
    #expect(abs(entry.modified.timeIntervalSince1970 - 1_795_253_424.307055) < 1e-5)
    #expect(failures.all.isEmpty)
    #expect(try directory.contents() == before, "reading changes nothing")
  }

  @Test func writesToAVaultWithAKeyFile() throws {
    let directory = try Self.make(Self.underKeyFile)
    let store = directory.secrets()
    try store.set("new", forKey: "text")
    let entry = try #require(try store.entry("text"))
    #expect(abs(entry.created.timeIntervalSince1970 - 1_795_253_424.270311) < 1e-5)
    #expect(entry.modified > entry.created)
    try store.rotateKeys()
    try store.protect(with: .keyFile)
    let next = directory.secrets()
    #expect(try next.get("text") == "new" && next.getData("data") == Data([0, 1, 254, 255]))
    let auth = directory.secrets("com.example.auth")
    #expect(try auth.keys() == ["", "number", "text"] && auth.get("text") == "second")
    try expect(Self.datesUnderKeyFile.filter { $0.service != "standard" }, in: directory.vault())
  }

  @Test func opensAVaultWithAPassphrase() throws {
    let directory = try Self.make(Self.underPassphrase)
    let before = try directory.contents()
    let passphrase = "correct horse battery staple"
    let requests = Locked<[String]>([])
    let store = directory.secrets(authenticate: { request in
      requests.withLock { $0.append(request.reason) }
      return passphrase
    })
    #expect(try store.protection == .passphrase && store.isLocked)
    let locked = #expect(throws: StorageError.self) { try store.get("text") }
    #expect(locked?.code == .locked)
    let wrong = #expect(throws: StorageError.self) { try store.unlock(passphrase: "correct") }
    #expect(wrong?.code == .wrongPassphrase)
    try store.unlock(passphrase: passphrase)
    #expect(try store.get("text") == "tok" && store.keys() == ["pin", "text"])
    #expect(try store.entry("pin")?.access == .userPresence)
    #expect(try store.entry("text")?.access == .whenUnlocked)
    #expect(requests.withLock { $0 } == [])
    #expect(try store.get("pin", reason: "Pay") == "1234")
    #expect(requests.withLock { $0 } == ["Pay"])
    let source = SecureVault.KeySource(.passphrase(passphrase, logN: 10))
    try expect(Self.datesUnderPassphrase, in: directory.vault([source]))
    #expect(try directory.contents() == before, "reading changes nothing")
  }

  // MARK: Version 2 of the header

  /// Written once by ``makeVersion2()``, and never changed: a directory for each vault.
  private static let version2 = Repository.file("Tests/Golden/vault-2")
  private static let passphrase = "correct horse battery staple"
  private static let recoveryPassphrase = "second"
  private static let cheap = SecureVault.KeySource(.passphrase(passphrase, logN: 10))

  private static func copy(_ name: String) throws -> TemporaryDirectory {
    let directory = try TemporaryDirectory()
    let golden = version2.appending(path: name)
    for file in ["vault", "state", "code"] {
      let source = golden.appending(path: file)
      if FileManager.default.fileExists(atPath: source.path) {
        try FileManager.default.copyItem(at: source, to: directory.file(file))
      }
    }
    // A checkout does not keep modes.
    let keyFile = directory.keyFilePath
    if FileManager.default.fileExists(atPath: keyFile) { chmod(keyFile, 0o600) }
    return directory
  }

  /// A vault with a key file, a recovery code and a secret that requires presence; and one with a
  /// passphrase, a recovery passphrase and such a secret.
  @Test(.enabled(if: ProcessInfo.processInfo.environment["KEEPSAKE_WRITE_GOLDEN"] != nil))
  func makeVersion2() throws {
    try KeySlot.$defaultLogN.withValue(10) {
      for (name, source) in [("key-file", .keyFile), ("passphrase", Self.cheap)] {
        let directory = try TemporaryDirectory()
        let store = directory.secrets(
          keySources: [source], authenticate: { _ in name == "key-file" ? "1234" : Self.passphrase }
        )
        try store.set("tok-\u{2713}", forKey: "text")
        try store.set("4711", forKey: "pin", access: .userPresence)
        let other = directory.secrets("com.example.auth", keySources: [source])
        try other.set(Data([0, 1, 254, 255]), forKey: "data")
        if name == "key-file" {
          try Data(store.addRecovery().utf8).write(to: directory.file("code"))
        } else {
          try store.addRecovery(passphrase: Self.recoveryPassphrase)
        }
        let golden = Self.version2.appending(path: name)
        try FileManager.default.createDirectory(at: golden, withIntermediateDirectories: true)
        for file in try directory.names() {
          try FileManager.default.copyItem(
            at: directory.file(file), to: golden.appending(path: file))
        }
      }
    }
  }

  private func expectVersion2(_ store: SecureVault.Store, _ other: SecureVault.Store) throws {
    #expect(try store.get("text") == "tok-\u{2713}" && store.get("pin") == "4711")
    #expect(try store.keys() == ["pin", "text"] && store.entry("pin")?.access == .userPresence)
    #expect(try other.getData("data") == Data([0, 1, 254, 255]))
  }

  @Test func opensVersion2WithAKeyFileAndARecoveryCode() throws {
    let directory = try Self.copy("key-file")
    let header = try Bytes.read(directory.headerPath)
    #expect(header[4...6] == [2, 1, 2])
    let before = try directory.contents()
    try expectVersion2(
      directory.secrets(authenticate: { _ in "1234" }), directory.secrets("com.example.auth"))
    let wrong = directory.secrets(authenticate: { _ in "4321" })
    expectFailure(.wrongPassphrase) { _ = try wrong.get("pin") }
    let code = String(decoding: try directory.bytes(of: "code"), as: UTF8.self)
    let recovered = directory.secrets(keySources: [], authenticate: { _ in "1234" })
    #expect(try recovered.openers.map(\.kind) == [.keySource(.keyFile), .recoveryCode])
    try recovered.unlock(passphrase: code)
    #expect(try recovered.get("pin") == "4711")
    #expect(try directory.contents() == before, "reading changes nothing")
    try recovered.rotateKeys()
    try expectVersion2(
      directory.secrets(authenticate: { _ in "1234" }), directory.secrets("com.example.auth"))
  }

  @Test func opensVersion2WithEachPassphrase() throws {
    let directory = try Self.copy("passphrase")
    let before = try directory.contents()
    for typed in [Self.passphrase, Self.recoveryPassphrase] {
      let store = directory.secrets(keySources: [], authenticate: { _ in Self.passphrase })
      #expect(
        try store.openers.map(\.kind) == [.keySource(.passphrase), .recoveryPassphrase])
      try store.unlock(passphrase: typed)
      let source = SecureVault.KeySource(.passphrase(typed, logN: 10))
      try expectVersion2(store, directory.secrets("com.example.auth", keySources: [source]))
    }
    #expect(try directory.contents() == before, "reading changes nothing")
  }

  /// The next change of keys writes the current version, in which the presence slot is sealed.
  @Test func aChangeOfKeysUpgradesTheHeader() throws {
    let directory = try Self.make(Self.underPassphrase)
    let passphrase = "correct horse battery staple"
    let source = SecureVault.KeySource(.passphrase(passphrase, logN: 10))
    let store = directory.secrets(keySources: [source], authenticate: { _ in passphrase })
    try store.set("new", forKey: "text")
    #expect(try Bytes.read(directory.headerPath)[4...6] == [1, 1, 2], "a set is no change of keys")
    try store.rotateKeys()
    #expect(try Bytes.read(directory.headerPath)[4...6] == [2, 1, 1])
    let next = directory.secrets(keySources: [source], authenticate: { _ in passphrase })
    #expect(try next.get("pin") == "1234" && next.get("text") == "new")
    let wrong = directory.secrets(keySources: [source], authenticate: { _ in "wrong" })
    expectFailure(.wrongPassphrase) { _ = try wrong.get("pin") }
  }

  // MARK: Files

  /// Made with `set` alone; `text` of the second service was set twice.
  static let underKeyFile = [
    "state/vault.key": """
    U1ZLMQEAAQCdOBz+qPZ94iMWm70zUO5CKWnEi8YXQWUas+sRQYxHqU94R9rXJn47ytWuZi2m0mIUBU/fq5+wJRDf
    SYzc57ClduWu2Sym6seergIDbbw6UA==
    """,
    "vault/059ad34e6890c3b32e79e16f5f5b59d9/1d3ea02b2525fc0c68e8eef5c2398635": """
    U1ZFMQEBAAAk5XtVaAAAACgBAAAAAAAAClyivg3dbtCj7hxdC1RLF/zFSgX6xNpwxOhiM53WzoGI3IYG2U9L/avf
    Lg5gKGmoVDaPjBAwADilwsv6Rt3+P3r1swCg7atXx3YOv2Cf0uj7M/RE0tBYyX50fr4qJAYI6cNJphzgUSkXsg8j
    aerfEL8JmmrIzoOup77H7Ze9RkOH8+00BSNh5IZlhmaPPUaF0w0kLXnzGAlUVHA3oYkOYyBrc/c/g8qB6X7K4C1U
    GgShcr+y7CMzY9/nU0gLltLJEA82hj6n4hkty8vkwp+McOYaJkjWjEReRclsYSGT1BVuFUhWnhDY96fjVDV8WqsY
    KrzM0BWCbmK9q28h3DMKkvM3fRBDGHsNIBhGhZVZ4+gUD0CUwTyc00Jd7hVBci3CbHBSGaSF9qlh50CRBnqG5qJf
    K3OaKL5Q7Z9NXeKxb3nAFjnf4aXNqjmBdwshIk9ACEA8Btz6wei0VKNpIXHRYtp7vViUPadv16Aslb+2B/7RpB8i
    51JLUm7O/reVLd6gmbNtGlvBe2jOaXVAgVgpDQ==
    """,
    "vault/059ad34e6890c3b32e79e16f5f5b59d9/8a4ab18203d97f039fe86d8717f75e95": """
    U1ZFMQEBAAAk5XtVaAAAACgBAAAAAAAADPJEexIdOu9moppj/8Rybp+K6oW+LksQhohtXU7kAur4+fGHGcSsXlYv
    e76tqMuSha63CF9Ks+lPfw04hstTkwc/pezPWqvpZP0d4Gu0vtwkImErfqWxmFTwMRixex6/13mz9VuT1raZVOEg
    KdGg9mnniBsyYeaPHh6sU8/rJNC2cU4GkbJ+bCdsbx6BjCpCmmwhIv5wrXp8iqqBaZ/nGvDXrB901g8a707mNY/+
    KhV9gKBDDj1TPwNIAJTfZ5rstV5Ik0PwrzLZJPp6wpzXBcZU/DaXGLWcv18gcXHgxAUcg8Wafb+r1eDzhnzK8MAL
    U+jUydyrFcnuJQtm8quaRIE3pjnYbYyxiZn2UIo/5NoWkQuSwl3S7Al9cnenpwkxLRUCDFt4y2C5upXSEk4Kod3p
    W2Yj2m2hmr7tkim6JupygW9WK7QU/Z/XAjoZlcNNskJfOKhIPTmn30kDBWDWwogcyOxTz0EDKXbRWQVr16di0VPP
    bwpSG3R4Km00jahR28Wlbf+Gd5M+iGayOnapDA==
    """,
    "vault/059ad34e6890c3b32e79e16f5f5b59d9/98a00893f2964f2d318721d808e23ab5": """
    U1ZFMQEBAAAk5XtVaAAAACgBAAAAAAAA58aCo/2e+xUy6+a41zDor966ZzOAJNWu0Bslb0co3wxKhDoGAObqJwNF
    a1dYnEXlDA+I6JQO2+aTtoj4DTpepYXnnJ2WDInXRRKX/OO1r2bbWTbs3MFKDNWLIjCxHAposbQKg3vobUM1kIW7
    MQi/iHxV7YzcZxFbzoSwtIGodSOgvS/fHfSdQdI3UUJ9t367O7Tb7dNC4hH9c612iN8gEMg+3VuewrV4d5W0uPhX
    zJUvYjClf0yJdE7aoBJtShBi+R50YmthnNtI2pucoo5NUZ0H0C6PfeG5oC2Ca8147E4q7y5gq3dsdXIvsqARUC2j
    XoH9aY/MVeKOUzBpB6nYZpW2Q5zBWVFTksxABQ6kjvQeMkVkv0YYLRFfk9XaRAxt8nYQnYS4k1CQ8HLeThJdbM5b
    B7AIIkr0t2QBOPsTba65zwgtSQuJ43HEIsvEr30shXKrfmmihjxswR52dhm60CEY/VlMyfpv3oS45rhCgFuLZeIO
    CaZqCyRmjHvCXYopoCaAMk6CH+Vezl4f4Rpg1g==
    """,
    "vault/059ad34e6890c3b32e79e16f5f5b59d9/e2ab9080c8e125315a3f40063dbbe15d": """
    U1ZFMQEBAAAk5XtVaAAAACgBAAAAAAAAnucpongTm46yrdBtBB+aQDeak+pZjYQZRJVBB0FXoAOGVlTuGmqRhDOV
    DkkLx+BHVnDqzQQtukaqCqwRsCoFVcCJTxhwHFph9Tv9lfSGtNv0jzuzuVYUn7bHq40qYusN4QqhBC2VOAaFjbsy
    VcXSmBD7+Wgyv2OPGqRwFnGM7WjRvn2xdHGdOB6xyuD7maLvXLMUNHBeMi1tMqWAu8pckBJBGPcXfVkkJAT9gI0V
    urBR20cLkGSFbmerb8DaHbTTMQANWi32GNCNcyKmikyLeXnsgaw2id6ytKQJeTzLztMn73c4ny1uIXOYrHHc2jpY
    IJg8VZAHt4HSirSGpk54rNOoJgG2bckzugjb/xFzHubjZJWV1JjVKRtO6qBcGFSi/mUmIRHubGMCePWsRANnj2Y/
    6AKCuHVnY3bbdlGmugMy/lRuov9MCP2Qgz1fBWwwn0sES594+fMJA2m89gYJaQMwpHYYi0MRL9rgwMCnDnH2ifxH
    zD+7K5TQFM6hWZyFB2jmurtPevRDjfYcTtwoQA==
    """,
    "vault/659d081220ace4607fb5a3fcfd2f8b68/1fe69268b19cc88b7f42d6ec5d7c60c1": """
    U1ZFMQEBAAAk5XtVaAAAACgBAAAAAAAA3r/LsCs5FmMsW9kbvDfYImH/3bD8DrlI70ahr0mFflQffKTYhC+x3dY2
    sgvxj/vNJ9de30pUMsR/tarrITp4kAKEX3efF5aSbQ5h2tF+31o6ZsX25wRVpNfOH9DzHraxOir/BpLpnEFQykRt
    uHxnRq0gBvaN4y0TbHulqz01Q+46XEk8kx4FRGaEvKrw5TFCt8Zs7IEq9J1Ou9ZLHp7b7E97X/E51IGIvLWQam5o
    gftPtj0ZuISsTwCpem74K3BmUbu4A3ZUi/R0aGrXTu3eChAUfExewS6qjlvHu0YJIl5fOjAPNDfoQQf14zQHof5G
    7UD8t2YhaT5i7S76lFE9+DAm+0xGiPchqyp47kj5/E4/pR+8CY0jmLbPzKzVMLAaLgWAUaXn2dKv12xJND+D/+Sl
    HJj4aNmRaBiTzsUGbkDN9jq9RM+wgpAbOsf8EkecXNrof0Rp5LjzzPz0wstwkltj8Q9Kms3R8NU4Q+Uxe3OvDDDf
    cOi4iZxV37nfxJwcipQ/XeSoH8ZKvxeBajQY7g==
    """,
    "vault/659d081220ace4607fb5a3fcfd2f8b68/28bcb9f36b04172e95261e79b13d0d18": """
    U1ZFMQEBAAAk5XtVaAAAACgBAAAAAAAAluhLTUi4sJ+LskMl1yo/z9F3oltkugATVYqe0fDSh0O0/XAMVu1+V9Kb
    5CbqDF3628xh93cyVCeI985sEHkox0vBbHCYdzwjlYdeVf5JNzb4ccVwc8WRW4l3v57FtzoUdLxfFbdqjgCKe6Hn
    +gpVBaxfMoLEcL65mH49SJvlh/xoqRBpjLcYEC0zz2gxRvxcJWLlRnRhLjxqXAYcf7t88AW8cSq1tsTXZlVpGIT7
    IVsNS5Ticn5w9GkjM1biyG9t8Gzu1M9vFMimcXxUBio9x67xEDkOUdB6r/+X5tQA9zjG5s3J/QkDBa5jB+eLaTuO
    QS7KFEgI07yV01EshTx7jpm/1OcxectqefVUqZq/Mba/vRTVNi0WOciinQw614EvSuPTY7i1/aJV8kl234uhQTJH
    G5dsmrZHEmgzMGGnQLiCT1qt0o6NbnM24NkktgkxgVESQZYz2rZvqVSik3D9KrgMph4py8OdswIQ9Z+t5Yy+0EFg
    MnpSr/zAjsfZpukPyXK+znPYdWeyWXwwSrseEw==
    """,
    "vault/659d081220ace4607fb5a3fcfd2f8b68/60a9014337c2b7ca9343c430d3b1fe0d": """
    U1ZFMQEBAAAk5XtVaAAAACgBAAAAAAAAdfb96ZDHl7ud1wbP1j0kHxeCWYgriP5DDPvo3HqI3OPEKHw9eWG+m0aF
    A7vKXQdso+1R/DHphOQXZuvXWU7iv0rE3KzOHu68KSeTI4UgokQxxdNp0CFw72V4A82E+gzMIpzkO2ExhYA4QGGB
    8+iMFIh/V/BP55dfsWHFmvvtPahmWigN9ST60uUbcHB2gHhjydCnpqM/Gu1NnjSGi5ZdIst/AEVUWLUD0oyrbYqk
    kpZ/SPq+MQsXjR/qQxkQhKMoT3ghlcYLwSyITML6GgMDFGwp86/Rop7d5NYI0VL4AWjsLI5c6+7BtnV/VHLmr56n
    hVuTI9pTBgR9qGJEkEeJyyR7xLtfXyai3sfTP9/xJxFiAE9xXkuPvyLeYP+cgzd+/9MuGunCdW4sOwyCeOXRV1Zk
    iVzhMisnXRodRR8txNKJCJBR47W71CZCpOuXqKGOtURK81K52oOiVD8ldb1nwkimE8tl5YWUg7apZV1cD780bMBI
    n37YRr19uX7oWx9TI8TXFEX9cco1C9j9/yPQLg==
    """,
    "vault/vault.hdr": """
    U1ZIMQEBAQBZAo+QG2bIN0Qm5fwtddOtAQEAEJ04HP6o9n3iIxabvTNQ7kJiS6wYnPvC6B1gxraNMInqizuz1zoy
    ZyFppwJQS/VbvSXiDpEYNCvRU05d8yoGaI8w+YlQbGr6x3rZDmJ4vxbHwO8Cf221gxcHMw6MlFI1BNIBvufbzfLe
    LLGKyx2VBrPmrLxFrCTrp2Mpriir1/AhHxEbbUYhGSRonPNtkT1/e1aLezdBBV14dAAAAGqX5404FNJBaTWlnUtW
    pQqy+ja1OwxUSTR0IO/sg7hwIVEmwzW94h/lbGRhdMApSFyGz67bJhkBLXvjY1mtlzRsWuN34NaL2akO+HzR6+fh
    kBSI4RRBxmyjrELvtFS6eIDYL8g6a5nKonc4BCdcvACJsdu64YKJxVR3fJ4q9pR/T9TjWzJvqgWy5vJdaVKWzs9m
    +J0=
    """,
  ]

  private static let datesUnderKeyFile: [Dates] = [
    ("standard", "text", 1_795_253_424_270_311_344, 1_795_253_424_270_311_344),
    ("standard", "data", 1_795_253_424_276_786_652, 1_795_253_424_276_786_652),
    ("standard", "model", 1_795_253_424_281_261_964, 1_795_253_424_281_261_964),
    ("standard", "date", 1_795_253_424_282_663_436, 1_795_253_424_282_663_436),
    ("com.example.auth", "number", 1_795_253_424_284_805_414, 1_795_253_424_284_805_414),
    ("com.example.auth", "", 1_795_253_424_291_461_732, 1_795_253_424_291_461_732),
    ("com.example.auth", "text", 1_795_253_424_294_579_647, 1_795_253_424_307_055_925),
  ]

  /// The passphrase is "correct horse battery staple", the binary logarithm of scrypt's N is 10,
  /// which is less than any program would choose; `pin` needs a person's presence.
  static let underPassphrase = [
    "vault/59b7a2f6db0c4eb673d22b3010b83ee0/1c40608b8a3d860bf65bc2b0027a306b": """
    U1ZFMQEBAADEaa9daAAAACgBAAAAAAAAG9v4GqKf/cX59KrdNfYrhTvO2WuCBBNBJU82SiQC75dZrp8rDXK8BqQT
    c8Ju2mG2hGTh8xfKcWwI4gtcEScYfRP8SIY3t/Z7fuPvH85ZdTUQTGJYgWrs3CWbzZEM3xcLXqTFABBvH3jYYTmX
    EpOxkJ3LkW29nqluA5vJBmlD5YbUMuJVZoSQOBwhfVWYFn8kGPTO4T8sMwcZwmvFE1e7hU9wWIEqAG6tKCFwidYx
    rMX4ERI7LMl5NKSt3U+/gO3u5HA/f6EmQTYr/oGdw2Jv1EqA+5WyYD/gp05r/1ay7vc0a/BgkLAYYoG1TUp1CQ/N
    gJEdM2QPZhe46lijREHJV+hdHLh9aXr/26vfeRX4Zrx0iAaYTLr7AYOEVslForwc/holFJQS35o27m5BpGGoUbHu
    NYpKo7q/DsUpTvqgKSbFNjEuniGK3U74wAO1TsWPF8OYWlryTxtvIuHYIK5VnKGDwHkJtMQLh0uC7+xjt65pe0rb
    XVsYe5PjHT4dtK1he9XWGRcLZF1gkEKEs+3I5g==
    """,
    "vault/59b7a2f6db0c4eb673d22b3010b83ee0/88a871433e1a5f29c4a5397db0a82869": """
    U1ZFMQEBAQDEaa9daAAAAGgBAAAAAAAAAacZGRrtZXFkIS3EwxKpmpjsFbA8xa9joL0/8x5/um2jruVzze1h0l5G
    YHfDpO8M4mBmZGkc0QJIo5SUzJW+6LxZh5HOL9QjaS/e8vqUtVf+tkI9x4/NcJaZldeL/KskBLesepIyXZ12iy9D
    mbpE0FE9ob5/1MVYmddkO/2kL7RQ0k8N9aMmFozGzZ/D7pcHD6QT3f8CZQ4zd6IMkvYPVjH6XtWuvUfzLMehLJsq
    hpEzvTEfje6arpc6SkwCIlJqWm9UNsGZSZvj43kTkiH8mg4HbKW/OcuJfTpopWfs+n89juzsz81vFK1co1Sx+9kq
    DIYCUmXkT+n9x0EIBUegfCw3CQokV2xkkTHk5hDcoi1Pu5huaMcYozKfxdNal7epUHBzWBwyy3IjeoAYAkViV9qh
    OAJD6M4kZKsb5Z2izIBcwkSb3gSdKV9o6ccvfgidY+e5sHhv/tD/rtz+1xLXuwuyM8U/favf4es/5f3O1OYeh2TZ
    QLQtwczm3BXnbbLTSpVtMDPDM/nYyGWxKsklQOcOy1mj0qCv4+AHbG5vGVPcSKsz67maqaA3aEpnTPea4BqlLFFM
    aAarqcvTCrEnvD6CRwKeibaGwrD1IjuzY6Q=
    """,
    "vault/vault.hdr": """
    U1ZIMQEBAgD0eutYosXmtust5zqIWZ3SAgEKALQgxbcVmOhOy07wJilaZIejWcV8ROKluykuCnGkQI8gZdaG9rlh
    RszkzPRlwLhvMc4PgBneomCGBEjQn7FWEHj7HeT0dtLXuF6/0o3uzPsWorR3G0c2QJPV+xmcOknEcOdKYmQ7SU+T
    vzeLkLRuB+2/RJ94NP6uup1RjKn63HImWIvOuHN0ggECAgoALqc5fcm1hc6YZffBGKAcjm9tEIlic8VuNjPmn+Ei
    MwIOYDVzLi5nVuV2GRFiKsh8rpbJOAkEKfk85vlxKEFaNIuUMVozvj3uspcc98po8w+v+6gYKvqbHljnWogn5WiZ
    /d2+wK96HYiivCr1V530eAvNchjRVvp8DcTkCyDVP3fttOSOJBwMh3QAAADm9ME1pgH4znWzmwQMqcYTpn+wHLWK
    7oyfAk7QSwsq2BD24MHNoEEqn+6Wm5WvVKHQzq05DzsJmgIkeAR8zf+ZyopRdb38wu0A6H/srnNVyKc6LF1JQlSC
    8VCbLRlm9nbGx472tOTLI4BtmqHxGMN9o7v0fDtgrUDbqP3o2VAVObE4tMBTU5yWIuBH1HRqgn51X6Zk
    """,
  ]

  private static let datesUnderPassphrase: [Dates] = [
    ("standard", "text", 1_795_253_424_322_984_697, 1_795_253_424_322_984_697),
    ("standard", "pin", 1_795_253_424_345_063_912, 1_795_253_424_345_063_912),
  ]
}
