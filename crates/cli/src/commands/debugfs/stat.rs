//! `stat`: the fields of an inode, with its blocks.

use std::ops::ControlFlow;

use extant::InodeNo;
use extant::debug::{DebugVolume, MapStep, NodeKind, RawRecord};
use extant::rooms::ondisk::Geometry;
use extant::rooms::ondisk::inode::{DeviceNumber, FileType};
use extant::rooms::ondisk::time::Timestamp;

use super::attributes;
use super::shell::{Done, Shell};
use super::words::Word;
use crate::time;

/// Ends of fields after the first 128 bytes of a record.
const MTIME_EXTRA: usize = 12;
const CRTIME: usize = 24;
const VERSION_HI: usize = 28;
const PROJECT: usize = 32;
const CHECKSUM_HI: usize = 4;

pub(super) fn stat(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let spec = shell.one_file(words, "stat <file>")?;
    let number = shell.inode_of(words, spec)?;
    let record = shell.record(words, number)?;
    let text = describe(shell.volume(words)?, number, &record);
    shell.print(text)
}

fn describe(volume: &DebugVolume, number: InodeNo, record: &RawRecord) -> Vec<u8> {
    let geometry = volume.geometry();
    let mut text = fields(number, record, geometry, "").into_bytes();
    let xattrs = volume.xattrs(record).unwrap_or_default();
    text.extend(attributes::listing(&xattrs));
    text.extend(checksum_line(record, geometry).into_bytes());
    text.extend(contents(volume, record));
    text
}

/// The fields of a record in lines that begin with `prefix`.
fn fields(number: InodeNo, record: &RawRecord, geometry: &Geometry, prefix: &str) -> String {
    let base = record.base();
    let mut text = format!(
        "{prefix}Inode: {number}   Type: {}    {prefix}Mode:  0{:03o}   Flags: {:#x}\n",
        type_name(record),
        record.mode() & 0o7777,
        base.i_flags.get()
    );
    let version = base.i_version_lo.get();
    text += &format!("{prefix}Generation: {}    Version: ", base.i_generation.get());
    text += &match record.has_extra(VERSION_HI) {
        true => format!("{:#010x}:{version:08x}\n", record.extra().i_version_hi.get()),
        false => format!("{version:#010x}\n"),
    };
    text += &format!("{prefix}User: {:>5}   Group: {:>5}", record.uid(), record.gid());
    if record.has_extra(PROJECT) {
        text += &format!("   Project: {:>5}", record.extra().i_projid.get());
    }
    text += &format!("   Size: {}\n", record.size());
    text += &format!("{prefix}File ACL: {}\n", record.file_acl(geometry).0);
    let links = base.i_links_count.get();
    text += &format!("{prefix}Links: {links}   Blockcount: {}\n", record.blocks(geometry));
    let address = base.i_obso_faddr.get();
    text += &format!("{prefix}Fragment:  Address: {address}    Number: 0    Size: 0\n");
    text += &times(record, prefix);
    if let Some(size) = record.extra_isize() {
        text += &format!("Size of extra inode fields: {size}\n");
    }
    text
}

fn checksum_line(record: &RawRecord, geometry: &Geometry) -> String {
    match geometry.has_metadata_csum() {
        true => format!("Inode checksum: {:#010x}\n", checksum(record)),
        false => String::new(),
    }
}

/// An inode in a block of the log: its fields, and its map as numbers.
pub(super) fn logged(number: InodeNo, record: &RawRecord, geometry: &Geometry) -> String {
    let mut text = fields(number, record, geometry, "    ");
    text += &checksum_line(record, geometry);
    text += "    Blocks:  ";
    let numbers = record.i_block();
    let (direct, indirect) = numbers.split_at(4 * 12);
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    // Runs of numbers, also where they are those of an extent tree, as debugfs shows them.
    let mut runs: Vec<(usize, usize, u64)> = Vec::new();
    for (slot, block) in direct.chunks_exact(4).map(number).enumerate() {
        match runs.last_mut() {
            Some((_, len, start)) if *start + *len as u64 == block => *len += 1,
            _ => runs.push((slot, 1, block)),
        }
    }
    for (slot, len, block) in runs.into_iter().filter(|(.., block)| *block != 0) {
        text += &format!("({slot}+{len}): {block} ");
    }
    for (name, bytes) in ["IND", "DIND", "TIND"].iter().zip(indirect.chunks_exact(4)) {
        let block = number(bytes);
        if block != 0 {
            text += &format!("({name}): {block} ");
        }
    }
    text + "\n"
}

pub(super) fn type_name(record: &RawRecord) -> &'static str {
    match record.file_type() {
        Some(FileType::Regular) => "regular",
        Some(FileType::Directory) => "directory",
        Some(FileType::Symlink) => "symlink",
        Some(FileType::BlockDevice) => "block special",
        Some(FileType::CharDevice) => "character special",
        Some(FileType::Fifo) => "FIFO",
        Some(FileType::Socket) => "socket",
        None => "bad type",
    }
}

fn checksum(record: &RawRecord) -> u32 {
    let low = u32::from(record.base().i_checksum_lo.get());
    match record.has_extra(CHECKSUM_HI) {
        true => low | u32::from(record.extra().i_checksum_hi.get()) << 16,
        false => low,
    }
}

fn times(record: &RawRecord, prefix: &str) -> String {
    let (base, extra) = (record.base(), record.extra());
    let is_large = record.has_extra(MTIME_EXTRA);
    let line = |name: &str, low: u32, high: u32| {
        let stored = is_large.then_some(high);
        let moment = time::ctime(Timestamp::decode(low, stored).seconds);
        match is_large {
            true => format!("{prefix}{name:>6}: {low:#010x}:{high:08x} -- {moment}\n"),
            false => format!("{prefix}{name}: {low:#010x} -- {moment}\n"),
        }
    };
    let mut text = line("ctime", base.i_ctime.get(), extra.i_ctime_extra.get());
    text += &line("atime", base.i_atime.get(), extra.i_atime_extra.get());
    text += &line("mtime", base.i_mtime.get(), extra.i_mtime_extra.get());
    if record.has_extra(CRTIME) {
        text += &line("crtime", extra.i_crtime.get(), extra.i_crtime_extra.get());
    }
    let dtime = base.i_dtime.get();
    if dtime != 0 {
        let moment = time::ctime(i64::from(dtime));
        text += &match is_large {
            true => {
                // The bits above 32 are those of the time of change.
                let high = extra.i_ctime_extra.get();
                format!("{prefix}{:>6}: {dtime:#010x}:({high:08x}) -- {moment}\n", "dtime")
            }
            false => format!("{prefix}dtime: {dtime:#010x} -- {moment}\n"),
        };
    }
    text
}

/// The target of a symlink, the number of a device, or the blocks.
fn contents(volume: &DebugVolume, record: &RawRecord) -> Vec<u8> {
    let geometry = volume.geometry();
    match record.file_type() {
        Some(FileType::Symlink) if record.is_inline() || record.is_fast_symlink(geometry) => {
            let target = volume.link_target(record).unwrap_or_default();
            [b"Fast link dest: \"", &target[..], b"\"\n"].concat()
        }
        Some(FileType::BlockDevice | FileType::CharDevice) => device(record).into_bytes(),
        _ if record.is_inline() => {
            let size = volume.inline_data(record).map_or(0, |data| data.len());
            format!("Size of inline data: {size}\n").into_bytes()
        }
        _ => blocks(volume, record).into_bytes(),
    }
}

fn device(record: &RawRecord) -> String {
    let DeviceNumber { major, minor } = DeviceNumber::decode(&record.i_block());
    let is_new = record.i_block()[..4] == [0; 4];
    let kind = if is_new { "(New-style) " } else { "" };
    format!(
        "{kind}Device major/minor number: {major:02}:{minor:02} (hex {major:02x}:{minor:02x})\n"
    )
}

/// A list of runs with commas between them.
#[derive(Default)]
struct Runs {
    text: String,
    /// The run that may go on: first logical and physical block, length, unwritten.
    open: Option<(u64, u64, u64, bool)>,
    total: u64,
}

impl Runs {
    fn add(&mut self, item: &str) {
        if !self.text.is_empty() {
            self.text += ", ";
        }
        self.text += item;
    }

    fn close(&mut self) {
        let Some((logical, start, len, is_unwritten)) = self.open.take() else { return };
        let mark = if is_unwritten { "[u]" } else { "" };
        let item = match len {
            1 => format!("({logical}{mark}):{start}"),
            _ => {
                let (last, end) = (logical + len - 1, start.saturating_add(len - 1));
                format!("({logical}-{last}{mark}):{start}-{end}")
            }
        };
        self.add(&item);
    }

    fn node(&mut self, kind: NodeKind, at: u64) {
        self.close();
        self.total += 1;
        let name = match kind {
            NodeKind::Indirect(1) => "IND".to_owned(),
            NodeKind::Indirect(2) => "DIND".to_owned(),
            NodeKind::Indirect(_) => "TIND".to_owned(),
            NodeKind::Extents(level) => format!("ETB{level}"),
        };
        self.add(&format!("({name}):{at}"));
    }

    fn block(&mut self, logical: u64, start: u64) {
        self.total += 1;
        if let Some((first, at, len, _)) = &mut self.open
            && *first + *len == logical
            && *at + *len == start
        {
            *len += 1;
            return;
        }
        self.close();
        self.open = Some((logical, start, 1, false));
    }
}

fn blocks(volume: &DebugVolume, record: &RawRecord) -> String {
    let mut runs = Runs::default();
    let is_extents = record.is_extents();
    // A map that breaks off is shown up to there, as theirs.
    let _ = volume.walk_blocks(record, &mut |piece| {
        match piece {
            MapStep::Node { kind, at } => runs.node(kind, at),
            MapStep::Data { logical, start, len, is_unwritten } if is_extents => {
                runs.close();
                runs.open = Some((logical, start, len, is_unwritten)).filter(|_| len > 0);
                runs.total += len;
            }
            MapStep::Data { logical, start, .. } => runs.block(logical, start),
        }
        ControlFlow::Continue(())
    });
    runs.close();
    let heading = if is_extents { "EXTENTS:\n" } else { "BLOCKS:\n" };
    let mut text = heading.to_owned() + &runs.text;
    if is_extents {
        if !runs.text.is_empty() {
            text.push('\n');
        }
        return text;
    }
    if runs.total > 0 {
        text += &format!("\nTOTAL: {}\n", runs.total);
    }
    text + "\n"
}
