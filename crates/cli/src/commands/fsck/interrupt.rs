//! Signals during a check.

use std::sync::Mutex;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::keyboard;
use crate::err_line;

/// Exit code of e2fsck for a check that SIGINT ended.
pub(super) const CANCELLED: u8 = 32;

/// Locked while blocks hold the pattern of a test; the program does not end then.
static UNBROKEN: Mutex<()> = Mutex::new(());

/// Does work that SIGINT must not end.
pub(super) fn uninterrupted(work: &mut dyn FnMut()) {
    let _held = UNBROKEN.lock();
    work();
}

/// The signals that end a check, taken before the process is restricted: that needs a socket.
pub(super) struct Interrupts(Option<Signals>);

impl Interrupts {
    pub(super) fn take() -> Self {
        Self(Signals::new([SIGINT, SIGHUP, SIGQUIT, SIGTERM]).ok())
    }

    /// SIGINT ends the check between two writes of a system call's size; what was repaired stays,
    /// and the volume says that it is not clean. Other signals end the program as they do, with the
    /// terminal put back before.
    pub(super) fn cancel(self, image: &str, called: &str) {
        let text = format!("{image}: {called} cancelled.");
        let Some(mut signals) = self.0 else { return };
        std::thread::spawn(move || {
            let Some(signal) = signals.forever().next() else { return };
            // The line of an open question ends here.
            if keyboard::restore() {
                err_line!("");
            }
            if signal != SIGINT {
                // It ends the program, as if we had not asked for it.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            let _held = UNBROKEN.lock();
            err_line!("{text}");
            std::process::exit(i32::from(CANCELLED));
        });
    }
}
