// What Swift cannot reach or express: constants behind feature macros, atomic loads from shared
// mappings, thread-locals. No logic lives here.
#ifndef CKEEPSAKE_H
#define CKEEPSAKE_H

#include <stdbool.h>
#include <stdint.h>

// Takes or releases the exclusive lock on the whole file without waiting: flock(2), which belongs to
// the open file description, so that another one of the same process does not share it, and costs
// two thirds of an F_OFD_SETLK. In the shim because Swift takes `flock` for the struct. Returns 0, or -1 with errno (EAGAIN when somebody else holds it).
int keepsake_lock(int descriptor, bool exclusive);

// What the library asks about a file.
struct keepsake_status {
  uint64_t device;
  uint64_t inode;
  int64_t size;
  uint32_t links;
  uint32_t mode;
  uint32_t owner;
  // Seconds since 1970, 0 unless asked for: since Linux 6.13 a file whose times were asked for gets
  // new ones with its next write, which on ext4 costs as much as that write.
  int64_t modified;
};

// The status of `path`, or of `descriptor` where that is NULL. Returns 0, or -1 with errno.
int keepsake_stat(
    int descriptor, const char *_Nullable path, bool with_times,
    struct keepsake_status *_Nonnull status);

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
