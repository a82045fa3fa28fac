// What of the floor Swift cannot reach: system calls behind a feature macro or with the name of a
// struct, the allocator and libcrypto.
#ifndef CFLOOR_H
#define CFLOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Takes or releases the lock of a file.
int floor_lock(int descriptor, bool exclusive);

// Looks at inode, links and size of `path`; returns the size, or -1.
long floor_statx(const char *_Nonnull path);

// Takes or releases the lock of one byte of a file.
int floor_lock_byte(int descriptor, uint64_t byte, bool exclusive);

// Reads a folder with all below it and looks at the status of each file but the hidden ones; returns
// how many there are, or -1.
long floor_survey(const char *_Nonnull path);

// Seals `message` with AES-256-GCM through `buffer` and writes nonce, ciphertext and tag to a file, a
// full buffer at a time; returns whether all went well. Fetches the algorithm once, and for each call
// makes one context.
bool floor_seal(
    int descriptor, const uint8_t *_Nonnull key, const uint8_t *_Nonnull message, size_t count,
    uint8_t *_Nonnull buffer, size_t capacity);

// Gives what is freed back to the system; returns how many bytes this process has in memory that no
// file backs, or -1.
long floor_anonymous_bytes(void);

// Has the system end this process as soon as the one that started it is gone.
void floor_end_with_parent(void);

#endif
