// The system calls of the floor that Swift cannot reach: one stands behind a feature macro, the other
// has the name of a struct.
#ifndef CFLOOR_H
#define CFLOOR_H

#include <stdbool.h>

// Takes or releases the lock of a file.
int floor_lock(int descriptor, bool exclusive);

// Looks at inode, links and size of `path`; returns the size, or -1.
long floor_statx(const char *_Nonnull path);

#endif
