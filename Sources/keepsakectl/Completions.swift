import Keepsake

/// Completions for shells: of commands, options, apps and their stores, keys.
///
/// The script of each shell asks this program for the candidates, with the words before the cursor.
enum Completions {
  static let shells = ["bash", "fish", "zsh"]
  /// The hidden command that prints the candidates, one in each line.
  static let command = "__complete"

  static func show(_ arguments: Arguments) throws {
    switch arguments.words[0] {
    case "bash": try Output.write(script)
    case "zsh": try Output.write(zshPreparation + script)
    case "fish": try Output.write(fishScript)
    default:
      throw Failure.usage("there are completions for \(shells.joined(separator: ", ")) only.")
    }
  }

  /// Loads the functions of zsh that the script needs, unless `~/.zshrc` has done so.
  private static let zshPreparation = """
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
    autoload -Uz bashcompinit && bashcompinit

    """

  /// For bash, and for the compatible function of zsh. bash also splits words at colons and equals
  /// signs. The script joins them, and leaves out of the candidates what bash does not replace.
  private static let script = """
    _keepsakectl() {
      local word index kept rest=$COMP_LINE
      local -a typed
      for ((index = 0; index <= COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]} kept=
        if [[ $index != 0 && $rest != [[:space:]]* ]]; then
          kept=${typed[${#typed[@]}-1]}
          unset "typed[${#typed[@]}-1]"
        fi
        typed+=("$kept$word")
        rest=${rest#*"$word"}
      done
      [[ $word = *[^:=]* ]] || kept+=$word
      COMPREPLY=()
      while IFS= read -r word; do
        COMPREPLY+=("$(printf %q "${word#"$kept"}")")
      done < <(keepsakectl \(command) "${typed[@]:1}" 2>/dev/null)
    }
    complete -o default -F _keepsakectl keepsakectl
    """

  private static let fishScript = """
    function __keepsakectl_complete
      set -l words (commandline -opc)
      set -l word (commandline -ct)
      set -l found (keepsakectl \(command) $words[2..-1] "$word" 2>/dev/null)
      if test (count $found) -gt 0
        printf '%s\\n' $found
      else
        __fish_complete_path "$word"
      end
    end
    complete -c keepsakectl -f -a '(__keepsakectl_complete)'
    """

  // MARK: Candidates

  /// Prints what the last of the words can become.
  static func complete(_ words: [String]) throws {
    let word = words.last ?? ""
    for candidate in try candidates(for: word, after: Array(words.dropLast()))
    where candidate.hasPrefix(word) && !candidate.contains("\n") {
      try Output.write(candidate)
    }
    // An app whose stores cannot be read has no candidates.
    Diagnostics.status = 0
  }

  private static func candidates(for word: String, after words: [String]) throws -> [String] {
    if let last = words.last, Command.hasOptionWithValue(last) { return [] }
    var arguments = try Arguments(words)
    if arguments.words.first == "help" { arguments.removeFirst(1) }
    guard let command = Command.named(arguments.words) else {
      return word.hasPrefix("-") ? ["--help", "--version"] : names(after: arguments.words)
    }
    if word.hasPrefix("-") {
      let options = command.options.map { option in
        "--" + option.prefix { $0 != "=" } + (option.contains("=") ? "=" : "")
      }
      return options + ["--help"]
    }
    arguments.removeFirst(command.name.split(separator: " ").count)
    let parameters = command.parameters.split(separator: " ")
    guard arguments.words.count < parameters.count else { return [] }
    let parameter = parameters[arguments.words.count]
    switch parameter {
    case "SHELL": return shells
    case "KEY": return try keys(of: arguments, command.name.hasPrefix("vault"))
    case _ where parameter.contains("APP"):
      guard let slash = word.firstIndex(of: "/") else { return try AppList.names() }
      guard parameter.contains("/") else { return [] }
      let app = try Arguments([String(word[..<slash])])
      return try stores(of: app, parameter).map { "\(app.app)/\($0)" }
    default: return []
    }
  }

  /// The words that begin commands, or those that follow the first one.
  private static func names(after words: [String]) -> [String] {
    let names = Command.all.map { $0.name.split(separator: " ").map(String.init) }
    let matching = names.filter { $0.starts(with: words) }.map { $0[words.count] }
    return Set(matching + (words.isEmpty ? ["help"] : [])).sorted()
  }

  private static func stores(of app: Arguments, _ parameter: Substring) throws -> [String] {
    try app.bootstrapApp(warns: false)
    if parameter.contains("SUITE") { return try Defaults.shared.suites().map(\.name).sorted() }
    if parameter.contains("CACHE") { return try DiskCache.shared.caches().map(\.name).sorted() }
    return try SecureVault.shared.isLocked ? [] : SecureVault.services().map(\.name).sorted()
  }

  /// The keys of a suite of this machine, or of a service if the vault opens without a prompt.
  private static func keys(of arguments: Arguments, _ isVault: Bool) throws -> [String] {
    if arguments.hasOption("server") { return [] }
    try arguments.bootstrapApp()
    guard isVault else { return try Defaults.suite(arguments.suite).keys().sorted() }
    if try SecureVault.shared.isLocked { return [] }
    return try SecureVault.service(arguments.service).keys().sorted()
  }
}
