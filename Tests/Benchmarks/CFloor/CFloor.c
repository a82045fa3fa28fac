#define _GNU_SOURCE
#include "CFloor.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

int floor_lock(int descriptor, bool exclusive) {
  return flock(descriptor, exclusive ? LOCK_EX | LOCK_NB : LOCK_UN);
}

long floor_statx(const char *path) {
  struct statx found;
  if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_NLINK | STATX_SIZE, &found) != 0) return -1;
  return (long)found.stx_size;
}
