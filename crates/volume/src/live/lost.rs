//! Delayed data of a file that could not be written: everybody who has it open is told once, as with `errseq_t` in the kernel.

use crate::error::Error;

/// What an open file was told of data that could not be written: see [`Volume::error_sample`](crate::Volume::error_sample).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ErrorSample(u32);

impl ErrorSample {
    /// As a number, for who keeps it elsewhere.
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// What [`Self::to_bits`] gave.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// What a file has lost.
#[derive(Debug, Default)]
pub(crate) struct LostData {
    why: Option<Error>,
    /// How often; what comes before anybody was told of the last time counts with it.
    count: u32,
    /// Somebody was told of the last time.
    is_told: bool,
}

impl LostData {
    /// Data were lost.
    pub(super) fn set(&mut self, why: Error) {
        if self.why.is_some() && !self.is_told {
            return;
        }
        *self = Self { why: Some(why), count: self.count.wrapping_add(1), is_told: false };
    }

    /// For one who opens the file: he is told of what nobody was told of yet.
    pub(super) fn sample(&self) -> ErrorSample {
        let is_untold = self.why.is_some() && !self.is_told;
        ErrorSample(self.count.wrapping_sub(u32::from(is_untold)))
    }

    /// Why data were lost since the sample was taken or this was asked last with it.
    pub(super) fn check_and_advance(&mut self, sample: &mut ErrorSample) -> Result<(), Error> {
        let Some(why) = self.why.as_ref().filter(|_| sample.0 != self.count) else { return Ok(()) };
        sample.0 = self.count;
        self.is_told = true;
        Err(why.clone())
    }

    /// Whether somebody is still to be told: one who has the file open, or the next one who opens it.
    pub(super) fn is_to_be_told(&self, is_open: bool) -> bool {
        self.why.is_some() && (is_open || !self.is_told)
    }
}
