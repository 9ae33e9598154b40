//! Hashes of names in hashed directories.
