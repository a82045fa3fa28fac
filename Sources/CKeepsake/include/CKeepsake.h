// What Swift cannot reach or express: constants behind feature macros, variadic calls, atomic loads
// from shared mappings, signal handlers, thread-locals. No other logic.
#ifndef CKEEPSAKE_H
#define CKEEPSAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Takes or releases the exclusive lock on a whole file without waiting. Uses flock(2), which Swift
// cannot call because the struct has the same name. The lock belongs to the open file description,
// so a second one in the same process does not share it, and it costs two thirds of F_OFD_SETLK.
// Returns 0, or -1 with errno (EAGAIN if the lock is held elsewhere).
int keepsake_lock(int descriptor, bool exclusive);

// Takes or releases the exclusive lock on a range of bytes without waiting. Uses F_OFD_SETLK, which
// belongs to the open file description too; where it does not exist, the lock belongs to the
// process. Returns the same as keepsake_lock.
int keepsake_lock_bytes(int descriptor, uint64_t offset, uint64_t count, bool exclusive);

// Waits for a mutex, at most for the given time. Returns whether the mutex was locked. Uses the
// monotonic clock if the C library can. Apple systems have no such call: there it waits
// indefinitely.
bool keepsake_lock_mutex(pthread_mutex_t *_Nonnull mutex, int64_t nanoseconds);

// Initializes a condition for keepsake_wait, which waits until it is signaled, at most for the
// given time, on a clock that cannot be set. Returns whether it waited for less than that.
void keepsake_make_condition(pthread_cond_t *_Nonnull condition);
bool keepsake_wait(
    pthread_cond_t *_Nonnull condition, pthread_mutex_t *_Nonnull mutex, int64_t nanoseconds);

// The number that /proc has for the calling thread; 0 on systems without it.
int32_t keepsake_thread_id(void);

// Names the calling thread, with at most 15 bytes.
void keepsake_name_thread(const char *_Nonnull name);

// How many processors the calling thread may run on, at least 1.
int32_t keepsake_processor_count(void);

// Exchanges the names of two files in a directory in one step. Returns 0, or -1 with errno (EINVAL
// or ENOSYS if the file system cannot).
int keepsake_exchange(int directory, const char *_Nonnull a, const char *_Nonnull b);

// Renames a file or directory in a directory unless the new name is taken. Returns 0, or -1 with
// errno (EEXIST, or EINVAL or ENOSYS if the file system cannot).
int keepsake_rename_new(int directory, const char *_Nonnull source, const char *_Nonnull target);

// Makes an empty file share the data of another one until either is written to. Returns 0, or -1
// with errno if the file system cannot.
int keepsake_clone(int target, int source);

// Gives a file blocks beyond its end without changing its size. Returns 0, or -1 with errno if the
// file system cannot.
int keepsake_reserve(int descriptor, uint64_t offset, uint64_t size);

// Has a new file overwritten in place (FS_NOCOW_FL). Returns 0, or -1 with errno if the file system
// always does that, or cannot.
int keepsake_overwrite_in_place(int descriptor);

// Writes everything to disk that the file system of an open file or directory has in memory.
// Returns 0, or -1 with errno (ENOSYS where there is no such call).
int keepsake_sync_file_system(int descriptor);

// The value of an environment variable, unless the program was started with the rights of another
// user or group than that of whoever set it.
const char *_Nullable keepsake_trusted_variable(const char *_Nonnull name);

// Whether the process has loaded Swift Testing or XCTest.
bool keepsake_has_test_library(void);

// What the library needs to know about a file.
struct keepsake_status {
  uint64_t device;
  uint64_t inode;
  int64_t size;
  uint32_t links;
  uint32_t mode;
  uint32_t owner;
  uint32_t group;
  // Whether something is mounted here; false if the system cannot tell.
  bool is_mount;
  // Nanoseconds since 1970; 0 unless requested. Since Linux 6.13 the next write to a file whose
  // times were queried updates them, which on ext4 costs as much as the write.
  int64_t modified;
  int64_t accessed;
  int64_t changed;
};

// The status of `path` relative to the directory `descriptor`, or of `descriptor` itself if `path`
// is NULL. `follow` returns the status of a symbolic link's target. Returns 0, or -1 with errno.
int keepsake_stat(
    int descriptor, const char *_Nullable path, bool follow, bool with_times,
    struct keepsake_status *_Nonnull status);

// Gives an open file the access-control list of the one at `path`, or none if that has none.
// Returns 0, or -1 with errno.
int keepsake_copy_access_list(const char *_Nonnull path, int descriptor);

// Whether the file at `path`, which may be a symbolic link, has an access-control list of its own.
bool keepsake_has_access_list(const char *_Nonnull path);

// Whether both files, which may be symbolic links, have the same access-control list, or none.
bool keepsake_has_same_access_list(const char *_Nonnull a, const char *_Nonnull b);

// Opens `path` relative to the directory. Fails with ELOOP if any component is a symbolic link
// (openat2(2) with RESOLVE_NO_SYMLINKS). Returns a descriptor, or -1 with errno (ENOSYS if the
// system does not have the call).
int keepsake_open_no_symlinks(int directory, const char *_Nonnull path, int flags);

// Marks a descriptor that has no file of its own by which it could be told from others of its kind.
// The mark is the number of a signal that it will never be asked to send (fcntl(2), F_SETSIG).
// Returns whether the system can do that.
bool keepsake_mark(int descriptor, int mark);

// Whether a descriptor has that mark.
bool keepsake_is_marked(int descriptor, int mark);

// The type of the file system of `path`, as statfs(2) identifies it; 0 if it is unknown.
uint64_t keepsake_file_system_type(const char *_Nonnull path);

// O_PATH, or 0 if the system does not have it.
extern const int keepsake_path_only;

// A page of 4,096 bytes that is zeroed in a child process after fork. NULL if there is none.
uint64_t *_Nullable keepsake_wipe_on_fork_page(void);

static inline uint64_t keepsake_load(const uint64_t *_Nonnull word) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void keepsake_store(uint64_t *_Nonnull word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void keepsake_add(uint64_t *_Nonnull word, uint64_t value) {
  __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}

// Stores the value if the word is 0. Returns what the word is then.
static inline uint64_t keepsake_store_first(uint64_t *_Nonnull word, uint64_t value) {
  uint64_t found = 0;
  bool is_first = __atomic_compare_exchange_n(
      word, &found, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return is_first ? value : found;
}

// Maps the start of a file that other programs may truncate. If that raises SIGBUS, a handler
// replaces the mapping by zeros, and the load or store continues. Other signals go to the handler
// that the program had before the first call, or have their default effect. Returns NULL with
// errno.
void *_Nullable keepsake_map(int descriptor, size_t size, bool writable);
void keepsake_unmap(void *_Nonnull start, size_t size);

// Returns 1 if the file is on a file system where a store into a page that was written before needs
// no new block, so that it succeeds on a full disk; 0 if that is not proven; or -1 with errno.
int keepsake_keeps_blocks(int descriptor);

// The calls of keyrings(7) that the library uses, for keys of the type `user`. Each returns what
// the system call returns, or -1 with errno (ENOSYS if the system has no keyrings).
int64_t keepsake_add_key(
    const char *_Nonnull description, const void *_Nonnull payload, size_t size, int32_t keyring);
int64_t keepsake_find_key(const char *_Nonnull description, int32_t keyring);
// Also the numbers of the keys in a keyring.
int64_t keepsake_read_key(int32_t key, void *_Nonnull buffer, size_t size);
// `type;user;group;permissions;description`, with a zero at its end.
int64_t keepsake_describe_key(int32_t key, void *_Nonnull buffer, size_t size);
// keyctl(2) with an operation that takes a key and a number.
int64_t keepsake_control_key(int32_t operation, int32_t key, uint32_t argument);

// Asks the system for random bytes with getrandom(2), without a generator in this process, whose
// state a copy of the process would share. Returns how many bytes it wrote, at most `size` and at
// least one, or -1 with errno.
int64_t keepsake_random(void *_Nonnull buffer, size_t size);

// The path that this program was started with (AT_EXECFN), which needs no /proc. NULL if it is
// unknown.
const char *_Nullable keepsake_started_path(void);

// Whether this program was started by root, as root, or with more rights than its user has. Others
// cannot become root.
bool keepsake_may_be_root(void);

// Gives a signal the handler `desired` if its handler is `expected`; NULL is the default effect.
// While the new handler runs, its thread receives no signal. Returns whether it was given.
bool keepsake_replace_signal_handler(
    int signal, void (*_Nullable expected)(int), void (*_Nullable desired)(int));

// Calls `handler` whenever this process is continued after a stop, before the program's own handler
// of SIGCONT; NULL ends that.
void keepsake_set_continue_handler(void (*_Nullable handler)(void));

// Writes to the standard error that this program was started with, if descriptor 2 still is that.
// A failure is ignored, and never ends the program.
//
// When the program is loaded, each standard stream that is closed gets a descriptor that can be
// neither read nor written, as a closed one, and that other programs do not inherit. Otherwise the
// next file that any part of the program opens would become that stream.
void keepsake_write_to_standard_error(const void *_Nonnull text, size_t size);

// The innermost `update` whose closure is running on this thread; NULL if there is none.
const void *_Nullable keepsake_innermost_update(void);
void keepsake_set_innermost_update(const void *_Nullable update);

// Whether this thread runs the handler for failures.
bool *_Nonnull keepsake_is_reporting(void);

// This thread's state for Observation.
struct keepsake_observation {
  // How often the key path has been hashed that shows whether Observation is tracking.
  uint64_t probe_hashes;
  // The tracked value whose observers are being notified.
  const void *_Nullable notified_value;
};
struct keepsake_observation *_Nonnull keepsake_thread_observation(void);

// Where this thread announces what it reads; NULL if it has read nothing yet.
void *_Nullable keepsake_reader_slot(void);
void keepsake_set_reader_slot(void *_Nullable slot);

#endif
