@testable import KeepsakeTestSupport

/// The library has an internal type of the same name.
typealias TemporaryDirectory = KeepsakeTestSupport.TemporaryDirectory
