/// The engine of a suite.
struct SuiteEngine: Sendable {
  // Two properties, and not a `Result`: taking the engine out of that would retain it, which is a
  // tenth of the cost of a read.

  /// What stores the values; an empty `MemoryEngine` if there is an ``error``.
  let engine: any ValueEngine
  /// Why nothing can be stored: no directory can be found for the values.
  let error: StorageError?

  init(_ result: Result<any ValueEngine, StorageError>) {
    switch result {
    case .success(let engine): (self.engine, error) = (engine, nil)
    case .failure(let error): (engine, self.error) = (MemoryEngine(), error)
    }
  }

  var result: Result<any ValueEngine, StorageError> {
    error.map { .failure($0) } ?? .success(engine)
  }
}
