// Mappings of files that other programs may truncate, as restoring a backup does. Touching a page
// beyond the end of a file raises SIGBUS, and so does a store for which the disk has no block left.
#define _GNU_SOURCE
#include "CKeepsake.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#ifdef __linux__
#include <sys/vfs.h>
#endif

// MARK: The mappings

// A slot of the table. `start` is 0 if it is free, and `reserved` while it is being filled.
struct mapping {
  _Atomic uintptr_t start;
  _Atomic size_t size;
};

static const uintptr_t reserved = 1;

// The handler reads the table at any moment, so it only grows, and nothing in it takes a lock.
struct table {
  struct mapping slots[64];
  struct table *_Atomic next;
};

static struct table mappings;

static bool add(uintptr_t start, size_t size) {
  for (struct table *table = &mappings;;) {
    for (size_t index = 0; index < sizeof table->slots / sizeof table->slots[0]; index++) {
      struct mapping *slot = &table->slots[index];
      uintptr_t unused = 0;
      if (!atomic_compare_exchange_strong(&slot->start, &unused, reserved)) continue;
      atomic_store(&slot->size, size);
      atomic_store(&slot->start, start);
      return true;
    }
    struct table *next = atomic_load(&table->next);
    if (!next) {
      struct table *added = calloc(1, sizeof *added);
      if (!added) return false;
      if (atomic_compare_exchange_strong(&table->next, &next, added)) {
        next = added;
      } else {
        free(added);
      }
    }
    table = next;
  }
}

static void take_out(uintptr_t start) {
  for (struct table *table = &mappings; table; table = atomic_load(&table->next)) {
    for (size_t index = 0; index < sizeof table->slots / sizeof table->slots[0]; index++) {
      uintptr_t expected = start;
      if (atomic_compare_exchange_strong(&table->slots[index].start, &expected, 0)) return;
    }
  }
}

// Replaces the mapping that contains the address by zeros. The thread with the fault is using the
// mapping, so no thread unmaps it at the same time.
static bool replace(uintptr_t address) {
  for (struct table *table = &mappings; table; table = atomic_load(&table->next)) {
    for (size_t index = 0; index < sizeof table->slots / sizeof table->slots[0]; index++) {
      struct mapping *slot = &table->slots[index];
      uintptr_t start = atomic_load(&slot->start);
      size_t size = atomic_load(&slot->size);
      if (start <= reserved || address < start || address - start >= size) continue;
      if (atomic_load(&slot->start) != start) continue;
      return mmap((void *)start, size, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    }
  }
  return false;
}

// MARK: The handler

static struct sigaction previous;

// Does what would have happened without this handler.
static void pass_on(int signal, siginfo_t *info, void *context) {
  struct sigaction next = previous;
  bool is_fault = info->si_code > 0;
  bool has_information = (next.sa_flags & SA_SIGINFO) != 0;
  bool is_default = !has_information && next.sa_handler == SIG_DFL;
  bool is_ignored = !has_information && next.sa_handler == SIG_IGN;
  if (is_ignored && !is_fault) return;
  if (is_default || is_ignored) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(signal, &action, NULL);
    // A fault happens again as soon as this returns. A signal that was sent has to be sent again.
    if (!is_fault) raise(signal);
    return;
  }
  if (next.sa_flags & SA_RESETHAND) previous = (struct sigaction){.sa_handler = SIG_DFL};
  if (has_information) {
    next.sa_sigaction(signal, info, context);
  } else {
    next.sa_handler(signal);
  }
}

static void handle(int signal, siginfo_t *info, void *context) {
  int error = errno;
  bool is_replaced = info->si_code > 0 && replace((uintptr_t)info->si_addr);
  errno = error;
  if (!is_replaced) pass_on(signal, info, context);
}

static void install(void) {
  if (sigaction(SIGBUS, NULL, &previous) != 0) return;
  struct sigaction action = {.sa_sigaction = handle};
  // As the handler that was there expects to be called.
  bool is_handler = (previous.sa_flags & SA_SIGINFO) ||
                    (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
  action.sa_flags = SA_SIGINFO;
  action.sa_flags |= is_handler ? previous.sa_flags & (SA_ONSTACK | SA_NODEFER | SA_RESTART)
                                : SA_ONSTACK | SA_RESTART;
  if (is_handler) {
    action.sa_mask = previous.sa_mask;
  } else {
    sigemptyset(&action.sa_mask);
  }
  sigaction(SIGBUS, &action, NULL);
}

// MARK: Mapping

void *keepsake_map(int descriptor, size_t size, bool writable) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, install);
  int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void *start = mmap(NULL, size, protection, MAP_SHARED, descriptor, 0);
  if (start == MAP_FAILED) return NULL;
  if (add((uintptr_t)start, size)) return start;
  munmap(start, size);
  errno = ENOMEM;
  return NULL;
}

void keepsake_unmap(void *start, size_t size) {
  take_out((uintptr_t)start);
  munmap(start, size);
}

int keepsake_keeps_blocks(int descriptor) {
#ifdef __linux__
  struct statfs status;
  if (fstatfs(descriptor, &status) != 0) return -1;
  switch ((uint32_t)status.f_type) {
    case 0xEF53:      // ext4
    case 0x58465342:  // XFS
    case 0x01021994:  // tmpfs
      return 1;
  }
#else
  (void)descriptor;
#endif
  return 0;
}
