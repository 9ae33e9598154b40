//! The pattern file of a simulated drive's image: runs of blocks that are kept as words, for which
//! the image has holes.
//!
//! Lines are only added to it. `begin`: from here on the image is being changed. `FIRST END WORD`,
//! the word in hexadecimal: a run. `whole`: the runs since `begin` are all that there are now.
//! `end SECONDS NANOSECONDS`: the image, last changed at that time, fits them. An incomplete last
//! line is ignored, so that a command that is killed at any time leaves the runs of the one before
//! or its own.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rangemap::RangeMap;

use extant_device::DeviceError;

/// The suffix of the pattern file's name after that of its image.
const SUFFIX: &str = ".words";
/// The first line of that file.
const HEAD: &str = "extant words 1";
const BEGIN: &str = "begin";
const WHOLE: &str = "whole";
const END: &str = "end";

/// The pattern file of an image, with the runs that are kept as words.
#[derive(Debug)]
pub struct PatternFile {
    file: File,
    path: PathBuf,
    is_written: bool,
    /// Whether it was created here, or no other process uses it.
    is_own: bool,
}

/// Why the words of an image cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PatternFileError {
    /// The pattern file cannot be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It holds something else.
    #[error("{}: invalid line {line}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1 on.
        line: usize,
    },
    /// The image was written by another program since, or is a copy that was.
    #[error(
        "{}: image modified after this file was written, or copied without its timestamp (use cp -p); removing this file discards the data it holds",
        path.display()
    )]
    Stale {
        /// The file.
        path: PathBuf,
    },
    /// The image was not read where it may be newer.
    #[error(transparent)]
    Image(DeviceError),
    /// Another command had it.
    #[error("{}: removed by another process; try again", path.display())]
    Removed {
        /// The file.
        path: PathBuf,
    },
}

/// When an image was changed last: seconds and nanoseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Changed(i64, i64);

impl Changed {
    pub(super) fn of(found: &Metadata) -> Self {
        Self(found.mtime(), found.mtime_nsec())
    }

    /// Reads the time of an `end` line.
    fn parse(line: &str) -> Option<Self> {
        let (seconds, nanoseconds) = line.strip_prefix(END)?.strip_prefix(' ')?.split_once(' ')?;
        Some(Self(seconds.parse().ok()?, nanoseconds.parse().ok()?))
    }
}

/// How far the last command came that changed the image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// It ended: where the runs lie, the image has holes.
    Ended,
    /// It was killed: what the image has where runs lie is newer than these.
    Begun,
    /// It was killed when the runs were written: they are newer than what the image has there.
    Whole,
}

/// The contents of the file.
#[derive(Debug)]
pub(super) struct StoredRuns {
    /// Runs of blocks with the word that each repeats.
    pub(super) runs: RangeMap<u64, u64>,
    pub(super) stage: Stage,
}

impl PatternFile {
    /// Opens the pattern file of `image`; one that is to be written is created. To be called before
    /// the image is opened for writing, which may change its time. A block device has none.
    ///
    /// # Errors
    /// The system refused, or the image was changed since.
    pub(crate) fn open(image: &Path, write: bool) -> Result<Option<Self>, PatternFileError> {
        // If there is no image, opening it gives the error.
        let Ok(of_image) = std::fs::metadata(image) else { return Ok(None) };
        if !of_image.is_file() {
            return Ok(None);
        }
        let mut name = image.as_os_str().to_owned();
        name.push(SUFFIX);
        let path = PathBuf::from(name);
        let mut options = File::options();
        options.read(true).write(write);
        let (opened, is_own) = match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !write => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (options.create(true).truncate(false).open(&path), true)
            }
            opened => (opened, false),
        };
        let file = match opened {
            Ok(file) => file,
            Err(source) => return Err(PatternFileError::Io { path, source }),
        };
        let words = Self { file, path, is_written: write, is_own };
        let text = words.text()?;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let last = whole.lines().rfind(|line| *line == BEGIN || Changed::parse(line).is_some());
        // After a command that was killed the image may have any time.
        let fits =
            last.and_then(Changed::parse).is_none_or(|stored| stored == Changed::of(&of_image));
        if fits {
            Ok(Some(words))
        } else {
            Err(PatternFileError::Stale { path: words.path.clone() })
        }
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> PatternFileError + '_ {
        |source| PatternFileError::Io { path: self.path.clone(), source }
    }

    fn text(&self) -> Result<String, PatternFileError> {
        let mut text = String::new();
        let mut file = &self.file;
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text));
        read.map_err(self.failed())?;
        Ok(text)
    }

    /// Reads it; the image has `blocks` blocks, and is open, exclusively if it is to be written.
    pub(super) fn load(
        &mut self,
        blocks: u64,
        image: &File,
    ) -> Result<StoredRuns, PatternFileError> {
        let text = self.text()?;
        if self.is_written {
            let own = self.file.metadata().map_err(self.failed())?;
            if own.nlink() == 0 {
                return Err(PatternFileError::Removed { path: self.path.clone() });
            }
            self.is_own = true;
            // A line that was cut off would spoil the next one.
            let whole = text.rfind('\n').map_or(0, |at| at + 1);
            if whole < text.len() {
                self.file.set_len(whole as u64).map_err(self.failed())?;
            }
        }
        let stored = self.parse(&text, blocks)?;
        if self.is_written && stored.stage == Stage::Ended && !stored.runs.is_empty() {
            // Opening the image may have changed its time.
            self.end(false, image).map_err(self.failed())?;
        }
        Ok(stored)
    }

    fn parse(&self, text: &str, blocks: u64) -> Result<StoredRuns, PatternFileError> {
        let mut stored = StoredRuns { runs: RangeMap::new(), stage: Stage::Ended };
        let mut next = RangeMap::new();
        let mut has_begun = false;
        for (index, line) in text.split_inclusive('\n').enumerate() {
            // The last line may have been cut off.
            let Some(line) = line.strip_suffix('\n') else { break };
            let wrong = || PatternFileError::Line { path: self.path.clone(), line: index + 1 };
            match line {
                _ if index == 0 => {
                    if line != HEAD {
                        return Err(wrong());
                    }
                }
                BEGIN => {
                    let before = std::mem::take(&mut next);
                    if !std::mem::replace(&mut has_begun, true) {
                        stored.runs = before;
                    }
                    stored.stage = Stage::Begun;
                }
                WHOLE => {
                    stored.runs = std::mem::take(&mut next);
                    stored.stage = Stage::Whole;
                }
                _ if Changed::parse(line).is_some() => stored.stage = Stage::Ended,
                _ => {
                    let mut parts = line.split(' ');
                    let mut number = |radix| u64::from_str_radix(parts.next()?, radix).ok();
                    let run = (|| Some((number(10)?, number(10)?, number(16)?)))();
                    let (first, end, word) =
                        run.filter(|run| run.0 < run.1 && run.1 <= blocks).ok_or_else(wrong)?;
                    next.insert(first..end, word);
                }
            }
        }
        Ok(stored)
    }

    fn add(&self, text: &str) -> io::Result<()> {
        let mut file = &self.file;
        let at = file.seek(SeekFrom::End(0))?;
        let head = if at == 0 { format!("{HEAD}\n{BEGIN}\n") } else { String::new() };
        let written = file.write_all(format!("{head}{text}\n").as_bytes());
        if written.is_err() {
            let _ = file.set_len(at);
        }
        written
    }

    /// From here on the image is being changed. Without any runs nothing is recorded.
    pub(super) fn begin(&self) -> io::Result<()> {
        match self.file.metadata()?.len() {
            0 => Ok(()),
            _ => self.add(BEGIN),
        }
    }

    /// These are all runs from now on.
    pub(super) fn store(&self, runs: &RangeMap<u64, u64>) -> io::Result<()> {
        if self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::other("file removed by another process"));
        }
        let mut text = String::new();
        for (run, word) in runs.iter() {
            text += &format!("{} {} {word:x}\n", run.start, run.end);
        }
        self.add(&(text + WHOLE))
    }

    /// The image, as it is now, fits the runs; there are none if `is_empty`.
    pub(super) fn end(&self, is_empty: bool, image: &File) -> io::Result<()> {
        if is_empty {
            return self.file.set_len(0);
        }
        let Changed(seconds, nanoseconds) = Changed::of(&image.metadata()?);
        self.add(&format!("{END} {seconds} {nanoseconds}"))
    }
}

impl Drop for PatternFile {
    /// An empty file is removed if possible: paths may be out of reach.
    fn drop(&mut self) {
        let is_empty = |found: Metadata| found.len() == 0 && found.nlink() > 0;
        if self.is_own && self.file.metadata().is_ok_and(is_empty) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_cut_off_tells_the_runs_of_before_or_of_after() {
        let dir = tempfile::tempdir().expect("a place for the test");
        let image = dir.path().join("image");
        std::fs::write(&image, [0; 4096]).expect("an image");
        let words = PatternFile::open(&image, true).expect("opened").expect("made");
        let image = File::open(&image).expect("an image");
        let one: RangeMap<u64, u64> = [(0..300, 7)].into();
        let two: RangeMap<u64, u64> = [(0..100, 7), (100..400, u64::MAX)].into();
        words.store(&one).expect("stored");
        words.end(false, &image).expect("stored");
        let first = words.text().expect("text").len();
        words.begin().expect("stored");
        words.store(&two).expect("stored");
        words.end(false, &image).expect("stored");
        let text = words.text().expect("text");
        for cut in 0..=text.len() {
            let stored = words.parse(&text[..cut], 400).expect("runs");
            let is_whole = text[..cut].matches("whole\n").count();
            let (expected, stage) = match is_whole {
                0 => (RangeMap::new(), None),
                1 if cut < first => (one.clone(), Some(Stage::Whole)),
                1 if text[..cut].matches("begin\n").count() == 2 => {
                    (one.clone(), Some(Stage::Begun))
                }
                1 => (one.clone(), Some(Stage::Ended)),
                _ if cut < text.len() => (two.clone(), Some(Stage::Whole)),
                _ => (two.clone(), Some(Stage::Ended)),
            };
            assert!(stored.runs == expected, "{cut}");
            assert!(stage.is_none_or(|stage| stored.stage == stage), "{cut}: {:?}", stored.stage);
        }
        words.end(true, &image).expect("stored");
        assert_eq!(words.text().expect("text"), "");
        for wrong in [
            "extant words 2\n",
            "extant words 1\n0 401 7\n",
            "extant words 1\nbeginning\n",
            "extant words 1\nend 7\n",
        ] {
            words.parse(wrong, 400).expect_err(wrong);
        }
    }
}
