import Foundation

@testable import KeepsakeValkey

/// A server on a socket in the file system.
protocol SocketServer: AnyObject, Sendable {
  var socketPath: String { get }
}

extension SocketServer {
  var address: ServerAddress { ServerAddress(endpoint: .unix(path: socketPath)).patient }

  /// The server as a URL. A busy machine must not fail a test.
  var url: String { url(login: "") }

  /// - Parameter login: The user and the password, as they are in a URL before `@`.
  func url(login: String = "", timeout: String = "60s") -> String {
    let user = login.isEmpty ? "" : login + "@"
    return "unix://\(user)\(socketPath)?timeout=\(timeout)&connect-timeout=\(timeout)"
  }

  /// A link, which keeps the server running.
  func link(
    options: LinkOptions = LinkOptions(), handlers: LinkHandlers = LinkHandlers(),
    _ change: (inout ServerAddress) -> Void = { _ in }
  ) -> Link {
    var address = address
    change(&address)
    var handlers = handlers
    let onConnect = handlers.onConnect
    handlers.onConnect = { [self] in withExtendedLifetime(self) { onConnect() } }
    return Link(address, options: options, handlers: handlers)
  }

  /// The server as the backing of a process has it.
  func backend(
    confirm confirmation: ValkeyBacking.Confirmation = .primary, options: LinkOptions = .quick,
    _ change: (inout ServerAddress) -> Void = { _ in }
  ) -> Server {
    var address = address
    change(&address)
    return Server(address, options: options, confirm: confirmation)
  }
}

extension ServerAddress {
  /// With timeouts that a busy machine keeps.
  var patient: ServerAddress {
    var address = self
    address.requestTimeout = .seconds(60)
    address.connectTimeout = .seconds(60)
    return address
  }

  mutating func logIn(as user: String, _ password: String) {
    (self.user, self.password) = (user, password)
  }
}

extension LinkOptions {
  /// Does not wait long before it connects again.
  static var quick: LinkOptions {
    var options = LinkOptions()
    options.minimumBackoff = .milliseconds(5)
    options.maximumBackoff = .milliseconds(50)
    return options
  }
}
