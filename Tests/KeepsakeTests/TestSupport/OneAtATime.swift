import Testing

/// Tests that occupy all cores, or block a thread for long, while they wait for other processes.
///
/// They run one at a time, because all tests share the few threads of the concurrency pool.
@Suite(.serialized, .multiprocess) enum OneAtATime {}
