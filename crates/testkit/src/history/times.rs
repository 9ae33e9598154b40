//! Times of files: set by a call, or the time of the step that changed them.

use super::Moment;
use std::collections::BTreeMap;

/// The time of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stamp {
    /// Set by a call.
    Set(Moment),
    /// During this step.
    Step(u32),
    /// Not known, and not compared.
    Unknown,
}

/// The start and end of each step.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    steps: BTreeMap<u32, (Moment, Moment)>,
    /// Maximum lag of file timestamps after the clock in nanoseconds: the kernel uses the time of
    /// its last tick.
    pub lag: u32,
    /// Whether the volume stores whole seconds.
    pub whole_seconds: bool,
}

impl Clock {
    /// Records a step.
    pub fn note(&mut self, step: u32, start: Moment, end: Moment) {
        self.steps.insert(step, (start, end));
    }

    /// Whether a time found on a file is valid.
    pub fn allows(&self, stamp: Stamp, found: Moment) -> bool {
        let floor = |moment: Moment| match self.whole_seconds {
            true => Moment { nanoseconds: 0, ..moment },
            false => moment,
        };
        match stamp {
            Stamp::Unknown => true,
            Stamp::Set(moment) => found == floor(moment),
            Stamp::Step(step) => match self.steps.get(&step) {
                None => true,
                Some((start, end)) => {
                    (floor(earlier(*start, self.lag))..=floor(*end)).contains(&found)
                }
            },
        }
    }
}

fn earlier(moment: Moment, nanoseconds: u32) -> Moment {
    match moment.nanoseconds.checked_sub(nanoseconds) {
        Some(nanoseconds) => Moment { nanoseconds, ..moment },
        None => Moment {
            seconds: moment.seconds - 1,
            nanoseconds: moment.nanoseconds + 1_000_000_000 - nanoseconds,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_lies_in_its_step() {
        let moment = |seconds, nanoseconds| Moment { seconds, nanoseconds };
        let mut clock = Clock { lag: 10, ..Clock::default() };
        clock.note(3, moment(5, 5), moment(5, 50));
        assert!(clock.allows(Stamp::Step(3), moment(4, 999_999_995)));
        assert!(clock.allows(Stamp::Step(3), moment(5, 50)));
        assert!(!clock.allows(Stamp::Step(3), moment(5, 51)));
        clock.whole_seconds = true;
        assert!(clock.allows(Stamp::Set(moment(9, 9)), moment(9, 0)));
        assert!(!clock.allows(Stamp::Set(moment(9, 9)), moment(9, 9)));
    }
}
