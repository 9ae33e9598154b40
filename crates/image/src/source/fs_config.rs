//! Android's list of owners, modes and capabilities: `fs_config` in its text form, as AOSP's
//! `fs_config` program prints it and `mke2fs`'s companion `e2fsdroid -C` reads it.
//!
//! A line is `PATH UID GID MODE [capabilities=MASK] [selabel=LABEL]`: numbers are decimal, the mode
//! octal, the mask as in C. A line that begins with a blank has an empty path, the root.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::error::SourceError;
use super::lines;

/// `VFS_CAP_REVISION_2` with `VFS_CAP_FLAGS_EFFECTIVE`: the first number of the attribute.
const CAPABILITY_HEADER: u32 = 0x0200_0001;

/// Attributes that a line gives to its path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Config {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Permission bits, with set-id and sticky.
    pub(super) mode: u16,
    /// `Some(0)`: the file has none.
    pub(super) capabilities: Option<u64>,
    /// With the NUL at its end.
    pub(super) label: Option<Box<[u8]>>,
    /// Number of the line.
    pub(super) line: usize,
}

/// The lines of a file, by paths without slashes at their ends.
#[derive(Debug)]
pub(super) struct FsConfig {
    pub(super) file: PathBuf,
    entries: HashMap<Vec<u8>, Config>,
}

impl FsConfig {
    pub(super) fn read(file: &Path) -> Result<Self, SourceError> {
        let text = lines::read(file)?;
        let mut entries = HashMap::new();
        for (number, line) in lines::numbered(&text) {
            let (path, config) =
                parse(number, line).map_err(|why| lines::broken(file, number, why))?;
            let other = entries.insert(path, config.clone()).map(|config| config.line);
            if let Some(other) = other {
                let why = format!("the path of line {other} again");
                return Err(lines::broken(file, number, why));
            }
        }
        Ok(Self { file: file.to_owned(), entries })
    }

    /// The line of a path that begins with a slash.
    pub(super) fn get(&self, path: &[u8]) -> Option<&Config> {
        self.entries.get(trimmed(path))
    }

    /// Paths and lines, in the order of the file.
    pub(super) fn in_order(&self) -> Vec<(&[u8], &Config)> {
        let mut all: Vec<_> = self.entries.iter().map(|(path, it)| (&path[..], it)).collect();
        all.sort_unstable_by_key(|(_, config)| config.line);
        all
    }
}

/// Without slashes at both ends.
pub(super) fn trimmed(path: &[u8]) -> &[u8] {
    let Some(start) = path.iter().position(|&byte| byte != b'/') else { return b"" };
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(start, |last| last + 1);
    &path[start..end]
}

fn parse(number: usize, line: &[u8]) -> Result<(Vec<u8>, Config), String> {
    let mut fields = lines::fields(line);
    if line.first().is_some_and(u8::is_ascii_whitespace) {
        fields.insert(0, b"");
    }
    let [path, uid, gid, mode, further @ ..] = &fields[..] else {
        return Err(format!("{} fields instead of PATH UID GID MODE", fields.len()));
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let id = |name: &str, field: &[u8]| {
        let id = text(field).parse::<u32>().ok().filter(|id| *id != u32::MAX);
        id.ok_or_else(|| format!("invalid {name} {}", field.escape_ascii()))
    };
    let is_octal = mode.iter().all(|byte| (b'0'..=b'7').contains(byte));
    let bits = u16::from_str_radix(&text(mode), 8).ok().filter(|mode| *mode <= 0o7777 && is_octal);
    let mut config = Config {
        uid: id("UID", uid)?,
        gid: id("GID", gid)?,
        mode: bits.ok_or_else(|| format!("invalid mode {}", mode.escape_ascii()))?,
        capabilities: None,
        label: None,
        line: number,
    };
    for field in further {
        if let Some(mask) = field.strip_prefix(b"capabilities=") {
            let mask = c_number(&text(mask));
            config.capabilities =
                Some(mask.ok_or_else(|| format!("invalid capabilities {}", field.escape_ascii()))?);
        } else if let Some(label) = field.strip_prefix(b"selabel=") {
            config.label = Some(lines::label(label)?);
        } else {
            return Err(format!("unknown field {}", field.escape_ascii()));
        }
    }
    Ok((trimmed(path).to_vec(), config))
}

/// As strtoull reads it: 0x and a hexadecimal number, 0 and an octal one, or a decimal one.
fn c_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, radix).ok().filter(|_| is_number)
}

/// The value of `security.capability`: these are permitted and effective, none is inheritable.
pub(super) fn capability_value(mask: u64) -> [u8; 20] {
    let mut value = [0; 20];
    value[..4].copy_from_slice(&CAPABILITY_HEADER.to_le_bytes());
    value[4..8].copy_from_slice(&(mask as u32).to_le_bytes());
    value[12..16].copy_from_slice(&((mask >> 32) as u32).to_le_bytes());
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_printed() {
        let line = b"/system/bin/run 0 2000 0750 capabilities=0xc0 selabel=u:object_r:run:s0";
        let (path, config) = parse(3, line).unwrap();
        assert_eq!(path, b"system/bin/run");
        let label = Some(b"u:object_r:run:s0\0"[..].into());
        let capabilities = Some(0xc0);
        assert_eq!(config, Config { uid: 0, gid: 2000, mode: 0o750, capabilities, label, line: 3 });
        let (path, config) = parse(1, b" 0 0 755").unwrap();
        assert_eq!((&path[..], config.mode, config.capabilities), (&b""[..], 0o755, None));
    }

    #[test]
    fn lines_of_another_form_are_refused() {
        for line in [
            "a",
            "a 0 0",
            "a x 0 755",
            "a 0 4294967295 755",
            "a 0 0 788",
            "a 0 0 10000",
            "a 0 0 +7",
            "a 0 0 755 caps=1",
            "a 0 0 755 capabilities=",
            "a 0 0 755 capabilities=0xg",
            "a 0 0 755 capabilities=-1",
            "a 0 0 755 selabel=u",
            " a 0 0 755",
        ] {
            assert!(parse(1, line.as_bytes()).is_err(), "{line}");
        }
    }
}
