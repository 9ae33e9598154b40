//! Files that a command reads, on this machine or in an image: those that are copied into an image,
//! and trees that are compared.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant::rooms::ondisk::inode::{DeviceNumber, FileType};
use extant::rooms::ondisk::time::Timestamp;
use extant::rooms::reader::{Error as Cause, Follow, VolumeRead};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::failure::{At, Failure};
use crate::image_glob;
use crate::reader::Image;
use crate::session::Session;
use crate::writable_image::WritableImage;

/// Bytes of the names or the value of attributes that the system gives at most (xattr(7)).
const MOST_XATTR: usize = 1 << 16;

/// Attributes of a file.
pub(crate) struct SourceAttributes {
    pub(crate) kind: FileType,
    /// The low twelve bits of the mode.
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) links: u64,
    /// Device and inode: the same for all names of a file.
    pub(crate) identity: (u64, u64),
    pub(crate) device: DeviceNumber,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
}

impl SourceAttributes {
    /// Whether it is something to read to its end, of no size: `/dev/stdin`, a pipe.
    fn is_stream(&self) -> bool {
        matches!(self.kind, FileType::Fifo | FileType::CharDevice | FileType::Socket)
    }
}

/// A full name and a value.
pub(crate) type Attribute = (Vec<u8>, Vec<u8>);

/// Takes data of a file and their place.
pub(crate) type Put<'p> = &'p mut dyn FnMut(&[u8], u64) -> Result<(), Failure>;

/// Files by their paths.
pub(crate) trait Source {
    /// The file of a path; a link itself unless it is followed.
    fn attributes(&self, path: &Path, follow: Follow) -> Result<SourceAttributes, Failure>;

    /// The paths that one names: at least one.
    fn named(&self, path: &Path) -> Result<Vec<PathBuf>, Failure> {
        Ok(vec![path.to_owned()])
    }

    /// Whether contents of files that are no regular ones can be read.
    fn has_streams(&self) -> bool {
        false
    }

    /// The names of a directory.
    fn names(&self, path: &Path, session: &mut Session) -> Result<Vec<OsString>, Failure>;

    /// Where a symbolic link leads.
    fn target(&self, path: &Path) -> Result<PathBuf, Failure>;

    /// Reads the data of a file, its holes left out; its size.
    fn contents(&self, path: &Path, buffer: &mut [u8], put: Put<'_>) -> Result<u64, Failure>;

    /// Extended attributes and lists, by full name.
    fn xattrs(&self, path: &Path) -> Result<Vec<Attribute>, Failure>;

    /// The path as messages tell it.
    fn shown(&self, path: &Path) -> String;

    /// Whether the copies are made in the volume that the files come from.
    fn is_target(&self) -> bool {
        false
    }

    /// A failure at a path.
    fn failure(&self, path: &Path, why: &dyn Display) -> Failure {
        Failure::new(format_args!("{}: {why}", self.shown(path)))
    }

    /// Refuses what is copied with `-r` alone.
    fn check_plain(&self, path: &Path, attributes: &SourceAttributes) -> Result<(), Failure> {
        let is_read =
            attributes.kind == FileType::Regular || self.has_streams() && attributes.is_stream();
        match attributes.kind {
            FileType::Directory => Err(self.failure(path, &"-r not specified; omitting directory")),
            _ if !is_read => Err(self.failure(path, &"-r not specified; omitting special file")),
            _ => Ok(()),
        }
    }
}

/// The name of standard input among the files of this machine; `./-` is a file of that name.
pub(crate) const STANDARD_INPUT: &str = "-";

/// This machine.
pub(crate) struct HostSource;

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == STANDARD_INPUT
}

/// Standard input counts as a new file of the user, with the mode that a shell gives one.
fn standard_input() -> SourceAttributes {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let never = Timestamp::new(0, 0);
    SourceAttributes {
        kind: FileType::Regular,
        permissions: 0o666,
        uid,
        gid,
        links: 1,
        // Of no file.
        identity: (u64::MAX, u64::MAX),
        device: DeviceNumber { major: 0, minor: 0 },
        atime: never,
        mtime: never,
    }
}

impl Source for HostSource {
    fn attributes(&self, path: &Path, follow: Follow) -> Result<SourceAttributes, Failure> {
        if is_standard_input(path) {
            return Ok(standard_input());
        }
        let metadata = match follow {
            Follow::No => path.symlink_metadata().at(path)?,
            Follow::Yes => path.metadata().at(path)?,
        };
        let (kind, number) = (metadata.file_type(), metadata.rdev());
        // Less than a second of them.
        let moment = |seconds, nanoseconds: i64| Timestamp::new(seconds, nanoseconds as u32);
        Ok(SourceAttributes {
            kind: match () {
                () if kind.is_dir() => FileType::Directory,
                () if kind.is_file() => FileType::Regular,
                () if kind.is_symlink() => FileType::Symlink,
                () if kind.is_block_device() => FileType::BlockDevice,
                () if kind.is_char_device() => FileType::CharDevice,
                () if kind.is_socket() => FileType::Socket,
                () => FileType::Fifo,
            },
            permissions: (metadata.mode() & 0o7777) as u16,
            uid: metadata.uid(),
            gid: metadata.gid(),
            links: metadata.nlink(),
            identity: (metadata.dev(), metadata.ino()),
            device: DeviceNumber {
                major: rustix::fs::major(number),
                minor: rustix::fs::minor(number),
            },
            atime: moment(metadata.atime(), metadata.atime_nsec()),
            mtime: moment(metadata.mtime(), metadata.mtime_nsec()),
        })
    }

    fn has_streams(&self) -> bool {
        true
    }

    fn names(&self, path: &Path, _: &mut Session) -> Result<Vec<OsString>, Failure> {
        path.read_dir().at(path)?.map(|entry| Ok(entry.at(path)?.file_name())).collect()
    }

    fn target(&self, path: &Path) -> Result<PathBuf, Failure> {
        path.read_link().at(path)
    }

    fn contents(&self, path: &Path, buffer: &mut [u8], put: Put<'_>) -> Result<u64, Failure> {
        if is_standard_input(path) {
            // From where it is, as a shell's other readers of it do.
            let from = std::io::stdin().as_fd().try_clone_to_owned().at("standard input")?;
            return stream(from.into(), Path::new("standard input"), buffer, put);
        }
        let from = File::open(path).at(path)?;
        let metadata = from.metadata().at(path)?;
        if !metadata.is_file() {
            return stream(from, path, buffer, put);
        }
        regular(&from, &metadata, path, buffer, put)
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<Attribute>, Failure> {
        let mut list = vec![0; MOST_XATTR];
        let length = match rustix::fs::llistxattr(path, &mut list) {
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            length => length.at(path)?,
        };
        let mut value = vec![0; MOST_XATTR];
        let mut found = Vec::new();
        for name in list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let length = match rustix::fs::lgetxattr(path, name, &mut value) {
                // The attribute was removed after the list was read, or is only listed.
                Err(Errno::NODATA | Errno::OPNOTSUPP) => continue,
                length => length.at(path)?,
            };
            found.push((name.to_vec(), value[..length].to_vec()));
        }
        Ok(found)
    }

    fn shown(&self, path: &Path) -> String {
        path.display().to_string()
    }
}

fn regular(
    from: &File,
    metadata: &Metadata,
    path: &Path,
    buffer: &mut [u8],
    put: Put<'_>,
) -> Result<u64, Failure> {
    let (mut at, mut size) = (0, metadata.len());
    while let Some(start) = next_data(from, at, size).at(path)? {
        let end = rustix::fs::seek(from, SeekFrom::Hole(start)).unwrap_or(size).max(start + 1);
        at = start;
        while at < end {
            let len = (end - at).min(buffer.len() as u64) as usize;
            let piece = &mut buffer[..len];
            let count = match from.read_at(piece, at) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                count => count.at(path)?,
            };
            if count == 0 {
                // The file was truncated during the copy.
                size = at;
                break;
            }
            put(&piece[..count], at)?;
            at += count as u64;
        }
    }
    Ok(size)
}

/// All that a pipe or a device gives.
fn stream(mut from: File, path: &Path, buffer: &mut [u8], put: Put<'_>) -> Result<u64, Failure> {
    let mut at = 0;
    loop {
        let count = match from.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            count => count.at(path)?,
        };
        if count == 0 {
            return Ok(at);
        }
        put(&buffer[..count], at)?;
        at += count as u64;
    }
}

/// Offset of the first data at or after `at`; `None` if there are no more.
fn next_data(file: &File, at: u64, size: u64) -> rustix::io::Result<Option<u64>> {
    if at >= size {
        return Ok(None);
    }
    match rustix::fs::seek(file.as_fd(), SeekFrom::Data(at)) {
        Ok(start) => Ok(Some(start).filter(|start| *start < size)),
        Err(Errno::NXIO) => Ok(None),
        // A file system that does not tell.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(at)),
        Err(error) => Err(error),
    }
}

/// An image: another one, or the one that is copied into.
pub(crate) enum ImageSource<'i> {
    Other(Arc<Image>),
    Same(&'i WritableImage),
}

/// Makes a call with the volume of the image, which is open for reading only or for changes too.
macro_rules! with_volume {
    ($within:expr, $volume:ident => $call:expr) => {
        match $within {
            ImageSource::Other(image) => {
                let $volume = &image.volume;
                $call
            }
            ImageSource::Same(image) => {
                let $volume = image.fs.volume();
                $call
            }
        }
    };
}

impl ImageSource<'_> {
    fn at<T>(&self, path: &Path, outcome: Result<T, Cause>) -> Result<T, Failure> {
        outcome.map_err(|error| match error {
            Cause::NotFound => self.failure(path, &"no such file or directory"),
            error => self.failure(path, &error),
        })
    }

    fn facts_in<V: VolumeRead>(
        &self,
        volume: &V,
        path: &Path,
        follow: Follow,
    ) -> Result<SourceAttributes, Failure> {
        let file = self.at(path, volume.resolve(path.as_os_str().as_bytes(), follow))?;
        Ok(SourceAttributes {
            kind: file.file_type(),
            permissions: file.permissions(),
            uid: file.uid,
            gid: file.gid,
            links: u64::from(file.links),
            identity: (0, u64::from(file.number.0)),
            device: file.device().unwrap_or(DeviceNumber { major: 0, minor: 0 }),
            atime: file.atime,
            mtime: file.mtime,
        })
    }

    fn names_in<V: VolumeRead>(
        &self,
        volume: &V,
        path: &Path,
        session: &mut Session,
    ) -> Result<Vec<OsString>, Failure> {
        let dir = self.at(path, volume.resolve(path.as_os_str().as_bytes(), Follow::No))?;
        let mut names = Vec::new();
        for entry in self.at(path, volume.read_dir(dir.number, 0))? {
            // The other blocks of the directory are copied.
            let name = match entry {
                Ok(entry) => entry.name,
                Err(error) => {
                    let what = volume.read_dir_message(dir.number, &error);
                    session.error(self.failure(path, &what))?;
                    continue;
                }
            };
            if matches!(&name[..], b"." | b"..") {
                continue;
            }
            if name.is_empty() || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
                let shown = path.join(OsStr::from_bytes(&name));
                session.error(self.failure(&shown, &"invalid file name"))?;
                continue;
            }
            names.push(OsString::from_vec(name));
        }
        Ok(names)
    }

    fn target_in<V: VolumeRead>(&self, volume: &V, path: &Path) -> Result<PathBuf, Failure> {
        let link = self.at(path, volume.resolve(path.as_os_str().as_bytes(), Follow::No))?;
        let target = self.at(path, volume.read_link(link.number))?;
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    fn contents_in<V: VolumeRead>(
        &self,
        volume: &V,
        path: &Path,
        buffer: &mut [u8],
        put: Put<'_>,
    ) -> Result<u64, Failure> {
        let file = self.at(path, volume.resolve(path.as_os_str().as_bytes(), Follow::Yes))?;
        if file.is_encrypted() {
            return Err(self.failure(path, &"cannot read encrypted contents"));
        }
        for segment in self.at(path, volume.data_segments(file.number))? {
            let segment = self.at(path, segment)?;
            let mut at = segment.start;
            while at < segment.end {
                let len = (segment.end - at).min(buffer.len() as u64) as usize;
                let read = volume.read(file.number, at, &mut buffer[..len]);
                let count = self.at(path, read)?;
                if count == 0 {
                    break;
                }
                put(&buffer[..count], at)?;
                at += count as u64;
            }
        }
        Ok(file.size)
    }

    fn xattrs_in<V: VolumeRead>(&self, volume: &V, path: &Path) -> Result<Vec<Attribute>, Failure> {
        let file = self.at(path, volume.resolve(path.as_os_str().as_bytes(), Follow::No))?;
        let infos = self.at(path, volume.xattrs(file.number))?;
        let read = |name: Vec<u8>| {
            let value = self.at(path, volume.xattr(file.number, &name))?;
            Ok((name, value))
        };
        infos.into_iter().map(|info| read(info.name)).collect()
    }
}

impl Source for ImageSource<'_> {
    fn named(&self, path: &Path) -> Result<Vec<PathBuf>, Failure> {
        let bytes = path.as_os_str().as_bytes();
        let paths = with_volume!(self, volume => image_glob::matches(volume, bytes));
        let paths = self.at(path, paths)?;
        match paths.is_empty() {
            true => Err(self.failure(path, &"no such file or directory")),
            false => Ok(paths.into_iter().map(|path| OsString::from_vec(path).into()).collect()),
        }
    }

    fn attributes(&self, path: &Path, follow: Follow) -> Result<SourceAttributes, Failure> {
        with_volume!(self, volume => self.facts_in(volume, path, follow))
    }

    fn names(&self, path: &Path, session: &mut Session) -> Result<Vec<OsString>, Failure> {
        with_volume!(self, volume => self.names_in(volume, path, session))
    }

    fn target(&self, path: &Path) -> Result<PathBuf, Failure> {
        with_volume!(self, volume => self.target_in(volume, path))
    }

    fn contents(&self, path: &Path, buffer: &mut [u8], put: Put<'_>) -> Result<u64, Failure> {
        with_volume!(self, volume => self.contents_in(volume, path, buffer, put))
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<Attribute>, Failure> {
        with_volume!(self, volume => self.xattrs_in(volume, path))
    }

    fn shown(&self, path: &Path) -> String {
        match self {
            Self::Other(image) => image.place(path.as_os_str().as_bytes()),
            Self::Same(image) => image.place(path),
        }
    }

    fn is_target(&self) -> bool {
        matches!(self, Self::Same(_))
    }
}
