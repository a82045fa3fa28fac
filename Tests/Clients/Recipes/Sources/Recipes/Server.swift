import FoundationEssentials
import Hummingbird
import Keepsake
import Logging
import Metrics
import ServiceLifecycle

func bootstrap(logger: Logger) throws {
  try StorageSystem.bootstrap(app: "com.example.shop") { failure in
    logger.log(
      level: failure.severity == .warning ? .warning : .error, "\(failure)",
      metadata: ["code": "\(failure.code.name)"])
  }
}

/// Applies a setting that others change while the server runs.
struct CacheLimit: Service {
  func run() async throws {
    let limits = Defaults.changes("cacheLimit", default: 50_000_000, initial: true)
    for await limit in limits.cancelOnGracefulShutdown() { DiskCache.sizeLimit = limit }
  }
}

/// Syncs the settings, so that they survive a power cut right after the stop. It comes first in
/// the list, so that it stops last.
struct Settings: Service {
  func run() async throws {
    try await gracefulShutdown()
    try await StorageSystem.perform {
      for suite in try Defaults.shared.suites() { Defaults.synchronize(suite: suite) }
    }
  }
}

/// Exports what the cache does.
struct CacheMetrics: Service {
  var cache = DiskCache.Name.standard
  var interval = Duration.seconds(10)

  func run() async throws {
    let hits = Counter(label: "cache_hits")
    let misses = Counter(label: "cache_misses")
    let bytes = Gauge(label: "cache_bytes")
    await cancelWhenGracefulShutdown {
      let store = DiskCache.named(cache)
      var last = store.statistics
      while (try? await Task.sleep(for: interval)) != nil {
        let now = store.statistics
        hits.increment(by: now.hits - last.hits)
        misses.increment(by: now.misses - last.misses)
        last = now
        // Throws only if the server is stopping.
        let size = try? await StorageSystem.perform { DiskCache.totalSize(cache: cache) }
        guard let size else { return }
        bytes.record(size)
      }
    }
  }
}

func run(logger: Logger) async throws {
  let services: [any Service] = [Settings(), CacheLimit(), CacheMetrics()]
  let group = ServiceGroup(
    services: services, gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
  try await group.run()
}

func routes() -> Router<BasicRequestContext> {
  let router = Router()
  router.get("price") { _, _ in
    Defaults.get("isSale", default: false) ? "9" : "12"
  }
  router.get("pages/:name") { _, context in
    let name = try context.parameters.require("name")
    return try await DiskCache.fetch("page/\(name)", expiry: .minutes(5)) {
      try await render(name)
    }
  }
  return router
}

func render(_ name: String) async throws -> String { "The page \(name)" }

func serve(logger: Logger) async throws {
  let server = Application(
    router: routes(), services: [Settings(), CacheLimit(), CacheMetrics()], logger: logger)
  try await server.runService()
}

/// Reads the settings of a mounted ConfigMap.
func isSale() -> Bool {
  let flags = Defaults.Suite("flags", in: URL(filePath: "/etc/shop"))
  let isSale = Defaults.get("isSale", default: false, suite: flags)
  return isSale
}
