// A web server on plain sockets: settings that it follows, pages that it caches, a secret token,
// and no request that waits for another one's file.
//
//   swift run keepsake-server                        serves until Control-C or SIGTERM
//   swift run keepsake-server --port 8080            on this port; without it, any free one
//
// Meanwhile, in a second terminal:
//
//   curl localhost:8080/                             the greeting, a setting
//   curl localhost:8080/pages/1                      a page, cached for a minute
//   curl localhost:8080/status                       the hits and misses of the cache
//   swift run keepsake-server set greeting Ahoy      changes the greeting of the running server
//   swift run keepsake-server set limit 1000000      changes the size limit of its cache
//   token=$(swift run keepsake-server token)         the token that changes need, a secret
//   curl -X PUT -H "Authorization: Bearer $token" --data Moin localhost:8080/greeting
//
// Reading a setting is a look-up in memory, so handlers do it directly. Calls that may wait for the
// disk or for another process are made in `perform`, `fetch` or `set(chunks:)`. These use threads
// of the library, so that the few threads of Swift's tasks keep serving.

import Dispatch
import FoundationEssentials
import Keepsake

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

extension Defaults.Key<String> {
  static let greeting = Self("greeting", default: "Hello")
}
extension Defaults.Key<Int> {
  /// The most bytes that cached pages may take on the disk.
  static let limit = Self("limit", default: 50_000_000)
}
extension DiskCache.Name {
  static let pages: Self = "pages"
}

// MARK: Answering requests

func answer(_ request: Request) async throws -> Response {
  switch (request.method, request.path) {
  case ("GET", "/"):
    return Response(text: "\(Defaults[.greeting]), world!\n")
  case ("GET", let path) where path.hasPrefix("/pages/"):
    let page: String = try await DiskCache.fetch(path, expiry: .minutes(1), cache: .pages) {
      try await render(path)
    }
    return Response(text: page)
  case ("GET", "/status"):
    let counts = DiskCache.named(.pages).statistics
    return Response(text: "\(counts.hits) hits, \(counts.misses) misses\n")
  case ("PUT", "/greeting"):
    guard try await isAllowed(request) else { return Response(status: "401 Unauthorized") }
    guard let greeting = String(validating: request.body, as: UTF8.self), !greeting.isEmpty else {
      return Response(status: "400 Bad Request")
    }
    // May wait for the disk, and for a process that is writing the same settings.
    try await Defaults.shared.perform { store in
      try store.set(greeting, for: .greeting)
      try store.synchronize()
    }
    return Response(text: "stored\n")
  default:
    return Response(status: "404 Not Found")
  }
}

/// Makes a page. Here it only takes a while, as a query to a database or another server does.
func render(_ path: String) async throws -> String {
  try await Task.sleep(for: .milliseconds(50))
  return "This is \(path).\n"
}

/// Whether the request has the token. The secret is not copied, and comparing takes equally long
/// however much of it is right.
func isAllowed(_ request: Request) async throws -> Bool {
  guard let value = request.headers["authorization"], value.hasPrefix("Bearer ") else {
    return false
  }
  let given = Array(value.utf8.dropFirst("Bearer ".utf8.count))
  return try await SecureVault.shared.perform { vault in
    try vault.withSecret("token") { token in
      guard token.byteCount == given.count else { return false }
      var difference: UInt8 = 0
      for index in given.indices {
        difference |= given[index] ^ token.unsafeLoad(fromByteOffset: index, as: UInt8.self)
      }
      return difference == 0
    } ?? false
  }
}

// MARK: Serving

func serve(port: UInt16) async throws {
  let listener = try Socket.listen(port: port)
  // The vault makes its key now, if it has none, and not in the first request.
  _ = try await SecureVault.shared.perform { vault in try token(in: vault) }
  print("Serving on http://localhost:\(try listener.port)")
  fflush(stdout)

  // Applies the size limit whenever it changes: `changes` reports the changes of every process.
  let limits = Defaults.changes(.limit)
  DiskCache.named(.pages).sizeLimit = Defaults[.limit]
  let follower = Task {
    for await limit in limits {
      DiskCache.named(.pages).sizeLimit = limit
      print("Now caching at most \(ByteCount(limit)).")
      fflush(stdout)
    }
  }

  // Stops listening, and answers the requests that it has begun to read.
  let accepting = Task {
    await withDiscardingTaskGroup { group in
      while let connection = await listener.accept() {
        group.addTask { await connection.serve(answer) }
      }
    }
  }
  let sources = [SIGINT, SIGTERM].map { number in
    signal(number, SIG_IGN)
    let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
    source.setEventHandler { listener.shutDown() }
    source.activate()
    return source
  }
  await accepting.value
  for source in sources { source.cancel() }
  follower.cancel()
  await follower.value
  // All settings are stored already. This makes them survive a power cut, too.
  try await Defaults.shared.perform { try $0.synchronize() }
  print("Stopped.")
}

/// The token, made at the first use.
func token(in vault: SecureVault.Store) throws -> String {
  if let token = try vault.get("token") { return token }
  let words = (0..<4).map { _ in String(UInt64.random(in: 1 << 60 ... .max), radix: 16) }
  try vault.set(words.joined(), forKey: "token")
  // Another process may have made one at the same time: the stored one counts.
  return try vault.get("token") ?? words.joined()
}

// MARK: The command line

/// Ends the program with a line on standard error and an exit code from sysexits.h.
struct Exit: Error {
  var message: String
  var status: Int32
}

let usage = """
  usage: keepsake-server [--port PORT]          serve until Control-C or SIGTERM
         keepsake-server set greeting TEXT      change the greeting of the running server
         keepsake-server set limit BYTES        change the size limit of its cache
         keepsake-server token                  print the token that changes need
  """

func run(_ arguments: [String]) async throws {
  // A command must report failure in its exit code, so it uses the stores, which throw.
  switch (arguments.first, arguments.dropFirst().first, arguments.count) {
  case (nil, _, _): try await serve(port: 0)
  case ("--port", let text?, 2):
    guard let port = UInt16(text) else {
      throw Exit(message: "\"\(text)\" is not a port. Use a number up to 65535.", status: 64)
    }
    try await serve(port: port)
  case ("set", "greeting", 3): try Defaults.shared.set(arguments[2], for: .greeting)
  case ("set", "limit", 3):
    guard let limit = Int(arguments[2]), limit > 0 else {
      throw Exit(message: "\"\(arguments[2])\" is not a number of bytes.", status: 64)
    }
    try Defaults.shared.set(limit, for: .limit)
  case ("token", nil, _): print(try token(in: SecureVault.shared))
  case ("--help", _, _), ("-h", _, _): print(usage)
  default: throw Exit(message: usage, status: 64)
  }
}

func fail(_ message: String, status: Int32) -> Never {
  fputs("\(message)\n", stderr)
  exit(status)
}

do {
  // Writing to a client that is gone is an error, and does not end the server.
  signal(SIGPIPE, SIG_IGN)
  try StorageSystem.bootstrap(app: "keepsake-server")
  try await run(Array(CommandLine.arguments.dropFirst()))
} catch let exit as Exit {
  fail(exit.message, status: exit.status)
} catch let error as SocketError {
  fail("\(error)", status: 71)
} catch {
  fail("\(error)", status: 73)
}
if fflush(stdout) != 0 { fail("The output cannot be written.", status: 74) }
