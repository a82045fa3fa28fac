import Testing

/// Tests with other processes keep all cores busy, or a thread waiting, for a long time: one at a
/// time, because all tests share the few threads of the concurrency pool.
@Suite(.serialized) enum OneAtATime {}
