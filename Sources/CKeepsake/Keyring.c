#define _GNU_SOURCE
#include "CKeepsake.h"

#include <errno.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

// The C library has no functions for these calls; libkeyutils, which has, would be a dependency.

int64_t keepsake_add_key(
    const char *description, const void *payload, size_t size, int32_t keyring) {
#if defined(__linux__) && defined(SYS_add_key)
  return syscall(SYS_add_key, "user", description, payload, size, (long)keyring);
#else
  (void)description, (void)payload, (void)size, (void)keyring;
  errno = ENOSYS;
  return -1;
#endif
}

int64_t keepsake_find_key(const char *description, int32_t keyring) {
#if defined(__linux__) && defined(SYS_keyctl)
  enum { search = 10 };
  return syscall(SYS_keyctl, search, (long)keyring, "user", description, 0L);
#else
  (void)description, (void)keyring;
  errno = ENOSYS;
  return -1;
#endif
}

int64_t keepsake_read_key(int32_t key, void *buffer, size_t size) {
#if defined(__linux__) && defined(SYS_keyctl)
  enum { read = 11 };
  return syscall(SYS_keyctl, read, (long)key, buffer, size, 0L);
#else
  (void)key, (void)buffer, (void)size;
  errno = ENOSYS;
  return -1;
#endif
}

int64_t keepsake_describe_key(int32_t key, void *buffer, size_t size) {
#if defined(__linux__) && defined(SYS_keyctl)
  enum { describe = 6 };
  return syscall(SYS_keyctl, describe, (long)key, buffer, size, 0L);
#else
  (void)key, (void)buffer, (void)size;
  errno = ENOSYS;
  return -1;
#endif
}

int64_t keepsake_control_key(int32_t operation, int32_t key, uint32_t argument) {
#if defined(__linux__) && defined(SYS_keyctl)
  return syscall(SYS_keyctl, (long)operation, (long)key, (long)(int32_t)argument, 0L, 0L);
#else
  (void)operation, (void)key, (void)argument;
  errno = ENOSYS;
  return -1;
#endif
}
