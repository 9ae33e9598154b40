//! `ea_list` and `ea_get`: extended attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use extant::debug::{DebugError, DebugVolume, RawRecord, RawXattr};
use extant::rooms::ondisk::xattr::{MAX_SUFFIX_LEN, NameIndex, XattrName};
use extant::{Acl, XattrSet};

use super::host::host_error;
use super::names::engine_text;
use super::options::Options;
use super::shell::{Done, Refusal, Shell, failed, refuse};
use super::words::{Word, text};

/// Values of this many bytes are not shown in lists.
const LONG: usize = 40;

/// How a value is shown.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Show {
    /// As text if it is text, else as numbers.
    Any,
    /// As numbers.
    Hexadecimal,
    /// As a string of C.
    C,
}

/// A value with its quotes, or byte by byte.
pub(super) fn value_text(value: &[u8], show: Show) -> String {
    let is_printable = |byte: &u8| (0x20..0x7f).contains(byte);
    // A text may have a few bytes that are not: a zero at its end, a line feed.
    let others = value.iter().filter(|byte| !is_printable(byte)).count();
    let is_text = others == 0 || others.saturating_mul(8) < value.len();
    if show == Show::Hexadecimal || show == Show::Any && !is_text {
        return value.iter().map(|byte| format!("{byte:02x} ")).collect();
    }
    let mut quoted = String::from("\"");
    for byte in value {
        match byte {
            b'\n' => quoted += "\\n",
            b'\r' => quoted += "\\r",
            b'\t' => quoted += "\\t",
            0x08 => quoted += "\\b",
            0x0c => quoted += "\\f",
            b'\\' => quoted += "\\\\",
            b'"' => quoted += "\\\"",
            byte if is_printable(byte) => quoted.push(char::from(*byte)),
            byte => quoted += &format!("\\{byte:03o}"),
        }
    }
    quoted + "\""
}

/// The list of attributes under its heading; empty without any.
pub(super) fn listing(xattrs: &[RawXattr]) -> Vec<u8> {
    let mut lines = Vec::new();
    if !xattrs.is_empty() {
        lines.extend_from_slice(b"Extended attributes:\n");
    }
    for xattr in xattrs {
        lines.extend_from_slice(b"  ");
        lines.extend(xattr.name());
        let len = xattr.value.len();
        lines.extend(format!(" ({len})").into_bytes());
        if (1..LONG).contains(&len) {
            lines.extend(format!(" = {}", value_text(&xattr.value, Show::Any)).into_bytes());
        }
        lines.push(b'\n');
    }
    lines
}

pub(super) fn ea_list(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let spec = shell.one_file(words, "ea_list <file>")?;
    let record = shell.record_of(words, spec)?;
    let found = shell.volume(words)?.xattrs(&record);
    let found = found.map_err(|error| failed(words, error, "reading extended attributes"))?;
    shell.print(listing(&found))
}

/// An access control list in the form that programs give the kernel; other values as they are.
/// `None` for a list that is damaged.
fn as_files_see_it(name: &[u8], value: Vec<u8>) -> Option<Vec<u8>> {
    if !is_acl(name) {
        return Some(value);
    }
    Some(Acl::decode_disk(&value).ok()??.encode_xattr())
}

fn is_acl(name: &[u8]) -> bool {
    [&b"system.posix_acl_access"[..], b"system.posix_acl_default"].contains(&name)
}

/// The stored value of an attribute.
fn value_of(volume: &DebugVolume, record: &RawRecord, name: &[u8]) -> Result<Vec<u8>, DebugError> {
    let not_found = DebugError::XattrNotFound;
    let wanted = stored_name(name).or_else(|| XattrName::parse(name)).ok_or(not_found.clone())?;
    let found = volume.xattrs(record)?.into_iter().find(|it| it.is(&wanted));
    Ok(found.ok_or(not_found)?.value)
}

pub(super) fn ea_get(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "ea_get: Usage: ea_get [-f outfile]|[-xVC] [-r] <file> <attr>";
    shell.image(words)?;
    let options = Options::read(words, "f:xVCr", usage)?;
    let [spec, name] = options.operands[..] else {
        return Err(Refusal::Line(usage.to_owned()));
    };
    let record = shell.record_of(words, spec)?;
    let value = value_of(shell.volume(words)?, &record, name)
        .map_err(|error| failed(words, error, "getting extended attribute"))?;
    let value = match options.has('r') {
        true => value,
        false => as_files_see_it(name, value)
            .ok_or_else(|| refuse(words, "Invalid argument while getting extended attribute"))?,
    };
    if let Some(path) = options.value('f') {
        return std::fs::write(text(path), &value).map_err(|error| {
            failed(words, host_error(&error), format_args!("writing {}", text(path)))
        });
    }
    if options.has('V') {
        return shell.print([&value[..], b"\n"].concat());
    }
    let show = match (options.has('x'), options.has('C')) {
        (true, _) => Show::Hexadecimal,
        (_, true) => Show::C,
        _ => Show::Any,
    };
    let len = value.len();
    let line = format!("{} ({len}) = {}\n\n", text(name), value_text(&value, show));
    shell.print(line)
}

/// A value with the escapes of C: `\n`, `\x41`, `\101`; of other characters it is the character.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            value.push(*byte);
            continue;
        }
        let digits = |from: &[u8], radix: u32, most: usize| {
            from.iter().take(most).take_while(|it| char::from(**it).is_digit(radix)).count()
        };
        let (octal, hexadecimal) = match rest {
            [b'x', digit @ ..] => (0, digits(digit, 16, 2)),
            _ => (digits(rest, 8, 3), 0),
        };
        let number = |digits: &[u8], radix: u32| {
            digits
                .iter()
                .fold(0_u32, |sum, it| sum * radix + char::from(*it).to_digit(radix).unwrap_or(0))
        };
        if octal > 0 {
            // Of a number above 255 the low bits are kept.
            value.push((number(&rest[..octal], 8) & 0xff) as u8);
            rest = &rest[octal..];
        } else if hexadecimal > 0 {
            value.push((number(&rest[1..=hexadecimal], 16) & 0xff) as u8);
            rest = &rest[1 + hexadecimal..];
        } else {
            let (letter, after) = rest.split_first().unwrap_or((&b'\\', &[]));
            rest = after;
            value.push(match letter {
                b'a' => 0x07,
                b'b' => 0x08,
                b'f' => 0x0c,
                b'n' => b'\n',
                b't' => b'\t',
                b'v' => 0x0b,
                letter => *letter,
            });
        }
    }
    value
}

/// How a name is stored that users cannot set: one without a prefix that has a number is stored
/// whole, as debugfs does.
fn stored_name(name: &[u8]) -> Option<XattrName> {
    match XattrName::parse(name) {
        Some(found) if found.index == NameIndex::SYSTEM && found != XattrName::inline_data() => {
            Some(found)
        }
        Some(_) => None,
        None => (1..=MAX_SUFFIX_LEN)
            .contains(&name.len())
            .then(|| XattrName { index: NameIndex(0), suffix: name.to_vec() }),
    }
}

pub(super) fn ea_set(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "ea_set: Usage: ea_set [-f infile] [-r] <file> <attr> <attr_value>";
    let options = Options::read(words, "f:r", usage)?;
    let (spec, name, value) = match (&options.operands[..], options.value('f')) {
        ([spec, name, value], None) => (*spec, *name, unescaped(value)),
        ([spec, name], Some(path)) => {
            let read = std::fs::read(OsStr::from_bytes(path));
            let doing = format!("opening {}", text(path));
            (*spec, *name, read.map_err(|error| failed(words, host_error(&error), doing))?)
        }
        _ => return Err(Refusal::Line(usage.to_owned())),
    };
    let doing = "setting extended attribute";
    let value = match options.has('r') && is_acl(name) {
        true => as_files_see_it(name, value)
            .ok_or_else(|| failed(words, DebugError::InvalidArgument, doing))?,
        false => value,
    };
    let (volume, inode) = shell.live_inode(words, spec)?;
    let set = match stored_name(name) {
        Some(name) => volume.set_stored_xattr(inode, &name, &value, XattrSet::Any),
        None => volume.set_xattr(inode, name, &value, XattrSet::Any),
    };
    set.map_err(|error| failed(words, engine_text(&error), doing))
}

pub(super) fn ea_rm(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, spec, names @ ..] = words else {
        return Err(refuse(words, "Usage: ea_rm <file> <attrs>..."));
    };
    if names.is_empty() {
        return Err(refuse(words, "Usage: ea_rm <file> <attrs>..."));
    }
    let image = shell.writable_live(words)?;
    // One that is not there is told before the engine opens the volume, which writes.
    if !image.is_live()
        && let Ok(inode) = image.inode_of(spec)
        && let Ok(held) = image.volume.inode(inode).and_then(|it| image.volume.xattrs(&it))
        && let Some(name) = names.first().filter(|name| held.iter().all(|it| it.name() != **name))
    {
        let doing = format!("removing extended attribute {}", text(name));
        return Err(failed(words, DebugError::XattrNotFound, doing));
    }
    let (volume, inode) = shell.live_inode(words, spec)?;
    for name in names {
        let removed = match stored_name(name) {
            Some(name) => volume.remove_stored_xattr(inode, &name),
            None => volume.remove_xattr(inode, name),
        };
        let doing = format!("removing extended attribute {}", text(name));
        removed.map_err(|error| failed(words, engine_text(&error), doing))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As debugfs 1.47.0 stores them (`ea_set`).
    #[test]
    fn values_have_the_escapes_of_c() {
        for (word, value) in [
            (r"a\tb", &b"a\tb"[..]),
            (r"a\\b", b"a\\b"),
            (r"a\101b", b"aAb"),
            (r"a\x41b", b"aAb"),
            (r"a\qb", b"aqb"),
            (r"a\1z", b"a\x01z"),
            (r"s0\000", b"s0\0"),
            (r"a\377b", b"a\xffb"),
            (r"a\400b", b"a\0b"),
            (r"a\b\f\v\a", b"a\x08\x0c\x0b\x07"),
            (r"a\", b"a\\"),
        ] {
            assert_eq!(unescaped(word.as_bytes()), value, "{word}");
        }
    }

    #[test]
    fn a_text_may_have_a_zero_at_its_end() {
        assert_eq!(value_text(b"xxxxxxxx\0", Show::Any), "\"xxxxxxxx\\000\"");
        assert_eq!(value_text(b"abc\0", Show::Any), "61 62 63 00 ");
        assert_eq!(value_text(b"", Show::C), "\"\"");
    }
}
