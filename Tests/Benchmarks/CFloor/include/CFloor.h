// Calls of the floor that Swift cannot import: system calls behind a feature macro or with the name
// of a struct, the allocator, and libcrypto.
#ifndef CFLOOR_H
#define CFLOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Takes or releases the lock of a file.
int floor_lock(int descriptor, bool exclusive);

// Reads the inode, links and size of `path`. Returns the size, or -1.
long floor_statx(const char *_Nonnull path);

// Takes or releases the lock of one byte of a file.
int floor_lock_byte(int descriptor, uint64_t byte, bool exclusive);

// Lists a directory recursively and reads the status of each file that is not hidden. Returns the
// number of files, or -1.
long floor_walk(const char *_Nonnull path);

// Encrypts `message` with AES-256-GCM through `buffer`, and writes nonce, ciphertext and tag to a
// file, one full buffer at a time. Returns whether it succeeded. Fetches the algorithm once, and
// creates one context for each call.
bool floor_seal(
    int descriptor, const uint8_t *_Nonnull key, const uint8_t *_Nonnull message, size_t count,
    uint8_t *_Nonnull buffer, size_t capacity);

// Returns freed memory to the system. Returns the size of this process's anonymous memory, or -1.
long floor_anonymous_bytes(void);

// Makes the system end this process when its parent process ends.
void floor_end_with_parent(void);

// Keeps this thread on one of the processors that it may use; does nothing if it has fewer.
void floor_stay_on_processor(int number);

#endif
