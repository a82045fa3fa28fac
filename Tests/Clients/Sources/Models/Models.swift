// Public models, with and without `Sendable`, in a library that does not depend on Keepsake.
import Foundation

public struct Plain: Codable, Equatable {
  public var name: String
  public var created: Date
  public init(name: String, created: Date = Date(timeIntervalSince1970: 0)) {
    self.name = name
    self.created = created
  }
}

public struct Shared: Codable, Hashable, Sendable {
  public var id: UUID
  public var link: URL?
  public init(id: UUID = UUID(), link: URL? = nil) {
    self.id = id
    self.link = link
  }
}

open class Shape: Codable {
  public var sides: Int
  public init(sides: Int) { self.sides = sides }
}

public final class Frozen: Codable, Sendable {
  public let text: String
  public init(text: String) { self.text = text }
}

public enum Color: Codable, Equatable {
  case named(String)
  case mixed(red: Double, green: Double, blue: Double)
}

public struct Page<Item: Codable>: Codable {
  public var items: [Item]
  public init(items: [Item]) { self.items = items }
}

extension Page: Sendable where Item: Sendable {}
