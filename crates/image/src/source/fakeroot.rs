//! The database of fakeroot(1), which `fakeroot -s FILE` writes: owner, mode, type and device
//! number of files, by device and inode number on the host.
//!
//! A line is `dev=fe00,ino=12,mode=100644,uid=0,gid=0,nlink=1,rdev=0`: the device is hexadecimal,
//! the mode octal, all else decimal (observed with fakeroot 1.31).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::Stat;

use super::error::{EntryName, Flaw, SourceError};
use super::faked_type::set_mode;
use super::lines;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Record {
    mode: u32,
    uid: u32,
    gid: u32,
    rdev: u64,
}

/// The files of a database.
#[derive(Debug)]
pub(super) struct Fakeroot {
    file: PathBuf,
    records: HashMap<(u64, u64), Record>,
    is_used: AtomicBool,
}

impl Fakeroot {
    pub(super) fn read(file: &Path) -> Result<Self, SourceError> {
        let text = lines::read(file)?;
        let mut records = HashMap::new();
        for (number, line) in lines::numbered(&text) {
            let (id, record) = parse(line).map_err(|why| lines::broken(file, number, why))?;
            records.insert(id, record);
        }
        Ok(Self { file: file.to_owned(), records, is_used: AtomicBool::new(false) })
    }

    /// Changes the attributes of a file into those that it has under fakeroot, where files that are
    /// not in the database belong to root.
    pub(super) fn apply(&self, stat: &mut Stat) -> Result<(), Flaw> {
        let Some(record) = self.records.get(&(stat.st_dev, stat.st_ino)) else {
            (stat.st_uid, stat.st_gid) = (0, 0);
            return Ok(());
        };
        self.is_used.store(true, Ordering::Relaxed);
        set_mode(stat, record.mode, "the fakeroot database")?;
        (stat.st_uid, stat.st_gid, stat.st_rdev) = (record.uid, record.gid, record.rdev);
        Ok(())
    }

    /// A warning if no file was in the database.
    pub(super) fn warning(&self) -> Option<String> {
        let is_unused = !self.records.is_empty() && !self.is_used.load(Ordering::Relaxed);
        let file = EntryName::from(self.file.as_path());
        is_unused.then(|| {
            format!("{file}: no file of the sources is in the database: they may be copies")
        })
    }
}

fn parse(line: &[u8]) -> Result<((u64, u64), Record), String> {
    const KEYS: [(&str, u32); 7] = [
        ("dev", 16),
        ("ino", 10),
        ("mode", 8),
        ("uid", 10),
        ("gid", 10),
        ("nlink", 10),
        ("rdev", 10),
    ];
    let text = String::from_utf8_lossy(line);
    let mut values = [None; KEYS.len()];
    for field in text.trim_ascii().split(',') {
        let invalid = || format!("invalid field {field}");
        let (key, value) = field.split_once('=').ok_or_else(invalid)?;
        let at = KEYS.iter().position(|(known, _)| *known == key).ok_or_else(invalid)?;
        let is_number = value.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u64::from_str_radix(value, KEYS[at].1).ok().filter(|_| is_number);
        values[at] = Some(value.ok_or_else(invalid)?);
    }
    let value = |at: usize| values[at].ok_or_else(|| format!("no field {}", KEYS[at].0));
    let small = |at: usize| {
        let value = value(at)?;
        u32::try_from(value).map_err(|_| format!("invalid field {}={value}", KEYS[at].0))
    };
    value(5)?;
    let mode = small(2)?;
    if mode > 0o177_777 {
        return Err(format!("invalid field mode={mode:o}"));
    }
    let record = Record { mode, uid: small(3)?, gid: small(4)?, rdev: value(6)? };
    Ok(((value(0)?, value(1)?), record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_fakeroot_writes_them() {
        let line = b"dev=fe00,ino=10010894,mode=20644,uid=5,gid=6,nlink=1,rdev=286338160";
        let record = Record { mode: 0o20_644, uid: 5, gid: 6, rdev: 286_338_160 };
        assert_eq!(parse(line), Ok(((0xfe00, 10_010_894), record)));
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            "dev=fe00",
            "x",
            "dev=fe00,ino=1,mode=20644,uid=5,gid=6,nlink=1",
            "dev=fe00,ino=1,mode=20644,uid=5,gid=6,nlink=1,rdev=-1",
            "dev=fe00,ino=1,mode=20644,uid=4294967296,gid=6,nlink=1,rdev=0",
            "dev=fe00,ino=1,mode=1000000,uid=5,gid=6,nlink=1,rdev=0",
            "dev=fe00,ino=1,mode=20648,uid=5,gid=6,nlink=1,rdev=0",
            "dev=fe00,ino=1,mode=20644,uid=5,gid=6,nlink=1,rdev=0,size=1",
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
    }
}
