//! Group descriptor: where one block group keeps its bitmaps and inode table, and how much of it is free.
