//! POSIX access control lists as stored in extended attributes.
