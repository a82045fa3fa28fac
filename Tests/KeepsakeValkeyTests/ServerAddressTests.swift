import Testing

@testable import Keepsake
@testable import KeepsakeValkey

@Suite struct ServerAddressTests {
  private func tcp(_ host: String, _ port: UInt16 = 6_379) -> ServerAddress.Endpoint {
    .tcp(host: host, port: port)
  }

  @Test(arguments: ["valkey", "redis", "VALKEY"]) func parsesAHost(_ scheme: String) throws {
    let address = try ServerAddress("\(scheme)://cache.internal")
    #expect(address == ServerAddress(endpoint: tcp("cache.internal")))
    #expect(!address.isEncrypted)
    #expect(address.description == "valkey://cache.internal:6379")
  }

  @Test(arguments: ["valkeys", "rediss"]) func parsesEncryption(_ scheme: String) throws {
    let address = try ServerAddress("\(scheme)://h:7000/3?ca=/etc/my%20ca.pem")
    #expect(address.isEncrypted)
    #expect(address.endpoint == tcp("h", 7_000))
    #expect(address.database == 3)
    #expect(address.authorities == "/etc/my ca.pem")
    #expect(address.description == "valkeys://h:7000/3")
  }

  @Test func parsesACertificate() throws {
    let address = try ServerAddress("valkeys://h?cert=/a%20b.pem&key=/k.pem")
    #expect(address.certificate == "/a b.pem" && address.key == "/k.pem")
    #expect(try ServerAddress("valkeys://h?cert=/c.pem").key == nil)
  }

  @Test func parsesAddressesOfIPv6() throws {
    #expect(try ServerAddress("valkey://[::1]").endpoint == tcp("::1"))
    #expect(try ServerAddress("valkey://[fe80::1%25]:70/1").description.hasSuffix(":70/1"))
    #expect(try ServerAddress("valkey://[::1]:70").description == "valkey://[::1]:70")
  }

  @Test(arguments: ["unix:///run/v.sock?db=2", "unix:/run/v.sock?db=2"])
  func parsesSockets(_ url: String) throws {
    let address = try ServerAddress(url)
    #expect(address.endpoint == .unix(path: "/run/v.sock"))
    #expect(address.database == 2)
    #expect(address.description == "unix:///run/v.sock?db=2")
  }

  /// A name that begins like an address may lead anywhere.
  @Test(arguments: [
    ("127.0.0.1", true), ("127.9.8.7", true), ("[::1]", true), ("[0:0::1]", true),
    ("[::ffff:127.0.0.1]", true), ("localhost", true), ("LocalHost", true),
    ("127.evil.example", false), ("127.0.0.1.example", false), ("localhost.example", false),
    ("128.0.0.1", false), ("[::2]", false), ("[::ffff:10.0.0.1]", false), ("[127::1]", false),
  ])
  func knowsThisMachine(_ host: String, _ isHere: Bool) throws {
    #expect(try ServerAddress("valkey://\(host)").isOnThisMachine == isHere)
  }

  @Test func parsesTimeouts() throws {
    let address = try ServerAddress("valkey://h?timeout=250ms&connect-timeout=5s")
    #expect(address.requestTimeout == .milliseconds(250))
    #expect(address.connectTimeout == .seconds(5))
  }

  @Test(
    arguments: [
      ("valkey://ann:p%40ss%3A%2F@h", "ann", "p@ss:/"), ("valkey://:secret@h", nil, "secret"),
      ("valkey://ann@h", "ann", nil), ("unix://ann:pw@/run/s", "ann", "pw"),
      ("valkey://ann:@h", "ann", ""), ("valkey://a:b:c@h", "a", "b:c"),
      ("valkeys://%C3%A4:%E2%82%AC@h", "ä", "€"),
    ] as [(String, String?, String?)])
  func parsesUserAndPassword(_ url: String, _ user: String?, _ password: String?) throws {
    let address = try ServerAddress(url)
    #expect(address.user == user)
    #expect(address.password == password)
  }

  @Test(
    arguments: [
      ("", .scheme), ("localhost", .scheme), ("http://h", .scheme), ("localhost:6379", .scheme),
      ("valkey:h", .host), ("valkey://", .host), ("valkey://:6379", .host), ("valkey://a b", .host),
      ("valkey://[::1", .host), ("valkey://[::1]x", .host), ("valkey://h_1,h2", .host),
      ("valkey://h:0", .port), ("valkey://h:65536", .port), ("valkey://h:x", .port),
      ("valkey://h:-1", .port), ("valkey://h:+1", .port), ("valkey://h:", .port),
      ("valkey://h:99999999999999999999", .port),
      ("valkey://h/x", .database), ("valkey://h/-1", .database), ("valkey://h/1/2", .database),
      ("valkey://h/9999999999", .database), ("unix:///s?db=", .database),
      ("unix:s", .socketPath), ("unix://host/s", .socketPath), ("unix:", .socketPath),
      ("unix:///a%00", .socketPath), ("unix:///" + String(repeating: "a", count: 200), .socketPath),
      ("valkey://h?ca=/a", .authorities), ("valkeys://h?ca=a", .authorities),
      ("valkeys://h?ca=", .authorities),
      ("valkey://h?cert=/a", .certificate), ("valkeys://h?cert=a", .certificate),
      ("valkeys://h?key=/a", .certificate), ("unix:///s?cert=/a", .certificate),
      ("valkeys://h?cert=/a&key=b", .certificate), ("valkeys://h?cert=/a&key=", .certificate),
      ("valkey://h?timeout=5", .timeout), ("valkey://h?timeout=0s", .timeout),
      ("valkey://h?timeout=-1s", .timeout), ("valkey://h?timeout=3601s", .timeout),
      ("valkey://h?timeout=99999999999999999999s", .timeout),
      ("valkey://h?x=1", .parameter), ("valkey://h?timeout", .parameter),
      ("valkey://h#f", .reserved), ("valkey://u:a@b@h", .reserved), ("valkey://u:a/b@h", .reserved),
      ("valkey://u:a?b@h", .reserved), ("unix:///a@b", .reserved),
      ("valkey://u:%zz@h", .encoding), ("valkey://u:%f@h", .encoding),
      ("valkey://u:%ff@h", .encoding),
      ("valkey://:@h:x", .port), ("valkey://@h", .user),
    ] as [(String, AddressProblem)])
  func explainsWhatIsWrong(_ url: String, _ problem: AddressProblem) {
    let error = #expect(throws: StorageError.self) { _ = try ServerAddress(url) }
    #expect(error?.code == .misuse)
    #expect(error?.reason == problem.rawValue)
    #expect(error?.remedy == problem.remedy)
  }

  /// Wherever the password is, and whether or not it is encoded, no text has it.
  @Test(arguments: [
    "valkey://ann:hunter2@h", "valkey://:hunter2@h", "valkey://hunter2@h", "valkey://x:hunter2",
    "valkey://ann:x/hunter2@h", "valkey://ann:x?hunter2@h", "valkey://ann:x#hunter2@h",
    "valkey://ann:%hunter2@h", "valkey://ann:x@hunter2@h", "valkey://h:1/hunter2",
    "valkey://h?hunter2=1", "valkey://h?db=hunter2", "unix://ann:hunter2@/s", "hunter2",
    "hunter2://h", "valkey://ann:hunter2@h:x", "valkey://ann:hunter2@h?ca=/x",
  ])
  func saysNoPassword(_ url: String) {
    do {
      let address = try ServerAddress(url)
      var dumped = ""
      dump(address, to: &dumped)
      for text in ["\(address)", String(reflecting: address), dumped, "\([address])"] {
        #expect(!text.contains("hunter2"))
      }
    } catch {
      #expect(!"\(error)".contains("hunter2"))
      #expect(!String(reflecting: error).contains("hunter2"))
    }
  }
}
