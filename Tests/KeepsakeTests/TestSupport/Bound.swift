import Foundation

/// How much a test tries: what the environment says, such as `KEEPSAKE_KILLS`, or else as usual.
func bound(_ name: String, usually usual: Int) -> Int {
  ProcessInfo.processInfo.environment[name].flatMap(Int.init) ?? usual
}
