//! The time of the wall clock, and the closure of a worker with the time of its next run.

use std::time::Duration;

/// A time of the wall clock.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WallTime {
    /// Seconds since 1970-01-01 00:00 UTC, rounded down.
    pub seconds: i64,
    /// Nanoseconds of that second, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl WallTime {
    /// The time plus a duration.
    pub fn after(self, time: Duration) -> Self {
        let nanoseconds = self.nanoseconds + time.subsec_nanos();
        let seconds = self
            .seconds
            .saturating_add_unsigned(time.as_secs())
            .saturating_add(i64::from(nanoseconds / 1_000_000_000));
        Self { seconds, nanoseconds: nanoseconds % 1_000_000_000 }
    }
}

/// The time of a worker's next run, which is earlier if it is woken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// After this duration.
    After(Duration),
    /// Only when it is woken.
    WhenWoken,
    /// Never again.
    Done,
}

impl Next {
    /// The earlier of two, for a worker with two kinds of work.
    pub fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(other)) => Self::After(one.min(other)),
            (Self::After(one), _) | (_, Self::After(one)) => Self::After(one),
            (Self::WhenWoken, _) | (_, Self::WhenWoken) => Self::WhenWoken,
            (Self::Done, Self::Done) => Self::Done,
        }
    }
}

/// The closure of a worker.
pub(super) type Work = Box<dyn FnMut() -> Next + Send>;
