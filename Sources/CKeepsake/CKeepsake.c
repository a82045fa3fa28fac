#define _GNU_SOURCE
#include "CKeepsake.h"

#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/mman.h>

int keepsake_lock(int descriptor, bool exclusive) {
#ifdef F_OFD_SETLK
  struct flock range = {.l_type = exclusive ? F_WRLCK : F_UNLCK, .l_whence = 0};
  return fcntl(descriptor, F_OFD_SETLK, &range);
#else
  return flock(descriptor, exclusive ? LOCK_EX | LOCK_NB : LOCK_UN);
#endif
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
