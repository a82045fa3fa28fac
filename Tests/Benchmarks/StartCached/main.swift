// Reads a value from the cache; with an argument, stores it.
import Glibc
import Keepsake

if CommandLine.argc > 1 { exit(DiskCache.set("page", forKey: "front") ? 0 : 1) }
let page: String? = DiskCache.model("front")
exit(page == "page" ? 0 : 1)
