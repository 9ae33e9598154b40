//! A drive of flash memory: latency, requests at once, and a rate.

use std::ops::Range;

use super::preset::{Flash, Preset};

/// Large requests are spread over the chips in parts of this number of bytes.
const PIECE: u64 = 128 << 10;
const SECOND: u64 = 1_000_000_000;

/// The state of a drive of flash memory.
#[derive(Clone, Debug)]
pub(super) struct FlashDrive {
    figures: Flash,
    /// When each of the parts that work side by side is free.
    units: Vec<u64>,
    /// When the way out is free, and the way in.
    out: u64,
    into: u64,
}

impl FlashDrive {
    pub(super) fn new(preset: &Preset, figures: &Flash) -> Self {
        let latency = figures.read_latency + preset.overhead;
        // As many as are needed for the most reads a second.
        let units = (latency * figures.read_most).div_ceil(SECOND).max(1);
        Self { figures: figures.clone(), units: vec![0; units as usize], out: 0, into: 0 }
    }

    fn passing(length: u64, rate: u64, most: u64) -> u64 {
        let by_rate = u128::from(length) * u128::from(SECOND) / u128::from(rate);
        (by_rate as u64).max(SECOND / most)
    }

    pub(super) fn read(&mut self, now: u64, range: &Range<u64>) -> u64 {
        let mut done = now;
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / PIECE + 1) * PIECE);
            let passing = Self::passing(end - at, self.figures.read, self.figures.read_most);
            if let Some(unit) = self.units.iter_mut().min() {
                *unit = now.max(*unit) + self.figures.read_latency;
                self.out = (self.out + passing).max(*unit);
            }
            done = done.max(self.out);
            at = end;
        }
        done
    }

    pub(super) fn write(&mut self, now: u64, range: &Range<u64>) -> u64 {
        let length = range.end - range.start;
        let passing = Self::passing(length, self.figures.write, self.figures.write_most);
        self.into = self.into.max(now) + passing;
        self.into + self.figures.write_latency.saturating_sub(passing)
    }

    pub(super) fn flush(&mut self, now: u64) -> u64 {
        self.into = self.into.max(now) + self.figures.flush;
        self.into
    }
}
