import Hummingbird
import HummingbirdTesting
import Keepsake
import KeepsakeTesting
import Logging
import MetricsTestKit
import ServiceLifecycle
import Synchronization
import Testing

@testable import CoreMetrics
@testable import Recipes

/// Keeps what is logged.
private final class Lines: LogHandler, Sendable {
  private let lines = Mutex<[String]>([])

  var all: [String] { lines.withLock { $0 } }
  var logLevel: Logger.Level {
    get { .trace }
    set {}
  }
  var metadata: Logger.Metadata {
    get { [:] }
    set {}
  }

  subscript(metadataKey _: String) -> Logger.Metadata.Value? {
    get { nil }
    set {}
  }

  func log(event: LogEvent) {
    lines.withLock { $0.append("\(event.level) \(event.metadata ?? [:]) \(event.message)") }
  }
}

@Suite(.temporaryStorage, .serialized) struct ServerTests {
  @Test func failuresAreLogged() throws {
    let lines = Lines()
    try bootstrap(logger: Logger(label: "test", factory: { _ in lines }))
    Defaults.set("large", forKey: "size")
    #expect(Defaults.int("size") == 0)
    let line = try #require(lines.all.first)
    #expect(line.hasPrefix("error [\"code\": wrongType] Defaults.int failed for key \"size\""))
  }

  @Test func requestsReadSettingsAndCachedPages() async throws {
    try await Application(router: routes()).test(.router) { client in
      func body(_ uri: String) async throws -> String {
        try await client.execute(uri: uri, method: .get) { String(buffer: $0.body) }
      }
      let price = try await body("/price")
      Defaults.set(true, forKey: "isSale")
      let sale = try await body("/price")
      let page = try await body("/pages/start")
      #expect((price, sale, page) == ("12", "9", "The page start"))
      #expect(DiskCache.model("page/start") == "The page start")
      #expect(!isSale(), "nothing is mounted")
    }
  }

  @Test func servicesFollowAndStop() async throws {
    let metrics = TestMetrics()
    MetricsSystem.bootstrapInternal(metrics)
    let limit = DiskCache.sizeLimit
    defer { DiskCache.sizeLimit = limit }
    let group = ServiceGroup(
      services: [Settings(), CacheLimit(), CacheMetrics(interval: .milliseconds(1))],
      logger: Logger(label: "test"))
    try await withThrowingTaskGroup { tasks in
      tasks.addTask { try await group.run() }
      try await until { DiskCache.sizeLimit == 50_000_000 }
      Defaults.set(70_000_000, forKey: "cacheLimit")
      try await until { DiskCache.sizeLimit == 70_000_000 }
      DiskCache.set("value", forKey: "key")
      _ = DiskCache.get("key")
      try await until {
        try metrics.expectCounter("cache_hits").totalValue >= 1
          && metrics.expectGauge("cache_bytes").lastValue ?? 0 > 0
      }
      await group.triggerGracefulShutdown()
      try await tasks.waitForAll()
    }
  }
}

private func until(_ condition: () throws -> Bool) async throws {
  while try !condition() { try await Task.sleep(for: .milliseconds(1)) }
}
