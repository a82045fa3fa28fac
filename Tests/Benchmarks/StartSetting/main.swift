// Reads a setting and exits with 0 if it is found; with an argument, stores it.
import Glibc
import Keepsake

if CommandLine.argc > 1 {
  exit(Defaults.set(7, forKey: "launches") && Defaults.synchronize() ? 0 : 1)
}
exit(Defaults.get("launches", default: 0) == 7 ? 0 : 1)
