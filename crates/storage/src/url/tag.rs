//! `LABEL=NAME` and `UUID=...`: the block device whose file system has that label or UUID.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extant_device::block_devices;

use super::error::UrlError;

/// Where the superblock lies on a device, and how much of it is looked at.
const SUPERBLOCK_AT: u64 = 1024;
const LOOKED_AT: usize = 0x88;
/// `s_magic`, `s_uuid` and `s_volume_name` in the superblock.
const MAGIC_AT: usize = 0x38;
const UUID_AT: usize = 0x68;
const LABEL_AT: usize = 0x78;
const MAGIC: [u8; 2] = [0x53, 0xef];

/// The name of a file system.
#[derive(Debug, Eq, PartialEq)]
enum Tag<'a> {
    /// Up to 16 bytes.
    Label(&'a [u8]),
    Uuid([u8; 16]),
}

impl<'a> Tag<'a> {
    fn of(text: &'a OsStr) -> Option<Self> {
        let bytes = text.as_bytes();
        if let Some(label) = bytes.strip_prefix(b"LABEL=") {
            return Some(Self::Label(label)).filter(|_| !label.is_empty());
        }
        uuid(bytes.strip_prefix(b"UUID=")?).map(Self::Uuid)
    }

    /// Whether a superblock has it.
    fn is_in(&self, superblock: &[u8; LOOKED_AT]) -> bool {
        if superblock[MAGIC_AT..MAGIC_AT + 2] != MAGIC {
            return false;
        }
        match self {
            Self::Uuid(uuid) => superblock[UUID_AT..LABEL_AT] == uuid[..],
            Self::Label(label) => {
                let found = &superblock[LABEL_AT..];
                let end = found.iter().position(|byte| *byte == 0).unwrap_or(found.len());
                found[..end] == **label
            }
        }
    }
}

/// 32 hexadecimal digits with dashes between them.
fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.iter().copied().filter(|byte| *byte != b'-').collect();
    let digits = std::str::from_utf8(&digits).ok().filter(|digits| digits.len() == 32)?;
    u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
}

/// The device that such a name means; `None` where it is another name.
pub(super) fn device_of(text: &OsStr) -> Option<Result<PathBuf, UrlError>> {
    Tag::of(text).map(|tag| found(text, &tag, &block_devices::all()))
}

fn found(text: &OsStr, tag: &Tag<'_>, devices: &[PathBuf]) -> Result<PathBuf, UrlError> {
    let mut having = devices.iter().filter(|device| has(device, tag));
    match (having.next(), having.next()) {
        (Some(device), None) => Ok(device.clone()),
        (Some(one), Some(other)) => Err(UrlError::Ambiguous {
            text: text.to_owned(),
            one: one.clone(),
            other: other.clone(),
        }),
        (None, _) => Err(UrlError::NoSuchTag { text: text.to_owned() }),
    }
}

/// A device that cannot be read has no tag.
fn has(device: &Path, tag: &Tag<'_>) -> bool {
    let mut superblock = [0; LOOKED_AT];
    let read = block_devices::peek(device, SUPERBLOCK_AT, &mut superblock);
    read.is_ok() && tag.is_in(&superblock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_are_no_tags() {
        for text in ["disk.img", "LABEL", "LABEL=", "UUID=", "UUID=12", "./LABEL=root", "label=x"] {
            assert_eq!(Tag::of(OsStr::new(text)), None, "{text}");
        }
        assert_eq!(Tag::of(OsStr::new("LABEL=root")), Some(Tag::Label(b"root")));
        let text = "UUID=11111111-2222-3333-4444-55555555555A";
        let expected = 0x1111_1111_2222_3333_4444_5555_5555_555a_u128.to_be_bytes();
        assert_eq!(Tag::of(OsStr::new(text)), Some(Tag::Uuid(expected)));
    }

    #[test]
    fn a_label_is_compared_whole() {
        let mut superblock = [0; LOOKED_AT];
        superblock[MAGIC_AT..MAGIC_AT + 2].copy_from_slice(&MAGIC);
        superblock[LABEL_AT..LABEL_AT + 4].copy_from_slice(b"root");
        assert!(Tag::Label(b"root").is_in(&superblock));
        assert!(!Tag::Label(b"roo").is_in(&superblock));
        assert!(!Tag::Label(b"root2").is_in(&superblock));
        assert!(!Tag::Uuid([1; 16]).is_in(&superblock));
        superblock[MAGIC_AT] = 0;
        assert!(!Tag::Label(b"root").is_in(&superblock));
    }
}
