// The same with one setting read, which the exit code tells; with an argument it stores that one.
import Glibc
import Keepsake

if CommandLine.argc > 1 {
  exit(Defaults.set(7, forKey: "launches") && Defaults.synchronize() ? 0 : 1)
}
exit(Defaults.get("launches", default: 0) == 7 ? 0 : 1)
