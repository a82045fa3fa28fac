@testable import KeepsakeValkey

/// A server on a socket in the file system.
protocol SocketServer: AnyObject, Sendable {
  var socketPath: String { get }
}

extension SocketServer {
  var address: ServerAddress {
    var address = ServerAddress(endpoint: .unix(path: socketPath))
    // A busy machine must not fail a test.
    address.requestTimeout = .seconds(60)
    address.connectTimeout = .seconds(60)
    return address
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
}
