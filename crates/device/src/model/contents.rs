//! What a simulated drive holds. A block whose bytes repeat one word of 64 bits is kept as that word; others lie in memory up to
//! a limit, then in the image's file, each at its own place. In the end everything goes there.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rangemap::RangeMap;

use crate::device::Device;
use crate::error::DeviceError;
use crate::file::FileDevice;

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// A run of blocks that repeat a word other than zero goes into the image up to this many; longer ones stay words.
const LONGEST_WRITTEN: u64 = 256;
/// Bytes that are written home at once.
const RUN: usize = 1 << 20;
/// What is behind an image's name in that of the file that holds its words.
const SUFFIX: &str = ".words";
/// The first line of that file.
const HEAD: &str = "extant words 1";

/// The file beside an image with the runs that are kept as words.
#[derive(Debug)]
pub struct Words {
    file: File,
    path: PathBuf,
    is_written: bool,
}

/// Why the words of an image cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum WordsError {
    /// The file beside it cannot be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It holds something else.
    #[error("{}: line {line} is no run of words", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1 on.
        line: usize,
    },
    /// The image was written by another program since.
    #[error("{}: older than the image it belongs to; what it holds is lost when it is removed", path.display())]
    Stale {
        /// The file.
        path: PathBuf,
    },
}

impl Words {
    /// The file beside `image`; one that is to be written is made. To be called before the image is opened for writing, which
    /// may change its time.
    ///
    /// # Errors
    /// The system refused, or the image was changed since.
    pub(crate) fn open(image: &Path, write: bool) -> Result<Option<Self>, WordsError> {
        // Where there is no image, opening it tells so.
        let Ok(of_image) = std::fs::metadata(image) else { return Ok(None) };
        let mut name = image.as_os_str().to_owned();
        name.push(SUFFIX);
        let path = PathBuf::from(name);
        let opened =
            File::options().read(true).write(write).create(write).truncate(false).open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if !write && error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(WordsError::Io { path, source }),
        };
        let own = match file.metadata() {
            Ok(own) => own,
            Err(source) => return Err(WordsError::Io { path, source }),
        };
        let changed = |found: &Metadata| (found.mtime(), found.mtime_nsec());
        if own.len() > 0 && changed(&of_image) > changed(&own) {
            return Err(WordsError::Stale { path });
        }
        Ok(Some(Self { file, path, is_written: write }))
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> WordsError + '_ {
        |source| WordsError::Io { path: self.path.clone(), source }
    }

    fn load(&self, image: &FileDevice) -> Result<RangeMap<u64, u64>, WordsError> {
        let mut text = String::new();
        (&self.file).read_to_string(&mut text).map_err(self.failed())?;
        let mut words = RangeMap::new();
        if text.is_empty() {
            return Ok(words);
        }
        let blocks = image.size().div_ceil(BLOCK);
        for (index, line) in text.lines().enumerate() {
            let wrong = || WordsError::Line { path: self.path.clone(), line: index + 1 };
            if index == 0 {
                if line != HEAD {
                    return Err(wrong());
                }
                continue;
            }
            let mut parts = line.split(' ');
            let mut number = |radix| u64::from_str_radix(parts.next()?, radix).ok();
            let run = (|| Some((number(10)?, number(10)?, number(16)?)))();
            let (start, end, word) =
                run.filter(|run| run.0 < run.1 && run.1 <= blocks).ok_or_else(wrong)?;
            words.insert(start..end, word);
        }
        Ok(words)
    }

    /// Writes what is kept as words.
    fn store(&self, words: &RangeMap<u64, u64>) -> io::Result<()> {
        let mut text = String::new();
        for (run, word) in words.iter() {
            text += &format!("{} {} {word:x}\n", run.start, run.end);
        }
        let mut file = &self.file;
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        match text.is_empty() {
            true => Ok(()),
            false => file.write_all(format!("{HEAD}\n{text}").as_bytes()),
        }
    }

    /// Removes a file without any words where that may be done.
    fn remove_if_empty(&self) {
        if self.is_written && self.file.metadata().is_ok_and(|found| found.len() == 0) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The bytes of a drive.
pub(super) struct Contents {
    image: Arc<FileDevice>,
    beside: Option<Words>,
    words: RangeMap<u64, u64>,
    blocks: BTreeMap<u64, Box<[u8]>>,
    /// Blocks in memory at most.
    limit: usize,
    /// Whether anything was changed.
    is_changed: bool,
}

impl Drop for Contents {
    /// The image is still had alone: nobody else uses the file beside it.
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            beside.remove_if_empty();
        }
    }
}

/// The word that all of a block's bytes repeat.
fn repeated(block: &[u8]) -> Option<u64> {
    let (first, _) = block.split_first_chunk::<8>()?;
    (block[8..] == block[..block.len() - 8]).then(|| u64::from_le_bytes(*first))
}

fn fill(bytes: &mut [u8], word: u64, from: u64) {
    if word == 0 {
        return bytes.fill(0);
    }
    let word = word.to_le_bytes();
    for (at, byte) in (from..).zip(bytes) {
        *byte = word[(at % 8) as usize];
    }
}

impl Contents {
    pub(super) fn new(
        image: Arc<FileDevice>,
        beside: Option<Words>,
        memory: u64,
    ) -> Result<Self, WordsError> {
        let words = match &beside {
            Some(beside) => beside.load(&image)?,
            None => RangeMap::new(),
        };
        let limit = usize::try_from(memory / BLOCK).unwrap_or(usize::MAX);
        Ok(Self { image, beside, words, blocks: BTreeMap::new(), limit, is_changed: false })
    }

    /// Bytes in memory that are no words.
    pub(super) fn held(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }

    pub(super) fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        let end = offset + to.len() as u64;
        let mut at = offset;
        while at < end {
            let block = at / BLOCK;
            let run =
                |until: u64| (at - offset) as usize..((until * BLOCK).min(end) - offset) as usize;
            if let Some((held, word)) = self.words.get_key_value(&block) {
                fill(&mut to[run(held.end)], *word, at);
                at = (held.end * BLOCK).min(end);
            } else if let Some(held) = self.blocks.get(&block) {
                let part = &mut to[run(block + 1)];
                let within = (at % BLOCK) as usize;
                part.copy_from_slice(&held[within..within + part.len()]);
                at = ((block + 1) * BLOCK).min(end);
            } else {
                let last = end.div_ceil(BLOCK);
                let next_block =
                    self.blocks.range(block..last).next().map_or(last, |(next, _)| *next);
                let next_word =
                    self.words.overlapping(block..last).next().map_or(last, |(run, _)| run.start);
                let until = next_block.min(next_word);
                let until_byte = (until * BLOCK).min(end);
                self.read_image(at..until_byte, &mut to[run(until)])?;
                at = (until * BLOCK).min(end);
            }
        }
        Ok(())
    }

    /// Reads from the image; its holes are asked for, not read.
    fn read_image(&self, range: Range<u64>, to: &mut [u8]) -> Result<(), DeviceError> {
        let mut at = range.start;
        while at < range.end {
            let found = self.image.next_data(at..range.end)?.unwrap_or(range.end..range.end);
            let part = |run: Range<u64>| {
                (run.start - range.start) as usize..(run.end - range.start) as usize
            };
            to[part(at..found.start)].fill(0);
            if !found.is_empty() {
                self.image.read_at(found.start, &mut to[part(found.clone())])?;
            }
            at = found.end;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.is_changed |= !from.is_empty();
        let end = offset + from.len() as u64;
        let mut at = offset;
        // A run of blocks that repeat the same word.
        let mut same: Option<(Range<u64>, u64)> = None;
        while at < end {
            let block = at / BLOCK;
            let until = ((block + 1) * BLOCK).min(end);
            let part = &from[(at - offset) as usize..(until - offset) as usize];
            let mut whole;
            let bytes = if part.len() as u64 == BLOCK {
                part
            } else {
                whole = vec![0; BLOCK as usize];
                let start = block * BLOCK;
                let there = BLOCK.min(self.image.size() - start) as usize;
                self.read(start, &mut whole[..there])?;
                whole[(at - start) as usize..(until - start) as usize].copy_from_slice(part);
                &whole
            };
            match (repeated(bytes), &mut same) {
                (Some(word), Some((run, of_run))) if word == *of_run && run.end == block => {
                    run.end += 1
                }
                (Some(word), same) => {
                    if let Some((run, word)) = same.replace((block..block + 1, word)) {
                        self.put_word(run, word);
                    }
                }
                (None, _) => match self.blocks.get_mut(&block) {
                    // No word lies there.
                    Some(held) => held.copy_from_slice(bytes),
                    None => {
                        self.words.remove(block..block + 1);
                        self.blocks.insert(block, bytes.into());
                    }
                },
            }
            at = until;
        }
        if let Some((run, word)) = same {
            self.put_word(run, word);
        }
        if self.blocks.len() > self.limit {
            self.write_blocks()?;
        }
        Ok(())
    }

    fn put_word(&mut self, run: Range<u64>, word: u64) {
        let held: Vec<u64> = self.blocks.range(run.clone()).map(|(block, _)| *block).collect();
        for block in held {
            self.blocks.remove(&block);
        }
        self.words.insert(run, word);
    }

    pub(super) fn zero(&mut self, range: Range<u64>) -> Result<(), DeviceError> {
        let whole = range.start.div_ceil(BLOCK)..range.end / BLOCK;
        if whole.start >= whole.end {
            return self.write(range.start, &vec![0; (range.end - range.start) as usize]);
        }
        self.is_changed = true;
        self.put_word(whole.clone(), 0);
        self.write(range.start, &vec![0; (whole.start * BLOCK - range.start) as usize])?;
        let rest = whole.end * BLOCK;
        self.write(rest, &vec![0; (range.end - rest) as usize])
    }

    /// Brings the blocks in memory to the image.
    fn write_blocks(&mut self) -> Result<(), DeviceError> {
        let mut run: Vec<u8> = Vec::with_capacity(RUN);
        let mut start = 0;
        for (block, bytes) in std::mem::take(&mut self.blocks) {
            if run.len() >= RUN || start * BLOCK + run.len() as u64 != block * BLOCK {
                self.write_run(start, &run)?;
                run.clear();
            }
            if run.is_empty() {
                start = block;
            }
            run.extend_from_slice(&bytes);
        }
        self.write_run(start, &run)
    }

    /// The last block may reach past the end of an image of another size.
    fn write_run(&self, start: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let room = self.image.size().saturating_sub(start * BLOCK);
        let length = (bytes.len() as u64).min(room) as usize;
        self.image.write_at(start * BLOCK, &bytes[..length])
    }

    /// Brings everything to the image. Runs that stay words are left out and kept beside it.
    pub(super) fn finish(&mut self) -> Result<(), DeviceError> {
        if !std::mem::take(&mut self.is_changed) {
            return Ok(());
        }
        self.write_blocks()?;
        let size = self.image.size();
        let mut kept = RangeMap::new();
        for (run, word) in std::mem::take(&mut self.words) {
            let bytes = run.start * BLOCK..(run.end * BLOCK).min(size);
            let length = bytes.end - bytes.start;
            if word != 0 && run.end - run.start <= LONGEST_WRITTEN {
                let mut block = vec![0; length as usize];
                fill(&mut block, word, 0);
                self.image.write_at(bytes.start, &block)?;
                continue;
            }
            // What lies there is not needed.
            let mut rest = bytes.clone();
            while let Some(found) = self.image.next_data(rest.clone())? {
                rest.start = found.end;
                self.image.write_zeroes(found)?;
            }
            if word != 0 {
                kept.insert(run, word);
            }
        }
        if let Some(beside) = &self.beside {
            beside
                .store(&kept)
                .map_err(|source| DeviceError::io(crate::error::Operation::Write, 0, 0, source))?;
        }
        self.words = kept;
        Ok(())
    }
}
