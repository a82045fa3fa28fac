@testable import TestSupport

/// The library has an internal type of the same name.
typealias TemporaryDirectory = TestSupport.TemporaryDirectory
