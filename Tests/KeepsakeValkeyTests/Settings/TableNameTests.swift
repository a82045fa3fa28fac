import Testing

@testable import KeepsakeValkey

@Suite struct TableNameTests {
  static let names = [
    "standard", "", "a", "com.example.shop", "a:b", "a}:s", "{a}", "{", "}", "%", "%41", "%zz",
    "a b", "a*?[b]", "\u{0}", "a\u{0}b", "größe", "gro\u{308}ße", "鍵", "🔑", "\u{FEFF}", "A-z_0.9",
    String(repeating: "k", count: 5_000), String(repeating: "鍵", count: 2_000),
  ]

  @Test func namesAreReadBack() {
    for app in Self.names {
      for suite in Self.names {
        let name = TableName(app: app, suite: suite)
        let found = TableName.suite(of: name.state, app: app)
        #expect(found.map { Array($0.utf8) } == Array(suite.utf8), "\(app) \(suite)")
      }
    }
  }

  /// A cluster takes what is between the first `{` and the next `}`, and so keeps all keys of a
  /// table on one node.
  @Test func keysOfATableShareTheirTag() {
    for suite in Self.names {
      let name = TableName(app: "app", suite: suite)
      let tags = [name.values, name.state, name.channel].map { key in
        key.drop { $0 != "{" }.prefix { $0 != "}" }
      }
      #expect(Set(tags).count == 1 && tags[0].count >= 5, "\(suite)")
      #expect(name.values.hasPrefix("keepsake:{") && name.channel.hasPrefix("keepsake:{"))
      #expect(name.values.utf8.allSatisfy { $0 > 32 && $0 < 127 })
    }
  }

  @Test func differentNamesAreDifferentTables() {
    var keys: Set<[UInt8]> = []
    for app in Self.names {
      for suite in Self.names {
        #expect(keys.insert(Array(TableName(app: app, suite: suite).values.utf8)).inserted)
      }
    }
  }

  @Test func otherKeysAreNoTables() {
    for key in [
      "{app:s}:v", "{app:s}", "app:s:s", "{app:%}:s", "{app:%4}:s", "{app:%41}:s", "{app:%e4}:s",
      "{app:%E4}:s", "{app:%+1}:s", "{app:a:b}:s", "{app:a b}:s", "{app2:s}:s", "x{app:s}:s",
      "{app:s}:sx", "{app:\u{301}s}:s", "{app:}", "}:s",
    ] {
      #expect(TableName.suite(of: "keepsake:" + key, app: "app") == nil, "\(key)")
    }
    for key in ["", "{app:s}:s", "x:{app:s}:s", "Keepsake:{app:s}:s", "keepsake{app:s}:s"] {
      #expect(TableName.suite(of: key, app: "app") == nil, "\(key)")
    }
    #expect(TableName.suite(of: "keepsake:{app:}:s", app: "app") == "")
    #expect(TableName.pattern(app: "a*b") == "keepsake:{a%2Ab:*}:s")
  }
}
