//! The contents of a simulated drive. A block whose bytes repeat one word of 64 bits is kept as
//! that word; others lie in memory up to a limit, then in the image's file, each at its own place.
//! In the end everything goes there.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rangemap::RangeMap;

use super::pattern_file::{PatternFile, PatternFileError, Stage};
use extant_device::{Device, DeviceError, FileDevice, Operation, data_runs};

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// A run of blocks that repeat a word other than zero goes into the image up to this many; longer
/// ones stay words.
const LONGEST_WRITTEN: u64 = 256;
/// Bytes that are written home at once.
const RUN: usize = 1 << 20;
/// Runs of words take some of the memory too: this number of runs counts as one block.
const RUNS_A_BLOCK: usize = 64;

/// The bytes of a drive.
pub(super) struct Contents {
    /// Dropped before the image, whose lock ends with it.
    pattern_file: Option<PatternFile>,
    image: Arc<FileDevice>,
    words: RangeMap<u64, u64>,
    /// The runs of the pattern file.
    stored: RangeMap<u64, u64>,
    stage: Stage,
    /// Whether that file records that the image is being changed.
    has_begun: bool,
    blocks: BTreeMap<u64, Box<[u8]>>,
    /// Blocks in memory at most.
    limit: usize,
    /// Long runs of words, which stay when memory is short.
    long_runs: usize,
    /// Whether anything was changed.
    is_changed: bool,
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
        mut pattern_file: Option<PatternFile>,
        memory: u64,
    ) -> Result<Self, PatternFileError> {
        let (stored, stage) = match &mut pattern_file {
            Some(pattern_file) => {
                let stored = pattern_file.load(image.size().div_ceil(BLOCK), image.file())?;
                (stored.runs, stored.stage)
            }
            None => (RangeMap::new(), Stage::Ended),
        };
        let mut words = stored.clone();
        if stage == Stage::Begun {
            tracing::warn!("the last command that changed the image was killed");
            for block in newer(&image, &stored).map_err(PatternFileError::Image)? {
                words.remove(block..block + 1);
            }
        }
        let limit = usize::try_from(memory / BLOCK).unwrap_or(usize::MAX);
        let long_runs = words.len();
        Ok(Self {
            pattern_file,
            image,
            words,
            stored,
            stage,
            has_begun: false,
            blocks: BTreeMap::new(),
            limit,
            long_runs,
            is_changed: false,
        })
    }

    /// Bytes in memory that are no words.
    pub(super) fn held(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }

    /// Runs of blocks that are kept as words.
    pub(super) fn runs(&self) -> usize {
        self.words.len()
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

    /// Reads from the image; its holes are found without reading.
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
        let short_runs = self.words.len().saturating_sub(self.long_runs);
        if self.blocks.len().saturating_add(short_runs / RUNS_A_BLOCK) > self.limit {
            self.spill()?;
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

    /// Records in the pattern file that the image is being changed.
    fn begin(&mut self) -> Result<(), DeviceError> {
        if let Some(pattern_file) = &self.pattern_file
            && !self.has_begun
        {
            // A command was killed when the runs were stored, and older bytes may still lie in
            // their place.
            if self.stage == Stage::Whole {
                self.stored.iter().try_for_each(|(run, _)| self.punch(run))?;
            }
            pattern_file.begin().map_err(pattern_file_failed)?;
        }
        self.has_begun = true;
        Ok(())
    }

    /// Writes the blocks in memory to the image, except long runs of words.
    fn spill(&mut self) -> Result<(), DeviceError> {
        self.begin()?;
        self.write_blocks()?;
        let longest = if self.pattern_file.is_some() { LONGEST_WRITTEN } else { u64::MAX };
        let is_short = |(run, _): &(&Range<u64>, &u64)| run.end - run.start <= longest;
        let short: Vec<(Range<u64>, u64)> =
            self.words.iter().filter(is_short).map(|(run, word)| (run.clone(), *word)).collect();
        for (run, word) in &short {
            self.write_word(run, *word)?;
        }
        for (run, _) in short {
            self.words.remove(run);
        }
        self.long_runs = self.words.len();
        Ok(())
    }

    /// Writes the blocks in memory to the image. They stay there until all of them are written.
    fn write_blocks(&mut self) -> Result<(), DeviceError> {
        let mut run: Vec<u8> = Vec::with_capacity(RUN);
        let mut start = 0;
        for (block, bytes) in &self.blocks {
            if run.len() >= RUN || start * BLOCK + run.len() as u64 != block * BLOCK {
                self.write_run(start, &run)?;
                run.clear();
            }
            if run.is_empty() {
                start = *block;
            }
            run.extend_from_slice(bytes);
        }
        self.write_run(start, &run)?;
        self.blocks.clear();
        Ok(())
    }

    /// The last block may reach past the end of an image of another size.
    fn write_run(&self, start: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let room = self.image.size().saturating_sub(start * BLOCK);
        let length = (bytes.len() as u64).min(room) as usize;
        self.image.write_at(start * BLOCK, &bytes[..length])
    }

    fn bytes_of(&self, run: &Range<u64>) -> Range<u64> {
        run.start * BLOCK..(run.end * BLOCK).min(self.image.size())
    }

    fn write_word(&self, run: &Range<u64>, word: u64) -> Result<(), DeviceError> {
        if word == 0 {
            return self.punch(run);
        }
        let bytes = self.bytes_of(run);
        let mut piece = vec![0; (bytes.end - bytes.start).min(RUN as u64) as usize];
        fill(&mut piece, word, 0);
        let mut at = bytes.start;
        while at < bytes.end {
            let length = (bytes.end - at).min(RUN as u64) as usize;
            self.image.write_at(at, &piece[..length])?;
            at += length as u64;
        }
        Ok(())
    }

    /// The image's blocks there are not needed.
    fn punch(&self, run: &Range<u64>) -> Result<(), DeviceError> {
        let mut rest = self.bytes_of(run);
        while let Some(found) = self.image.next_data(rest.clone())? {
            rest.start = found.end;
            self.image.write_zeroes(found)?;
        }
        Ok(())
    }

    /// Writes everything to the image. Runs that stay words are left out and kept in the pattern
    /// file. They are stored there before the bytes in their place are removed, so that a command
    /// that is killed leaves the one or the other. After a failure, the blocks that were not
    /// written are kept.
    pub(super) fn finish(&mut self) -> Result<(), DeviceError> {
        if !self.is_changed {
            return Ok(());
        }
        self.spill()?;
        let mut kept = self.words.clone();
        let zeroes: Vec<Range<u64>> =
            self.words.iter().filter(|(_, word)| **word == 0).map(|(run, _)| run.clone()).collect();
        zeroes.into_iter().for_each(|run| kept.remove(run));
        if let Some(pattern_file) = &self.pattern_file
            && kept != self.stored
        {
            pattern_file.store(&kept).map_err(pattern_file_failed)?;
            self.stored = kept.clone();
        }
        self.words.iter().try_for_each(|(run, _)| self.punch(run))?;
        if let Some(pattern_file) = &self.pattern_file {
            pattern_file.end(kept.is_empty(), self.image.file()).map_err(pattern_file_failed)?;
        }
        self.stage = Stage::Ended;
        self.has_begun = false;
        self.long_runs = kept.len();
        self.words = kept;
        self.is_changed = false;
        Ok(())
    }
}

fn pattern_file_failed(source: io::Error) -> DeviceError {
    DeviceError::io(Operation::Write, 0, 0, source)
}

/// Blocks of runs that the image has bytes of: they were written after the runs were stored.
fn newer(image: &FileDevice, runs: &RangeMap<u64, u64>) -> Result<Vec<u64>, DeviceError> {
    let mut found = Vec::new();
    let mut bytes = vec![0; RUN];
    for (run, _) in runs.iter() {
        let end = (run.end * BLOCK).min(image.size());
        for data in data_runs(image, run.start * BLOCK..end) {
            let data = data?;
            // In whole blocks: the run begins with one.
            let mut at = data.start / BLOCK * BLOCK;
            let until = data.end.next_multiple_of(BLOCK).min(end);
            while at < until {
                let length = (until - at).min(RUN as u64) as usize;
                image.read_at(at, &mut bytes[..length])?;
                let blocks = (at / BLOCK..).zip(bytes[..length].chunks(BLOCK as usize));
                let written = blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0));
                found.extend(written.map(|(block, _)| block));
                at += length as u64;
            }
        }
    }
    Ok(found)
}
