//! What each open file was told of data that could not be written.
//!
//! A file's data may be lost long after the kernel has given them away. Each open file is told once then, by `fsync`. The number of an
//! open file says what was lost before it was opened; what it is told of later is kept here, which nearly always is nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use extant_volume::ErrorSample;

/// Where the sample begins in the number of an open file.
const SAMPLE_SHIFT: u32 = 32;
/// Where the count begins that makes the number differ from others'. Below are bits of the dispatcher's own.
const COUNT_SHIFT: u32 = 2;

/// Numbers of open files, and what they were told of.
#[derive(Debug, Default)]
pub(super) struct Told {
    opened: AtomicU32,
    are_any: AtomicBool,
    samples: Mutex<HashMap<u64, ErrorSample>>,
}

impl Told {
    /// A number for a file that is opened: its low bits are those given.
    pub(super) fn number(&self, sample: ErrorSample, bits: u64) -> u64 {
        // 30 bits of it: so many files later the number is used again.
        let count = self.opened.fetch_add(1, Ordering::Relaxed) << COUNT_SHIFT;
        u64::from(sample.to_bits()) << SAMPLE_SHIFT | u64::from(count) | bits
    }

    /// What an open file was told of.
    pub(super) fn sample(&self, number: u64) -> ErrorSample {
        // The upper half.
        let at_first = ErrorSample::from_bits((number >> SAMPLE_SHIFT) as u32);
        if !self.are_any.load(Ordering::Acquire) {
            return at_first;
        }
        self.samples().get(&number).copied().unwrap_or(at_first)
    }

    /// An open file is told more.
    pub(super) fn tell(&self, number: u64, sample: ErrorSample) {
        if self.sample(number) != sample {
            let mut samples = self.samples();
            samples.insert(number, sample);
            self.are_any.store(true, Ordering::Release);
        }
    }

    /// The file is closed.
    pub(super) fn close(&self, number: u64) {
        if self.are_any.load(Ordering::Acquire) {
            let mut samples = self.samples();
            samples.remove(&number);
            self.are_any.store(!samples.is_empty(), Ordering::Release);
        }
    }

    fn samples(&self) -> MutexGuard<'_, HashMap<u64, ErrorSample>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_begins_with_its_sample_and_keeps_what_it_was_told() {
        let told = Told::default();
        let (before, now) = (ErrorSample::from_bits(6), ErrorSample::from_bits(7));
        let (first, second) = (told.number(before, 1), told.number(before, 1));
        assert_ne!(first, second);
        assert_eq!((first & 3, second & 3), (1, 1));
        told.tell(first, before);
        assert!(!told.are_any.load(Ordering::Relaxed), "nothing new is not kept");
        told.tell(first, now);
        assert_eq!((told.sample(first), told.sample(second)), (now, before));
        told.close(first);
        assert!(!told.are_any.load(Ordering::Relaxed));
    }
}
