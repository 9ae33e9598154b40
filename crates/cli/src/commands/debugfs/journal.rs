//! `logdump`: what the log holds.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use extant::InodeNo;
use extant::debug::{DebugVolume, MapStep, RawRecord};
use extant::rooms::ondisk::inode::{I_BLOCK_SIZE, InodeFlags, RawInode};
use extant::rooms::ondisk::jbd2::{
    BlockType, Header, JOURNAL_MAGIC, JournalSuperblock, LogFormat, RawJournalSuperblock, Tags,
    revoke_records,
};
use extant::rooms::ondisk::{BlockNo, Geometry, extent};
use zerocopy::{FromZeros, IntoBytes};

use super::host::host_error;
use super::options::Options;
use super::shell::{Done, Refusal, Shell, failed, refuse};
use super::stat;
use super::words::{Word, number, text};
use crate::commands::info;

/// Where the blocks of the log are.
enum LogBlocks<'v> {
    /// On the volume: runs by their first block in the log; first block on the volume, and number
    /// of blocks.
    Inode { volume: &'v DebugVolume, runs: BTreeMap<u64, (u64, u64)> },
    /// In a file of the host.
    File { file: File, block_size: u32 },
}

impl<'v> LogBlocks<'v> {
    /// The volume's own log, by the copy of its map in the superblock.
    fn of_copy(volume: &'v DebugVolume, words: &[Word]) -> Result<Self, Refusal> {
        let raw = volume.raw();
        let numbers = raw.s_jnl_blocks.map(|number| number.get());
        if raw.s_jnl_backup_type != 1 || numbers == [0; 17] {
            return Err(refuse(words, "no backup journal superblock"));
        }
        let geometry = volume.geometry();
        let mut bytes = vec![0; usize::from(geometry.inode_size)];
        let mut base = RawInode::new_zeroed();
        let mut map = [0; I_BLOCK_SIZE];
        for (bytes, number) in map.chunks_exact_mut(4).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        base.i_mode.set(0o100_600);
        base.i_block = map;
        base.i_size_lo.set(numbers[16]);
        base.i_size_high.set(numbers[15]);
        if u16::from_le_bytes([map[0], map[1]]) == extent::EXTENT_MAGIC {
            base.i_flags.set(InodeFlags::EXTENTS.bits());
        }
        bytes[..size_of::<RawInode>()].copy_from_slice(base.as_bytes());
        let record = RawRecord::new(InodeNo(raw.s_journal_inum.get()), bytes);
        Self::of_map(volume, &record, words)
    }

    /// The volume's own log.
    fn of_volume(volume: &'v DebugVolume, words: &[Word]) -> Result<Self, Refusal> {
        let number = volume.raw().s_journal_inum.get();
        if number == 0 {
            return Err(refuse(words, "filesystem has no journal"));
        }
        let record = volume
            .inode(InodeNo(number))
            .map_err(|error| failed(words, error, "reading the journal's inode"))?;
        Self::of_map(volume, &record, words)
    }

    fn of_map(
        volume: &'v DebugVolume,
        record: &RawRecord,
        words: &[Word],
    ) -> Result<Self, Refusal> {
        let mut runs = BTreeMap::new();
        let walked = volume.walk_blocks(record, &mut |piece| {
            if let MapStep::Data { logical, start, len, .. } = piece {
                runs.insert(logical, (start, len));
            }
            ControlFlow::Continue(())
        });
        walked.map_err(|error| failed(words, error, "reading the journal's map"))?;
        Ok(Self::Inode { volume, runs })
    }

    fn read(&self, at: u32) -> Result<Vec<u8>, String> {
        match self {
            Self::Inode { volume, runs } => {
                let at = u64::from(at);
                match runs.range(..=at).next_back() {
                    Some((first, (start, len))) if at - first < *len => {
                        let block = BlockNo(start.saturating_add(at - first));
                        volume.block(block).map_err(|error| error.to_string())
                    }
                    _ => Err(format!("block {at} of the journal is missing")),
                }
            }
            Self::File { file, block_size } => {
                let mut bytes = vec![0; *block_size as usize];
                let place = u64::from(at) * u64::from(*block_size);
                file.read_exact_at(&mut bytes, place).map_err(|error| host_error(&error))?;
                Ok(bytes)
            }
        }
    }
}

/// The records that are shown.
struct Selection {
    /// All of them (`-a`).
    all: bool,
    /// The records of a block (`-b`), and of the bitmap that has a bit of it.
    block: Option<BlockRecords>,
    /// The records of the block with an inode (`-i`).
    inode: Option<InodeRecords>,
    /// Whether the contents are shown (`-c`).
    contents: bool,
    /// Whether transactions that are not replayed are shown, too (`-O`).
    old: bool,
    /// Number of transactions (`-n` with `-O`).
    most: Option<u64>,
}

/// A block of an inode table, and where an inode is in it.
struct InodeRecords {
    number: InodeNo,
    block: u64,
    at: usize,
    geometry: Geometry,
}

impl InodeRecords {
    fn of(volume: &DebugVolume, number: InodeNo) -> Option<Self> {
        let geometry = volume.geometry();
        let offset = volume.editor().inode_offset(number)?;
        let (block, at) =
            (offset / u64::from(geometry.block_size), offset % u64::from(geometry.block_size));
        // Within a block.
        Some(Self { number, block, at: at as usize, geometry: geometry.clone() })
    }

    /// The line about its place.
    fn line(&self) -> String {
        let group = self.geometry.inode_place(self.number).map_or(0, |(group, _)| group.0);
        let Self { number, block, at, .. } = self;
        format!("Inode {number} is at group {group}, block {block}, offset {at}\n")
    }

    /// The inode in a copy of its block.
    fn show(&self, bytes: &[u8], lines: &mut String) {
        let end = self.at + usize::from(self.geometry.inode_size);
        let Some(record) = bytes.get(self.at..end) else { return };
        let record = RawRecord::new(self.number, record.to_vec());
        *lines += &format!("    (inode block for inode {}):\n", self.number);
        *lines += &stat::logged(self.number, &record, &self.geometry);
    }
}

/// A block, and where its bit is.
#[derive(Clone, Copy)]
struct BlockRecords {
    block: u64,
    bitmap: Option<u64>,
    bit: usize,
}

impl BlockRecords {
    fn of(volume: &DebugVolume, block: u64) -> Self {
        let geometry = volume.geometry();
        let group = geometry.group_of(BlockNo(block));
        let bitmap = group.map(|group| volume.editor().desc(group).block_bitmap.0);
        let start = group.map_or(0, |group| geometry.group_start(group).0);
        // Within a group.
        let bit = (block - start) / u64::from(geometry.blocks_per_cluster);
        Self { block, bitmap, bit: bit as usize }
    }
}

pub(super) fn logdump(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "logdump: Usage: logdump [-acsOS] [-n<num_trans>] [-b<block>] [-i<filespec>]\n\t\
                 [-f<journal_file>] [output_file]";
    let options = Options::read(words, "aScsOb:n:i:f:", usage)?;
    let block = options.value('b').map(|word| {
        let wrong = || refuse(words, format_args!("Bad block number - {}", text(word)));
        number(word).ok_or_else(wrong)
    });
    let block = block.transpose()?;
    // A negative number is no limit.
    let most = options.value('n').map(|word| match word.strip_prefix(b"-") {
        Some(digits) => number(digits).map(|_| None),
        None => number(word).map(Some),
    });
    let most = match most {
        Some(None) => {
            let word = text(options.value('n').unwrap_or_default());
            return Err(refuse(words, format_args!("Bad log counts number - {word}")));
        }
        Some(Some(most)) => most,
        None => None,
    };
    let output = match options.operands[..] {
        [] => None,
        [path] => Some(text(path)),
        _ => return Err(Refusal::Line(usage.to_owned())),
    };
    let inode = options.value('i').map(|spec| shell.inode_of(words, spec)).transpose()?;
    let image = shell.image(words)?;
    let view = image.view();
    let volume = &image.volume;
    let inode = inode.and_then(|number| InodeRecords::of(volume, number));
    let mut lines = inode.as_ref().map(InodeRecords::line).unwrap_or_default();
    let log = match options.value('f') {
        None if options.has('s') => LogBlocks::of_copy(volume, words)?,
        None => LogBlocks::of_volume(volume, words)?,
        Some(path) => {
            let block_size = volume.geometry().block_size;
            let file = File::open(OsStr::from_bytes(path)).map_err(|error| {
                let doing = format!("opening {} for logdump", text(path));
                failed(words, host_error(&error), doing)
            })?;
            LogBlocks::File { file, block_size }
        }
    };
    let shown = Selection {
        all: options.has('a'),
        block: block.map(|block| BlockRecords::of(volume, block)),
        inode,
        contents: options.has('c'),
        old: options.has('O'),
        most,
    };
    let reading = "reading journal superblock";
    let first = log.read(0).map_err(|why| failed(words, why, reading))?;
    let raw = RawJournalSuperblock::from_bytes(&first).map_err(|it| failed(words, it, reading))?;
    let journal = JournalSuperblock::decode(&raw).map_err(|it| failed(words, it, reading))?;
    if options.has('S') {
        for line in info::journal_lines(&raw, &journal, &view) {
            lines += &(line + "\n");
        }
        lines.push('\n');
    }
    lines +=
        &format!("Journal starts at block {}, transaction {}\n", journal.start, journal.sequence);
    let read = match journal.start {
        0 if !shown.old => Ok(()),
        _ => transactions(&log, &journal, &shown, &mut lines),
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
    shown: &Selection,
    lines: &mut String,
) -> Result<(), String> {
    let format: LogFormat = journal.log_format();
    let end = journal.blocks_count.saturating_sub(journal.fast_commit_blocks);
    let next = |at: u32| if at + 1 >= end { journal.first } else { at + 1 };
    let start = if journal.start == 0 { journal.first } else { journal.start };
    let (mut at, mut tid) = (start, journal.sequence);
    let mut counted = 0;
    let mut is_past_end = false;
    // Every block of the log is looked at once at most.
    let mut left = end.saturating_sub(journal.first);
    let most = shown.most.filter(|_| shown.old);
    while left > 0 && most.is_none_or(|most| counted < most) {
        let bytes = log.read(at)?;
        let magic = bytes.first_chunk().map_or(0, |magic| u32::from_be_bytes(*magic));
        let Some(header) = Header::of(&bytes).filter(|_| magic == JOURNAL_MAGIC) else {
            if !is_past_end {
                *lines += &format!("No magic number at block {at}: end of journal.\n");
            }
            is_past_end = true;
            if most.is_none() {
                break;
            }
            at = next(at);
            left -= 1;
            continue;
        };
        if header.tid != tid {
            let found = header.tid;
            *lines +=
                &format!("Found sequence {found} (not {tid}) at block {at}: end of journal.\n");
            if !shown.old {
                break;
            }
        }
        let (kind, name) = match header.block_type {
            BlockType::Descriptor => (1, "descriptor block"),
            BlockType::Commit => (2, "commit block"),
            BlockType::SuperblockV1 => (3, "V1 superblock"),
            BlockType::SuperblockV2 => (4, "V2 superblock"),
            BlockType::Revoke => (5, "revoke table"),
        };
        if shown.block.is_none() && shown.inode.is_none() {
            let tid = header.tid;
            *lines +=
                &format!("Found expected sequence {tid}, type {kind} ({name}) at block {at}\n");
        }
        let here = at;
        at = next(at);
        left -= 1;
        match header.block_type {
            BlockType::Descriptor => {
                if shown.all {
                    *lines +=
                        &format!("Dumping descriptor block, sequence {tid}, at block {here}:\n");
                }
                for tag in Tags::unverified(&bytes, &format) {
                    let place = TagPlace { tid: tid.0, at };
                    shown.tag(log, (tag.block.0, tag.flags.bits()), &place, lines)?;
                    at = next(at);
                    left = left.saturating_sub(1);
                }
            }
            BlockType::Revoke => shown.revokes(&bytes, &format, (tid.0, here), lines)?,
            BlockType::Commit => {
                tid = tid.next();
                counted += 1;
            }
            _ => {}
        }
    }
    if most.is_some_and(|most| counted < most) {
        *lines += &format!("Dump all {counted} journal records.\n");
    }
    Ok(())
}

/// Where a block is logged.
struct TagPlace {
    tid: u32,
    at: u32,
}

impl Selection {
    fn is_shown(&self, block: u64) -> bool {
        let of_block = |it: BlockRecords| it.block == block || it.bitmap == Some(block);
        self.all
            || self.block.is_some_and(of_block)
            || self.inode.as_ref().is_some_and(|it| it.block == block)
    }

    /// Shows a logged block.
    fn tag(
        &self,
        log: &LogBlocks<'_>,
        (block, flags): (u64, u16),
        place: &TagPlace,
        lines: &mut String,
    ) -> Result<(), String> {
        if !self.is_shown(block) {
            return Ok(());
        }
        let TagPlace { tid, at } = place;
        let where_to = match self.all {
            true => format!("journal block {at}"),
            false => format!("sequence {tid}, journal block {at}"),
        };
        *lines += &format!("  FS block {block} logged at {where_to} (flags {flags:#x})\n");
        let of_bitmap = self.block.filter(|it| it.bitmap == Some(block));
        let of_inode = self.inode.as_ref().filter(|it| it.block == block);
        if of_bitmap.is_none() && of_inode.is_none() && !self.contents {
            return Ok(());
        }
        let bytes = log.read(*at)?;
        if let Some(BlockRecords { block, bit, .. }) = of_bitmap {
            let is_set = bytes.get(bit / 8).is_some_and(|byte| byte & 1 << (bit % 8) != 0);
            let state = if is_set { "SET" } else { "CLEAR" };
            *lines += &format!("    (block bitmap for block {block}: block is {state})\n");
        }
        if let Some(inode) = of_inode {
            inode.show(&bytes, lines);
        }
        if self.contents {
            contents(&bytes, lines);
        }
        Ok(())
    }

    /// Shows the records of a revoke block.
    fn revokes(
        &self,
        bytes: &[u8],
        format: &LogFormat,
        (tid, at): (u32, u32),
        lines: &mut String,
    ) -> Result<(), String> {
        if self.all {
            *lines += &format!("Dumping revoke block, sequence {tid}, at block {at}:\n");
        }
        for block in revoke_records(bytes, format).map_err(|flaw| flaw.to_string())? {
            if self.all {
                *lines += &format!("  Revoke FS block {block}\n");
            } else if self.block.is_some_and(|it| it.block == block.0) {
                *lines += &format!("  Revoke FS block {block} at block {at}, sequence {tid}\n");
            }
        }
        Ok(())
    }
}

/// A block in words of 32 bits, and as text.
fn contents(bytes: &[u8], lines: &mut String) {
    for (number, row) in bytes.chunks(16).enumerate() {
        let words = row.chunks_exact(4).map(|word| {
            let word = word.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
            format!("{word:08x} ")
        });
        let shown = row.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        });
        let (words, shown) = (words.collect::<String>(), shown.collect::<String>());
        *lines += &format!("    {:04x}:  {words}{shown}\n", number * 16);
    }
}
