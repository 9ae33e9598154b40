//! One key at the terminal, without the end of a line.

use std::io::stdin;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

/// The terminal as it was, while it gives keys.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Waits for a key; `None` at the end of the input. Signals of the keyboard stay signals.
pub(super) fn key() -> Option<u8> {
    let gives_keys = give_keys().is_ok();
    let key = read();
    restore();
    // Where the terminal stays with whole lines, the rest of the line is no further answer.
    if !gives_keys && key.is_some_and(|key| key != b'\n') {
        while read().is_some_and(|rest| rest != b'\n') {}
    }
    key
}

fn give_keys() -> Result<(), Errno> {
    let before = tcgetattr(stdin())?;
    let mut keys = before.clone();
    keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
    keys.special_codes[SpecialCodeIndex::VMIN] = 1;
    keys.special_codes[SpecialCodeIndex::VTIME] = 0;
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
    tcsetattr(stdin(), OptionalActions::Now, &keys)
}

/// Puts the terminal back, at a signal too; whether it was waiting for a key.
pub(super) fn restore() -> bool {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = &before {
        // A terminal that has gone needs nothing.
        let _ = tcsetattr(stdin(), OptionalActions::Now, before);
    }
    before.is_some()
}

fn read() -> Option<u8> {
    let mut byte = [0];
    loop {
        match rustix::io::read(stdin(), &mut byte) {
            Ok(1) => return Some(byte[0]),
            Err(Errno::INTR) => {}
            _ => return None,
        }
    }
}
