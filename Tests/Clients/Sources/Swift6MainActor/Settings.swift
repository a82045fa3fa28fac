// Swift 6 mode, wrappers as static variables of an enum on the main actor.
import Foundation
import Keepsake

struct Profile: Codable, Equatable {
  var name = ""
  var seen: Date?
  var scores: [String: [Int]] = [:]
}

enum Theme: String, Codable, CaseIterable {
  case light, dark
}

@MainActor enum Settings {
  @Default("fontSize") static var fontSize = 16
  @Default("theme", defaultValue: .light) static var theme: Theme
  @Default("recent") static var recent: [String] = []
  @Default("profile", defaultValue: Profile()) static var profile: Profile
  @Default("document") static var document = Document(title: "untitled")
  @Default(.zoom) static var zoom: Double
  @DefaultOptional("lastLogin") static var lastLogin: Date?
  @DefaultOptional("server", suite: "network") static var server: URL?
  @DefaultOptional(.token) static var token: Data?
}

/// A class that is not `Sendable` and stays on the main actor.
final class Document: Codable {
  var title: String
  init(title: String) { self.title = title }
}

extension Defaults.Key<Double> {
  static let zoom = Defaults.Key("zoom", default: 1.5)
}

extension Defaults.Key<Data?> {
  static let token = Defaults.Key<Data?>("token")
}

extension Defaults.Key<Theme> {
  static let theme = Defaults.Key("theme", default: Theme.light)
}

extension Defaults.Key<Profile> {
  static let profile = Defaults.Key("profile", default: Profile(), suite: "people")
}
