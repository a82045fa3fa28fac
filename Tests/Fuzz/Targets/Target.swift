import Foundation

/// The entry point that libFuzzer calls with each input. `KEEPSAKE_FUZZ` names the parser.
///
/// An input fails if it causes a trap, a read out of bounds, a large allocation, or a failed
/// ``check(_:_:)``.
@_cdecl("LLVMFuzzerTestOneInput")
public func tryInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
  // libFuzzer's pointer may be nil for an empty input.
  target(UnsafeRawBufferPointer(start: start, count: count))
  return 0
}

private let targets: [String: @Sendable (UnsafeRawBufferPointer) -> Void] = [
  "journal": tryJournal,
  "value": tryValue,
  "import": tryImport,
  "vault-header": tryVaultHeader,
  "vault-entry": tryVaultEntry,
  "vault-keys": tryVaultKeys,
  "key-file": tryKeyFile,
  "sidecar": trySidecar,
  "names": tryNames,
  "user-dirs": tryUserDirectories,
  "replies": tryReplies,
  "table": tryTable,
  "table-message": tryTableMessage,
  "cache-message": tryCacheMessage,
  "shared-entry": trySharedEntry,
]

private let target = {
  let name = ProcessInfo.processInfo.environment["KEEPSAKE_FUZZ"] ?? ""
  guard let target = targets[name] else {
    fatalError("KEEPSAKE_FUZZ must be one of \(targets.keys.sorted())")
  }
  return target
}()

/// Ends the process unless the condition holds; libFuzzer then reports the input.
func check(_ isTrue: Bool, _ expectation: @autoclosure () -> String) {
  if !isTrue { fatalError("expected: \(expectation())") }
}
