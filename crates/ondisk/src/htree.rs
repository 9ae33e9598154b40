//! The hashed index of a directory.
