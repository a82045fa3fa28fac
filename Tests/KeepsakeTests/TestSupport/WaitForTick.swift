import Glibc

@testable import Keepsake

/// Waits until a store looks at its files again, which it does once in a tick of the coarse clock.
func waitForTick() {
  // The kernel's clock offers no event. Some kernels tick a hundred times a second.
  usleep(20_000)
}
