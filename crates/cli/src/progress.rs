//! Progress of long work: on a terminal only, never in a pipe.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a bar without news moves.
const TICK: Duration = Duration::from_millis(200);

/// A bar on standard error. Where that is not a terminal, nothing is drawn.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work that is counted in bytes; without a total a figure runs up.
    pub(crate) fn of_bytes(what: &'static str, total: Option<u64>) -> Self {
        let template = match total {
            Some(_) => "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            None => "{msg} {spinner} {bytes} {bytes_per_sec}",
        };
        Self::new(what, total, template)
    }

    /// Work that is counted in files, groups or the like.
    pub(crate) fn of_items(what: &'static str, total: Option<u64>) -> Self {
        let template = match total {
            Some(_) => "{msg} {bar:30} {human_pos}/{human_len} {eta}",
            None => "{msg} {spinner} {human_pos}",
        };
        Self::new(what, total, template)
    }

    /// Nothing at all: `-q`.
    pub(crate) fn none() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    fn new(what: &'static str, total: Option<u64>, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        bar.enable_steady_tick(TICK);
        Self { bar }
    }

    /// So much is done by now.
    pub(crate) fn at(&self, done: u64) {
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
