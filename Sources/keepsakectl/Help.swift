/// Prints the usage of one command, of a group of commands such as `vault`, or of all.
enum Help {
  static func show(for words: [String]) throws {
    if let command = Command.named(words) {
      try show(command)
    } else {
      let group = Command.all.filter { words.isEmpty || $0.name.hasPrefix(words[0] + " ") }
      if group.isEmpty { throw Command.unknownCommand(words) }
      try show(group)
    }
  }

  private static func show(_ command: Command) throws {
    try Output.write("usage: \(command.usage)\n\n\(command.summary)\n")
    if !command.details.isEmpty { try Output.write(command.details + "\n") }
    if command.options.contains("server=URL") { try Output.write(server + "\n") }
    try Output.write("example: keepsakectl \(command.example)")
  }

  private static let server = """
    --server=URL works with what the app keeps on a Valkey or Redis server. Use the
    URL of the app, such as valkeys://cache.internal:6379. Other users of this
    machine see command lines, so leave the password out of the URL and give it in
    the environment variable KEEPSAKE_SERVER_PASSWORD.
    """

  private static func show(_ commands: [Command]) throws {
    try Output.write("usage: keepsakectl COMMAND\n")
    let lines = commands.map { "  \($0.name) \($0.parameters)" }
    let width = lines.map(\.count).max() ?? 0
    for (line, command) in zip(lines, commands) {
      let space = String(repeating: " ", count: width - line.count + 2)
      try Output.write(line + space + command.summary)
    }
    try Output.write(
      """

      APP is the name that the app passes to StorageSystem.bootstrap, or else the
      name of its executable. Without SUITE or SERVICE, a KEY is in the standard one;
      without SERVICE or CACHE, a listing shows all of them. --json prints a listing
      as JSON, and -- ends the options. --server=URL works with what the app keeps on
      a Valkey or Redis server. `keepsakectl help COMMAND` explains a command.

      exit codes: 0 success; 1 not found, or damaged; 64 wrong command line; 65 wrong
      value; 66 unreadable document; 70 unexpected error; 74 system error; 75 timeout,
      or no server; 77 no access, or locked; 129, 130, 143 ended by SIGHUP, Control-C
      or SIGTERM.
      """)
  }
}
