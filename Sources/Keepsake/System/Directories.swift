public import FoundationEssentials

extension StorageSystem {
  /// The directories for an app's data, passed to
  /// ``StorageSystem/bootstrap(app:on:directories:engines:keySources:onFailure:authenticate:)``.
  ///
  /// A directory that is nil stays where the platform puts it: on Linux according to the XDG Base
  /// Directory Specification and `systemd.exec(5)`, on Apple systems below `Library`.
  ///
  /// ```swift
  /// try StorageSystem.bootstrap(
  ///   app: "com.example.notes",
  ///   directories: .init(configuration: URL(filePath: "/srv/notes/settings")))
  /// ```
  public struct Directories: Sendable {
    var configuration: URL?
    var data: URL?
    var state: URL?
    var cache: URL?
    var documents: URL?
    var temporary: URL?

    /// Chooses directories to use instead of the platform's.
    ///
    /// - Parameters:
    ///   - configuration: The directory for settings.
    ///   - data: The directory for secrets and the app's own files.
    ///   - state: The directory for the vault's key file.
    ///   - cache: The directory for caches.
    ///   - documents: The directory for documents that the app creates for its user:
    ///     ``Folder/documents``.
    ///   - temporary: The temporary directory: ``Folder/temporary``.
    public init(
      configuration: URL? = nil, data: URL? = nil, state: URL? = nil, cache: URL? = nil,
      documents: URL? = nil, temporary: URL? = nil
    ) {
      self.configuration = configuration
      self.data = data
      self.state = state
      self.cache = cache
      self.documents = documents
      self.temporary = temporary
    }
  }
}
