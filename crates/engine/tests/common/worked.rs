//! A volume that may be damaged, worked on: calls of every family, with any result.

use super::bases::Base;
use extant_device::{Device, OverlayDevice};
use extant_engine::ops::FallocateMode;
use extant_engine::{Credentials, RenameFlags, SetAttributes, Volume, VolumeOptions, XattrSet};
use extant_ondisk::InodeNo;
use extant_ondisk::dirent::FileType as EntryType;
use extant_ondisk::inode::{FileType, InodeFlags};
use extant_reader::{Error, Reader, VolumeRead};
use extant_runtime::env::Env;
use std::sync::Arc;

/// How much work is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Directories that are used.
    dirs: usize,
    /// Names of a directory that are used.
    names: usize,
    /// Files that are made in a directory.
    made: usize,
}

impl Work {
    /// Directories grow, some get an index.
    pub(crate) const LONG: Self = Self { dirs: 12, names: 12, made: 20 };
    /// Each call comes once at least.
    pub(crate) const SHORT: Self = Self { dirs: 3, names: 6, made: 2 };
}

/// Opens a volume for changes, walks it, works on what it finds, and closes it: what went wrong. A
/// volume that cannot be opened is an error.
pub(crate) fn work(device: Arc<dyn Device>, work: Work) -> Result<Vec<Error>, Error> {
    let options = VolumeOptions::default();
    let volume = Volume::open(device, &Env::stepped(1), &options)?;
    super::walk(&volume);
    let mut wrong = Vec::new();
    let mut dirs = vec![InodeNo::ROOT];
    let mut at = 0;
    while at < dirs.len().min(work.dirs) {
        let dir = dirs[at];
        at += 1;
        let entries: Vec<_> = match volume.read_dir(dir, 0) {
            Ok(entries) => entries.take(work.names + 2).map_while(Result::ok).collect(),
            Err(error) => {
                wrong.push(error);
                continue;
            }
        };
        let entries = entries.into_iter().filter(|entry| !matches!(&entry.name[..], b"." | b".."));
        for (number, entry) in entries.enumerate() {
            if entry.file_type == EntryType::Directory {
                dirs.push(entry.inode);
            }
            let outcome = change(&volume, entry.inode, number)
                .and_then(|()| rename(&volume, dir, &entry.name, number));
            wrong.extend(outcome.err());
        }
        wrong.extend(make(&volume, dir, work.made).err());
    }
    for dir in dirs.iter().rev() {
        wrong.extend(remove(&volume, *dir));
    }
    wrong.extend(volume.sync().err());
    wrong.extend(volume.close().err());
    Ok(wrong)
}

/// Damages a base, works on it, and walks over what is left.
pub(crate) fn work_on_damaged(base: &Base, damage: &[(u32, u8, u8)], length: Work) {
    let device = Arc::new(OverlayDevice::new(base.device.clone()));
    base.damage(&*device, damage);
    if work(device.clone(), length).is_ok()
        && let Ok(volume) = Reader::open(device)
    {
        super::walk(&volume);
    }
}

/// Changes a file in one way or another.
fn change(volume: &Volume, file: InodeNo, number: usize) -> Result<(), Error> {
    let inode = volume.inode(file)?;
    volume
        .set_attributes(file, &SetAttributes { mode: Some(0o640), ..SetAttributes::default() })?;
    volume.set_xattr(file, b"trusted.worked", &[7; 60], XattrSet::Any)?;
    volume.set_xattr(file, b"trusted.long", &[8; 900], XattrSet::Any)?;
    volume.remove_xattr(file, b"trusted.worked")?;
    volume.set_flags(file, inode.flags | InodeFlags::NODUMP)?;
    if inode.file_type() != FileType::Regular {
        return Ok(());
    }
    volume.write(file, 100, &[1; 5000])?;
    volume.write(file, inode.size, &[2; 3000])?;
    volume.write(file, inode.size.min(1 << 30) + 50_000, &[3; 100])?;
    match number % 6 {
        0 => volume.truncate(file, inode.size / 2)?,
        1 => volume.fallocate(file, FallocateMode::PunchHole, 1024, 8192)?,
        2 => volume.fallocate(file, FallocateMode::ZeroRange, 500, 20_000)?,
        3 => volume.fallocate(file, FallocateMode::InsertRange, 4096, 4096)?,
        4 => volume.fallocate(file, FallocateMode::CollapseRange, 4096, 4096)?,
        _ => volume.fallocate(file, FallocateMode::Allocate, 0, 40_000)?,
    }
    volume.fsync(file)
}

fn rename(volume: &Volume, dir: InodeNo, name: &[u8], number: usize) -> Result<(), Error> {
    let to = [name, b"~"].concat();
    match number % 3 {
        0 => volume.rename(dir, name, dir, &to, RenameFlags::empty()),
        1 => volume.rename(dir, name, InodeNo::ROOT, &to, RenameFlags::NOREPLACE),
        _ => Ok(()),
    }
}

/// Makes files of all kinds.
fn make(volume: &Volume, dir: InodeNo, files: usize) -> Result<(), Error> {
    let by = Credentials::ROOT;
    for number in 0..files {
        let name = format!("made-{number:02}-{}", "n".repeat(120));
        let made = volume.create(dir, name.as_bytes(), 0o644, &by)?;
        volume.write(made.number, 0, &[4; 2000])?;
        if number % 4 == 0 {
            volume.link(made.number, dir, format!("link-{number}").as_bytes())?;
        }
    }
    volume.symlink(dir, b"short", b"target", &by)?;
    volume.symlink(dir, b"long", &[b't'; 200], &by)?;
    volume.mkdir(dir, b"new", 0o755, &by)?;
    let unlinked = volume.tmpfile(dir, 0o600, &by)?;
    volume.write(unlinked.number, 0, &[5; 10_000])?;
    volume.release(unlinked.number, 1)
}

/// Removes what a directory has: what could not be removed.
fn remove(volume: &Volume, dir: InodeNo) -> Vec<Error> {
    let Ok(entries) = volume.read_dir(dir, 0) else { return Vec::new() };
    let entries: Vec<_> = entries.take(200).map_while(Result::ok).collect();
    let entries = entries.into_iter().filter(|entry| !matches!(&entry.name[..], b"." | b".."));
    let removed = entries.map(|entry| match volume.unlink(dir, &entry.name) {
        Err(Error::IsADirectory) => volume.rmdir(dir, &entry.name),
        other => other,
    });
    removed.filter_map(Result::err).collect()
}
