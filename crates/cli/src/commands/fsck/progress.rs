//! How far a check is: a bar on a terminal, or numbers to a file descriptor as e2fsck prints them.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use extant::rooms::check::Progress;
use extant::rooms::runtime::sync::Mutex;
use serde_json::json;
use signal_hook::consts::{SIGUSR1, SIGUSR2};

use crate::progress as bars;

/// Maximum number of updates of one pass, so that a pipe is not flooded.
const STEPS: u64 = 1000;

/// The form of lines of progress.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum ProgressFormat {
    /// One object on each line.
    Json,
}

/// A progress meter.
pub(super) struct Meter {
    progress: Option<Arc<Progress>>,
    bar: Option<Arc<Mutex<Bar>>>,
}

/// The bar of the current pass.
#[derive(Default)]
struct Bar {
    shown: Option<bars::Progress>,
    pass: u8,
    /// Number of those who have it hidden.
    pauses: usize,
}

/// Hides the bar as long as it lives.
pub(super) struct Pause<'m>(Option<&'m Mutex<Bar>>);

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        if let Some(bar) = self.0 {
            bar.lock().pauses -= 1;
        }
    }
}

impl Meter {
    /// `fd` is -C's number: 0 for a bar, else a file descriptor, with a negative number from the
    /// signal SIGUSR1 on. Without it `draws` says whether a bar is drawn if a person looks. With a
    /// `format` lines have it, and go to standard error unless a file descriptor is given.
    pub(super) fn new(
        fd: Option<i32>,
        format: Option<ProgressFormat>,
        image: &str,
        draws: bool,
    ) -> std::io::Result<Self> {
        match fd {
            None | Some(0) if format.is_some() => {
                let stderr = File::from(std::io::stderr().as_fd().try_clone_to_owned()?);
                let is_on = Arc::new(AtomicUsize::new(1));
                Ok(Self::lines(stderr, image.to_owned(), format, is_on))
            }
            None if draws && std::io::stderr().is_terminal() => Ok(Self::bar()),
            None => Ok(Self { progress: None, bar: None }),
            Some(0) => Ok(Self::bar()),
            Some(fd) => {
                let is_on = Arc::new(AtomicUsize::new(usize::from(fd > 0)));
                signal_hook::flag::register_usize(SIGUSR1, is_on.clone(), 1)?;
                signal_hook::flag::register_usize(SIGUSR2, is_on.clone(), 0)?;
                let file = descriptor(fd.unsigned_abs())?;
                Ok(Self::lines(file, image.to_owned(), format, is_on))
            }
        }
    }

    fn bar() -> Self {
        let bar = Arc::new(Mutex::new(Bar::default()));
        let shown = bar.clone();
        let progress = move |pass: u8, done: u64, whole: u64| {
            const NAMES: [&str; 5] = ["Pass 1", "Pass 2", "Pass 3", "Pass 4", "Pass 5"];
            let mut bar = shown.lock();
            if bar.pauses > 0 {
                return;
            }
            if bar.pass != pass || bar.shown.is_none() {
                bar.pass = pass;
                let name = NAMES.get(usize::from(pass).wrapping_sub(1)).copied();
                bar.shown = name.map(|name| bars::Progress::of_items(name, Some(whole)));
            }
            if let Some(bar) = &bar.shown {
                bar.at(done);
            }
        };
        Self { progress: Some(Arc::new(progress)), bar: Some(bar) }
    }

    /// Hides the bar while something else is written, or answered.
    pub(super) fn pause(&self) -> Pause<'_> {
        if let Some(bar) = &self.bar {
            let mut bar = bar.lock();
            bar.pauses += 1;
            bar.shown.take();
        }
        Pause(self.bar.as_deref())
    }

    /// `PASS DONE WHOLE IMAGE` on lines of their own, or the same in a format.
    fn lines(
        file: File,
        image: String,
        format: Option<ProgressFormat>,
        is_on: Arc<AtomicUsize>,
    ) -> Self {
        let state = Mutex::new((file, (0, u64::MAX)));
        let progress = move |pass: u8, done: u64, whole: u64| {
            if is_on.load(Ordering::Relaxed) == 0 {
                return;
            }
            let mut state = state.lock();
            let step = if whole > STEPS { done * STEPS / whole } else { done };
            if state.1 == (pass, step) {
                return;
            }
            state.1 = (pass, step);
            // A closed pipe does not stop the check. A line is written as a whole.
            let line = match format {
                None => format!("{pass} {done} {whole} {image}\n"),
                Some(ProgressFormat::Json) => {
                    let line = json!({"image": image, "pass": pass, "done": done, "whole": whole});
                    format!("{line}\n")
                }
            };
            let _ = state.0.write_all(line.as_bytes());
        };
        Self { progress: Some(Arc::new(progress)), bar: None }
    }

    pub(super) fn progress(&self) -> Option<Arc<Progress>> {
        self.progress.clone()
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.lock().shown.take();
        }
    }
}

fn descriptor(fd: u32) -> std::io::Result<File> {
    OpenOptions::new().append(true).open(format!("/proc/self/fd/{fd}"))
}
