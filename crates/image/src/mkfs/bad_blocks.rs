//! Bad blocks, read from a list.

use std::path::Path;

use extant_layout::RunSet;

use super::error::{MkfsError, ValueError};

/// Reads numbers of blocks, one a line. Blocks past the end are left out, as mke2fs does.
///
/// # Errors
/// The file cannot be read, or holds something else.
pub fn read_list(path: &Path, blocks: u64) -> Result<RunSet, MkfsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| MkfsError::Io { path: path.to_owned(), source })?;
    let mut bad = RunSet::new();
    for word in text.split_whitespace() {
        let block: u64 = word
            .parse()
            .map_err(|_| ValueError::BadBlock { path: path.to_owned(), word: word.to_owned() })?;
        if block < blocks {
            bad.insert(block..block + 1);
        }
    }
    Ok(bad)
}
