//! The attribute `user.containers.override_stat`, in which containers of ordinary users keep what
//! owner, mode and type a file has in the container.
//!
//! The value is `UID:GID:MODE[:TYPE]`: the IDs decimal, the mode octal, with or without the bits of
//! the type. TYPE is `file`, `dir`, `symlink`, `pipe`, `socket`, `block-MAJOR-MINOR` or
//! `char-MAJOR-MINOR` (containers-storage.conf(5), libkrun; what fuse-overlayfs writes).

use rustix::fs::{FileType, Stat, makedev};

use super::error::Flaw;
use super::faked_type::set_mode;

/// The attribute's name.
pub(super) const NAME: &[u8] = b"user.containers.override_stat";

/// Changes the attributes of a file into those of the value.
pub(super) fn apply(value: &[u8], stat: &mut Stat) -> Result<(), Flaw> {
    let record = Record::parse(value).ok_or(Flaw::OverrideStat)?;
    let permissions = record.mode & 0o7777;
    let mode = match record.file_type {
        Some(file_type) => file_type.as_raw_mode() | permissions,
        None => stat.st_mode & !0o7777 | permissions,
    };
    set_mode(stat, mode, "user.containers.override_stat")?;
    (stat.st_uid, stat.st_gid) = (record.uid, record.gid);
    if let Some((major, minor)) = record.device {
        stat.st_rdev = makedev(major, minor);
    }
    Ok(())
}

#[derive(Debug, Eq, PartialEq)]
struct Record {
    uid: u32,
    gid: u32,
    mode: u32,
    /// `None` where it is the file's own.
    file_type: Option<FileType>,
    device: Option<(u32, u32)>,
}

impl Record {
    fn parse(value: &[u8]) -> Option<Self> {
        let text = str::from_utf8(value).ok()?;
        let mut fields = text.split(':');
        let (uid, gid) = (number(fields.next()?, 10)?, number(fields.next()?, 10)?);
        let mode = number(fields.next()?, 8).filter(|mode| *mode <= 0o177_777)?;
        let by_mode = (mode > 0o7777).then(|| FileType::from_raw_mode(mode));
        let (file_type, device) = match fields.next() {
            Some(name) => {
                let (file_type, device) = named_type(name)?;
                if by_mode.is_some_and(|by_mode| by_mode != file_type) {
                    return None;
                }
                (Some(file_type), device)
            }
            // The numbers of a device are needed.
            None if matches!(by_mode, Some(FileType::BlockDevice | FileType::CharacterDevice)) => {
                return None;
            }
            None => (by_mode, None),
        };
        let is_whole = fields.next().is_none() && file_type != Some(FileType::Unknown);
        is_whole.then_some(Self { uid, gid, mode, file_type, device })
    }
}

fn named_type(name: &str) -> Option<(FileType, Option<(u32, u32)>)> {
    let mut parts = name.split('-');
    let file_type = match parts.next()? {
        "file" => FileType::RegularFile,
        "dir" => FileType::Directory,
        "symlink" => FileType::Symlink,
        "pipe" => FileType::Fifo,
        "socket" => FileType::Socket,
        "block" => FileType::BlockDevice,
        "char" => FileType::CharacterDevice,
        _ => return None,
    };
    let device = match file_type {
        FileType::BlockDevice | FileType::CharacterDevice => {
            Some((number(parts.next()?, 10)?, number(parts.next()?, 10)?))
        }
        _ => None,
    };
    parts.next().is_none().then_some((file_type, device))
}

/// Digits alone: no sign.
fn number(text: &str, radix: u32) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    u32::from_str_radix(text, radix).ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_programs_write_them() {
        let record = |mode, file_type, device| Record { uid: 0, gid: 7, mode, file_type, device };
        for (value, expected) in [
            ("0:7:0555", record(0o555, None, None)),
            ("0:7:4755", record(0o4755, None, None)),
            ("0:7:0100755", record(0o100_755, Some(FileType::RegularFile), None)),
            ("0:7:0755:dir", record(0o755, Some(FileType::Directory), None)),
            ("0:7:0600:block-8-17", record(0o600, Some(FileType::BlockDevice), Some((8, 17)))),
            ("0:7:0666:char-1-3", record(0o666, Some(FileType::CharacterDevice), Some((1, 3)))),
            ("0:7:0644:pipe", record(0o644, Some(FileType::Fifo), None)),
        ] {
            assert_eq!(Record::parse(value.as_bytes()), Some(expected), "{value}");
        }
    }

    #[test]
    fn other_values_are_invalid() {
        for value in [
            "",
            "0:0",
            "0:0:",
            "-1:0:755",
            "0:+1:755",
            "0:4294967296:755",
            "0:0:789",
            "0:0:755:",
            "0:0:755:door",
            "0:0:755:dir-1",
            "0:0:755:char-1",
            "0:0:755:char-1-3-5",
            "0:0:755:dir:",
            "0:0:0020666",
            "0:0:0170666",
            "0:0:0200755",
            "0:0:0100755:dir",
        ] {
            assert_eq!(Record::parse(value.as_bytes()), None, "{value}");
        }
        assert_eq!(Record::parse(b"0:0:755\xff"), None);
    }
}
