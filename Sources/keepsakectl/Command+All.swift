extension Command {
  static let all: [Command] = [
    Command(
      name: "list", parameters: "[APP]", summary: "list all apps, or the stores of one app",
      options: ["json", "server=URL"], example: "list com.example.notes", body: AppList.show),
    Command(
      name: "settings list", parameters: "APP[/SUITE]", summary: "list keys and values",
      options: ["json", "server=URL"], example: "settings list com.example.notes/team",
      body: SettingsCommands.list),
    Command(
      name: "settings get", parameters: "APP[/SUITE] KEY", summary: "print one value as JSON",
      options: ["string", "server=URL"],
      details: "--string prints a string as it is, without quotes.",
      example: "settings get com.example.notes theme --string", body: SettingsCommands.get),
    Command(
      name: "settings set", parameters: "APP[/SUITE] KEY VALUE", summary: "store a value",
      options: ["string", "server=URL"],
      details: """
        VALUE is JSON. A word or a number is stored as text if the stored value is
        text, and a word that is not JSON also if nothing is stored. --string stores
        any VALUE as text. Bytes and dates are written as export writes them:
        {"$data": "<Base64>"} and {"$date": "2026-11-22T00:13:28Z"}, or with the
        seconds since 2001.
        """,
      example: "settings set com.example.notes units imperial", body: SettingsCommands.set),
    Command(
      name: "settings delete", parameters: "APP[/SUITE] KEY", summary: "delete a value",
      options: ["server=URL"], example: "settings delete com.example.notes theme",
      body: SettingsCommands.delete),
    Command(
      name: "settings watch", parameters: "APP[/SUITE]", summary: "print changes until Control-C",
      options: ["json", "server=URL"],
      details: "--json prints one object a line, with null as the value of a deleted key.",
      example: "settings watch com.example.notes", body: SettingsCommands.watch),
    Command(
      name: "settings export", parameters: "APP[/SUITE]",
      summary: "print all values as one document", options: ["plist", "server=URL"],
      details: "The document is JSON, or with --plist a property list.",
      example: "settings export com.example.notes > notes.json", body: SettingsCommands.export),
    Command(
      name: "settings import", parameters: "APP[/SUITE] [FILE]",
      summary: "store the values of a document",
      options: ["only=KEYS", "except=KEYS", "skip-invalid", "server=URL"],
      details: """
        The document is JSON or a property list, and read from standard input if no
        file is named. Settings that it does not contain stay as they are.
        --only and --except choose keys by their names, with commas between them and *
        for any characters. Nothing is stored if one of the values cannot be;
        --skip-invalid stores the others, and prints what it left out.
        """,
      example: "settings import com.example.notes old.plist --except='NS*,Apple*'",
      body: SettingsCommands.import),
    Command(
      name: "vault list", parameters: "APP[/SERVICE]",
      summary: "list services and keys, but no values",
      options: ["json", "remember", "passphrase-fd=N", "server=URL"],
      details: """
        --remember lets the next commands, and other programs of this login, open the
        vault without a prompt for 15 minutes; `vault lock` ends that.
        --passphrase-fd takes each answer to a prompt from the next line of an open
        descriptor, such as 3 with 3< FILE. All commands that prompt for the
        passphrase of a vault take both.
        """,
      example: "vault list com.example.notes", body: VaultCommands.list),
    Command(
      name: "vault show", parameters: "APP[/SERVICE] KEY", summary: "print one secret",
      options: ["reveal", "remember", "passphrase-fd=N", "server=URL"],
      details: """
        Prints the secret only if standard output is a terminal, and escapes control
        characters. --reveal also prints it into a file or a pipe, byte by byte and
        without a newline.
        """,
      example: "vault show com.example.notes/com.app.auth accessToken", body: VaultCommands.show),
    Command(
      name: "vault set", parameters: "APP[/SERVICE] KEY", summary: "store a secret",
      options: ["bytes", "remember", "passphrase-fd=N", "server=URL"],
      details: """
        Asks for the secret and does not show it, or takes it from standard input if
        that is not a terminal: UTF-8 text, without the newline at its end. --bytes
        stores what standard input has, byte by byte. A new vault gets a key file.
        """,
      example: "vault set com.example.notes/com.app.auth accessToken < token.txt",
      body: VaultCommands.set),
    Command(
      name: "vault protect", parameters: "APP", summary: "protect the vault with a passphrase",
      options: ["key-file", "remember", "passphrase-fd=N", "server=URL"],
      details: """
        --key-file protects it with a key file, so that it opens without a prompt.
        Creates the vault if there is none. Recovery codes and passphrases end: add new
        ones. With --passphrase-fd, the new passphrase
        is the line after the one that opens the vault, if that is locked.
        """,
      example: "vault protect com.example.notes", body: VaultCommands.protect),
    Command(
      name: "vault rotate", parameters: "APP", summary: "encrypt all secrets with a new key",
      options: ["remember", "passphrase-fd=N", "server=URL"],
      example: "vault rotate com.example.notes", body: VaultCommands.rotate),
    Command(
      name: "vault unlock-methods", parameters: "APP", summary: "list what opens the vault",
      options: ["json", "server=URL"],
      details: """
        The first is what protects the vault; the others were added for
        recovery. The list needs no key and shows no secret.
        """,
      example: "vault unlock-methods com.example.notes", body: VaultCommands.unlockMethods),
    Command(
      name: "vault add-recovery", parameters: "APP", summary: "add a recovery code",
      options: ["passphrase", "remember", "passphrase-fd=N", "server=URL"],
      details: """
        Prints a new code that opens the vault if its passphrase is forgotten or its
        key is lost. It is shown only once, and only on a terminal. --passphrase asks
        for a second passphrase instead. Enter either where a command asks for the
        passphrase, or for the recovery code if the key is missing.
        """,
      example: "vault add-recovery com.example.notes", body: VaultCommands.addRecovery),
    Command(
      name: "vault remove-recovery", parameters: "APP [ID]", summary: "remove one recovery, or all",
      options: ["remember", "passphrase-fd=N", "server=URL"],
      details: """
        `vault unlock-methods` shows the ID. What is removed still opens older copies of the
        vault, and its header if that is put back. If it was exposed, run
        `vault protect`, which makes all others useless.
        """,
      example: "vault remove-recovery com.example.notes 3f2a91c0",
      body: VaultCommands.removeRecovery),
    Command(
      name: "vault lock", parameters: "APP", summary: "forget a remembered key",
      options: ["server=URL"], details: "Programs that have opened the vault already keep it open.",
      example: "vault lock com.example.notes", body: VaultCommands.lock),
    Command(
      name: "vault delete", parameters: "APP[/SERVICE] KEY", summary: "delete a secret",
      options: ["remember", "passphrase-fd=N", "server=URL"],
      example: "vault delete com.example.notes pin", body: VaultCommands.delete),
    Command(
      name: "cache list", parameters: "APP[/CACHE]", summary: "list entries by key",
      options: ["json"], example: "cache list com.example.notes/Images", body: CacheCommands.list),
    Command(
      name: "cache sizes", parameters: "APP[/CACHE]", summary: "show the disk space of each cache",
      options: ["json"], example: "cache sizes com.example.notes", body: CacheCommands.sizes),
    Command(
      name: "cache expiry", parameters: "APP[/CACHE]",
      summary: "list entries that expire, soonest first", options: ["json"],
      example: "cache expiry com.example.notes", body: CacheCommands.expiry),
    Command(
      name: "cache stats", parameters: "APP[/CACHE]",
      summary: "show sizes, ages, and when entries expire", options: ["json"],
      example: "cache stats com.example.notes", body: CacheCommands.stats),
    Command(
      name: "cache sweep", parameters: "APP[/CACHE]", summary: "delete expired entries",
      options: ["json"], example: "cache sweep com.example.notes", body: CacheCommands.sweep),
    Command(
      name: "cache clear", parameters: "APP[/CACHE]",
      summary: "delete all entries after confirmation", options: ["yes"],
      details: "--yes does not ask for confirmation.",
      example: "cache clear com.example.notes/Images", body: CacheCommands.clear),
    Command(
      name: "backup", parameters: "APP DIRECTORY", summary: "back up settings and secrets",
      options: ["without-key"],
      details: """
        Each suite, and the vault with its keys, is copied as it is at one moment,
        while programs may write.
        DIRECTORY must be new or empty. If a key file protects the vault, the backup
        has a copy of it, so keep the backup as safe as the secrets; --without-key
        leaves the key file out, and then it must be kept elsewhere. Caches are left
        out, because the app creates them again, and so are files of a Folder, suites
        in directories that the app chose, and custom engines.
        """,
      example: "backup com.example.notes /media/backup/notes", body: BackupCommands.backUp),
    Command(
      name: "restore", parameters: "APP DIRECTORY", summary: "restore a backup",
      options: ["replace"],
      details: """
        Checks the whole backup first, then replaces each suite and the vault at one
        moment; running programs continue with the restored values. Suites that the
        backup does not have stay as they are. Nothing is replaced without --replace,
        and what is replaced is kept under a name that ends in .replaced-TIME.
        """,
      example: "restore com.example.notes /media/backup/notes", body: BackupCommands.restore),
    Command(
      name: "push", parameters: "APP[/SUITE] --server=URL",
      summary: "store again what a server has lost", options: ["vault", "server=URL"],
      details: """
        Takes the settings that were last known on this machine, from the cache
        directory of the app, and replaces what is on the server with them. All
        programs of the app then use them. Run it as the user of the app, on the
        machine that had the newest settings. Changes nothing if the server has lost
        nothing. --vault does that with the sealed secrets, which need no key for it.
        See also adopt.
        """,
      example: "push com.example.shop --server=valkeys://cache.internal:6379",
      body: ServerCommands.push),
    Command(
      name: "adopt", parameters: "APP[/SUITE] --server=URL",
      summary: "give up what a server has lost", options: ["vault", "server=URL"],
      details: """
        Gives up the settings that were last known on this machine, for those that the
        server has now, or for none. All programs of the app that knew the same
        settings then use those on the server. Run it as the user of the app, on a
        machine that had them. Changes nothing if the server has lost nothing. --vault
        does that with the sealed secrets. See also push.
        """,
      example: "adopt com.example.shop --server=valkeys://cache.internal:6379",
      body: ServerCommands.adopt),
    Command(
      name: "completions", parameters: "SHELL", summary: "print completions for a shell",
      details: """
        Add this line to ~/.bashrc, or to ~/.zshrc with zsh:
        eval "$(keepsakectl completions bash)"
        With fish, add this line to ~/.config/fish/config.fish:
        keepsakectl completions fish | source
        """,
      example: "completions bash", body: Completions.show),
    Command(
      name: "doctor", parameters: "[APP]", summary: "find problems in the files of apps",
      options: ["json", "free=BYTES", "passphrase-fd=N", "server=URL"],
      details: """
        Without APP, checks all apps, one after the other.
        Reads copies of settings and caches and opens every secret. Changes nothing,
        and exits with 1 if there is a problem. A vault with a passphrase is opened
        only if there is a terminal to ask on, or with --passphrase-fd. --free is the
        disk space that must be left, by default 100 MB. With --server, checks the
        server of APP instead, and whether it has lost settings or secrets that were
        last known on this machine.
        """,
      example: "doctor com.example.notes", body: Doctor.run),
  ]
}
