//! Block frames, transactions, checkpoint and recovery.
#![forbid(unsafe_code)]
