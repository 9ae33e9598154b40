//! `inode_dump` and `block_dump`: bytes as they are stored.

use extant::debug::RawRecord;
use extant::rooms::ondisk::BlockNo;
use extant::rooms::ondisk::inode::GOOD_OLD_INODE_SIZE;
use extant::rooms::ondisk::xattr::{RawXattrEntry, RawXattrHeader, XATTR_MAGIC};
use zerocopy::FromBytes;

use super::options::Options;
use super::shell::{Done, Refusal, Shell, failed, refuse};
use super::words::{Word, number, text};

/// Bytes of a line.
const LINE: usize = 16;

/// Bytes as two-byte groups and characters, with their positions in octal; lines like the one
/// above them are `*`.
pub(super) fn dump(bytes: &[u8]) -> String {
    let mut lines = String::new();
    let mut before: Option<&[u8]> = None;
    let mut is_skipping = false;
    for (index, line) in bytes.chunks(LINE).enumerate() {
        if before.is_some_and(|before| before.starts_with(line)) {
            if !is_skipping {
                lines += "*\n";
            }
            is_skipping = true;
            continue;
        }
        is_skipping = false;
        before = Some(line);
        lines += &format!("{:04o}  ", index * LINE);
        for pair in 0..LINE / 2 {
            for at in [2 * pair, 2 * pair + 1] {
                lines += &match line.get(at) {
                    Some(byte) => format!("{byte:02x}"),
                    None => "  ".to_owned(),
                };
            }
            lines.push(' ');
        }
        lines.push(' ');
        let shown = |byte: &u8| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' };
        lines.extend(line.iter().map(shown));
        lines.push('\n');
    }
    lines + "\n"
}

pub(super) fn inode_dump(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "Usage: inode_dump [-b]|[-e] <file>";
    let options = Options::read(words, "bex", usage)?;
    let [spec] = options.operands[..] else {
        return Err(Refusal::Line(usage.to_owned()));
    };
    let record = shell.record_of(words, spec)?;
    let text = if options.has('b') {
        dump(&record.i_block())
    } else if options.has('e') {
        match space_of(&record) {
            [] => return Err(refuse(words, "No extra space in inode")),
            space => dump(space),
        }
    } else if options.has('x') {
        in_inode(space_of(&record))
    } else {
        dump(&record.bytes)
    };
    shell.print(text)
}

/// The space after the fields.
fn space_of(record: &RawRecord) -> &[u8] {
    let fields = usize::from(GOOD_OLD_INODE_SIZE) + record.extra_isize().unwrap_or(0);
    record.bytes.get(fields..).unwrap_or_default()
}

pub(super) fn block_dump(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "Usage: block_dump [-x] [-f inode] block_num";
    let options = Options::read(words, "xf:", usage)?;
    let [spec] = options.operands[..] else {
        return Err(Refusal::Line(usage.to_owned()));
    };
    shell.image(words)?;
    let wrong = || refuse(words, format_args!("Bad block - {}", text(spec)));
    let block = number(spec).ok_or_else(wrong)?;
    let block = match options.value('f') {
        Some(file) => {
            let record = shell.record_of(words, file)?;
            if record.is_inline() {
                let why = "No block for an inode with inline data";
                return Err(failed(words, why, format_args!("mapping logical block {block}")));
            }
            let found = shell.volume(words)?.map_block(&record, block);
            let found = found.map_err(|error| {
                failed(words, error, format_args!("mapping logical block {block}"))
            })?;
            found.map(|(block, _)| block)
        }
        None => Some(block),
    };
    let volume = shell.volume(words)?;
    let bytes = match block {
        Some(block) => volume
            .block(BlockNo(block))
            .map_err(|error| failed(words, error, format_args!("reading block {block}\n")))?,
        // A hole.
        None => vec![0; volume.geometry().block_len()],
    };
    let text = if options.has('x') { in_block(&bytes) } else { dump(&bytes) };
    shell.print(text)
}

fn in_inode(space: &[u8]) -> String {
    let magic = space.first_chunk().map_or(0, |magic| u32::from_le_bytes(*magic));
    let mut lines = format!("magic = {magic:08x}, length = {}, value_start =4 \n\n", space.len());
    if magic == XATTR_MAGIC {
        // Values count from the first entry, positions from the magic number.
        lines += &entries(space, 4, 4);
    }
    lines
}

fn in_block(block: &[u8]) -> String {
    let Ok((header, _)) = RawXattrHeader::read_from_prefix(block) else { return String::new() };
    let magic = header.h_magic.get();
    let mut lines = format!("magic = {magic:08x}, length = {}\n", block.len());
    if magic != XATTR_MAGIC {
        return lines;
    }
    lines += &format!(
        "refcount = {}, blocks = {}\nhash = {:08x}, checksum = {:08x}\n",
        header.h_refcount, header.h_blocks, header.h_hash, header.h_checksum
    );
    let reserved = header.h_reserved.map(|word| format!("{word:08x}"));
    lines += &format!("reserved: {}\n\n", reserved.join(" "));
    lines + &entries(block, size_of::<RawXattrHeader>(), 0)
}

/// The entries of a region; values begin `base` bytes after its start.
fn entries(region: &[u8], first: usize, base: usize) -> String {
    let mut lines = String::new();
    let mut at = first;
    while let Some(rest) = region.get(at..)
        && let Ok((entry, names)) = RawXattrEntry::read_from_prefix(rest)
        && rest.first_chunk::<4>().is_some_and(|word| *word != [0; 4])
    {
        let len = usize::from(entry.e_name_len);
        let (offset, size) = (entry.e_value_offs.get(), entry.e_value_size.get());
        lines += &format!(
            "offset = {at} ({at:04o}), hash = {}, name_len = {len}, name_index = {}\n\
             value_offset = {offset} ({:04o}), value_inum = {}, value_size = {size}\n",
            entry.e_hash,
            entry.e_name_index,
            usize::from(offset) + base,
            entry.e_value_inum,
        );
        let Some(name) = names.get(..len) else { break };
        lines += &format!("name = {}\n", text(name));
        if entry.e_value_inum.get() == 0 {
            let start = usize::from(offset).saturating_add(base);
            let end = start.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
            match region.get(start..end) {
                Some(value) if value.iter().all(|byte| (0x20..0x7f).contains(byte)) => {
                    lines += &format!("value = {}\n", text(value));
                }
                Some(value) => lines += &format!("value = <hexdump>\n{}\n", dump(value)),
                None => lines += "value crosses the end of the region\n",
            }
        }
        lines.push('\n');
        at += size_of::<RawXattrEntry>() + len.next_multiple_of(4);
    }
    lines + &format!("last entry found at offset {at} ({at:04o})\n")
}
