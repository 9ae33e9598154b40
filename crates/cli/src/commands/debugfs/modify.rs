//! `modify_inode`, `expand_dir`, `undelete` and `set_mmp_value`: single structures, changed as they
//! are stored.

use std::io;
use std::mem::offset_of;

use extant::rooms::ondisk::mmp::{Mmp, RawMmp};
use zerocopy::IntoBytes;

use super::fields::{self, Kind};
use super::names;
use super::shell::{Done, Refusal, Shell, at_file, failed, refuse};
use super::words::{Word, number, text};
use crate::lines::next_line;

/// How a value is shown.
#[derive(Clone, Copy)]
enum Shown {
    Octal,
    Signed,
    Unsigned,
    Hexadecimal,
}

use Shown::{Hexadecimal, Octal, Signed, Unsigned};

/// The fields of an inode, in the order in which they are asked for: name, place, length.
const FIELDS: [(&str, usize, usize, Shown); 16] = [
    ("Mode", 0x00, 2, Octal),
    ("User ID", 0x02, 2, Unsigned),
    ("Group ID", 0x18, 2, Unsigned),
    ("Size", 0x04, 4, Unsigned),
    ("Creation time", 0x0c, 4, Signed),
    ("Modification time", 0x10, 4, Signed),
    ("Access time", 0x08, 4, Signed),
    ("Deletion time", 0x14, 4, Signed),
    ("Link count", 0x1a, 2, Unsigned),
    ("Block count high", 0x74, 2, Unsigned),
    ("Block count", 0x1c, 4, Unsigned),
    ("File flags", 0x20, 4, Hexadecimal),
    ("Generation", 0x64, 4, Hexadecimal),
    ("File acl", 0x68, 4, Signed),
    ("High 32bits of size", 0x6c, 4, Signed),
    ("Fragment address", 0x70, 4, Signed),
];
/// Where the map is.
const I_BLOCK: usize = 0x28;
/// Number of direct blocks in it.
const DIRECT: usize = 12;

/// The last three entries of a map.
const INDIRECT: [&str; 3] = ["Indirect Block", "Double Indirect Block", "Triple Indirect Block"];

/// An answer as strtol(3) reads it: blanks and a sign may come before the digits.
fn answer(line: &[u8]) -> Option<i64> {
    let digits = line.trim_ascii_start();
    let (is_negative, digits) = match digits {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        digits => (false, digits),
    };
    let value = i64::try_from(number(digits)?).ok()?;
    Some(if is_negative { -value } else { value })
}

pub(super) fn modify_inode(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, spec] = words else { return Err(refuse(words, "Usage: mi <file>")) };
    let image = shell.writable(words)?;
    let inode = image.inode_of(spec).map_err(|error| at_file(spec, error))?;
    let read = image.volume.inode(inode);
    let mut record = read.map_err(|error| {
        let doing = format!("reading inode {inode}");
        Refusal::Line(format!("{}: {error} while {doing}", text(spec)))
    })?;
    let direct = (0..DIRECT).map(|at| format!("Direct Block #{at}"));
    let map = direct.chain(INDIRECT.map(str::to_owned)).enumerate();
    let map = map.map(|(at, name)| (name, I_BLOCK + 4 * at, 4, Signed));
    let fields =
        FIELDS.iter().map(|(name, at, len, shown)| ((*name).to_owned(), *at, *len, *shown));
    let fields: Vec<_> = fields.chain(map).collect();
    let mut line = Vec::new();
    for (name, at, len, shown) in fields {
        let mut stored = [0; 4];
        stored[..len].copy_from_slice(record.bytes.get(at..at + len).unwrap_or_default());
        let value = u32::from_le_bytes(stored);
        let value = match shown {
            Octal => format!("0{value:o}"),
            Signed => format!("{}", value.cast_signed()),
            Unsigned => format!("{value}"),
            Hexadecimal => format!("0x{value:x}"),
        };
        shell.print(format!("{name:>30}    [{value}] "))?;
        shell.session.out.flush()?;
        // The end of the input leaves the other fields as they are.
        if !next_line(&mut io::stdin().lock(), &mut line)? || line.is_empty() {
            continue;
        }
        match answer(&line) {
            // A field takes the lower part, as theirs.
            Some(value) => record.set_bytes(at, &value.to_le_bytes()[..len]),
            None => {
                let why = format_args!("Bad value - {}", text(&line));
                shell.complain_and_go_on(refuse(words, why))?;
            }
        }
    }
    let image = shell.writable(words)?;
    let changed = image.change(|volume| volume.write_inode(&mut record));
    changed.map_err(|why| refuse(words, why))
}

pub(super) fn expand_dir(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, spec] = words else {
        let name = text(words.first().map_or(&[][..], |name| name));
        return Err(refuse(words, format_args!("Usage: {name} <file>")));
    };
    let image = shell.writable(words)?;
    let inode = image.inode_of(spec).map_err(|error| at_file(spec, error))?;
    let changed = image.change(|volume| {
        let mut record = volume.inode(inode)?;
        volume.expand_dir(&mut record)
    });
    // The blank is theirs.
    changed.map_err(|why| Refusal::Line(format!("ext2fs_expand_dir: {why} ")))
}

pub(super) fn undelete(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let (spec, target) = match words {
        [_, spec] => (spec, None),
        [_, spec, target] => (spec, Some(target)),
        _ => return Err(refuse(words, "Usage: undelete <inode_num> [dest_name]")),
    };
    let image = shell.writable(words)?;
    let inode = image.inode_of(spec).map_err(|error| at_file(spec, error))?;
    let read = image.volume.inode(inode);
    let mut record =
        read.map_err(|error| failed(words, error, format_args!("reading inode {inode}")))?;
    if record.base().i_links_count.get() > 0 {
        let why = "Inode is not marked as deleted";
        return Err(Refusal::Line(format!("{}: {why}", text(spec))));
    }
    let changed = image.change(|volume| volume.undelete(&mut record));
    changed.map_err(|why| refuse(words, why))?;
    match target {
        Some(target) => names::add_name(shell, words, (inode, spec), target),
        None => Ok(()),
    }
}

/// The fields of the block of multiple mount protection: name, type, place and length.
const MMP_FIELDS: [(&str, Kind, usize, usize); 7] = [
    ("magic", Kind::Number, offset_of!(RawMmp, mmp_magic), 4),
    ("seq", Kind::Number, offset_of!(RawMmp, mmp_seq), 4),
    ("time", Kind::Number, offset_of!(RawMmp, mmp_time), 8),
    ("nodename", Kind::Text, offset_of!(RawMmp, mmp_nodename), 64),
    ("bdevname", Kind::Text, offset_of!(RawMmp, mmp_bdevname), 32),
    ("check_interval", Kind::Number, offset_of!(RawMmp, mmp_check_interval), 2),
    ("checksum", Kind::Number, offset_of!(RawMmp, mmp_checksum), 4),
];

pub(super) fn set_mmp_value(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    if words.len() == 2 && words[1] == b"-l" {
        let mut lines = "MMP fields supported by the set_mmp_value command:\n".to_owned();
        lines += &format!("\t{:<25}\tunknown\n", "clear");
        for (name, kind, ..) in MMP_FIELDS {
            lines += &format!("\t{name:<25}\t{}\n", kind.name());
        }
        return shell.print(lines);
    }
    let (name, value) = match words {
        [_, name] if name == b"clear" => (name, &[][..]),
        [_, name, value] => (name, &value[..]),
        _ => {
            let hint = "\t\"set_mmp_value -l\" will list the names of MMP fields\n\
                        \twhich can be set.";
            let usage = format_args!("Usage: set_mmp_value <field> <value>\n{hint}");
            return Err(refuse(words, usage));
        }
    };
    let image = shell.writable(words)?;
    let now = u64::try_from(image.seconds()).unwrap_or_default();
    let Some(block) = image.volume.editor().mmp_block() else {
        return Err(refuse(words, "no MMP block allocated\n"));
    };
    let name = text(name);
    let field = MMP_FIELDS.iter().find(|field| field.0 == name);
    if field.is_none() && name != "clear" {
        return Err(refuse(words, format_args!("invalid field specifier: {name}")));
    }
    let bytes = match field {
        Some((name, Kind::Text, _, len)) => match value.len() <= *len {
            true => value.iter().copied().chain(std::iter::repeat(0)).take(*len).collect(),
            false => {
                let why = format!("Error maximum size for {name} is {len}.");
                return Err(Refusal::Line(why));
            }
        },
        Some((name, _, _, len)) => {
            let bits = 8 * *len as u32;
            let number = fields::number_of(value, name, bits).map_err(Refusal::Line)?;
            number.to_le_bytes()[..*len].to_vec()
        }
        None => Vec::new(),
    };
    let interval = image.volume.raw().s_mmp_interval.get();
    let changed = image.change(|volume| {
        let mut stored = volume.block(block)?;
        let mut raw = RawMmp::from_bytes(&stored, block)?;
        match field {
            Some((_, _, at, _)) => {
                raw.as_mut_bytes()[*at..*at + bytes.len()].copy_from_slice(&bytes);
            }
            None => Mmp::new(interval, now).encode_into(&mut raw),
        }
        if name != "checksum" {
            raw.seal(volume.geometry());
        }
        stored[..size_of::<RawMmp>()].copy_from_slice(raw.as_bytes());
        volume.write_block(block, &stored)
    });
    changed.map_err(|why| refuse(words, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `modify_inode` of debugfs 1.47.0 reads them.
    #[test]
    fn answers_are_those_of_strtol() {
        for (line, value) in [
            ("5", Some(5)),
            (" 7", Some(7)),
            ("-5", Some(-5)),
            ("+5", Some(5)),
            ("0100600", Some(0o100_600)),
            ("0x10", Some(16)),
            ("12x", None),
            ("0x10 ", None),
            ("q", None),
        ] {
            assert_eq!(answer(line.as_bytes()), value, "{line}");
        }
    }
}
