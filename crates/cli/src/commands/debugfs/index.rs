//! `htree_dump`, `dx_hash` and `dirsearch`: directories and their hashes.

use std::ops::ControlFlow;

use extant::InodeFlags;
use extant::debug::{DebugVolume, DirWalk, RawRecord};
use extant::rooms::ondisk::casefold::fold;
use extant::rooms::ondisk::dirent::RawDirEntry;
use extant::rooms::ondisk::dx_hash::{DirHasher, HashVersion};
use extant::rooms::ondisk::htree::{HtreeFormat, IndexKind, RawHtreeRoot};
use extant::rooms::ondisk::superblock::{SuperFlags, Superblock};
use extant::rooms::ondisk::{BlockNo, FileBlock, FormatError};
use zerocopy::FromBytes;

use super::options::Options;
use super::shell::{Done, Refusal, Shell, at_file, failed, refuse};
use super::words::{Word, text};

/// Columns of a line of entries.
const WIDTH: usize = 80;
/// Levels of an index that are followed.
const MAX_LEVELS: u8 = 4;

pub(super) fn dirsearch(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, spec, name] = words else {
        return Err(Refusal::Line("Usage: dirsearch dir filename".to_owned()));
    };
    let record = shell.record_of(words, spec)?;
    let volume = shell.volume(words)?;
    let mut line = String::new();
    let walked = volume.walk_dir(&record, DirWalk::default(), &mut |item| {
        if item.name != name {
            return ControlFlow::Continue(());
        }
        let (logical, physical, offset) = (item.logical, item.physical, item.offset);
        line = format!(
            "Entry found at logical block {logical}, phys {physical}, offset {offset}\noffset {offset}\n"
        );
        ControlFlow::Break(())
    });
    shell.print(line)?;
    walked.map_err(|error| at_file(spec, error))
}

/// A seed as a UUID is written.
fn seed_of(word: &[u8]) -> Option<[u32; 4]> {
    let digits: String = text(word).chars().filter(|it| *it != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut seed = [0; 4];
    for (index, part) in seed.iter_mut().enumerate() {
        let bytes = u32::from_str_radix(digits.get(index * 8..index * 8 + 8)?, 16).ok()?;
        *part = u32::from_le_bytes(bytes.to_be_bytes());
    }
    Some(seed)
}

pub(super) fn dx_hash(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "dx_hash: usage: dx_hash [-h hash_alg] [-s hash_seed] [-c] [-e encoding] filename";
    let options = Options::read(words, "h:s:ce:", usage)?;
    let [name] = options.operands[..] else {
        return Err(Refusal::Line(usage.to_owned()));
    };
    let has_encoding = match options.value('e') {
        None => false,
        Some(b"utf8" | b"utf8-12.1") => true,
        Some(other) => {
            return Err(Refusal::Line(format!("Invalid encoding: {}", text(other))));
        }
    };
    let version = match options.value('h') {
        None | Some(b"legacy" | b"0") => HashVersion::Legacy,
        Some(b"half_md4" | b"1") => HashVersion::HalfMd4,
        Some(b"tea" | b"2") => HashVersion::Tea,
        Some(other) => {
            return Err(refuse(words, format_args!("unknown hash algorithm: {}", text(other))));
        }
    };
    let seed = match options.value('s') {
        Some(word) => seed_of(word)
            .ok_or_else(|| Refusal::Line(format!("Invalid UUID format: {}", text(word))))?,
        None => [0; 4],
    };
    let hasher = DirHasher::new(version, seed).map_err(|error| refuse(words, error))?;
    // Without an encoding nothing is folded.
    let folded = match options.has('c') && has_encoding {
        true => Some(fold(name).ok_or_else(|| {
            failed(words, "the name is not valid in the encoding", "calculating hash")
        })?),
        false => None,
    };
    let hash = hasher.hash(folded.as_deref().unwrap_or(name));
    let name = text(name);
    shell.print(format!("Hash of {name} is {:#x} (minor {:#x})\n", hash.hash, hash.minor))
}

pub(super) fn htree_dump(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let spec = shell.one_file(words, "htree_dump <file>")?;
    let record = shell.record_of(words, spec)?;
    if !record.is_dir() {
        return Err(refuse(words, "Not a directory"));
    }
    if !record.flags().contains(InodeFlags::INDEX) {
        return Err(refuse(words, "Not a hash-indexed directory"));
    }
    let volume = shell.volume(words)?;
    let mut dump = Dump { volume, record: &record, lines: Vec::new(), hasher: None };
    let outcome = dump.whole();
    let lines = dump.lines;
    shell.print(lines)?;
    outcome.map_err(|why| failed(words, why, "reading the index"))
}

struct Dump<'d> {
    volume: &'d DebugVolume,
    record: &'d RawRecord,
    lines: Vec<u8>,
    hasher: Option<DirHasher>,
}

impl Dump<'_> {
    fn add(&mut self, line: impl AsRef<[u8]>) {
        self.lines.extend_from_slice(line.as_ref());
    }

    fn block(&self, logical: u64) -> Result<(u64, Vec<u8>), String> {
        let found = self.volume.map_block(self.record, logical).map_err(|it| it.to_string())?;
        let (physical, _) = found.ok_or_else(|| format!("block {logical} is missing"))?;
        let bytes = self.volume.block(BlockNo(physical)).map_err(|it| it.to_string())?;
        Ok((physical, bytes))
    }

    fn format(&self) -> HtreeFormat {
        let generation = self.record.base().i_generation.get();
        HtreeFormat::new(self.volume.geometry(), self.record.number, generation)
    }

    fn whole(&mut self) -> Result<(), String> {
        let (_, bytes) = self.block(0)?;
        let (raw, _) = RawHtreeRoot::read_from_prefix(&bytes).map_err(|_| "short block")?;
        self.add("Root node dump:\n");
        self.add(format!("\t Reserved zero: {}\n", raw.reserved_zero));
        self.add(format!("\t Hash Version: {}\n", raw.hash_version));
        self.add(format!("\t Info length: {}\n", raw.info_length));
        self.add(format!("\t Indirect levels: {}\n", raw.indirect_levels));
        self.add(format!("\t Flags: {}\n", raw.unused_flags));
        let superblock = Superblock::decode(self.volume.raw());
        let is_unsigned = superblock.flags.contains(SuperFlags::UNSIGNED_HASH);
        let version = HashVersion::decode(raw.hash_version);
        let version = version.map(|version| version.with_signedness(is_unsigned));
        self.hasher =
            version.and_then(|version| DirHasher::new(version, superblock.hash_seed).ok());
        let levels = raw.indirect_levels.min(MAX_LEVELS);
        self.node(&bytes, 0, IndexKind::Root, levels)
    }

    fn node(&mut self, bytes: &[u8], at: u64, kind: IndexKind, levels: u8) -> Result<(), String> {
        let format = self.format();
        let node =
            format.node(bytes, FileBlock(at), kind).map_err(|it: FormatError| it.to_string())?;
        self.add(format!("Number of entries (count): {}\n", node.count()));
        self.add(format!("Number of entries (limit): {}\n", node.limit));
        if self.volume.geometry().has_metadata_csum() {
            let start = match kind {
                IndexKind::Root => size_of::<RawHtreeRoot>(),
                IndexKind::Node => size_of::<RawDirEntry>(),
            };
            // After the entries: four bytes that are reserved, then the checksum.
            let sum = bytes.get(start + node.limit * 8 + 4..).and_then(|it| it.first_chunk());
            let sum = sum.map_or(0, |sum| u32::from_le_bytes(*sum));
            self.add(format!("Checksum: {sum:#010x}\n"));
        }
        let line = |index: usize| {
            let entry = node.entry(index)?;
            let hash = entry.hash | u32::from(entry.is_continuation);
            Some((format!("Entry #{index}: Hash {hash:#010x}, block {}\n", entry.block), entry))
        };
        for index in 0..node.count() {
            if let Some((line, _)) = line(index) {
                self.add(line);
            }
        }
        self.add("\n");
        for index in 0..node.count() {
            let Some((line, entry)) = line(index) else { break };
            self.add(line);
            match levels {
                0 => self.leaf(entry.block.0)?,
                _ => {
                    let (_, below) = self.block(entry.block.0)?;
                    self.node(&below, entry.block.0, IndexKind::Node, levels - 1)?;
                }
            }
        }
        self.add("---------------------\n");
        Ok(())
    }

    fn leaf(&mut self, logical: u64) -> Result<(), String> {
        let (physical, bytes) = self.block(logical)?;
        self.add(format!("Reading directory block {logical}, phys {physical}\n"));
        let walk = DirWalk { with_checksums: true, ..DirWalk::default() };
        let mut rows: Vec<Vec<u8>> = Vec::new();
        let hasher = self.hasher;
        let walked = self.volume.walk_dir_bytes(&bytes, walk, &mut |item| {
            rows.push(match item.checksum {
                Some(sum) => format!("leaf block checksum: {sum:#010x}  ").into_bytes(),
                None => {
                    let hash = hasher.as_ref().map(|hasher| hasher.hash(item.name));
                    let (major, minor) = hash.map_or((0, 0), |hash| (hash.hash, hash.minor));
                    let head =
                        format!("{} {major:#010x}-{minor:08x} ({}) ", item.inode, item.rec_len);
                    [head.as_bytes(), item.name, b"   "].concat()
                }
            });
            ControlFlow::Continue(())
        });
        let mut column = 0;
        for row in rows {
            if column > 0 && column + row.len() > WIDTH {
                self.add("\n");
                column = 0;
            }
            column += row.len();
            self.add(row);
        }
        self.add("\n");
        walked.map_err(|error| error.to_string())
    }
}
