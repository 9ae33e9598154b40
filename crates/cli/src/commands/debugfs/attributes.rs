//! `ea_list` and `ea_get`: extended attributes.

use extant::Acl;
use extant::debug::{DebugError, DebugVolume, RawRecord, RawXattr};
use extant::rooms::ondisk::xattr::XattrName;

use super::host::host_error;
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
    let is_text = value.iter().all(is_printable);
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
    let wanted = XattrName::parse(name).ok_or(not_found.clone())?;
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
