// A shop on three machines that share a server: a sale that begins on all of them, a page that one
// of them renders, and a secret that all of them read.
//
//   swift run keepsake-shop                                   starts a server and three machines
//   swift run keepsake-shop --server valkey://localhost:6379  uses a server that is running
//
// Each machine is a process with its own home directory, so that they share nothing but the server.
// `Shop` is what your own service would contain. The rest of this file tells the machines what to
// do, and Processes.swift starts and ends them.

import FoundationEssentials
import Keepsake
import KeepsakeValkey

#if canImport(Glibc)
@preconcurrency import Glibc
#elseif canImport(Musl)
@preconcurrency import Musl
#endif

// MARK: The service

extension Defaults.Key<Bool> {
  static let sale = Self("sale", default: false)
}

struct Page: Codable, Sendable {
  var text: String
  /// The machine that rendered it.
  var renderer: String
}

/// The service, which runs on each machine. Only its start says that there are several.
struct Shop {
  let machine: String

  /// Names the server, once, before anything is stored.
  init(machine: String, server: String) throws {
    self.machine = machine
    try StorageSystem.bootstrap(app: "keepsake-shop", on: .valkey(server))
  }

  /// Asks no server: each machine has the settings in memory.
  var price: Int { Defaults[.sale] ? 80 : 100 }

  /// Calls that wait for the server are made in `perform`, which blocks none of the few threads of
  /// Swift's tasks.
  func startSale() async throws {
    try await Defaults.shared.perform { try $0.set(true, for: .sale) }
  }

  /// Returns when the sale has started on any machine.
  func waitForSale(_ changes: Defaults.Changes<Bool>) async {
    for await isSale in changes where isSale { return }
  }

  /// Rendered by the machine that needs it first, while the others wait for it.
  func page() async throws -> Page {
    try await DiskCache.fetch("home", expiry: .minutes(5)) {
      try await Task.sleep(for: .milliseconds(300))  // as a query to a database takes
      return Page(text: "A bicycle for \(price) euros", renderer: machine)
    }
  }

  /// Sealed here: the server gets only ciphertext.
  func storeKey(_ key: String) async throws {
    try await SecureVault.shared.perform { try $0.set(key, forKey: "payments") }
  }

  func key() async throws -> String? {
    try await SecureVault.shared.perform { try $0.get("payments") }
  }

  /// Removes everything that the shop has stored, from this machine and from the server.
  func removeAll() async throws {
    let isDone = try await StorageSystem.perform {
      StorageSystem.removeAll() && DiskCache.removeAll()
    }
    guard isDone else {
      throw Exit(message: "The shop on the server cannot be emptied.", status: 69)
    }
  }
}

// MARK: A machine

/// Does what each line of standard input says, and answers it with a line, until the input ends.
@MainActor func runMachine(_ name: String, on server: String) async throws {
  let shop = try Shop(machine: name, server: server)
  while let command = readLine() { say(try await answer(command, by: shop)) }
}

func answer(_ command: String, by shop: Shop) async throws -> String {
  switch command {
  case "empty":
    try await shop.removeAll()
    return "has emptied the shop"
  case "watch":
    // No change after this is missed.
    let changes = Defaults.changes(.sale)
    Task {
      await shop.waitForSale(changes)
      say("now sells a bicycle for \(shop.price) euros")
    }
    return "sells a bicycle for \(shop.price) euros"
  case "sale":
    try await shop.startSale()
    return "has started the sale"
  case "page":
    let page = try await shop.page()
    return "shows \"\(page.text)\", rendered by \(page.renderer)"
  case "store":
    try await shop.storeKey("sk_example_4242")
    return "has stored the key of the payment service"
  case "pay":
    guard let key = try await shop.key() else { return "has no key" }
    return "pays with the key that ends in \(key.suffix(4))"
  default: return "does not know \"\(command)\""
  }
}

func say(_ text: String) {
  print(text)
  fflush(stdout)
}

// MARK: The show

/// Starts the machines, and lets them show what they share.
func show(on server: String, in directory: String) throws {
  let environment = try machineEnvironment(in: directory)
  var machines: [Child] = []
  defer { for machine in machines { machine.end() } }
  func start(_ name: String) throws -> Child {
    let (thisProgram, home) = ("/proc/self/exe", ["HOME": "\(directory)/\(name)"])
    let machine = try Child(
      thisProgram, ["machine", name, server], name: name,
      environment: environment.merging(home) { $1 })
    machines.append(machine)
    return machine
  }

  // An earlier run that was killed may have left its stores on the server.
  let berlin = try start("berlin")
  try berlin.ask("empty")
  let others = try [start("lima"), start("oslo")]

  say("\nA setting that one machine changes is changed on all:")
  for machine in others { try machine.ask("watch") }
  try berlin.ask("sale")
  for machine in others { try machine.printLine() }

  say("\nA page that all machines need at the same time is rendered once:")
  for machine in machines { machine.send("page") }
  for machine in machines { try machine.printLine() }

  say("\nA secret that one machine stores can be read by all; the server has only ciphertext:")
  try berlin.ask("store")
  for machine in others { try machine.ask("pay") }

  say("\nNothing is left behind:")
  try berlin.ask("empty")
}

// MARK: The command line

let usage = """
  usage: keepsake-shop                 start a server, and a shop on three machines that share it
         keepsake-shop --server URL    start the machines only, for a server that is running
  """

/// Ends the program with a line on standard error and an exit code from sysexits.h.
struct Exit: Error {
  var message: String
  var status: Int32
}

func run(_ arguments: [String]) throws {
  switch (arguments.first, arguments.count) {
  case (nil, _), ("--server", 2): break
  case ("--help", _), ("-h", _): return print(usage)
  default: throw Exit(message: usage, status: 64)
  }
  endChildrenAtSignals()
  let directory = try makeTemporaryDirectory()
  defer { try? FileManager.default.removeItem(atPath: directory) }
  if arguments.count == 2 { return try show(on: arguments[1], in: directory) }
  let server = try startServer(in: directory)
  defer { server.end() }
  // Long limits, as the machine may be busy.
  let limits = "timeout=60s&connect-timeout=60s"
  try show(on: "unix:\(directory)/socket?\(limits)", in: directory)
}

func fail(_ message: String, status: Int32) -> Never {
  fputs("\(message)\n", stderr)
  exit(status)
}

do {
  // Writing to a machine that has ended is an error, and does not end this process.
  signal(SIGPIPE, SIG_IGN)
  let arguments = Array(CommandLine.arguments.dropFirst())
  if arguments.count == 3, arguments[0] == "machine" {
    try await runMachine(arguments[1], on: arguments[2])
  } else {
    try run(arguments)
  }
} catch let exit as Exit {
  fail(exit.message, status: exit.status)
} catch {
  fail("\(error)", status: 69)
}
if fflush(stdout) != 0 { fail("The output cannot be written.", status: 74) }
