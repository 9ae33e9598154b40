//! ext4 in user space: a volume with an API like std::fs.
#![forbid(unsafe_code)]
