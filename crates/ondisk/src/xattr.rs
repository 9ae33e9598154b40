//! Extended attributes in inodes, blocks and inodes of their own.
