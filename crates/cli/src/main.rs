//! The command `extant`.
#![forbid(unsafe_code)]

fn main() {}
