//! Delayed data of a file that could not be written: every open file gets the error once, as by
//! `errseq_t` in the kernel.

use extant_reader::Error;

/// Which write errors an open file has got: see
/// [`Engine::error_sample`](crate::Engine::error_sample).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ErrorSample(u32);

impl ErrorSample {
    /// As a number, for a caller that stores it elsewhere.
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// The inverse of [`Self::to_bits`].
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// The lost data of a file.
#[derive(Debug, Default)]
pub(crate) struct LostData {
    why: Option<Error>,
    /// Number of losses. Losses before the last one is reported count as one.
    count: u32,
    /// Whether the last loss was returned to a caller.
    is_reported: bool,
}

impl LostData {
    /// Records a loss.
    pub(super) fn set(&mut self, why: Error) {
        if self.why.is_some() && !self.is_reported {
            return;
        }
        *self = Self { why: Some(why), count: self.count.wrapping_add(1), is_reported: false };
    }

    /// The sample of a file that is opened now. A loss that was not yet reported is still to come
    /// for it.
    pub(super) fn sample(&self) -> ErrorSample {
        let is_unreported = self.why.is_some() && !self.is_reported;
        ErrorSample(self.count.wrapping_sub(u32::from(is_unreported)))
    }

    /// The error of a loss that the sample has not seen; advances the sample.
    pub(super) fn check_and_advance(&mut self, sample: &mut ErrorSample) -> Result<(), Error> {
        let Some(why) = self.why.as_ref().filter(|_| sample.0 != self.count) else { return Ok(()) };
        sample.0 = self.count;
        self.is_reported = true;
        Err(why.clone())
    }

    /// Whether a loss may still have to be reported: to a file that is open, or to the next one
    /// that is opened.
    pub(super) fn has_unreported(&self, is_open: bool) -> bool {
        self.why.is_some() && (is_open || !self.is_reported)
    }
}
