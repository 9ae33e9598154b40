//! Files that a program describes, as a source of an image.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Cursor, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use extant_ondisk::inode::DeviceNumber;

/// Opens the contents of a file when they are needed.
type Open = Box<dyn FnOnce() -> io::Result<Box<dyn Read>>>;

enum Kind {
    Directory,
    File { length: u64, open: Open },
    Symlink(PathBuf),
    HardLink(PathBuf),
    CharDevice(DeviceNumber),
    BlockDevice(DeviceNumber),
    Fifo,
}

/// A file of an image that [`ImageBuilder::entries`](crate::ImageBuilder::entries) makes: its path,
/// contents and attributes. It belongs to root, and its time is the first second of 1970, unless
/// they are set.
pub struct Entry {
    path: PathBuf,
    kind: Kind,
    mode: u32,
    owner: (u32, u32),
    modified: i64,
    xattrs: Vec<(OsString, Vec<u8>)>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Entry");
        shown.field("path", &self.path).field("mode", &self.mode).field("owner", &self.owner);
        shown.finish_non_exhaustive()
    }
}

impl Entry {
    fn new(path: impl Into<PathBuf>, kind: Kind, mode: u32) -> Self {
        let (path, owner, modified) = (path.into(), (0, 0), 0);
        Self { path, kind, mode, owner, modified, xattrs: Vec::new() }
    }

    /// A directory, rwxr-xr-x. Those above a path are made without entries of their own.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Self::new(path, Kind::Directory, 0o755)
    }

    /// A regular file with its contents in memory, rw-r--r--.
    pub fn file(path: impl Into<PathBuf>, contents: impl Into<Vec<u8>>) -> Self {
        let contents = contents.into();
        let length = contents.len() as u64;
        Self::file_with(path, length, move || Ok(Cursor::new(contents)))
    }

    /// A regular file of `length` bytes, rw-r--r--. A function opens its contents when it is their
    /// turn; they must have that length.
    pub fn file_with<R: Read + 'static>(
        path: impl Into<PathBuf>,
        length: u64,
        open: impl FnOnce() -> io::Result<R> + 'static,
    ) -> Self {
        let open: Open = Box::new(move || open().map(|read| Box::new(read) as Box<dyn Read>));
        Self::new(path, Kind::File { length, open }, 0o644)
    }

    /// A symbolic link.
    pub fn symlink(path: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self::new(path, Kind::Symlink(target.into()), 0o777)
    }

    /// Another name of a file that an earlier entry has made.
    pub fn hard_link(path: impl Into<PathBuf>, file: impl Into<PathBuf>) -> Self {
        Self::new(path, Kind::HardLink(file.into()), 0o644)
    }

    /// A device file of characters, rw-------.
    pub fn char_device(path: impl Into<PathBuf>, number: DeviceNumber) -> Self {
        Self::new(path, Kind::CharDevice(number), 0o600)
    }

    /// A device file of blocks, rw-------.
    pub fn block_device(path: impl Into<PathBuf>, number: DeviceNumber) -> Self {
        Self::new(path, Kind::BlockDevice(number), 0o600)
    }

    /// A named pipe, rw-r--r--.
    pub fn fifo(path: impl Into<PathBuf>) -> Self {
        Self::new(path, Kind::Fifo, 0o644)
    }

    /// Permissions, with setuid, setgid and sticky.
    #[must_use]
    pub fn permissions(mut self, permissions: u16) -> Self {
        self.mode = u32::from(permissions) & 0o7777;
        self
    }

    /// Owner and group.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = (uid, gid);
        self
    }

    /// The time of the last change, in whole seconds.
    #[must_use]
    pub fn modified(mut self, time: SystemTime) -> Self {
        self.modified = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
        };
        self
    }

    /// An extended attribute with its whole name: `user.comment`.
    #[must_use]
    pub fn xattr(mut self, name: impl Into<OsString>, value: impl Into<Vec<u8>>) -> Self {
        self.xattrs.push((name.into(), value.into()));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds the entry to an archive. Names and attributes are in records of pax, where they have no
    /// limits.
    pub(crate) fn write_to(self, archive: &mut impl Write) -> io::Result<()> {
        // The root is `./` in archives.
        let name = self.path.strip_prefix("/").unwrap_or(&self.path);
        let name = Path::new(".").join(name);
        let mut records = Vec::new();
        record(&mut records, b"path", name.as_os_str().as_bytes());
        record(&mut records, b"mtime", self.modified.to_string().as_bytes());
        for (name, value) in &self.xattrs {
            let key = [b"SCHILY.xattr.", name.as_bytes()].concat();
            record(&mut records, &key, value);
        }
        let mut header = tar::Header::new_ustar();
        header.set_mode(self.mode);
        header.set_uid(self.owner.0.into());
        header.set_gid(self.owner.1.into());
        header.set_mtime(0);
        header.set_size(0);
        let mut contents = None;
        match self.kind {
            Kind::Directory => header.set_entry_type(tar::EntryType::Directory),
            Kind::File { length, open } => {
                header.set_entry_type(tar::EntryType::Regular);
                header.set_size(length);
                contents = Some((length, open));
            }
            Kind::Symlink(target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                record(&mut records, b"linkpath", target.as_os_str().as_bytes());
            }
            Kind::HardLink(file) => {
                header.set_entry_type(tar::EntryType::Link);
                let file = Path::new(".").join(file.strip_prefix("/").unwrap_or(&file));
                record(&mut records, b"linkpath", file.as_os_str().as_bytes());
            }
            Kind::CharDevice(number) => device(&mut header, tar::EntryType::Char, number)?,
            Kind::BlockDevice(number) => device(&mut header, tar::EntryType::Block, number)?,
            Kind::Fifo => header.set_entry_type(tar::EntryType::Fifo),
        }
        let mut of_records = tar::Header::new_ustar();
        of_records.set_entry_type(tar::EntryType::XHeader);
        of_records.set_mode(0o644);
        of_records.set_size(records.len() as u64);
        write_member(archive, &mut of_records, &mut Cursor::new(&records), records.len() as u64)?;
        match contents {
            Some((length, open)) => write_member(archive, &mut header, &mut open()?, length),
            None => write_member(archive, &mut header, &mut io::empty(), 0),
        }
    }
}

/// The numbers of a device file, for which pax has no records: octal digits hold those of ext4.
fn device(header: &mut tar::Header, kind: tar::EntryType, number: DeviceNumber) -> io::Result<()> {
    header.set_entry_type(kind);
    header.set_device_major(number.major)?;
    header.set_device_minor(number.minor)
}

/// A record of pax: its length with that of the length itself, a key and a value.
fn record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(length.to_string().as_bytes());
    records.extend_from_slice(&[b" ", key, b"=", value, b"\n"].concat());
}

/// Writes a header and the contents that follow it, in whole blocks of an archive.
fn write_member(
    archive: &mut impl Write,
    header: &mut tar::Header,
    contents: &mut dyn Read,
    length: u64,
) -> io::Result<()> {
    header.set_cksum();
    archive.write_all(header.as_bytes())?;
    let copied = io::copy(&mut contents.take(length), archive)?;
    let is_longer = copied == length && contents.read(&mut [0])? > 0;
    if copied < length || is_longer {
        let what = format!("the contents do not have the {length} bytes of their entry");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let padding = length.next_multiple_of(BLOCK) - length;
    archive.write_all(&[0; BLOCK as usize][..padding as usize])
}

/// Bytes of a block of an archive.
const BLOCK: u64 = 512;

/// The end of an archive.
pub(crate) fn write_end(archive: &mut impl Write) -> io::Result<()> {
    archive.write_all(&[0; 2 * BLOCK as usize])
}
