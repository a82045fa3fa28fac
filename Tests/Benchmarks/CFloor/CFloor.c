#define _GNU_SOURCE
#include "CFloor.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

int floor_lock(int descriptor, bool exclusive) {
  return flock(descriptor, exclusive ? LOCK_EX | LOCK_NB : LOCK_UN);
}

long floor_statx(const char *path) {
  struct statx found;
  if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_NLINK | STATX_SIZE, &found) != 0) return -1;
  return (long)found.stx_size;
}

int floor_lock_byte(int descriptor, uint64_t byte, bool exclusive) {
  struct flock range = {
      .l_type = exclusive ? F_WRLCK : F_UNLCK,
      .l_whence = SEEK_SET,
      .l_start = (off_t)byte,
      .l_len = 1,
  };
  return fcntl(descriptor, F_OFD_SETLK, &range);
}

static long survey(int folder) {
  DIR *stream = folder < 0 ? NULL : fdopendir(folder);
  if (!stream) {
    if (folder >= 0) close(folder);
    return -1;
  }
  long files = 0;
  struct dirent *entry;
  while (files >= 0 && (entry = readdir(stream))) {
    if (entry->d_name[0] == '.') continue;
    if (entry->d_type == DT_DIR) {
      long below =
          survey(openat(dirfd(stream), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      files = below < 0 ? below : files + below;
    } else {
      struct stat found;
      files = fstatat(dirfd(stream), entry->d_name, &found, 0) != 0 ? -1 : files + 1;
    }
  }
  closedir(stream);
  return files;
}

long floor_walk(const char *path) {
  return survey(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

enum { nonce_size = 12, tag_size = 16 };

bool floor_seal(
    int descriptor, const uint8_t *key, const uint8_t *message, size_t count, uint8_t *buffer,
    size_t capacity) {
  static EVP_CIPHER *algorithm;
  if (!algorithm) algorithm = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
  EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
  bool good = algorithm && context && RAND_bytes(buffer, nonce_size) == 1 &&
              EVP_EncryptInit_ex2(context, algorithm, key, buffer, NULL) == 1;
  size_t used = nonce_size, done = 0;
  while (good && done < count) {
    size_t room = capacity - used, piece = count - done < room ? count - done : room;
    int length = 0;
    good = EVP_EncryptUpdate(context, buffer + used, &length, message + done, (int)piece) == 1;
    done += piece;
    used += piece;
    if (good && capacity - used < tag_size) {
      good = write(descriptor, buffer, used) == (ssize_t)used;
      used = 0;
    }
  }
  int length = 0;
  good = good && EVP_EncryptFinal_ex(context, buffer + used, &length) == 1 &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, tag_size, buffer + used) == 1 &&
         write(descriptor, buffer, used + tag_size) == (ssize_t)(used + tag_size);
  EVP_CIPHER_CTX_free(context);
  return good;
}

long floor_anonymous_bytes(void) {
  malloc_trim(0);
  FILE *rollup = fopen("/proc/self/smaps_rollup", "re");
  if (rollup) {
    char line[256];
    long kibibytes = -1;
    while (kibibytes < 0 && fgets(line, sizeof line, rollup))
      sscanf(line, "Anonymous: %ld", &kibibytes);
    fclose(rollup);
    return kibibytes < 0 ? -1 : kibibytes * 1024;
  }
  // Older kernels report only whole pages.
  FILE *sums = fopen("/proc/self/statm", "re");
  long resident = 0, shared = 0;
  int found = sums ? fscanf(sums, "%*d %ld %ld", &resident, &shared) : 0;
  if (sums) fclose(sums);
  return found == 2 ? (resident - shared) * sysconf(_SC_PAGESIZE) : -1;
}

void floor_end_with_parent(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); }

void floor_stay_on_processor(int number) {
  cpu_set_t usable, one;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  for (int processor = 0; processor < CPU_SETSIZE; processor++) {
    if (!CPU_ISSET(processor, &usable) || number-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}
