import Testing

@testable import KeepsakeTestSupport

/// Files that a failing disk, a user or another program has changed, moved or removed.
@Suite(.singleThreaded, .proofThread) struct DamageTests {
  @Test func damagedSettings() throws { try DamageSweep<DefaultsModel>().run() }
  @Test func damagedFilesOfAnEngine() throws { try DamageSweep<FileEngineModel>().run() }
  @Test func damagedCaches() throws { try DamageSweep<AppCacheModel>().run() }
  @Test func damagedVaults() throws { try DamageSweep<VaultModel>().run() }
  @Test func damagedFolders() throws { try DamageSweep<FolderModel>().run() }
}
