// The same with one secret read from a vault that lies there; with an argument it stores that one.
import Glibc
import Keepsake

if CommandLine.argc > 1 { exit(SecureVault.set("tok", forKey: "accessToken") ? 0 : 1) }
exit(SecureVault.get("accessToken") == "tok" ? 0 : 1)
