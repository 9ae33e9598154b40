//! Units in which df and du print sizes, as those of coreutils do.

use std::str::FromStr;

use extant::rooms::device::{ByteSize, InvalidSize, SizeGrammar};

use crate::output::human_size;

/// Bytes of a unit where the command line gives none.
const DEFAULT: u64 = 1024;
/// Letters of the powers of 1024 and 1000.
const LETTERS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

/// The unit of sizes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct UnitArgs {
    /// Print sizes in powers of 1024, such as 1.5K
    #[arg(short = 'h', overrides_with_all = ["kilobytes", "block_size"])]
    human: bool,
    /// Print sizes in blocks of 1 KiB; the default
    #[arg(short = 'k', overrides_with_all = ["human", "block_size"])]
    kilobytes: bool,
    /// Print sizes in blocks of SIZE, such as 1M or 4096; a letter alone, such as M, is appended to
    /// each size
    #[arg(
        short = 'B',
        long = "block-size",
        value_name = "SIZE",
        overrides_with_all = ["human", "kilobytes"]
    )]
    block_size: Option<Unit>,
}

impl UnitArgs {
    /// The unit that was chosen last.
    pub(crate) fn unit(&self) -> Unit {
        match (self.human, &self.block_size) {
            (true, _) => Unit::Human,
            (false, Some(unit)) => unit.clone(),
            (false, None) => Unit::Blocks { bytes: DEFAULT, suffix: String::new() },
        }
    }
}

/// How a size is printed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Unit {
    /// In powers of 1024.
    Human,
    /// Number of blocks of `bytes` bytes, rounded up, with a text after it.
    Blocks { bytes: u64, suffix: String },
}

impl Unit {
    /// Blocks of one byte.
    pub(crate) fn bytes() -> Self {
        Self::Blocks { bytes: 1, suffix: String::new() }
    }

    /// A size in bytes.
    pub(crate) fn show(&self, size: u64) -> String {
        match self {
            Self::Human => human_size(size),
            Self::Blocks { bytes, suffix } => format!("{}{suffix}", size.div_ceil(*bytes)),
        }
    }

    /// The head of a column of sizes: `1K-blocks`.
    pub(crate) fn title(&self) -> String {
        match self {
            Self::Human => "Size".to_owned(),
            Self::Blocks { bytes, .. } => format!("{}-blocks", block_name(*bytes)),
        }
    }
}

/// `1M`, `512B`, `1kB`: a size by the unit that divides it most often.
fn block_name(bytes: u64) -> String {
    let powers = |base: u64| {
        let (mut rest, mut count) = (bytes, 0);
        while rest >= base && rest % base == 0 && count < LETTERS.len() {
            rest /= base;
            count += 1;
        }
        (count, rest)
    };
    let (binary, decimal) = (powers(1024), powers(1000));
    match (binary, decimal) {
        ((0, _), (0, _)) => format!("{bytes}B"),
        ((binary, _), (decimal, rest)) if decimal > binary => {
            let letter = if decimal == 1 { 'k' } else { LETTERS[decimal - 1] };
            format!("{rest}{letter}B")
        }
        ((binary, rest), _) => format!("{rest}{}", LETTERS[binary - 1]),
    }
}

impl FromStr for Unit {
    type Err = InvalidSize;

    fn from_str(text: &str) -> Result<Self, InvalidSize> {
        let has_number = text.starts_with(|first: char| first.is_ascii_digit());
        let whole = if has_number { text.to_owned() } else { format!("1{text}") };
        let ByteSize(bytes) = ByteSize::parse(&whole, SizeGrammar::Coreutils)?;
        if bytes == 0 || text.is_empty() {
            return Err(InvalidSize);
        }
        let suffix = if has_number { String::new() } else { text.to_owned() };
        Ok(Self::Blocks { bytes, suffix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_named_as_in_df() {
        let names = [
            (1, "1B"),
            (512, "512B"),
            (1000, "1kB"),
            (1024, "1K"),
            (2048, "2K"),
            (1024 * 1000, "1000K"),
            (1_000_000, "1MB"),
            (1 << 20, "1M"),
            (3 << 40, "3T"),
        ];
        for (bytes, name) in names {
            assert_eq!(block_name(bytes), name);
        }
    }

    #[test]
    fn a_letter_alone_is_appended() {
        let shown = |unit: &str, size| unit.parse::<Unit>().unwrap().show(size);
        assert_eq!(shown("M", (5 << 20) + 1), "6M");
        assert_eq!(shown("1M", 5 << 20), "5");
        assert_eq!(shown("4096", 4097), "2");
        assert!("".parse::<Unit>().is_err() && "0".parse::<Unit>().is_err());
    }
}
