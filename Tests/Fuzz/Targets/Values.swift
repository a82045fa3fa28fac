import Foundation

@testable import Keepsake

/// The value of a setting with each record kind and payload kind, read with common types.
@Sendable func tryValue(_ input: UnsafeRawBufferPointer) {
  guard let kind = input.first else { return }
  let bytes = UnsafeRawBufferPointer(rebasing: input.dropFirst())
  let value =
    if let kind = StoredValue.Kind(rawValue: kind) {
      StoredValue(kind: kind, json: bytes)
    } else {
      Payload.Kind(rawValue: kind - min(kind, 0x30))?.value(of: bytes)
    }
  guard let value else { return }
  let payload = Payload(value)
  check(payload.value == value, "a payload reads back")
  let json = value.json
  let back = json.withUnsafeBytes { StoredValue(kind: value.kind, json: $0) }
  check(back == value, "a written value reads back")

  let number = try? Codec.decode(value, as: Double.self)
  if let whole = try? Codec.decode(value, as: Int.self) {
    check(number == nil || number == Double(whole), "a number is the same as Int and as Double")
  }
  _ = try? Codec.decode(value, as: Float.self)
  _ = try? Codec.decode(value, as: UInt64.self)
  _ = try? Codec.decode(value, as: Int128.self)
  _ = try? Codec.decode(value, as: Decimal.self)
  _ = try? Codec.decode(value, as: URL.self)
  _ = try? Codec.decode(value, as: Date?.self)
  guard let tree = try? Codec.decode(value, as: Defaults.Value.self) else { return }
  guard let again = try? Codec.encode(tree) else { return }
  // A document with NaN is not equal to itself.
  let read = try? Codec.decode(again, as: Defaults.Value.self)
  check(read == tree || tree != tree, "a document reads back")
}

/// An imported document, and exports of what was imported.
@Sendable func tryImport(_ input: UnsafeRawBufferPointer) {
  let store = makeStore()
  do {
    try store.import(Data(input))
  } catch {
    check(error.code == .decodingFailed, "a failed import is a decoding error")
    check((try? store.keys()) == [], "a failed import sets nothing")
    return
  }
  guard let json = try? store.export(as: .json) else {
    fatalError("settings cannot be exported as JSON")
  }
  let copy = makeStore()
  do { try copy.import(json) } catch { fatalError("an export cannot be imported: \(error)") }
  guard let again = try? copy.export(as: .json) else {
    fatalError("an imported export cannot be exported")
  }
  check(
    again == json,
    "an export reads back: \(String(decoding: json, as: UTF8.self)) is not "
      + String(decoding: again, as: UTF8.self))
  if let list = try? store.export(as: .propertyList) {
    do { try makeStore().import(list) } catch {
      fatalError("an exported property list cannot be imported: \(error)")
    }
  }
}

private func makeStore() -> Defaults.Store {
  let finder = DirectoryFinder(app: "fuzz", environment: { _ in nil })
  return Defaults.Store(suite: .memory, scope: StorageScope(finder: finder) { _ in })
}

/// The file with the user's choice of directories.
@Sendable func tryUserDirectories(_ input: UnsafeRawBufferPointer) {
  let home = "/home/ann"
  for directory in XDGUserDirectories.all(in: Array(input), home: home) {
    check(directory.hasPrefix("/"), "a directory is absolute")
    check(directory == "/" || !directory.hasSuffix("/"), "it does not end in a slash")
    check(!directory.utf8.contains(0), "a path has no zero byte")
    check(
      directory.utf8.count <= home.utf8.count + input.count, "a path is not longer than its line")
    // Escape every character but the first slash, which makes the path absolute.
    var line = Array("XDG_MUSIC_DIR=\"/".utf8)
    for byte in directory.utf8.dropFirst() { line += [UInt8(ascii: "\\"), byte] }
    line.append(UInt8(ascii: "\""))
    let back = XDGUserDirectories.directory("MUSIC", in: line, home: home)
    check(back == directory, "a directory reads back")
  }
}
