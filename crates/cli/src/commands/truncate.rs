//! `extant truncate`: sizes of files.

use std::path::Path;

use extant::OpenOptions;
use extant::rooms::device::{ByteSize, SizeGrammar};

use crate::failure::Failure;
use crate::session::Session;
use crate::writable_image::{ChangedFiles, In, NoMatch, WritableImage};

/// Shrink or extend files
///
/// The extended part is a hole and reads as zeros. A file that does not exist is created.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Size in bytes, or with a unit K, M, G, T, P; +N extends by, -N reduces by, <N is at most, >N
    /// at least
    #[arg(short, value_name = "SIZE", allow_hyphen_values = true)]
    size: String,
    /// Do not create files
    #[arg(short = 'c')]
    no_create: bool,
    #[command(flatten)]
    files: ChangedFiles,
}

/// A size on the command line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wanted {
    Exactly(u64),
    Longer(u64),
    Shorter(u64),
    AtMost(u64),
    AtLeast(u64),
}

impl Wanted {
    fn parse(text: &str) -> Result<Self, Failure> {
        let refused = || Failure::usage(format_args!("invalid size: '{text}'"));
        let (make, number): (fn(u64) -> Self, &str) = match text.as_bytes().first() {
            Some(b'+') => (Self::Longer, &text[1..]),
            Some(b'-') => (Self::Shorter, &text[1..]),
            Some(b'<') => (Self::AtMost, &text[1..]),
            Some(b'>') => (Self::AtLeast, &text[1..]),
            _ => (Self::Exactly, text),
        };
        let size = ByteSize::parse(number, SizeGrammar::Coreutils).map_err(|_| refused())?;
        Ok(make(size.0))
    }

    fn of(self, size: u64) -> Option<u64> {
        match self {
            Self::Exactly(bytes) => Some(bytes),
            Self::Longer(by) => size.checked_add(by),
            Self::Shorter(by) => Some(size.saturating_sub(by)),
            Self::AtMost(bytes) => Some(size.min(bytes)),
            Self::AtLeast(bytes) => Some(size.max(bytes)),
        }
    }
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let wanted = Wanted::parse(&self.size)?;
        let no_match = if self.no_create { NoMatch::Ignored } else { NoMatch::Fails };
        self.files.edit_each(no_match, session, |image, path, _| self.resize(image, path, wanted))
    }

    fn resize(&self, image: &WritableImage, path: &Path, wanted: Wanted) -> Result<(), Failure> {
        if self.no_create && !image.fs.exists(path).within(image)? {
            return Ok(());
        }
        let options = OpenOptions::new().write(true).create(!self.no_create);
        let file = options.open(&image.fs, path).within(image)?;
        let size = file.metadata().within(image)?.len();
        let size = wanted.of(size).ok_or_else(|| image.failure(path, "file too large"))?;
        file.set_len(size).within(image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_truncate_reads_them() {
        assert_eq!(Wanted::parse("10K").unwrap(), Wanted::Exactly(10_240));
        assert_eq!(Wanted::parse("+1M").unwrap().of(5), Some((1 << 20) + 5));
        assert_eq!(Wanted::parse("-10").unwrap().of(5), Some(0));
        assert_eq!(Wanted::parse("<3").unwrap().of(5), Some(3));
        assert_eq!(Wanted::parse(">3").unwrap().of(5), Some(5));
        for text in ["", "K", "5Q", "1e3", "99999999P", "--1"] {
            assert!(Wanted::parse(text).is_err(), "{text}");
        }
    }
}
