//! `extant setfattr` and `extant getfattr`: extended attributes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use extant::rooms::engine::XattrSet;
use extant::rooms::reader::{Follow, VolumeRead};

use regex::bytes::Regex;

use super::Operands;
use crate::failure::Failure;
use crate::output::printable;
use crate::say;
use crate::session::Session;
use crate::writable_image::{ChangedFiles, In, NoMatch};

/// Set and remove extended attributes
///
/// Symbolic links are not followed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Set the attribute of this name, such as user.comment
    #[arg(short = 'n', value_name = "NAME", required_unless_present = "remove")]
    name: Option<OsString>,
    /// Value: text, "text" with \ooo, \\ and \", 0x... in hexadecimal, 0s... in base64; empty by
    /// default
    #[arg(short = 'v', value_name = "VALUE", requires = "name", allow_hyphen_values = true)]
    value: Option<OsString>,
    /// Remove the attribute of this name
    #[arg(short = 'x', value_name = "NAME", conflicts_with = "name")]
    remove: Option<OsString>,
    #[command(flatten)]
    files: ChangedFiles,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let value = self.value.as_deref().map(OsStrExt::as_bytes).unwrap_or_default();
        let value = decoded(value)
            .ok_or_else(|| Failure::usage(format_args!("invalid value: '{}'", printable(value))))?;
        self.files.edit_each(NoMatch::Fails, session, |image, path, _| {
            match (&self.name, &self.remove) {
                (Some(name), _) => {
                    image.fs.set_xattr(path, name, &value, XattrSet::Any).within(image)
                }
                (None, Some(name)) => image.fs.remove_xattr(path, name).within(image),
                (None, None) => Ok(()),
            }
        })
    }
}

/// A value as setfattr(1) takes it.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => from_hex(digits),
        [b'0', b's' | b'S', letters @ ..] => from_base64(letters),
        [b'"', inner @ .., b'"'] => unescaped(inner),
        _ => unescaped(text),
    }
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<_> = digits.iter().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let digit = |byte: u8| (byte as char).to_digit(16);
    digits
        .chunks(2)
        .map(|pair| match pair {
            // Two digits of four bits.
            [high, low] => Some((digit(**high)? << 4 | digit(**low)?) as u8),
            _ => None,
        })
        .collect()
}

/// Base64 as in RFC 4648, with or without its padding.
fn from_base64(letters: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    let end = letters.iter().rposition(|letter| *letter != b'=').map_or(0, |at| at + 1);
    for letter in &letters[..end] {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Some(bytes)
}

/// `\\`, `\"` and `\ooo` stand for bytes.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest {
            [escaped @ (b'\\' | b'"'), after @ ..] => {
                bytes.push(*escaped);
                rest = after;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => bytes.push(b'\\'),
        }
    }
    Some(bytes)
}

/// Show extended attributes
///
/// The output has the format of getfattr(1).
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// Print the values too
    #[arg(short = 'd')]
    dump: bool,
    /// Print the attribute of this name, with its value
    #[arg(short = 'n', value_name = "NAME", conflicts_with = "pattern")]
    name: Option<OsString>,
    /// Print attributes whose names the regular expression matches, such as ^user; - is all of
    /// them, which is also the default
    #[arg(short = 'm', value_name = "PATTERN", allow_hyphen_values = true)]
    pattern: Option<String>,
    #[command(flatten)]
    operands: Operands,
}

impl GetArgs {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let pattern = match self.pattern.as_deref() {
            None | Some("-") => None,
            Some(text) => Some(Regex::new(text).map_err(|_| {
                Failure::usage(format_args!("-m {text}: invalid regular expression"))
            })?),
        };
        self.operands.each(session, |image, path, session| {
            let file = image.resolve(path, Follow::No)?;
            let failed = |error| image.failure(path, error);
            let names = match &self.name {
                Some(name) => vec![name.as_bytes().to_vec()],
                None => {
                    let found = image.volume.xattrs(file.number).map_err(failed)?;
                    let mut names: Vec<_> = found.into_iter().map(|info| info.name).collect();
                    names.retain(|name| pattern.as_ref().is_none_or(|it| it.is_match(name)));
                    names.sort();
                    names
                }
            };
            if names.is_empty() {
                return Ok(());
            }
            let mut lines = Vec::new();
            for name in names {
                let shown = printable(&name);
                if self.dump || self.name.is_some() {
                    let value = image.volume.xattr(file.number, &name).map_err(failed)?;
                    lines.push(format!("{shown}={}", encoded(&value)));
                } else {
                    lines.push(shown.to_string());
                }
            }
            say!(session, "# file: {}", image.place(path))?;
            for line in lines {
                say!(session, "{line}")?;
            }
            say!(session, "")
        })
    }
}

/// Text in quotes where it is text, else hexadecimal: what `setfattr -v` takes.
pub(super) fn encoded(value: &[u8]) -> String {
    let text = std::str::from_utf8(value).ok();
    if let Some(text) = text.filter(|text| !text.chars().any(char::is_control)) {
        return format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    }
    let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_setfattr_reads_them() {
        for (text, value) in [
            (&b"plain"[..], &b"plain"[..]),
            (b"\"quo\\\"ted\\101\"", b"quo\"tedA"),
            (b"0x0aFF", &[10, 255]),
            (b"0sSGVsbG8=", b"Hello"),
            (b"0sSGVsbG8", b"Hello"),
            (b"", b""),
        ] {
            assert_eq!(decoded(text).as_deref(), Some(value), "{}", text.escape_ascii());
        }
        for text in [&b"0x1"[..], b"0xzz", b"0s!"] {
            assert_eq!(decoded(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn values_are_shown_as_setfattr_takes_them() {
        assert_eq!(encoded(b"plain"), "\"plain\"");
        assert_eq!(encoded(b"a\0\xff"), "0x6100ff");
    }

    #[test]
    fn what_is_shown_can_be_set_again() {
        for value in [&b"text"[..], b"back\\slash \"", &[0, 1, 255], b"", "\u{e9}".as_bytes()] {
            assert_eq!(decoded(encoded(value).as_bytes()).as_deref(), Some(value));
        }
    }
}
