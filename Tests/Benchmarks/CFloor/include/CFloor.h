// The one system call of the floor that Swift cannot reach: it stands behind a feature macro.
#ifndef CFLOOR_H
#define CFLOOR_H

// Looks at inode, links and size of `path`; returns the size, or -1.
long floor_statx(const char *_Nonnull path);

#endif
