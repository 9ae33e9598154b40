//! A bolero harness for every decoder of the format: damaged structures are read or refused, and
//! nothing panics. As tests they run for a moment each; `cargo xtask fuzz` runs them for longer.

mod attributes;
mod inodes;
mod journal;
mod names;
mod shape;
mod volume;
