//! `logdump`: what the log holds.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use extant::InodeNo;
use extant::debug::{DebugVolume, MapStep};
use extant::rooms::ondisk::BlockNo;
use extant::rooms::ondisk::jbd2::{
    BlockType, Header, JOURNAL_MAGIC, JournalSuperblock, LogFormat, RawJournalSuperblock, Tags,
};

use super::host::host_error;
use super::options::Options;
use super::shell::{Done, Refusal, Shell, failed, refuse};
use super::words::{Word, text};
use crate::commands::info;

/// Where the blocks of the log are, and how they are read.
struct LogBlocks<'v> {
    volume: &'v DebugVolume,
    /// Runs by their first block in the log: first block on the volume, number of blocks.
    runs: BTreeMap<u64, (u64, u64)>,
}

impl LogBlocks<'_> {
    fn read(&self, at: u32) -> Result<Vec<u8>, String> {
        let at = u64::from(at);
        let run = self.runs.range(..=at).next_back();
        match run {
            Some((first, (start, len))) if at - first < *len => {
                let block = BlockNo(start.saturating_add(at - first));
                self.volume.block(block).map_err(|error| error.to_string())
            }
            _ => Err(format!("block {at} of the journal is missing")),
        }
    }
}

pub(super) fn logdump(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "logdump: Usage: logdump [-aS] [<output_file>]";
    let options = Options::read(words, "aScsOb:n:i:f:", usage)?;
    if let Some(letter) = "csObnif".chars().find(|letter| options.has(*letter)) {
        return Err(refuse(words, format_args!("-{letter} is not supported by extant")));
    }
    let output = match options.operands[..] {
        [] => None,
        [path] => Some(text(path)),
        _ => return Err(Refusal::Line(usage.to_owned())),
    };
    let image = shell.image(words)?;
    let number = image.volume.raw().s_journal_inum.get();
    if number == 0 {
        return Err(refuse(words, "filesystem has no journal"));
    }
    let view = image.view();
    let volume = &image.volume;
    let record = volume
        .inode(InodeNo(number))
        .map_err(|error| failed(words, error, "reading the journal's inode"))?;
    let mut runs = BTreeMap::new();
    let walked = volume.walk_blocks(&record, &mut |piece| {
        if let MapStep::Data { logical, start, len, .. } = piece {
            runs.insert(logical, (start, len));
        }
        ControlFlow::Continue(())
    });
    walked.map_err(|error| failed(words, error, "reading the journal's map"))?;
    let log = LogBlocks { volume, runs };
    let reading = "reading journal superblock";
    let first = log.read(0).map_err(|why| failed(words, why, reading))?;
    let raw = RawJournalSuperblock::from_bytes(&first).map_err(|it| failed(words, it, reading))?;
    let journal = JournalSuperblock::decode(&raw).map_err(|it| failed(words, it, reading))?;
    let mut lines = String::new();
    if options.has('S') {
        for line in info::journal_lines(&raw, &journal, &view) {
            lines += &(line + "\n");
        }
        lines.push('\n');
    }
    lines +=
        &format!("Journal starts at block {}, transaction {}\n", journal.start, journal.sequence);
    let read = match journal.start {
        0 => Ok(()),
        _ => transactions(&log, &journal, options.has('a'), &mut lines),
    };
    match output {
        Some(path) => std::fs::write(&path, &lines).map_err(|error| {
            failed(words, host_error(&error), format_args!("opening {path} for logdump"))
        })?,
        None => shell.print(lines)?,
    }
    read.map_err(|why| failed(words, why, "reading journal"))
}

fn transactions(
    log: &LogBlocks<'_>,
    journal: &JournalSuperblock,
    shows_blocks: bool,
    lines: &mut String,
) -> Result<(), String> {
    let format: LogFormat = journal.log_format();
    let end = journal.blocks_count.saturating_sub(journal.fast_commit_blocks);
    let next = |at: u32| if at + 1 >= end { journal.first } else { at + 1 };
    let (mut at, mut tid) = (journal.start, journal.sequence);
    // Every block of the log is looked at once at most.
    let mut left = journal.blocks_count;
    while left > 0 {
        let bytes = log.read(at)?;
        let magic = bytes.first_chunk().map_or(0, |magic| u32::from_be_bytes(*magic));
        let Some(header) = Header::of(&bytes).filter(|_| magic == JOURNAL_MAGIC) else {
            *lines += &format!("No magic number at block {at}: end of journal.\n");
            break;
        };
        if header.tid != tid {
            let found = header.tid;
            *lines +=
                &format!("Found sequence {found} (not {tid}) at block {at}: end of journal.\n");
            break;
        }
        let (kind, name) = match header.block_type {
            BlockType::Descriptor => (1, "descriptor block"),
            BlockType::Commit => (2, "commit block"),
            BlockType::SuperblockV1 => (3, "V1 superblock"),
            BlockType::SuperblockV2 => (4, "V2 superblock"),
            BlockType::Revoke => (5, "revoke table"),
        };
        *lines += &format!("Found expected sequence {tid}, type {kind} ({name}) at block {at}\n");
        let here = at;
        at = next(at);
        left -= 1;
        match header.block_type {
            BlockType::Descriptor => {
                if shows_blocks {
                    *lines +=
                        &format!("Dumping descriptor block, sequence {tid}, at block {here}:\n");
                }
                for tag in Tags::unverified(&bytes, &format) {
                    if shows_blocks {
                        let (block, flags) = (tag.block, tag.flags.bits());
                        *lines += &format!(
                            "  FS block {block} logged at journal block {at} (flags {flags:#x})\n"
                        );
                    }
                    at = next(at);
                    left = left.saturating_sub(1);
                }
            }
            BlockType::Commit => tid = tid.next(),
            _ => {}
        }
    }
    Ok(())
}
