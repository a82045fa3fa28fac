#define _GNU_SOURCE
#include "CKeepsake.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/fs.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
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

bool keepsake_lock_mutex(pthread_mutex_t *mutex, int64_t nanoseconds) {
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
  const int64_t rest = end.tv_nsec + nanoseconds % 1000000000;
  end.tv_sec += nanoseconds / 1000000000 + rest / 1000000000;
  end.tv_nsec = rest % 1000000000;
#ifdef HAS_CLOCKLOCK
  return pthread_mutex_clocklock(mutex, clock, &end) == 0;
#else
  return pthread_mutex_timedlock(mutex, &end) == 0;
#endif
#endif
}

void keepsake_make_condition(pthread_cond_t *condition) {
#ifdef __APPLE__
  pthread_cond_init(condition, NULL);
#else
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
#endif
}

bool keepsake_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t nanoseconds) {
  struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
#ifdef __APPLE__
  return pthread_cond_timedwait_relative_np(condition, mutex, &time) != ETIMEDOUT;
#else
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  time.tv_sec += now.tv_sec + (now.tv_nsec + time.tv_nsec) / 1000000000;
  time.tv_nsec = (now.tv_nsec + time.tv_nsec) % 1000000000;
  return pthread_cond_timedwait(condition, mutex, &time) != ETIMEDOUT;
#endif
}

int32_t keepsake_thread_id(void) {
#ifdef __linux__
  return (int32_t)syscall(SYS_gettid);
#else
  return 0;
#endif
}

void keepsake_name_thread(const char *name) {
#ifdef __APPLE__
  pthread_setname_np(name);
#else
  pthread_setname_np(pthread_self(), name);
#endif
}

int32_t keepsake_processor_count(void) {
#ifdef __linux__
  cpu_set_t processors;
  if (sched_getaffinity(0, sizeof processors, &processors) == 0) {
    int count = CPU_COUNT(&processors);
    if (count > 0) return count;
  }
#endif
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? (int32_t)count : 1;
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

int keepsake_reserve(int descriptor, uint64_t offset, uint64_t size) {
#ifdef FALLOC_FL_KEEP_SIZE
  return fallocate(descriptor, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size);
#else
  errno = ENOSYS;
  return -1;
#endif
}

int keepsake_overwrite_in_place(int descriptor) {
#ifdef FS_NOCOW_FL
  int flags;
  if (ioctl(descriptor, FS_IOC_GETFLAGS, &flags) != 0) return -1;
  flags |= FS_NOCOW_FL;
  return ioctl(descriptor, FS_IOC_SETFLAGS, &flags);
#else
  (void)descriptor;
  errno = ENOSYS;
  return -1;
#endif
}

int keepsake_sync_file_system(int descriptor) {
#ifdef __linux__
  return syncfs(descriptor);
#else
  (void)descriptor;
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

bool keepsake_mark(int descriptor, int mark) {
#ifdef F_SETSIG
  return fcntl(descriptor, F_SETSIG, mark) == 0;
#else
  return false;
#endif
}

bool keepsake_is_marked(int descriptor, int mark) {
#ifdef F_GETSIG
  return fcntl(descriptor, F_GETSIG) == mark;
#else
  return false;
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

const char *keepsake_trusted_variable(const char *name) {
#ifdef __APPLE__
  return issetugid() ? NULL : getenv(name);
#elif defined(__linux__)
  // Not AT_SECURE, which security modules also set for services whose variables systemd has set.
  bool is_trusted = getauxval(AT_UID) == getauxval(AT_EUID) &&
                    getauxval(AT_GID) == getauxval(AT_EGID);
  return is_trusted ? getenv(name) : NULL;
#else
  return getenv(name);
#endif
}

// Also found in a program that is linked statically, where dlsym(3) finds nothing.
extern void swt_abiv0_getEntryPoint(void) __attribute__((weak));

bool keepsake_has_test_library(void) {
  return swt_abiv0_getEntryPoint || dlsym(RTLD_DEFAULT, "swt_abiv0_getEntryPoint") ||
         // The metadata of XCTestCase, and its class on Apple's systems.
         dlsym(RTLD_DEFAULT, "$s6XCTest0A4CaseCN") ||
         dlsym(RTLD_DEFAULT, "OBJC_CLASS_$_XCTestCase");
}

int keepsake_copy_access_list(const char *path, int descriptor) {
#ifdef __linux__
  const char *name = "system.posix_acl_access";
  char list[4096];
  ssize_t size = lgetxattr(path, name, list, sizeof list);
  if (size >= 0) return fsetxattr(descriptor, name, list, (size_t)size, 0);
  if (errno != ENODATA && errno != ENOTSUP) return -1;
  // The directory may have given the new file one.
  return fremovexattr(descriptor, name) == 0 || errno == ENODATA || errno == ENOTSUP ? 0 : -1;
#else
  return 0;
#endif
}

bool keepsake_has_access_list(const char *path) {
#ifdef __linux__
  return lgetxattr(path, "system.posix_acl_access", NULL, 0) > 0;
#else
  return false;
#endif
}

bool keepsake_has_same_access_list(const char *a, const char *b) {
#ifdef __linux__
  const char *name = "system.posix_acl_access";
  char first[4096], second[4096];
  ssize_t size = lgetxattr(a, name, first, sizeof first);
  if (size <= 0) return !keepsake_has_access_list(a) && !keepsake_has_access_list(b);
  return lgetxattr(b, name, second, sizeof second) == size &&
         memcmp(first, second, (size_t)size) == 0;
#else
  return true;
#endif
}

#ifndef MADV_WIPEONFORK
static void *forked_pages[4];
static void zero_pages(void) {
  for (size_t page = 0; page < 4 && forked_pages[page]; page++) memset(forked_pages[page], 0, 4096);
}
static bool zero_on_fork(void *page) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  size_t count = 0;
  while (count < 4 && forked_pages[count]) count++;
  bool is_added = count < 4 && (count > 0 || pthread_atfork(NULL, NULL, zero_pages) == 0);
  if (is_added) forked_pages[count] = page;
  pthread_mutex_unlock(&mutex);
  return is_added;
}
#else
static bool zero_on_fork(void *page) { return madvise(page, 4096, MADV_WIPEONFORK) == 0; }
#endif

uint64_t *keepsake_wipe_on_fork_page(void) {
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return NULL;
  if (zero_on_fork(page)) return page;
  munmap(page, 4096);
  return NULL;
}

const char *keepsake_started_path(void) {
#ifdef __linux__
  return (const char *)getauxval(AT_EXECFN);
#else
  return NULL;
#endif
}

bool keepsake_may_be_root(void) {
#ifdef __linux__
  return getauxval(AT_UID) == 0 || getauxval(AT_EUID) == 0 || getauxval(AT_SECURE) != 0;
#else
  return true;
#endif
}

bool keepsake_replace_signal_handler(int signal, void (*expected)(int), void (*desired)(int)) {
  struct sigaction current;
  if (sigaction(signal, NULL, &current) != 0 || (current.sa_flags & SA_SIGINFO)) return false;
  if (current.sa_handler != (expected ? expected : SIG_DFL)) return false;
  struct sigaction action = {.sa_handler = desired ? desired : SIG_DFL, .sa_flags = SA_RESTART};
  sigfillset(&action.sa_mask);
  return sigaction(signal, &action, NULL) == 0;
}

static _Atomic(void (*)(void)) continue_handler;
static struct sigaction program_continue_action;

static void handle_continue(int signal, siginfo_t *info, void *context) {
  void (*handler)(void) = continue_handler;
  int error = errno;
  if (handler) handler();
  errno = error;
  const struct sigaction *program = &program_continue_action;
  if (program->sa_flags & SA_SIGINFO) {
    program->sa_sigaction(signal, info, context);
  } else if (program->sa_handler != SIG_DFL && program->sa_handler != SIG_IGN) {
    program->sa_handler(signal);
  }
}

void keepsake_set_continue_handler(void (*handler)(void)) {
  continue_handler = handler;
  struct sigaction current;
  if (sigaction(SIGCONT, NULL, &current) != 0) return;
  bool is_set = (current.sa_flags & SA_SIGINFO) && current.sa_sigaction == handle_continue;
  if (is_set == (handler != NULL)) return;
  if (is_set) {
    sigaction(SIGCONT, &program_continue_action, NULL);
    return;
  }
  program_continue_action = current;
  current.sa_sigaction = handle_continue;
  current.sa_flags = (current.sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO | SA_RESTART;
  sigaction(SIGCONT, &current, NULL);
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

#ifdef __linux__
// Undefined in a program without the vault.
extern int OPENSSL_init_crypto(uint64_t options, const void *settings) __attribute__((weak));

// Before anything in the program can use OpenSSL: it would free at exit what other threads and
// later exit handlers still use.
__attribute__((constructor)) static void keep_openssl_at_exit(void) {
  const uint64_t no_atexit = 0x00080000; // OPENSSL_INIT_NO_ATEXIT
  if (OPENSSL_init_crypto) OPENSSL_init_crypto(no_atexit, NULL);
}
#endif

void keepsake_write_to_standard_error(const void *text, size_t size) {
  struct stat current;
  if (!has_standard_error || fstat(2, &current) != 0 ||
      current.st_dev != standard_error.st_dev || current.st_ino != standard_error.st_ino) {
    return;
  }
  // Writing to a pipe without a reader raises SIGPIPE, which ends the program by default.
  sigset_t signals, mask, pending;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, &mask);
  sigpending(&pending);
  bool is_broken = write(2, text, size) < 0 && errno == EPIPE;
  if (is_broken && !sigismember(&pending, SIGPIPE)) {
#ifdef __APPLE__
    int taken;
    sigwait(&signals, &taken);
#else
    sigtimedwait(&signals, NULL, &(struct timespec){0, 0});
#endif
  }
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

static _Thread_local const void *innermost_update;
const void *keepsake_innermost_update(void) { return innermost_update; }
void keepsake_set_innermost_update(const void *update) { innermost_update = update; }

static _Thread_local struct keepsake_observation thread_observation;
struct keepsake_observation *keepsake_thread_observation(void) { return &thread_observation; }

static _Thread_local bool is_reporting;
bool *keepsake_is_reporting(void) { return &is_reporting; }

static _Thread_local void *reader_slot;
void *keepsake_reader_slot(void) { return reader_slot; }
void keepsake_set_reader_slot(void *slot) { reader_slot = slot; }
