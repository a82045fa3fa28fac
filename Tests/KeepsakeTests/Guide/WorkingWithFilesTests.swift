import Foundation
import Keepsake
import KeepsakeTesting
import Testing

/// The snippets of the article on files; `SnippetTests` compares them.
@Suite(.temporaryStorage) struct WorkingWithFilesTests {
  @Test func valuesAreSavedAndLoaded() throws {
    let (user, png, note) = (User(name: "Ann"), Data("p".utf8), "text")

    try Folder.documents.save(user, as: "users/1.json")
    try Folder.documents.save("# Title", as: "readme.md")
    try Folder.caches.save(png, as: "avatars/ann.png")
    try Folder.documents.save(note, as: "1.txt", replacing: false)

    let ann: User = try Folder.documents.load("users/1.json")
    let draft: Draft? = try Folder.documents.load("draft.json")

    #expect(ann == user && draft == nil)
    #expect(try Folder.documents.load("readme.md") == "# Title")
    #expect(try Folder.caches.load("avatars/ann.png") == png)
    #expect(throws: StorageError.self) {
      try Folder.documents.save(note, as: "1.txt", replacing: false)
    }
  }

  @Test func foldersHaveURLs() throws {
    let exports = Folder.documents.subfolder("exports")
    let database = try Folder.applicationSupport.create().appending(path: "notes.sqlite")

    #expect(try exports.url().path == Folder.documents.url("exports").path)
    #expect(FileManager.default.fileExists(atPath: database.deletingLastPathComponent().path))
  }

  @Test func filesAreListedCopiedMovedAndDeleted() throws {
    let folder = Folder.documents
    try folder.save("text", as: "a.txt")
    try Folder.temporary.save(Data("film".utf8), as: "download")
    let downloaded = try Folder.temporary.url("download")

    #expect(try folder.exists("a.txt"))
    #expect(try folder.list() == ["a.txt"])
    #expect(try folder.list(recursively: true, includingHidden: true) == ["a.txt"])
    #expect(try folder.size("a.txt") == 4)
    #expect(try folder.totalSize() == 4)
    try folder.copy("a.txt", to: "b.txt")
    try folder.move("a.txt", to: "old/a.txt", in: .temporary)
    #expect(try folder.list() == ["b.txt"])
    try folder.adopt(downloaded, as: "films/1.mp4")
    try folder.copy("b.txt", to: "old/b.txt")
    #expect(try folder.list() == ["b.txt", "films/", "old/"])
    try folder.delete("old")
    #expect(try folder.list() == ["b.txt", "films/"])
    try folder.clear()
    #expect(try folder.list() == [])
    print(ByteCount(try folder.totalSize()))
    print(ByteCount(try folder.freeSpace))
    #expect(try folder.freeSpace > 0)
  }

  @Test func largeFilesAreSavedFromChunks() async throws {
    let (body, length) = (AsyncStream { Data("film".utf8) }.prefix(2), 8)

    try await Folder.caches.save(chunks: body, as: "film.mp4", total: length) { done, total in
      print(ByteCount(done))
    }
    var sent = Data()
    func send(_ piece: Data) async throws { sent += piece }
    for try await piece in try Folder.caches.chunks(of: "film.mp4") { try await send(piece) }
    let backups = Folder.documents.subfolder("backups")
    try await Folder.caches.copy("film.mp4", to: "film.mp4", in: backups) { done, total in
      print(ByteCount(done), "of", ByteCount(total))
    }
    #expect(try backups.size("film.mp4") == 8)

    #expect(try Folder.caches.size("film.mp4") == 8 && sent == Data("filmfilm".utf8))
  }
}

private struct User: Codable, Equatable { var name: String }
private struct Draft: Codable, Equatable { var text: String }
