// Values of an app. In the program whose default isolation is the main actor, they belong to it.
import FoundationEssentials

struct Profile: Codable, Equatable {
  var name = ""
  var seen: Date?
  var tags: [String] = []
}

/// A class that is not `Sendable`, unless it belongs to an actor.
final class Draft: Codable {
  var text: String
  init(text: String) { self.text = text }
}

enum Theme: String, Codable, CaseIterable {
  case light, dark
}

struct Refusal: Error {}
