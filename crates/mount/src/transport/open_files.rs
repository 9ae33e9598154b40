//! Numbers of open files (`fh`), and the write errors reported to each.
//!
//! Data may be lost long after the reply to WRITE. `fsync` then returns the error once for each
//! open file. The number of an open file holds the [`ErrorSample`] of its opening; only samples
//! that have advanced since are stored, so that the table is nearly always empty.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use extant_engine::ErrorSample;

/// Where the sample begins in the number of an open file.
const SAMPLE_SHIFT: u32 = 32;
/// Where the count begins that makes the number differ from others'. Below are bits of the
/// dispatcher's own.
const COUNT_SHIFT: u32 = 2;

/// The numbers that were given, and the samples that have advanced.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    opened: AtomicU32,
    are_any: AtomicBool,
    samples: Mutex<HashMap<u64, ErrorSample>>,
}

impl OpenFiles {
    /// A number for a file that is opened: its low bits are those given.
    pub(super) fn number(&self, sample: ErrorSample, bits: u64) -> u64 {
        // 30 bits: after 2^30 opens a number is used again.
        let count = self.opened.fetch_add(1, Ordering::Relaxed) << COUNT_SHIFT;
        u64::from(sample.to_bits()) << SAMPLE_SHIFT | u64::from(count) | bits
    }

    /// The sample of an open file.
    pub(super) fn sample(&self, number: u64) -> ErrorSample {
        // The upper half.
        let at_first = ErrorSample::from_bits((number >> SAMPLE_SHIFT) as u32);
        if !self.are_any.load(Ordering::Acquire) {
            return at_first;
        }
        self.samples().get(&number).copied().unwrap_or(at_first)
    }

    /// Stores a sample that has advanced.
    pub(super) fn advance(&self, number: u64, sample: ErrorSample) {
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
    fn an_open_file_starts_with_its_sample_and_keeps_the_one_that_advanced() {
        let files = OpenFiles::default();
        let (before, now) = (ErrorSample::from_bits(6), ErrorSample::from_bits(7));
        let (first, second) = (files.number(before, 1), files.number(before, 1));
        assert_ne!(first, second);
        assert_eq!((first & 3, second & 3), (1, 1));
        files.advance(first, before);
        assert!(!files.are_any.load(Ordering::Relaxed), "the same sample is not stored");
        files.advance(first, now);
        assert_eq!((files.sample(first), files.sample(second)), (now, before));
        files.close(first);
        assert!(!files.are_any.load(Ordering::Relaxed));
    }
}
