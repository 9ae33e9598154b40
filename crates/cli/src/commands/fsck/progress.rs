//! How far a check is: a bar on a terminal, or numbers to a file descriptor as e2fsck prints them.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::sync::Arc;

use extant::rooms::check::Progress;
use extant::rooms::runtime::sync::Mutex;

use crate::progress as bars;

/// Maximum number of updates of one pass, so that a pipe is not flooded.
const STEPS: u64 = 1000;

/// A progress meter.
pub(super) struct Meter {
    progress: Option<Arc<Progress>>,
    bar: Option<Arc<Mutex<Option<bars::Progress>>>>,
}

impl Meter {
    /// `fd` is -C's number: 0 for a bar, else a file descriptor. Without it a bar is drawn if
    /// a person looks.
    pub(super) fn new(fd: Option<i32>, image: &str) -> std::io::Result<Self> {
        match fd {
            None if std::io::stderr().is_terminal() => Ok(Self::bar()),
            None => Ok(Self { progress: None, bar: None }),
            Some(0) => Ok(Self::bar()),
            // A negative number starts without output, which SIGUSR1 would turn on.
            Some(fd) if fd < 0 => Err(std::io::Error::other(
                "-C with a negative number (progress that a signal turns on) is not supported",
            )),
            Some(fd) => Ok(Self::numbers(descriptor(fd)?, image.to_owned())),
        }
    }

    fn bar() -> Self {
        let bar = Arc::new(Mutex::new(None::<bars::Progress>));
        let shown = bar.clone();
        let pass_shown = Mutex::new(0);
        let progress = move |pass: u8, done: u64, whole: u64| {
            const NAMES: [&str; 5] = ["Pass 1", "Pass 2", "Pass 3", "Pass 4", "Pass 5"];
            let mut bar = shown.lock();
            let mut last = pass_shown.lock();
            if *last != pass || bar.is_none() {
                *last = pass;
                let name = NAMES.get(usize::from(pass).wrapping_sub(1)).copied();
                *bar = name.map(|name| bars::Progress::of_items(name, Some(whole)));
            }
            if let Some(bar) = &*bar {
                bar.at(done);
            }
        };
        Self { progress: Some(Arc::new(progress)), bar: Some(bar) }
    }

    /// `PASS DONE WHOLE IMAGE` on lines of their own.
    fn numbers(file: File, image: String) -> Self {
        let state = Mutex::new((file, (0, u64::MAX)));
        let progress = move |pass: u8, done: u64, whole: u64| {
            let mut state = state.lock();
            let step = if whole > STEPS { done * STEPS / whole } else { done };
            if state.1 == (pass, step) {
                return;
            }
            state.1 = (pass, step);
            // A closed pipe does not stop the check.
            let _ = writeln!(state.0, "{pass} {done} {whole} {image}");
        };
        Self { progress: Some(Arc::new(progress)), bar: None }
    }

    pub(super) fn progress(&self) -> Option<Arc<Progress>> {
        self.progress.clone()
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.lock().take();
        }
    }
}

fn descriptor(fd: i32) -> std::io::Result<File> {
    OpenOptions::new().append(true).open(format!("/proc/self/fd/{fd}"))
}
