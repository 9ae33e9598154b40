//! Block and inode bitmaps and their checksums.
