/// One thing that the program can do, such as `settings get`.
struct Command: Sendable {
  let name: String
  /// The arguments as the usage shows them, and the options that are needed.
  let parameters: String
  let summary: String
  /// The options without their dashes; `free=BYTES` takes a value.
  var options: [String] = []
  var details = ""
  /// The command line of an example, without the program's name.
  let example: String
  let body: @Sendable (Arguments) async throws -> Void

  var usage: String {
    let optional = options.filter { !parameters.contains("--\($0)") }
    return (["keepsakectl", name, parameters] + optional.map { "[--\($0)]" }).joined(separator: " ")
  }

  /// How many arguments there may be. Those in brackets are optional.
  private var argumentCount: ClosedRange<Int> {
    let arguments = parameters.split(separator: " ").filter { !$0.hasPrefix("--") }
    return arguments.count { !$0.hasPrefix("[") }...arguments.count
  }

  static func run(_ words: some Sequence<String>) async throws {
    let words = Array(words)
    if words.first == Completions.command {
      return try Completions.complete(Array(words.dropFirst()))
    }
    var arguments = try Arguments(words)
    if arguments.words.isEmpty, arguments.hasOption("version") {
      return try Output.write("keepsakectl \(version)")
    }
    let isHelpCommand = arguments.words.first == "help"
    if isHelpCommand { arguments.removeFirst(1) }
    if isHelpCommand || arguments.hasOption("help") {
      return try Help.show(for: arguments.words)
    }
    guard let command = named(arguments.words) else { throw unknownCommand(arguments.words) }
    arguments.removeFirst(command.name.split(separator: " ").count)
    try command.validate(arguments)
    try await command.body(arguments)
  }

  /// The newest version in CHANGELOG.md.
  private static let version = "0.9.0"

  /// Whether the argument is an option that takes a value, which the argument does not have.
  static func hasOptionWithValue(_ argument: String) -> Bool {
    all.contains { $0.options.contains { $0.hasPrefix(argument.dropFirst(2) + "=") } }
  }

  /// The command whose name the words begin with.
  static func named(_ words: [String]) -> Command? {
    all.first { words.starts(with: $0.name.split(separator: " ").map(String.init)) }
  }

  private func validate(_ arguments: Arguments) throws {
    for (option, value) in arguments.options.sorted(by: { $0.key < $1.key }) {
      guard let known = options.first(where: { "--\($0)".split(separator: "=")[0] == option })
      else {
        throw wrongUse("unknown option \(option). Write -- before a name that begins with a dash")
      }
      if known.contains("=") == value.isEmpty {
        throw wrongUse("\(option) \(value.isEmpty ? "needs a value" : "takes no value")")
      }
    }
    guard argumentCount.contains(arguments.words.count) else {
      throw wrongUse(
        arguments.words.count < argumentCount.lowerBound
          ? "an argument is missing" : "too many arguments. Quote those that contain spaces")
    }
    if arguments.words.first?.contains("/") == true, !parameters.contains("/") {
      throw wrongUse("\(name) applies to a whole app. Leave out the slash and what follows")
    }
  }

  private func wrongUse(_ problem: String) -> Failure { .usage("\(problem). Usage: \(usage)") }

  static func unknownCommand(_ words: [String]) -> Failure {
    guard let first = words.first else {
      return .usage(
        "a command is missing: list, settings, vault, cache, backup, restore, push, adopt or "
          + "doctor. Run `keepsakectl help`.")
    }
    let group = all.filter { $0.name.hasPrefix(first + " ") }
    if group.isEmpty { return .usage("unknown command \(first). Run `keepsakectl help`.") }
    let names = group.map { String($0.name.dropFirst(first.count + 1)) }
    return .usage("\(first) needs one of these commands: \(names.joined(separator: ", ")).")
  }
}
