#define _GNU_SOURCE
#include "CKeepsake.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#ifdef __linux__
#include <linux/fs.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
#endif
#if defined(SYS_openat2) && __has_include(<linux/openat2.h>)
#include <linux/openat2.h>
#endif
#ifdef STATX_BASIC_STATS
#include <sys/sysmacros.h>
#endif

#ifdef __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 30)
#define HAS_CLOCKLOCK
#endif
#endif

int keepsake_lock(int descriptor, bool exclusive) {
  return flock(descriptor, exclusive ? LOCK_EX | LOCK_NB : LOCK_UN);
}

int keepsake_lock_bytes(int descriptor, uint64_t offset, uint64_t count, bool exclusive) {
  struct flock range = {
      .l_type = exclusive ? F_WRLCK : F_UNLCK,
      .l_whence = SEEK_SET,
      .l_start = (off_t)offset,
      .l_len = (off_t)count,
  };
#ifdef F_OFD_SETLK
  return fcntl(descriptor, F_OFD_SETLK, &range);
#else
  return fcntl(descriptor, F_SETLK, &range);
#endif
}

bool keepsake_lock_mutex(pthread_mutex_t *mutex, int64_t seconds, int64_t nanoseconds) {
#ifdef __APPLE__
  return pthread_mutex_lock(mutex) == 0;
#else
#ifdef HAS_CLOCKLOCK
  const clockid_t clock = CLOCK_MONOTONIC;
#else
  const clockid_t clock = CLOCK_REALTIME;
#endif
  struct timespec end;
  clock_gettime(clock, &end);
  end.tv_sec += seconds + (end.tv_nsec + nanoseconds) / 1000000000;
  end.tv_nsec = (end.tv_nsec + nanoseconds) % 1000000000;
#ifdef HAS_CLOCKLOCK
  return pthread_mutex_clocklock(mutex, clock, &end) == 0;
#else
  return pthread_mutex_timedlock(mutex, &end) == 0;
#endif
#endif
}

int keepsake_exchange(int directory, const char *a, const char *b) {
#if defined(RENAME_EXCHANGE)
  return renameat2(directory, a, directory, b, RENAME_EXCHANGE);
#elif defined(RENAME_SWAP)
  return renameatx_np(directory, a, directory, b, RENAME_SWAP);
#else
  errno = ENOSYS;
  return -1;
#endif
}

int keepsake_rename_new(int directory, const char *source, const char *target) {
#if defined(RENAME_NOREPLACE)
  return renameat2(directory, source, directory, target, RENAME_NOREPLACE);
#elif defined(RENAME_EXCL)
  return renameatx_np(directory, source, directory, target, RENAME_EXCL);
#else
  errno = ENOSYS;
  return -1;
#endif
}

int keepsake_clone(int target, int source) {
#ifdef FICLONE
  return ioctl(target, FICLONE, source);
#else
  errno = ENOSYS;
  return -1;
#endif
}

int keepsake_open_no_symlinks(int directory, const char *path, int flags) {
#if defined(RESOLVE_NO_SYMLINKS)
  struct open_how how = {.flags = (uint64_t)flags, .resolve = RESOLVE_NO_SYMLINKS};
  return (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
#elif defined(O_NOFOLLOW_ANY)
  return openat(directory, path, flags | O_NOFOLLOW_ANY);
#else
  errno = ENOSYS;
  return -1;
#endif
}

uint64_t keepsake_file_system_type(const char *path) {
#ifdef __linux__
  struct statfs found;
  return statfs(path, &found) == 0 ? (uint64_t)found.f_type : 0;
#else
  return 0;
#endif
}

#ifdef O_PATH
const int keepsake_path_only = O_PATH;
#else
const int keepsake_path_only = 0;
#endif

static int64_t nanoseconds(int64_t seconds, int64_t rest) {
  int64_t total;
  if (__builtin_mul_overflow(seconds, INT64_C(1000000000), &total) ||
      __builtin_add_overflow(total, rest, &total)) {
    return seconds < 0 ? INT64_MIN : INT64_MAX;
  }
  return total;
}

int keepsake_stat(
    int descriptor, const char *path, bool follow, bool with_times,
    struct keepsake_status *status) {
  int flags = path ? (follow ? 0 : AT_SYMLINK_NOFOLLOW) : 0;
#ifdef STATX_BASIC_STATS
  struct statx found;
  unsigned wanted = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_UID | STATX_GID | STATX_INO |
                    STATX_SIZE;
  if (with_times) wanted |= STATX_MTIME | STATX_ATIME | STATX_CTIME;
  int result = path ? statx(descriptor, path, flags, wanted, &found)
                    : statx(descriptor, "", AT_EMPTY_PATH, wanted, &found);
  if (result == 0) {
    *status = (struct keepsake_status){
        .device = makedev(found.stx_dev_major, found.stx_dev_minor),
        .inode = found.stx_ino,
        .size = (int64_t)found.stx_size,
        .links = found.stx_nlink,
        .mode = found.stx_mode,
        .owner = found.stx_uid,
        .group = found.stx_gid,
#ifdef STATX_ATTR_MOUNT_ROOT
        .is_mount = (found.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0,
#endif
    };
    if (with_times) {
      status->modified = nanoseconds(found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec);
      status->accessed = nanoseconds(found.stx_atime.tv_sec, found.stx_atime.tv_nsec);
      status->changed = nanoseconds(found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec);
    }
    return 0;
  }
  // Some sandboxes refuse the call.
  if (errno != ENOSYS && errno != EPERM) return result;
#endif
  struct stat plain;
  if ((path ? fstatat(descriptor, path, &plain, flags) : fstat(descriptor, &plain)) != 0) return -1;
  *status = (struct keepsake_status){
      .device = (uint64_t)plain.st_dev,
      .inode = (uint64_t)plain.st_ino,
      .size = (int64_t)plain.st_size,
      .links = (uint32_t)plain.st_nlink,
      .mode = (uint32_t)plain.st_mode,
      .owner = (uint32_t)plain.st_uid,
      .group = (uint32_t)plain.st_gid,
#ifdef __APPLE__
      .modified = nanoseconds(plain.st_mtimespec.tv_sec, plain.st_mtimespec.tv_nsec),
      .accessed = nanoseconds(plain.st_atimespec.tv_sec, plain.st_atimespec.tv_nsec),
      .changed = nanoseconds(plain.st_ctimespec.tv_sec, plain.st_ctimespec.tv_nsec),
#else
      .modified = nanoseconds(plain.st_mtim.tv_sec, plain.st_mtim.tv_nsec),
      .accessed = nanoseconds(plain.st_atim.tv_sec, plain.st_atim.tv_nsec),
      .changed = nanoseconds(plain.st_ctim.tv_sec, plain.st_ctim.tv_nsec),
#endif
  };
  return 0;
}

#ifndef MADV_WIPEONFORK
static uint64_t *forked_page;
static void zero_page(void) { keepsake_store(forked_page, 0); }
#endif

uint64_t *keepsake_wipe_on_fork_page(void) {
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return NULL;
#ifdef MADV_WIPEONFORK
  if (madvise(page, 4096, MADV_WIPEONFORK) != 0) {
    munmap(page, 4096);
    return NULL;
  }
#else
  forked_page = page;
  if (pthread_atfork(NULL, NULL, zero_page) != 0) return NULL;
#endif
  return page;
}

const char *keepsake_started_path(void) {
#ifdef __linux__
  return (const char *)getauxval(AT_EXECFN);
#else
  return NULL;
#endif
}

static bool has_standard_error;
static struct stat standard_error;

__attribute__((constructor)) static void check_standard_streams(void) {
  has_standard_error = fstat(2, &standard_error) == 0;
#ifdef O_PATH
  // open(2) returns the lowest number that is free.
  for (int stream = 0; stream <= 2; stream++) {
    if (fcntl(stream, F_GETFD) == -1) open("/", O_PATH | O_CLOEXEC);
  }
#endif
}

bool keepsake_has_standard_error(void) {
  struct stat current;
  return has_standard_error && fstat(2, &current) == 0 &&
         current.st_dev == standard_error.st_dev && current.st_ino == standard_error.st_ino;
}

static _Thread_local const void *innermost_update;
const void *keepsake_innermost_update(void) { return innermost_update; }
void keepsake_set_innermost_update(const void *update) { innermost_update = update; }

static _Thread_local struct keepsake_observation thread_observation;
struct keepsake_observation *keepsake_thread_observation(void) { return &thread_observation; }
