/// Completions of commands, options and the names of apps, for shells.
enum Completions {
  static func show(_ arguments: Arguments) throws -> Int32 {
    switch arguments.words[0] {
    case "bash": try Output.write(script)
    case "zsh": try Output.write(zshPreparation + script)
    default: throw Failure.usage("there are completions for bash and zsh only.")
    }
    return 0
  }

  /// Loads the functions of zsh that the script needs, unless `~/.zshrc` has done so.
  private static let zshPreparation = """
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
    autoload -Uz bashcompinit && bashcompinit

    """

  /// For bash, and for the compatible function of zsh.
  private static var script: String {
    let groups = Dictionary(grouping: Command.all) { $0.name.split(separator: " ")[0] }
    let names = groups.keys.sorted().joined(separator: " ")
    let cases = Command.all.map { command in
      let options = command.options.map {
        "--" + $0.prefix { $0 != "=" } + ($0.contains("=") ? "=" : "")
      }
      return
        "    \"\(command.name)\") options=\"\((options + ["--help"]).joined(separator: " "))\" ;;"
    }
    let subcommands = groups.sorted { $0.key < $1.key }
      .filter { $0.value.contains { $0.name.contains(" ") } }
      .map { group, commands in
        let names = commands.map { $0.name.dropFirst(group.count + 1) }.joined(separator: " ")
        return "    \(group)) words=\"\(names)\" ;;"
      }
    return """
      _keepsakectl() {
        local word="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" position=2
        local words="" options="--help --version"
        case "$command" in
          completions) words="bash zsh" ;;
      \(subcommands.joined(separator: "\n"))
        esac
        if [ "$COMP_CWORD" -le 1 ]; then
          words="\(names) help"
        elif [ -n "$words" ]; then
          if [ "$COMP_CWORD" -gt 2 ]; then
            words=""
            position=3
            command="$command ${COMP_WORDS[2]}"
          fi
        fi
        case "$command" in
      \(cases.joined(separator: "\n"))
        esac
        if [ -z "$words" ] && [ "$COMP_CWORD" -eq "$position" ]; then
          words="$(keepsakectl list 2>/dev/null | sed -e 1d -e 's/ .*//')"
        fi
        case "$word" in
          -*) words="$options" ;;
        esac
        COMPREPLY=($(compgen -W "$words" -- "$word"))
      }
      complete -o default -F _keepsakectl keepsakectl
      """
  }
}
