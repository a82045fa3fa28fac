// keepsakectl shows, changes and checks what this user's apps have stored. It is to Keepsake what
// `defaults` and `security` are to macOS, and uses the library's public calls, and a few of its
// package to make backups under its locks and to examine servers.
//
//   swift run keepsakectl help                                  list all commands
//   swift run keepsakectl list                                  list the apps on this machine
//   swift run keepsakectl list com.example.notes                list the stores of one app
//   swift run keepsakectl settings get com.example.notes theme
//   swift run keepsakectl settings set com.example.notes/team size 16
//   swift run keepsakectl settings watch com.example.notes      print changes until Control-C
//   swift run keepsakectl vault list com.example.notes          list secrets without their values
//   swift run keepsakectl cache sizes com.example.notes
//   swift run keepsakectl backup com.example.notes /media/backup/notes
//   swift run keepsakectl doctor com.example.notes              find problems and their remedies
//   swift run keepsakectl settings list com.example.shop --server=valkeys://cache.internal
//
// An app is named as in its call of StorageSystem.bootstrap, or else as its executable. A suite,
// service or cache follows after a slash. Files are found as the app finds them, so the XDG and
// systemd variables count. With --server, settings and secrets are those on a Valkey or Redis
// server.

import Keepsake
import KeepsakeLibc

do {
  try await Command.run(try Arguments.ofProcess().dropFirst())
} catch {
  Diagnostics.status = Diagnostics.report(error)
}
do {
  try Output.flush()
} catch {
  Diagnostics.status = Diagnostics.report(error)
}
exit(Diagnostics.status)
