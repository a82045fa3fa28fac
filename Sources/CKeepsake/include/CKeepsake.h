// What Swift cannot reach or express: constants behind feature macros, atomic loads from shared
// mappings, thread-locals. No logic lives here.
#ifndef CKEEPSAKE_H
#define CKEEPSAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

// Takes or releases the exclusive lock on the whole file without waiting: flock(2), which belongs to
// the open file description, so that another one of the same process does not share it, and costs
// two thirds of an F_OFD_SETLK. In the shim because Swift takes `flock` for the struct. Returns 0, or -1 with errno (EAGAIN when somebody else holds it).
int keepsake_lock(int descriptor, bool exclusive);

// Takes or releases the exclusive lock on some bytes without waiting, for the open file description as
// well (F_OFD_SETLK; where there is none, for the process). Returns as keepsake_lock.
int keepsake_lock_bytes(int descriptor, uint64_t offset, uint64_t count, bool exclusive);

// Waits for a mutex for so long at most; false when it was not to be had. In the shim because not each
// C library has a call that a clock which is set back cannot prolong; where there is none at all, as on
// Apple systems, it waits to the end.
bool keepsake_lock_mutex(pthread_mutex_t *_Nonnull mutex, int64_t seconds, int64_t nanoseconds);

// Lets two files in a folder trade names in one step. Returns 0, or -1 with errno (EINVAL or ENOSYS
// where the file system cannot).
int keepsake_exchange(int folder, const char *_Nonnull a, const char *_Nonnull b);

// Makes an empty file share the other one's data until either is written. Returns 0, or -1 with errno
// where the file system cannot.
int keepsake_clone(int target, int source);

// What the library asks about a file.
struct keepsake_status {
  uint64_t device;
  uint64_t inode;
  int64_t size;
  uint32_t links;
  uint32_t mode;
  uint32_t owner;
  // Whether something is mounted there, as far as the system says so.
  bool is_mount;
  // Nanoseconds since 1970, 0 unless asked for: since Linux 6.13 a file whose times were asked for
  // gets new ones with its next write, which on ext4 costs as much as that write.
  int64_t modified;
  int64_t accessed;
  int64_t changed;
};

// The status of `path`, seen from the folder `descriptor`, or of `descriptor` itself where that is NULL;
// of a symbolic link its own unless `follow`. Returns 0, or -1 with errno.
int keepsake_stat(
    int descriptor, const char *_Nullable path, bool follow, bool with_times,
    struct keepsake_status *_Nonnull status);

// Opens `path`, seen from the folder, unless a symbolic link stands anywhere in it (ELOOP; openat2(2)
// with RESOLVE_NO_SYMLINKS). Returns a descriptor, or -1 with errno (ENOSYS where the system cannot).
int keepsake_open_unlinked(int folder, const char *_Nonnull path, int flags);

// O_PATH, or 0 where there is none.
extern const int keepsake_path_only;

// A page of one uint64_t that a child process finds zeroed after fork. NULL when it cannot be had.
uint64_t *_Nullable keepsake_wipe_on_fork_page(void);

static inline uint64_t keepsake_load(const uint64_t *_Nonnull word) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void keepsake_store(uint64_t *_Nonnull word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

// The path by which the system was asked to start this program (AT_EXECFN), which needs no /proc; NULL where
// it is not told.
const char *_Nullable keepsake_started_path(void);

// The innermost `update` whose closure is running on this thread; NULL if there is none.
const void *_Nullable keepsake_innermost_update(void);
void keepsake_set_innermost_update(const void *_Nullable update);

// This thread's state for Observation.
struct keepsake_observation {
  // How often the key path has been hashed that shows whether Observation is tracking.
  uint64_t probe_hashes;
  // The tracked value whose observers are being notified.
  const void *_Nullable notified_value;
};
struct keepsake_observation *_Nonnull keepsake_thread_observation(void);

#endif
