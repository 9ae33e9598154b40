//! The clock, the background work and the locks of the engine.
//!
//! - [`sync`]: locks with an order, condition variables, atomics and threads; nothing else in the
//!   engine may take them from `std`.
//! - [`mod@env`]: the clock and the background work, on real threads or stepped by a test.
//! - [`handles`]: objects that threads use and close at any time, by numbers.
//! - [`Random`]: choices that a seed repeats.
#![deny(unsafe_code)]

pub mod env;
pub mod handles;
mod random;
mod raw;
pub mod sync;

pub use random::Random;
