// The system calls of the floor that Swift cannot reach: one stands behind a feature macro, the other
// has the name of a struct.
#ifndef CFLOOR_H
#define CFLOOR_H

#include <stdbool.h>
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

#endif
