// The inspector: what all apps of this user have stored, and whether it is sound. What `defaults`
// and `security` are on macOS, and made of the library's public calls alone.
//
//   swift run keepsakectl list                                  which apps have anything on this
//   machine swift run keepsakectl list com.example.notes                what one of them has
//   swift run keepsakectl settings get com.example.notes theme
//   swift run keepsakectl settings set com.example.notes/team size 16
//   swift run keepsakectl settings watch com.example.notes      changes as they come, until
//   Control-C swift run keepsakectl vault list com.example.notes          never a value
//   swift run keepsakectl cache sizes com.example.notes
//   swift run keepsakectl doctor com.example.notes              what is wrong, and what to do
//   swift run keepsakectl help                                  all of it
//
// APP is what the app gives StorageSystem.bootstrap, or else the name of its executable; a suite, a
// service or a cache of its own follows after a slash. The files are found as the app itself finds
// them: the XDG and systemd variables count.

import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

let status: Int32
do {
  status = try await Verb.run(try Arguments.given().dropFirst())
} catch {
  status = Reports.complain(error)
}
do {
  try Output.flush()
} catch {
  exit(Reports.complain(error))
}
exit(status)
