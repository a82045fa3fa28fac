#define _GNU_SOURCE
#include "CKeepsake.h"

#ifdef __linux__
#include <sys/syscall.h>
#else
#include <sys/random.h>
#endif
#include <unistd.h>

// The call itself: the C library's function may keep random bytes for later.
int64_t keepsake_random(void *buffer, size_t size) {
#ifdef __linux__
  return syscall(SYS_getrandom, buffer, size, 0L);
#else
  size_t count = size < 256 ? size : 256;
  return getentropy(buffer, count) == 0 ? (int64_t)count : -1;
#endif
}
