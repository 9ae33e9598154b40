//! What the tests share: what those of reading have, and work on volumes.
#![allow(dead_code, unused_imports, reason = "each test file uses some of it")]

pub(crate) mod edited;
#[path = "../../../reader/tests/common/mod.rs"]
mod reading;
pub(crate) mod worked;

use extant_runtime::env::Env;
use extant_runtime::sync::{Condvar, Mutex};
pub(crate) use reading::*;
use std::time::Duration;

/// Lets other threads work for so long.
pub(crate) fn pause(time: Duration) {
    let nothing = (Mutex::<()>::default(), Condvar::new());
    Env::threads().wait_while_for(&nothing.1, &mut nothing.0.lock(), time, |()| true);
}
