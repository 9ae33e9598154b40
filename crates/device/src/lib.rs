//! Where blocks are, and the clock and threads that work on them.
#![deny(unsafe_code)]
