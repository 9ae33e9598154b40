//! The journal's format (jbd2): big-endian.
