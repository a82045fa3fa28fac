import Glibc

@testable import Keepsake

/// Waits until a store looks at its files again, which it does once in a tick of the coarse clock.
func waitForTick() {
  // The kernel's clock offers no event.
  usleep(UInt32(2 * CoarseClock.resolution / 1_000))
}
