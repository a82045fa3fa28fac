internal import Keepsake

/// The names of a table on the server: its keys and its channel.
///
/// They share the part in braces, so that a cluster keeps them on one node.
struct TableName: Hashable, Sendable {
  /// What a table holds, in the words of errors.
  enum Content: String {
    case settings
    case secrets
  }

  let content: Content
  private let tag: String
  private let database: Int

  init(app: String, suite: String, database: Int = 0) {
    self.init(.settings, PercentEncoding.encode(suite), app, database)
  }

  /// The table of an app's vault. No suite has this name: its `@` would be encoded.
  init(vaultOf app: String, database: Int = 0) {
    self.init(.secrets, "@vault", app, database)
  }

  private init(_ content: Content, _ name: String, _ app: String, _ database: Int) {
    self.content = content
    tag = Self.tag(app, name)
    self.database = database
  }

  /// The hash that holds the values.
  var values: String { tag + ":v" }
  /// The hash that holds the format, the identity and the version of the table.
  var state: String { tag + ":s" }
  /// The channel on which changes are published. All databases of a server share its channels.
  var channel: String { Self.channel(tag, database: database) }

  /// What all keys and channels begin with. A cluster keeps those with the same part in braces on
  /// one node.
  static func tag(_ app: String, _ name: String) -> String {
    "keepsake:{\(PercentEncoding.encode(app)):\(name)}"
  }

  /// The channel of a tag.
  static func channel(_ tag: String, database: Int) -> String {
    tag + ":c" + (database == 0 ? "" : String(database))
  }

  /// The key of the copy on disk. Two servers may have tables of the same name.
  func copyKey(_ server: ServerAddress) -> String { "\(server) \(values)" }

  // MARK: Finding tables

  /// A pattern of `SCAN` for the ``state`` keys of an app.
  static func pattern(app: String) -> String { tag(app, "*") + ":s" }

  /// The suite of a ``state`` key; nil if it is not one of this app.
  static func suite(of key: String, app: String) -> String? {
    let (start, end) = (tag(app, "").utf8.count - 1, "}:s".utf8.count)
    let bytes = Array(key.utf8)
    guard bytes.count >= start + end,
      let suite = PercentEncoding.decode(bytes[start..<bytes.count - end])
    else { return nil }
    // Accept only the canonical encoding. This also compares what is around the suite.
    let name = TableName(app: app, suite: suite)
    return name.state.utf8.elementsEqual(bytes) ? suite : nil
  }

  /// The suite of a ``copyKey(_:)``; nil if it is not one of this app on this server.
  static func suite(ofCopy key: String, app: String, on server: ServerAddress) -> String? {
    let prefix = "\(server) "
    guard key.hasPrefix(prefix), key.hasSuffix(":v") else { return nil }
    return suite(of: key.dropFirst(prefix.count).dropLast() + "s", app: app)
  }
}
