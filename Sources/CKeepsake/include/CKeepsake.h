// What Swift cannot reach or express: constants behind feature macros, atomic loads from shared
// mappings, thread-locals. No logic lives here.
#ifndef CKEEPSAKE_H
#define CKEEPSAKE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

// Takes (1) or releases (0) the exclusive lock on the whole file without waiting: an open file
// description lock on Linux, so that threads, and a child after fork, do not share it by accident.
// Returns 0, or -1 with errno (EAGAIN when somebody else holds it).
int keepsake_lock(int descriptor, bool exclusive);

// The status of `path`, or of `descriptor` where that is NULL, without its times: since Linux 6.13 a
// file whose times were asked for gets new ones with its next write, which on ext4 costs as much as
// that write. Returns 0, or -1 with errno.
int keepsake_stat(int descriptor, const char *_Nullable path, struct stat *_Nonnull status);

// A page of one uint64_t that a child process finds zeroed after fork. NULL when it cannot be had.
uint64_t *_Nullable keepsake_wipe_on_fork_page(void);

static inline uint64_t keepsake_load(const uint64_t *_Nonnull word) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void keepsake_store(uint64_t *_Nonnull word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

// The innermost `update` that runs on this thread, as a linked list on the stack.
const void *_Nullable keepsake_thread_frame(void);
void keepsake_set_thread_frame(const void *_Nullable frame);

#endif
