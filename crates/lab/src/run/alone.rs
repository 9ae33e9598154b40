//! One run at a time in a directory of results: a second one would take the first one's scratch
//! space away.

use std::fs::File;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::error::{RunError, failed};

/// A directory locked exclusively as long as this exists.
#[derive(Debug)]
pub struct Alone {
    _dir: File,
}

impl Alone {
    /// Has a directory alone.
    ///
    /// # Errors
    /// Another run has it, or it is not there.
    pub fn in_dir(dir: &Path) -> Result<Self, RunError> {
        let file = File::open(dir).map_err(failed(dir.display()))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(RunError::Busy { path: dir.to_owned() }),
            // Some file systems lock no directories.
            _ => Ok(Self { _dir: file }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_run() {
        let dir = tempfile::tempdir().expect("a place for the test");
        let first = Alone::in_dir(dir.path()).expect("it is not in use");
        let error = Alone::in_dir(dir.path()).expect_err("the first one is").to_string();
        assert!(error.ends_with(": in use by another run"), "{error}");
        drop(first);
        Alone::in_dir(dir.path()).expect("it has ended");
        Alone::in_dir(&dir.path().join("nothing")).expect_err("it is not there");
    }
}
