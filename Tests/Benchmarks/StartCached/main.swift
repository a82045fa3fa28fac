// The same with one value read from a cache that lies there; with an argument it stores that one.
import Glibc
import Keepsake

if CommandLine.argc > 1 { exit(DiskCache.set("page", forKey: "front") ? 0 : 1) }
let page: String? = DiskCache.model("front")
exit(page == "page" ? 0 : 1)
