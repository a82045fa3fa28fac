// Reads a setting with UserDefaults; with an argument, stores it.
import Foundation

let defaults = UserDefaults.standard
if CommandLine.argc > 1 {
  defaults.set(7, forKey: "launches")
  exit(defaults.synchronize() ? 0 : 1)
}
exit(defaults.integer(forKey: "launches") == 7 ? 0 : 1)
