//! Operations of experiments on a file system: mounted, or a volume of our own in this process.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use extant::FileType;
use rustix::fs::OFlags;

/// Permissions of files and directories that are made.
const PERMISSIONS: u32 = 0o700;

/// A file system. Paths are absolute and inside it.
pub trait Files: Send + Sync {
    /// Opens a file that there is, or makes it.
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn OpenFile>>;
    /// Takes a file's name away.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Takes an empty directory away.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Takes a directory and all below it away.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;
    /// Gives a file one more name.
    fn hard_link(&self, file: &Path, name: &Path) -> io::Result<()>;
    /// Makes a symbolic link.
    fn symlink(&self, target: &Path, name: &Path) -> io::Result<()>;
    /// Gives a file or directory another name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Bytes of a file, by its path.
    fn size(&self, path: &Path) -> io::Result<u64>;
    /// Names in a directory and whether each is a directory, in any order.
    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>>;
    /// How much there is and how much of it is free.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Puts everything on the disk.
    fn sync(&self, path: &Path) -> io::Result<()>;
}

/// An open file; it is closed when it is dropped.
pub trait OpenFile: Send {
    /// Reads bytes at an offset; fewer than requested at the end only.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all bytes at a place.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Writes all bytes at the end, of a file opened with [`Intent::Append`].
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Bytes of the file.
    fn size(&self) -> io::Result<u64>;
    /// Puts the file on the disk.
    fn sync(&self) -> io::Result<()>;
}

/// Makes a file of the given size, which is `block` over and over; each write is as long as
/// possible.
pub(crate) fn make_filled(
    files: &dyn Files,
    path: &Path,
    size: u64,
    block: &[u8],
) -> io::Result<()> {
    let file = files.open(path, Access { intent: Intent::Create, direct: false })?;
    let mut at = 0;
    while at < size {
        let count = (size - at).min(block.len() as u64);
        // At most the length of the block.
        file.write_at(&block[..count as usize], at)?;
        at += count;
    }
    Ok(())
}

/// Makes a file with all bytes that `from` has, read through `buffer`.
pub(crate) fn make_copied(
    files: &dyn Files,
    path: &Path,
    mut from: impl Read,
    buffer: &mut [u8],
) -> io::Result<()> {
    let file = files.open(path, Access { intent: Intent::Create, direct: false })?;
    let mut at = 0;
    loop {
        let count = from.read(buffer)?;
        if count == 0 {
            return Ok(());
        }
        file.write_at(&buffer[..count], at)?;
        at += count as u64;
    }
}

/// Takes a tree away as `rm -r` does: the contents of a directory, then the directory. `remove`
/// takes the name of a file away.
pub(crate) fn remove_tree<E>(
    files: &dyn Files,
    top: &Path,
    failed: impl Fn(&Path, io::Error) -> E,
    mut remove: impl FnMut(&Path) -> io::Result<()>,
) -> Result<(), E> {
    let mut waiting: Vec<(PathBuf, bool)> = vec![(top.to_owned(), false)];
    while let Some((dir, is_empty)) = waiting.pop() {
        if is_empty {
            files.remove_dir(&dir).map_err(|error| failed(&dir, error))?;
            continue;
        }
        waiting.push((dir.clone(), true));
        for (name, is_dir) in files.list(&dir).map_err(|error| failed(&dir, error))? {
            let path = dir.join(name);
            match is_dir {
                true => waiting.push((path, false)),
                false => remove(&path).map_err(|error| failed(&path, error))?,
            }
        }
    }
    Ok(())
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Access {
    /// The access.
    pub intent: Intent,
    /// Around the page cache: memory, places and lengths are multiples of the disk's sectors then.
    pub direct: bool,
}

/// The access of an open file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Intent {
    /// Reading.
    Read,
    /// Writing in place.
    Write,
    /// Writing from the start on; it is made if it is missing and emptied if it is not.
    Create,
    /// Writing at the end.
    Append,
}

/// Space of a file system, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Space {
    /// All of it.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
}

impl Space {
    /// Used bytes.
    pub const fn used(self) -> u64 {
        self.total.saturating_sub(self.free)
    }

    /// Used share of the volume.
    pub fn utilization(self) -> f64 {
        if self.total == 0 { 0.0 } else { self.used() as f64 / self.total as f64 }
    }
}

/// A file system mounted on this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mounted;

impl Files for Mounted {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn OpenFile>> {
        let mut options = fs::OpenOptions::new();
        match access.intent {
            Intent::Read => options.read(true),
            Intent::Write => options.write(true),
            Intent::Create => options.write(true).create(true).truncate(true).mode(PERMISSIONS),
            Intent::Append => options.append(true),
        };
        if access.direct {
            options.custom_flags(OFlags::DIRECT.bits() as i32);
        }
        Ok(Box::new(options.open(path)?))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn hard_link(&self, file: &Path, name: &Path) -> io::Result<()> {
        fs::hard_link(file, name)
    }

    fn symlink(&self, target: &Path, name: &Path) -> io::Result<()> {
        std::os::unix::fs::symlink(target, name)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        fs::symlink_metadata(path).map(|found| found.len())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        let named = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            Ok((PathBuf::from(entry.file_name()), entry.file_type()?.is_dir()))
        };
        fs::read_dir(path)?.map(named).collect()
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let found = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Space { total: bytes(found.f_blocks), free: bytes(found.f_bfree) })
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(fs::File::open(path)?)?)
    }
}

impl OpenFile for fs::File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn size(&self) -> io::Result<u64> {
        self.metadata().map(|found| found.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A volume in this process. It never uses a page cache of file contents: direct access is how it
/// always is.
impl Files for extant::FileSystem {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn OpenFile>> {
        let options = extant::OpenOptions::new();
        let options = match access.intent {
            Intent::Read => options.read(true),
            Intent::Write => options.write(true),
            Intent::Create => {
                options.write(true).create(true).truncate(true).mode(PERMISSIONS as u16)
            }
            Intent::Append => options.append(true),
        };
        Ok(Box::new(options.open(self, path)?))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        Ok(Self::remove_file(self, path)?)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        Ok(Self::create_dir(self, path)?)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        Ok(Self::remove_dir(self, path)?)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        Ok(self.remove_dir_all(path)?)
    }

    fn hard_link(&self, file: &Path, name: &Path) -> io::Result<()> {
        Ok(Self::hard_link(self, file, name)?)
    }

    fn symlink(&self, target: &Path, name: &Path) -> io::Result<()> {
        Ok(Self::symlink(self, target, name)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(Self::rename(self, from, to)?)
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        Ok(self.symlink_metadata(path)?.len())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        let named = |entry: Result<extant::DirEntry, extant::PathError>| {
            let entry = entry?;
            let is_dir = entry.file_type()? == FileType::Directory;
            Ok((PathBuf::from(entry.file_name()), is_dir))
        };
        self.read_dir(path)?.map(named).collect()
    }

    fn space(&self, _: &Path) -> io::Result<Space> {
        let found = self.stat_fs().map_err(io::Error::other)?;
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(found.block_size));
        Ok(Space { total: bytes(found.blocks), free: bytes(found.free_blocks) })
    }

    fn sync(&self, _: &Path) -> io::Result<()> {
        Self::sync(self).map_err(io::Error::other)
    }
}

impl OpenFile for extant::File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(Self::read_at(self, bytes, offset)?)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        Ok(self.write_all_at(bytes, offset)?)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(self.sync_all()?)
    }
}
