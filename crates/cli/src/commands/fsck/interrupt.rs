//! SIGINT during a check.

use std::sync::Mutex;

use crate::err_line;

/// Exit code of e2fsck for a check that SIGINT ended.
const CANCELLED: u8 = 32;

/// Locked while blocks hold the pattern of a test; the program does not end then.
static UNBROKEN: Mutex<()> = Mutex::new(());

/// Does work that SIGINT must not end.
pub(super) fn uninterrupted(work: &mut dyn FnMut()) {
    let _held = UNBROKEN.lock();
    work();
}

/// SIGINT ends the check between two writes of a system call's size; what was repaired stays, and
/// the volume says that it is not clean.
pub(super) fn cancel_on_interrupt(image: &str, called: &str) {
    let text = format!("{image}: {called} cancelled.");
    let signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT]);
    let Ok(mut signals) = signals else { return };
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _held = UNBROKEN.lock();
            err_line!("{text}");
            std::process::exit(i32::from(CANCELLED));
        }
    });
}
