//! Extent trees: runs of blocks and pointers to them.
