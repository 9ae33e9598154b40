//! `set_inode_field`, `kill_file`, `clri`, `copy_inode`, `seti`, `freei`, `setb`, `freeb` and
//! `zap_block`: inodes, bitmaps and blocks as they are stored.

use extant::InodeNo;
use extant::debug::{DebugError, RawRecord};
use extant::rooms::ondisk::BlockNo;
use extant::rooms::ondisk::time::Timestamp;

use super::bits::blocks_of;
use super::fields::{self, Kind};
use super::options::Options;
use super::shell::{Done, Refusal, Shell, at_file, failed, refuse};
use super::words::{Word, number, text};

/// A part of a field: its place in the record and its length in bytes.
#[derive(Clone, Copy)]
struct Part {
    at: usize,
    len: usize,
}

/// A field of an inode: the lower part, and the higher one where it is in two.
struct Field {
    name: &'static str,
    kind: Kind,
    low: Part,
    high: Option<Part>,
}

const fn number_field(name: &'static str, at: usize, len: usize) -> Field {
    Field { name, kind: Kind::Number, low: Part { at, len }, high: None }
}

const fn split_field(name: &'static str, low: (usize, usize), high: (usize, usize)) -> Field {
    let (low, high) = (Part { at: low.0, len: low.1 }, Part { at: high.0, len: high.1 });
    Field { name, kind: Kind::Number, low, high: Some(high) }
}

/// A time: its higher part has two bits of the seconds and the nanoseconds.
const fn time_field(name: &'static str, at: usize, extra: usize) -> Field {
    let (low, high) = (Part { at, len: 4 }, Part { at: extra, len: 4 });
    Field { name, kind: Kind::Time, low, high: Some(high) }
}

const FIELDS: [Field; 26] = [
    number_field("mode", 0x00, 2),
    split_field("uid", (0x02, 2), (0x78, 2)),
    split_field("size", (0x04, 4), (0x6c, 4)),
    time_field("atime", 0x08, 0x8c),
    time_field("ctime", 0x0c, 0x84),
    time_field("mtime", 0x10, 0x88),
    Field { name: "dtime", kind: Kind::Time, low: Part { at: 0x14, len: 4 }, high: None },
    split_field("gid", (0x18, 2), (0x7a, 2)),
    number_field("links_count", 0x1a, 2),
    split_field("blocks", (0x1c, 4), (0x74, 2)),
    number_field("flags", 0x20, 4),
    split_field("version", (0x24, 4), (0x98, 4)),
    number_field("translator", 0x24, 4),
    number_field("generation", 0x64, 4),
    split_field("file_acl", (0x68, 4), (0x76, 2)),
    number_field("faddr", 0x70, 4),
    number_field("frag", 0x74, 1),
    number_field("fsize", 0x75, 1),
    number_field("author", 0x7c, 4),
    number_field("extra_isize", 0x80, 2),
    number_field("ctime_extra", 0x84, 4),
    number_field("mtime_extra", 0x88, 4),
    number_field("atime_extra", 0x8c, 4),
    time_field("crtime", 0x90, 0x94),
    number_field("crtime_extra", 0x94, 4),
    number_field("projid", 0x9c, 4),
];

/// Where the fields of every inode end.
const BASE: usize = 128;
/// Where the map is.
const I_BLOCK: usize = 0x28;

fn list_fields() -> String {
    let mut lines = "Inode fields supported by the set_inode command:\n".to_owned();
    for field in &FIELDS {
        let name = match field.high {
            Some(_) => format!("{}[_hi|_lo]", field.name),
            None => field.name.to_owned(),
        };
        lines += &format!("\t{name:<25}\t{}\n", field.kind.name());
        if field.name == "translator" {
            for part in ["12", "IND", "DIND", "TIND"] {
                lines += &format!("\t{:<25}\tunsigned integer\n", format!("block[{part}]"));
            }
        }
        if field.name == "fsize" {
            lines += &format!("\t{:<25}\tunknown\n", "checksum[_hi|_lo]");
        }
    }
    lines + &format!("\t{:<25}\tset physical->logical block map\n", "bmap[]")
}

/// The bytes that a value changes in a record.
fn parts_of(name: &str, value: &[u8], now: i64) -> Result<Vec<(Part, u64)>, String> {
    let unknown = || format!("invalid field specifier: {name}");
    if let Some(index) = name.strip_prefix("block[").and_then(|rest| rest.strip_suffix(']')) {
        let index = match index {
            "IND" => Some(12),
            "DIND" => Some(13),
            "TIND" => Some(14),
            digits => digits.parse::<usize>().ok().filter(|it| *it < 12),
        };
        let at = I_BLOCK + 4 * index.ok_or_else(unknown)?;
        return Ok(vec![(Part { at, len: 4 }, fields::number_of(value, name, 32)?)]);
    }
    let (base, half) = match (name.strip_suffix("_lo"), name.strip_suffix("_hi")) {
        (Some(base), _) => (base, Some(false)),
        (_, Some(base)) => (base, Some(true)),
        _ => (name, None),
    };
    let field = FIELDS.iter().find(|field| field.name == base).ok_or_else(unknown)?;
    if half.is_some() && field.high.is_none() {
        return Err(unknown());
    }
    let bits = |part: Part| part.len as u32 * 8;
    match (half, field.high) {
        (Some(true), Some(high)) => Ok(vec![(high, fields::number_of(value, name, bits(high))?)]),
        (None, Some(high)) if field.kind == Kind::Time => {
            let seconds = fields::time_of(value, now);
            let seconds = seconds.ok_or_else(|| fields::unreadable(value, name))?;
            let (low, extra) = Timestamp::new(seconds, 0).encode(true);
            Ok(vec![(field.low, low.into()), (high, extra.into())])
        }
        (None, Some(high)) => {
            let (low_bits, high_bits) = (bits(field.low), bits(high));
            let number = fields::number_of(value, name, low_bits + high_bits)?;
            let low = number & ((1 << low_bits) - 1);
            Ok(vec![(field.low, low), (high, number >> low_bits)])
        }
        _ if field.kind == Kind::Time => {
            let seconds = fields::time_of(value, now);
            let seconds = seconds.ok_or_else(|| fields::unreadable(value, name))?;
            Ok(vec![(field.low, (seconds & 0xffff_ffff).cast_unsigned())])
        }
        _ => Ok(vec![(field.low, fields::number_of(value, name, bits(field.low))?)]),
    }
}

pub(super) fn set_inode_field(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    if words.len() == 2 && words[1] == b"-l" {
        return shell.print(list_fields());
    }
    let [_, spec, name, value] = words else {
        let hint = "\t\"set_inode_field -l\" will list the names of the fields in an ext2 inode\n\
                    \twhich can be set.";
        return Err(refuse(
            words,
            format_args!("Usage: set_inode <inode> <field> <value>\n{hint}"),
        ));
    };
    let image = shell.writable(words)?;
    let now = image.seconds();
    let name = text(name);
    if let Some(index) = name.strip_prefix("bmap[").and_then(|rest| rest.strip_suffix(']')) {
        let unknown = || refuse(words, format_args!("invalid field specifier: {name}"));
        let logical = number(index.as_bytes()).ok_or_else(unknown)?;
        let physical = fields::number_of(value, "bmap", 64).map_err(Refusal::Line)?;
        let inode = image.inode_of(spec).map_err(|error| at_file(spec, error))?;
        let changed = image.change(|volume| {
            let mut record = volume.inode(inode)?;
            volume.set_block(&mut record, logical, physical)
        });
        return changed
            .map_err(|why| Refusal::Line(format!("set_inode: {why} while setting block map")));
    }
    if let Some((_, part)) = CHECKSUM.iter().find(|(known, _)| *known == name) {
        return set_checksum(shell, words, spec, (*part, value));
    }
    let parts = parts_of(&name, value, now).map_err(|why| match why.starts_with("invalid") {
        true => refuse(words, why),
        false => Refusal::Line(why),
    })?;
    let inode = image.inode_of(spec).map_err(|error| at_file(spec, error))?;
    let changed = image.change(|volume| {
        let mut record = volume.inode_unverified(inode)?;
        for (part, value) in &parts {
            let is_there = part.at + part.len <= BASE || record.extra_isize().is_some();
            if !is_there || part.at + part.len > record.bytes.len() {
                // The higher part of a time that the record has no room for.
                continue;
            }
            record.set_bytes(part.at, &value.to_le_bytes()[..part.len]);
        }
        volume.write_inode(&mut record)
    });
    changed.map_err(|why| refuse(words, why))
}

/// The halves of an inode's checksum, and both of them.
const CHECKSUM: [(&str, (u32, u32)); 3] =
    [("checksum", (0, 32)), ("checksum_lo", (0, 16)), ("checksum_hi", (16, 16))];
/// Where the halves are: in the first part of the record, and in the fields after it.
const CHECKSUM_AT: (usize, usize) = (0x7c, 0x82);

/// Stores a checksum, right or wrong; `calc` stores the right one and shows it.
fn set_checksum(
    shell: &mut Shell<'_>,
    words: &[Word],
    spec: &[u8],
    ((shift, bits), value): ((u32, u32), &[u8]),
) -> Done {
    let image = shell.writable(words)?;
    let is_right = value == b"calc";
    let value = match is_right {
        true => 0,
        false => fields::number_of(value, "checksum", bits).map_err(Refusal::Line)?,
    };
    let inode = image.inode_of(spec).map_err(|error| at_file(spec, error))?;
    let changed = image.change(|volume| {
        let mut record = volume.inode_unverified(inode)?;
        if is_right {
            volume.write_inode(&mut record)?;
        } else {
            for half in 0..bits / 16 {
                let at = if shift + 16 * half == 0 { CHECKSUM_AT.0 } else { CHECKSUM_AT.1 };
                if at + 2 <= BASE || record.has_extra(at + 2 - BASE) {
                    record.set_bytes(at, &(value >> (16 * half)).to_le_bytes()[..2]);
                }
            }
            volume.write_inode_unsealed(&record)?;
        }
        let part = |at: usize| {
            let stored = record.bytes.get(at..at + 2).unwrap_or(&[0; 2]);
            u32::from(u16::from_le_bytes([stored[0], stored[1]]))
        };
        Ok(part(CHECKSUM_AT.0) | part(CHECKSUM_AT.1) << 16)
    });
    let stored = changed.map_err(|why| refuse(words, why))?;
    match is_right {
        true => shell.print(format!("Checksum set to {stored:#010x}\n")),
        false => Ok(()),
    }
}

pub(super) fn kill_file(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, spec] = words else { return Err(refuse(words, "Usage: kill_file <file>")) };
    let image = shell.writable(words)?;
    let inode = image.inode_of(spec).map_err(|error| at_file(spec, error))?;
    let now = (image.seconds() & 0xffff_ffff) as u32;
    let killed = image.change(|volume| {
        let mut record = volume.inode(inode)?;
        volume.kill_inode(&mut record, now)
    });
    killed.map_err(|why| refuse(words, why))?;
    // As theirs.
    shell.print("\n")
}

pub(super) fn clri(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, spec] = words else { return Err(refuse(words, "Usage: clri <file>")) };
    let image = shell.writable(words)?;
    let inode = image.inode_of(spec).map_err(|error| at_file(spec, error))?;
    let changed = image.change(|volume| {
        // As theirs: the fields that every inode has.
        let mut record = volume.inode_unverified(inode)?;
        record.set_bytes(0, &[0; BASE]);
        volume.write_inode(&mut record)
    });
    changed.map_err(|why| refuse(words, why))
}

pub(super) fn copy_inode(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, source, target] = words else {
        return Err(refuse(words, "Usage: copy_inode <source file> <dest_name>"));
    };
    let image = shell.writable(words)?;
    let find = |spec: &Word| image.inode_of(spec).map_err(|error| at_file(spec, error));
    let (source, target) = (find(source)?, find(target)?);
    let changed = image.change(|volume| {
        let record = volume.inode(source)?;
        volume.write_inode(&mut RawRecord::new(target, record.bytes))
    });
    changed.map_err(|why| refuse(words, why))
}

/// `seti` and `freei`.
fn mark_inodes(shell: &mut Shell<'_>, words: &[Word], is_used: bool) -> Done {
    let (spec, count) = match words {
        [_, spec] => (spec, 1),
        [_, spec, count] => {
            let wrong = || refuse(words, format_args!("Bad count - {}", text(count)));
            (spec, number(count).and_then(|it| u32::try_from(it).ok()).ok_or_else(wrong)?)
        }
        _ => {
            let name = text(&words[0]);
            return Err(refuse(words, format_args!("Usage: {name} <file> [num]")));
        }
    };
    let image = shell.writable(words)?;
    let first = image.inode_of(spec).map_err(|error| at_file(spec, error))?;
    let all = image.volume.geometry().inodes_count;
    let last = first.0.checked_add(count).filter(|end| end - 1 <= all);
    let last = last.ok_or_else(|| refuse(words, format_args!("Bad inode number")))?;
    let changed = image.change(|volume| {
        let mut as_before = Vec::new();
        for inode in first.0..last {
            if volume.mark_inode(InodeNo(inode), is_used)? {
                as_before.push(inode);
            }
        }
        Ok::<_, DebugError>(as_before)
    });
    let state = if is_used { "set" } else { "clear" };
    for inode in changed.map_err(|why| refuse(words, why))? {
        // As theirs: a warning, and no failure.
        shell.session.warn(format_args!("inode {inode} already {state}"))?;
    }
    Ok(())
}

pub(super) fn seti(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    mark_inodes(shell, words, true)
}

pub(super) fn freei(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    mark_inodes(shell, words, false)
}

/// `setb` and `freeb`.
fn mark_blocks(shell: &mut Shell<'_>, words: &[Word], is_used: bool) -> Done {
    shell.writable(words)?;
    let (first, count) = blocks_of(words, "<block> [count]")?;
    let image = shell.writable(words)?;
    let end = image.volume.geometry().blocks_count;
    let inside = end.saturating_sub(first).min(count);
    let outside = count - inside;
    if outside > MANY {
        return Err(refuse(words, "too many blocks past the end of the volume"));
    }
    let changed = match inside {
        0 => Ok(Vec::new()),
        inside => image.change(|volume| volume.mark_blocks(first, inside, is_used)),
    };
    let state = if is_used { "set" } else { "clear" };
    let name = text(&words[0]);
    shell.session.out.flush()?;
    for block in changed.map_err(|why| refuse(words, why))? {
        // As theirs: a warning, and no failure.
        crate::err_line!("{name}: Warning: block {block} already {state}");
    }
    let volume = shell.name().display().to_string();
    let wrong = |function: &str, block: u64| {
        let what = format!("ext2fs_{function}_block_bitmap #{block} for block bitmap for {volume}");
        format!("Illegal block number passed to {what}")
    };
    let from = first.saturating_add(inside);
    for block in from..from.saturating_add(outside) {
        let tested = wrong("test", block);
        let lines = match is_used {
            true => format!("{tested}\n{}", wrong("mark", block)),
            false => {
                let warning = format!("{name}: Warning: block {block} already {state}");
                format!("{tested}\n{warning}\n{}", wrong("unmark", block))
            }
        };
        shell.complain_and_go_on(Refusal::Line(lines))?;
    }
    Ok(())
}

/// Blocks past the end of the volume that are still told one by one.
const MANY: u64 = 1 << 10;

pub(super) fn setb(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    mark_blocks(shell, words, true)
}

pub(super) fn freeb(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    mark_blocks(shell, words, false)
}

pub(super) fn zap_block(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage =
        "zap_block: Usage: zap_block [-f inode] [-l len] [-o offset] [-p pattern] block_num";
    let options = Options::read(words, "f:l:o:p:b:", usage)?;
    let [spec] = options.operands[..] else {
        return Err(Refusal::Line(usage.to_owned()));
    };
    shell.writable(words)?;
    let part = |letter: char, name: &str| match options.value(letter) {
        Some(word) => number(word)
            .and_then(|it| usize::try_from(it).ok())
            .map(Some)
            .ok_or_else(|| refuse(words, format_args!("Bad {name} - {}", text(word)))),
        None => Ok(None),
    };
    let (offset, len) = (part('o', "offset")?, part('l', "length")?);
    let (pattern, bit) = (part('p', "pattern")?, part('b', "bit")?);
    let wrong = || refuse(words, format_args!("Bad block - {}", text(spec)));
    let block = number(spec).ok_or_else(wrong)?;
    let block = match options.value('f') {
        Some(file) => {
            let record = shell.record_of(words, file)?;
            let found = shell.volume(words)?.map_block(&record, block);
            let doing = format!("mapping logical block {block}");
            let found = found.map_err(|error| failed(words, error, &doing))?;
            found.ok_or_else(|| refuse(words, "the block is a hole"))?.0
        }
        None => block,
    };
    let image = shell.writable(words)?;
    let size = image.volume.geometry().block_len();
    let from = offset.unwrap_or(0);
    let end = from.saturating_add(len.unwrap_or(size.saturating_sub(from)));
    if from >= size || end > size || bit.is_some_and(|bit| bit / 8 >= size) {
        return Err(refuse(words, "the range is not within a block"));
    }
    let pattern = u8::try_from(pattern.unwrap_or(0))
        .map_err(|_| refuse(words, "the pattern is more than a byte"))?;
    let changed = image.change(|volume| {
        let mut bytes = volume.block(BlockNo(block))?;
        match bit {
            Some(bit) => bytes[bit / 8] ^= 1 << (bit % 8),
            None => bytes[from..end].fill(pattern),
        }
        volume.write_block(BlockNo(block), &bytes)
    });
    changed.map_err(|why| refuse(words, why))
}
