import Foundation
import Testing

@testable import Keepsake
@testable import KeepsakeTestSupport
@testable import KeepsakeValkey

/// What the server learns of secrets, and anyone who can see its connections, memory and files.
@Suite(.server, .threadPerTest) struct SecretsSecrecyTests {
  /// A text that occurs nowhere else.
  private func word(_ name: String) -> String {
    name + randomBytes(16).map { String(format: "%02x", $0) }.joined()
  }

  /// Everything that clients send to the server.
  private final class Monitor {
    private let socket: Socket
    private(set) var text: [UInt8] = []

    init(_ server: TestServer) throws {
      let address = try #require(SocketAddress(path: server.socketPath))
      socket = try Socket.connect(to: address)
      let command = Array("MONITOR\r\n".utf8)
      #expect(write(socket.descriptor, command, command.count) == command.count)
      readUntil("+OK")
    }

    func readUntil(_ end: String) {
      waitUntil("the monitor did not see \(end)") {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let count = read(socket.descriptor, &buffer, buffer.count)
        if count > 0 { text += buffer[..<count] }
        return text.contains(end.utf8)
      }
    }
  }

  /// The memory of a process that it can write to.
  private func memory(of process: pid_t) throws -> [[UInt8]] {
    let maps = try String(contentsOfFile: "/proc/\(process)/maps", encoding: .utf8)
    let file = open("/proc/\(process)/mem", O_RDONLY | O_CLOEXEC)
    try #require(file >= 0, "the memory of the server cannot be read")
    defer { close(file) }
    return maps.split(separator: "\n").compactMap { line in
      let parts = line.split(separator: " ")
      let bounds = parts[0].split(separator: "-").compactMap { Int($0, radix: 16) }
      guard parts[1].hasPrefix("rw"), bounds.count == 2 else { return nil }
      var bytes = [UInt8](repeating: 0, count: bounds[1] - bounds[0])
      let count = pread(file, &bytes, bytes.count, off_t(bounds[0]))
      return count > 0 ? Array(bytes[..<count]) : nil
    }
  }

  private func files(in directory: String) throws -> [[UInt8]] {
    try FileManager.default.subpathsOfDirectory(atPath: directory).compactMap { name in
      FileManager.default.contents(atPath: directory + "/" + name).map { Array($0) }
    }
  }

  private func contain(_ texts: [[UInt8]], _ word: String) -> Bool {
    texts.contains { Data($0).range(of: Data(word.utf8)) != nil }
  }

  @Test func theServerSeesNoPlaintextAndNoNames() throws {
    let server = try TestServer(["--appendonly", "yes", "--appendfsync", "always"])
    let monitor = try Monitor(server)
    let (key, service, value) = (word("key"), word("service"), word("value"))
    let (secondValue, passphrase) = (word("second"), word("passphrase"))
    let client = try VaultClient(server)
    let store = client.secrets(SecureVault.Service(service))
    try store.set(value, forKey: key)
    try store.set(secondValue, forKey: key)
    try store.rotateKeys()
    try store.protect(with: .passphrase(passphrase))
    #expect(try store.get(key) == secondValue && store.keys() == [key])
    let other = try VaultClient(server, keySources: [.passphrase(passphrase)])
    #expect(try other.secrets(SecureVault.Service(service)).get(key) == secondValue)
    // This is how a word looks that the server does get.
    let canary = word("canary")
    try server.command("SET", "canary", canary)
    monitor.readUntil(canary)

    let places = [
      ("monitor", [monitor.text]), ("files", try files(in: server.directory.path)),
      ("memory", try memory(of: #require(server.processID))),
    ]
    for (place, texts) in places {
      #expect(contain(texts, canary), "\(place)")
      #expect(contain(texts, "@vault"), "\(place)")
      for word in [key, service, value, secondValue, passphrase] {
        let encoded = Data(word.utf8).base64EncodedString().prefix(32)
        #expect(!contain(texts, word) && !contain(texts, String(encoded)), "\(place)")
      }
    }
  }
}
