//! The ext4 checker: five passes, findings, repairs.
#![forbid(unsafe_code)]
