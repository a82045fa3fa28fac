import KeepsakeLibc

enum Input {
  /// Calls read(2). If another program has made the descriptor non-blocking, waits for its writer.
  static func read(_ descriptor: Int32, _ buffer: inout [UInt8]) -> Int {
    while true {
      let count = KeepsakeLibc.read(descriptor, &buffer, buffer.count)
      if count >= 0 { return count }
      if errno == EAGAIN {
        var event = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        poll(&event, 1, -1)
      } else if errno != EINTR {
        return count
      }
    }
  }
}
