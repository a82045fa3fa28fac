// Each program declares `Caller` with its isolation; the shared calls are its methods.
import Checks
import FoundationEssentials
import Keepsake

extension Caller {
  /// Calls that can be made from synchronous code.
  func checkSynchronousCalls() throws {
    checkSettingValues()
    checkNilSettings()
    checkSettingUpdates()
    try checkSettingStores()
    try checkSuites()
    checkSettingKeys()
    checkWrappers()
    checkObservation()
    checkCachedValues()
    try checkCacheExpiry()
    checkCacheKeys()
    try checkCaches()
    try checkCacheStores()
    checkSecrets()
    checkSecretKeys()
    try checkServices()
    try checkSecretStores()
    try checkSecretBytes()
  }

  func checkSharedCalls() async throws {
    try checkSynchronousCalls()
    await checkSettingChanges()
    try await checkFetches()
    try await checkFetchesInTasks()
    try await checkPerform()
    try await checkChunks()
    try await checkPassphrases()
    try await checkUserPresence()
    try await checkKeySources()
    try await checkEngines()
    try await StorageSystem.withTemporary {
      check(Defaults.keys() == [] && SecureVault.services() == [])
      check(try DiskCache.shared.caches(), is: [])
      try checkSynchronousCalls()
    }
    check(DiskCache.removeAll() && StorageSystem.removeAll())
    check(Defaults.keys() == [] && SecureVault.protection == nil)
    for cache in try DiskCache.shared.caches() { check(DiskCache.keys(cache: cache), is: []) }
  }
}
