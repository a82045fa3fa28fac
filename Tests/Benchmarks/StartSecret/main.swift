// Reads a secret from the vault; with an argument, stores it.
import Glibc
import Keepsake

if CommandLine.argc > 1 { exit(SecureVault.set("tok", forKey: "accessToken") ? 0 : 1) }
exit(SecureVault.get("accessToken") == "tok" ? 0 : 1)
