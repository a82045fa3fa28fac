#define _GNU_SOURCE
#include "CKeepsake.h"

#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#ifdef STATX_BASIC_STATS
#include <errno.h>
#include <sys/sysmacros.h>
#endif

int keepsake_lock(int descriptor, bool exclusive) {
  return flock(descriptor, exclusive ? LOCK_EX | LOCK_NB : LOCK_UN);
}

int keepsake_stat(
    int descriptor, const char *path, bool with_times, struct keepsake_status *status) {
#ifdef STATX_BASIC_STATS
  struct statx found;
  unsigned wanted = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_UID | STATX_INO | STATX_SIZE;
  if (with_times) wanted |= STATX_MTIME;
  int result = path ? statx(AT_FDCWD, path, 0, wanted, &found)
                    : statx(descriptor, "", AT_EMPTY_PATH, wanted, &found);
  if (result == 0) {
    *status = (struct keepsake_status){
        .device = makedev(found.stx_dev_major, found.stx_dev_minor),
        .inode = found.stx_ino,
        .size = (int64_t)found.stx_size,
        .links = found.stx_nlink,
        .mode = found.stx_mode,
        .owner = found.stx_uid,
        .modified = with_times ? found.stx_mtime.tv_sec : 0,
    };
    return 0;
  }
  // Some sandboxes refuse the call.
  if (errno != ENOSYS && errno != EPERM) return result;
#endif
  struct stat plain;
  if ((path ? stat(path, &plain) : fstat(descriptor, &plain)) != 0) return -1;
  *status = (struct keepsake_status){
      .device = (uint64_t)plain.st_dev,
      .inode = (uint64_t)plain.st_ino,
      .size = (int64_t)plain.st_size,
      .links = (uint32_t)plain.st_nlink,
      .mode = (uint32_t)plain.st_mode,
      .owner = (uint32_t)plain.st_uid,
      .modified = (int64_t)plain.st_mtime,
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

static _Thread_local const void *thread_frame;
const void *keepsake_thread_frame(void) { return thread_frame; }
void keepsake_set_thread_frame(const void *frame) { thread_frame = frame; }
