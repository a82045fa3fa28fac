import Foundation

@testable import Keepsake

/// The value of a setting, as each record kind and each payload kind reads it, and as common types.
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
  check(back == value, "what is written reads back")

  let number = try? Codec.decode(value, as: Double.self)
  if let whole = try? Codec.decode(value, as: Int.self) {
    check(number == nil || number == Double(whole), "a number is the same in all types")
  }
  _ = try? Codec.decode(value, as: Float.self)
  _ = try? Codec.decode(value, as: UInt64.self)
  _ = try? Codec.decode(value, as: Int128.self)
  _ = try? Codec.decode(value, as: Decimal.self)
  _ = try? Codec.decode(value, as: URL.self)
  _ = try? Codec.decode(value, as: Date?.self)
  guard let tree = try? Codec.decode(value, as: PropertyTree.self) else { return }
  guard let again = try? Codec.encode(tree) else { return }
  // NaN is not even itself.
  let read = try? Codec.decode(again, as: PropertyTree.self)
  check(read == tree || tree != tree, "a document reads back")
}

/// A document that is imported, and what is exported of it.
@Sendable func tryImport(_ input: UnsafeRawBufferPointer) {
  let store = makeStore()
  do {
    try store.import(Data(input))
  } catch {
    check(error.code == .decodingFailed, "what cannot be imported is an error that says so")
    check((try? store.keys()) == [], "and sets nothing")
    return
  }
  guard let json = try? store.export(as: .json) else { fatalError("all is JSON") }
  let copy = makeStore()
  do { try copy.import(json) } catch { fatalError("what is exported is imported: \(error)") }
  guard let again = try? copy.export(as: .json) else { fatalError("it still is") }
  check(
    again == json,
    "an export reads back: \(String(decoding: json, as: UTF8.self)) is not "
      + String(decoding: again, as: UTF8.self))
  if let list = try? store.export(as: .propertyList) {
    do { try makeStore().import(list) } catch { fatalError("so is a property list: \(error)") }
  }
}

private func makeStore() -> Defaults.Store {
  let finder = DirectoryFinder(app: "fuzz", environment: { _ in nil })
  return Defaults.Store(suite: .memory, scope: StorageScope(finder: finder) { _ in })
}

/// The user's own choice of directories.
@Sendable func tryUserDirectories(_ input: UnsafeRawBufferPointer) {
  let home = "/home/ann"
  for directory in UserDirectories.all(in: Array(input), home: home) {
    check(directory.hasPrefix("/"), "a directory is absolute")
    check(directory == "/" || !directory.hasSuffix("/"), "it ends in a name")
    check(!directory.utf8.contains(0), "the system takes it")
    check(directory.utf8.count <= home.utf8.count + input.count, "it says no more than the line")
    // Its first letter says that it is absolute.
    var line = Array("XDG_MUSIC_DIR=\"/".utf8)
    for byte in directory.utf8.dropFirst() { line += [UInt8(ascii: "\\"), byte] }
    line.append(UInt8(ascii: "\""))
    let back = UserDirectories.directory("MUSIC", in: line, home: home)
    check(back == directory, "a directory reads back")
  }
}
