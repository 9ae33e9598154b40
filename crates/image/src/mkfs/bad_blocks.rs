//! Bad blocks, read from a list.

use std::path::Path;

use extant_layout::RunSet;

use super::error::{MkfsError, ValueError};

/// Reads numbers of blocks, one a line, as mke2fs and e2fsck do: a line that does not begin with a
/// number is skipped, and so is the text after a number. Blocks past the end are left out.
///
/// # Errors
/// The file cannot be read, or a number is negative or has more than 32 bits.
pub fn read_list(path: &Path, blocks: u64) -> Result<RunSet, MkfsError> {
    let text =
        std::fs::read(path).map_err(|source| MkfsError::Io { path: path.to_owned(), source })?;
    let mut bad = RunSet::new();
    for line in text.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let Some(block) = leading_number(&line) else { continue };
        let block = block.ok_or_else(|| {
            let line = line.trim().to_owned();
            ValueError::BadBlock { path: path.to_owned(), line }
        })?;
        if u64::from(block) < blocks {
            bad.insert(u64::from(block)..u64::from(block) + 1);
        }
    }
    Ok(bad)
}

/// The number at the start of a line, after blanks; inside, `None` where it is out of range.
fn leading_number(line: &str) -> Option<Option<u32>> {
    let line = line.trim_start();
    let (is_negative, digits) = match line.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, line.strip_prefix('+').unwrap_or(line)),
    };
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    let digits = &digits[..end];
    if digits.is_empty() {
        return None;
    }
    Some(digits.parse().ok().filter(|block| !is_negative || *block == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As e2fsck 1.47.0 reads a list.
    #[test]
    fn lines_of_a_list_begin_with_a_number_or_are_skipped() {
        for (line, expected) in [
            ("", None),
            ("abc", None),
            ("-", None),
            ("100", Some(Some(100))),
            (" 12x 13", Some(Some(12))),
            ("0x100", Some(Some(0))),
            ("-5", Some(None)),
            ("4294967296", Some(None)),
        ] {
            assert_eq!(leading_number(line), expected, "{line}");
        }
    }
}
