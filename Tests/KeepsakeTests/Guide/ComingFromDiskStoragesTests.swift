import Foundation
import Keepsake
import KeepsakeTesting
import Testing

@testable import KeepsakeTestSupport

private struct Timeline: Codable, Equatable {
  var posts = ["first", "second"]
}

protocol ReadableStorage {
  func load<T: Codable>(_ path: String, type: T.Type) throws -> T
}
protocol WritableStorage {
  func save<T: Codable>(_ value: T, as path: String) throws
}

extension Folder: ReadableStorage, WritableStorage {}

@Suite(.temporaryStorage) struct ComingFromDiskStoragesTests {
  private let folder: TemporaryDirectory
  private let files: Folder
  private let timeline = Timeline()

  init() throws {
    folder = try TemporaryDirectory()
    let url = folder.file("storage")
    let files = Folder(url)
    self.files = files
  }

  @Test func bytesAreSavedAndLoaded() throws {
    let bytes = Data([1, 2, 3])
    try files.save(bytes, as: "image")
    let image: Data = try files.load("image")
    #expect(image == bytes)
    #expect(try Data(contentsOf: folder.file("storage/image")) == bytes)
  }

  @Test func valuesNeedNoAdapter() throws {
    let saved = Timeline(posts: ["only"])
    func save(_ timeline: Timeline) throws { try files.save(timeline, as: "timeline.json") }
    try save(saved)
    let timeline: Timeline = try files.load("timeline.json")
    #expect(timeline == saved)
  }

  @Test func missingFilesThrowOrReturnNil() throws {
    do {
      let timeline: Timeline = try files.load("none.json")
      Issue.record("found \(timeline)")
    } catch StorageError.Code.notFound {
      // Expected.
    } catch {
      Issue.record(error)
    }
    let maybe: Timeline? = try files.load("none.json")
    #expect(maybe == nil)
  }

  @Test func customEncodersMakeTheBytes() throws {
    let (encoder, decoder) = (JSONEncoder(), JSONDecoder())
    encoder.keyEncodingStrategy = .convertToSnakeCase
    decoder.keyDecodingStrategy = .convertFromSnakeCase
    try files.save(encoder.encode(timeline), as: "own.json")
    let own = try decoder.decode(Timeline.self, from: files.load("own.json"))
    #expect(own == timeline)
  }

  @Test func taskCallsACompletionHandler() async throws {
    let (files, timeline) = (files, timeline)
    let saved = await withCheckedContinuation { continuation in
      let completion: @Sendable (Result<Void, any Error>) -> Void = {
        continuation.resume(returning: $0)
      }
      Task { completion(Result { try files.save(timeline, as: "timeline.json") }) }
    }
    try saved.get()
    let loaded = await withCheckedContinuation { continuation in
      let completion: @Sendable (Result<Timeline, any Error>) -> Void = {
        continuation.resume(returning: $0)
      }
      Task { completion(Result { try files.load("timeline.json") as Timeline }) }
    }
    #expect(try loaded.get() == timeline)
    try files.clear()
    let missing = await withCheckedContinuation { continuation in
      let completion: @Sendable (Result<Timeline, any Error>) -> Void = {
        continuation.resume(returning: $0)
      }
      Task { completion(Result { try files.load("timeline.json") as Timeline }) }
    }
    expectFailure(.notFound) { _ = try missing.get() }
  }

  @Test func folderConformsToTheAppsProtocols() throws {
    let reader: any ReadableStorage = files
    let writer: any WritableStorage = files
    try writer.save(timeline, as: "timeline.json")
    #expect(try reader.load("timeline.json", type: Timeline.self) == timeline)
  }

  @Test func cachesStoreModels() async throws {
    let cache = DiskCache.named("Timelines")
    try cache.set(timeline, forKey: "timeline")
    let cached: Timeline? = try cache.model("timeline")
    #expect(cached == timeline)
    let found: Timeline? = try await cache.perform { try $0.model("timeline") }
    #expect(found == timeline)
    #expect(!DiskCache.contains("timeline"))
  }

  @Test func settingsAreOnDiskOrInMemory() throws {
    Defaults.set(timeline, forKey: "timeline")
    let kept: Timeline? = Defaults.model("timeline")
    #expect(kept == timeline)
    let memory = Defaults.suite(.memory)
    try memory.set("value", forKey: "timeline")
    #expect(try memory.string("timeline") == "value" && memory.fileURL == nil)
    #expect(Defaults.model("timeline") == timeline)
  }
}
