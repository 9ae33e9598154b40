//! Files of this machine copied into an image.
//!
//! A file that stands in the way is replaced in one moment: the copy is made beside it and renamed. Links of this machine are
//! followed only where the command says so, those of the image never at the end of a path.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use extant::{OpenOptions, SetAttributes};
use extant_ondisk::inode::{DeviceNumber, FileType};
use extant_ondisk::time::Timestamp;
use extant_volume::{Error as Cause, Follow, RenameFlags, XattrSet};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::copier::Rules;
use crate::editor::{Edited, In};
use crate::failure::{At, Failure};
use crate::say;
use crate::session::Session;

/// Bytes that are read and written at once.
const PIECE: usize = 1 << 20;
/// Bytes of the names or the value of attributes that the system gives at most (xattr(7)).
const MOST_XATTR: usize = 1 << 16;

/// Copies files into one image.
pub(super) struct Importer<'i> {
    image: &'i Edited,
    rules: Rules,
    is_recursive: bool,
    /// Where the first copy of a file with several names is.
    copies: HashMap<(u64, u64), PathBuf>,
    buffer: Vec<u8>,
}

/// A directory whose contents are being copied.
struct Level {
    source: PathBuf,
    /// In the image.
    place: PathBuf,
    metadata: Metadata,
    /// Still to be copied, the last first.
    names: Vec<OsString>,
}

impl<'i> Importer<'i> {
    pub(super) fn new(image: &'i Edited, rules: Rules, is_recursive: bool) -> Self {
        Self { image, rules, is_recursive, copies: HashMap::new(), buffer: vec![0; PIECE] }
    }

    /// Copies a file, and with `-r` all below it, to `place`.
    pub(super) fn copy(
        &mut self,
        source: &Path,
        place: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let metadata = match self.is_recursive {
            true => source.symlink_metadata().at(source)?,
            false => source.metadata().at(source)?,
        };
        let kind = metadata.file_type();
        if !metadata.is_dir() {
            if !self.is_recursive && !kind.is_file() && !is_stream(&metadata) {
                return Err(Failure::at(source, "not a regular file, left out without -r"));
            }
            return self.one(source, &metadata, place, session);
        }
        if !self.is_recursive {
            return Err(Failure::at(source, "a directory, left out without -r"));
        }
        let mut levels = vec![self.enter(source, metadata, place, session)?];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.pop() else {
                if let Some(done) = levels.pop()
                    && let Err(failure) = self.finish(&done, session)
                {
                    session.complain(failure)?;
                }
                continue;
            };
            let (source, place) = (level.source.join(&name), level.place.join(&name));
            let copied = source.symlink_metadata().at(&source).and_then(|metadata| {
                if metadata.is_dir() {
                    return self.enter(&source, metadata, &place, session).map(Some);
                }
                self.one(&source, &metadata, &place, session).map(|()| None)
            });
            match copied {
                Ok(Some(level)) => levels.push(level),
                Ok(None) => {}
                Err(failure) => session.complain(failure)?,
            }
        }
        Ok(())
    }

    /// Makes a directory, or takes one that is there.
    fn enter(
        &self,
        source: &Path,
        metadata: Metadata,
        place: &Path,
        session: &mut Session,
    ) -> Result<Level, Failure> {
        let fs = &self.image.fs;
        match fs.create_dir_with(place, permissions(&metadata) | 0o700) {
            Err(error) if matches!(error.cause(), Cause::Exists | Cause::Invalid(_)) => {
                // The root has no name that could be made.
                if !fs.symlink_metadata(place).within(self.image)?.is_dir() {
                    return Err(self.image.failure(place, "a file is in the way"));
                }
            }
            outcome => outcome.within(self.image)?,
        }
        self.tell(source, place, session)?;
        let mut names = Vec::new();
        for entry in source.read_dir().at(source)? {
            names.push(entry.at(source)?.file_name());
        }
        names.sort_by(|a, b| b.cmp(a));
        Ok(Level { source: source.to_owned(), place: place.to_owned(), metadata, names })
    }

    /// What a directory keeps is set when all is in it: its time of change, and permissions that bar nothing before.
    fn finish(&self, level: &Level, session: &mut Session) -> Result<(), Failure> {
        if self.rules.preserve {
            return self.keep(&level.source, &level.metadata, &level.place, session);
        }
        Ok(())
    }

    /// Copies a file that is no directory.
    fn one(
        &mut self,
        source: &Path,
        metadata: &Metadata,
        place: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let fs = &self.image.fs;
        let in_the_way = match fs.symlink_metadata(place) {
            Ok(found) if found.is_dir() => {
                return Err(self.image.failure(place, "a directory is in the way"));
            }
            Ok(_) if self.rules.no_clobber => return Ok(()),
            Ok(_) => true,
            Err(error) if matches!(error.cause(), Cause::NotFound) => false,
            Err(error) => return Err(self.image.refusal(&error)),
        };
        let made = match in_the_way {
            true => beside(place),
            false => place.to_owned(),
        };
        let copied = self.make(source, metadata, place, &made, session);
        let done = copied.and_then(|()| match in_the_way {
            true => fs.rename_with(&made, place, RenameFlags::default()).within(self.image),
            false => Ok(()),
        });
        if let Err(failure) = done {
            // Half a file is none. That it cannot be removed is told by what comes first.
            let _ = fs.remove_file(&made);
            return Err(failure);
        }
        if self.rules.links && metadata.nlink() > 1 {
            let file = (metadata.dev(), metadata.ino());
            self.copies.entry(file).or_insert_with(|| place.to_owned());
        }
        self.tell(source, place, session)
    }

    /// Makes the copy at `made`, where nothing is; messages name `place`.
    fn make(
        &mut self,
        source: &Path,
        metadata: &Metadata,
        place: &Path,
        made: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let (image, fs) = (self.image, &self.image.fs);
        let kind = metadata.file_type();
        if self.rules.links
            && metadata.nlink() > 1
            && let Some(first) = self.copies.get(&(metadata.dev(), metadata.ino()))
        {
            return fs.hard_link(first, made).within(image);
        }
        if kind.is_file() || !self.is_recursive {
            self.contents(source, metadata, place, made)?;
        } else if kind.is_symlink() {
            let target = source.read_link().at(source)?;
            fs.symlink(target, made).within(image)?;
        } else {
            let file_type = match () {
                () if kind.is_block_device() => FileType::BlockDevice,
                () if kind.is_char_device() => FileType::CharDevice,
                () if kind.is_socket() => FileType::Socket,
                () => FileType::Fifo,
            };
            let number = metadata.rdev();
            let device =
                DeviceNumber { major: rustix::fs::major(number), minor: rustix::fs::minor(number) };
            fs.create_node(made, file_type, permissions(metadata), device).within(image)?;
        }
        match self.rules.preserve {
            true => self.keep(source, metadata, made, session),
            false => Ok(()),
        }
    }

    /// Writes the data of a file, its holes left out.
    fn contents(
        &mut self,
        source: &Path,
        metadata: &Metadata,
        place: &Path,
        made: &Path,
    ) -> Result<(), Failure> {
        let image = self.image;
        let from = File::open(source).at(source)?;
        let options = OpenOptions::new().write(true).create_new(true).mode(permissions(metadata));
        let to = options.open(&image.fs, made).within(image)?;
        let refused = |error: extant::Error| image.failure(place, error.cause());
        if !metadata.is_file() {
            return self.stream(&from, source, &to, refused);
        }
        let (mut at, mut size) = (0, metadata.len());
        while let Some(start) = next_data(&from, at, size).at(source)? {
            let end = rustix::fs::seek(&from, SeekFrom::Hole(start)).unwrap_or(size).max(start + 1);
            at = start;
            while at < end {
                let len = (end - at).min(PIECE as u64) as usize;
                let piece = &mut self.buffer[..len];
                let count = match from.read_at(piece, at) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    count => count.at(source)?,
                };
                if count == 0 {
                    // The file became shorter meanwhile.
                    size = at;
                    break;
                }
                to.write_all_at(&piece[..count], at).map_err(refused)?;
                at += count as u64;
            }
        }
        to.set_len(size).map_err(refused)
    }

    /// Writes all that a pipe or a device gives.
    fn stream(
        &mut self,
        mut from: &File,
        source: &Path,
        to: &extant::File,
        refused: impl Fn(extant::Error) -> Failure,
    ) -> Result<(), Failure> {
        use std::io::Read;
        let mut at = 0;
        loop {
            let count = match from.read(&mut self.buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                count => count.at(source)?,
            };
            if count == 0 {
                return Ok(());
            }
            to.write_all_at(&self.buffer[..count], at).map_err(&refused)?;
            at += count as u64;
        }
    }

    /// Sets what `-p` keeps: the owner first, the times last.
    fn keep(
        &self,
        source: &Path,
        metadata: &Metadata,
        made: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let (image, fs) = (self.image, &self.image.fs);
        let owner = SetAttributes {
            uid: Some(metadata.uid()),
            gid: Some(metadata.gid()),
            mode: (!metadata.is_symlink()).then_some((metadata.mode() & 0o7777) as u16),
            ..SetAttributes::default()
        };
        fs.set_attributes(made, Follow::No, &owner).within(image)?;
        self.keep_xattrs(source, made, session)?;
        let moment = |seconds, nanoseconds: i64| {
            // Less than a second of them.
            Some(Timestamp::new(seconds, nanoseconds as u32))
        };
        let times = SetAttributes {
            atime: moment(metadata.atime(), metadata.atime_nsec()),
            mtime: moment(metadata.mtime(), metadata.mtime_nsec()),
            ..SetAttributes::default()
        };
        fs.set_attributes(made, Follow::No, &times).within(image)
    }

    /// Attributes that ext4 does not have are told of and left out.
    fn keep_xattrs(
        &self,
        source: &Path,
        made: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let mut list = vec![0; MOST_XATTR];
        let length = match rustix::fs::llistxattr(source, &mut list) {
            Err(Errno::OPNOTSUPP) => return Ok(()),
            length => length.at(source)?,
        };
        let mut value = vec![0; MOST_XATTR];
        for name in list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let length = match rustix::fs::lgetxattr(source, name, &mut value) {
                // It went meanwhile, or is only listed.
                Err(Errno::NODATA | Errno::OPNOTSUPP) => continue,
                length => length.at(source)?,
            };
            let name = OsStr::from_bytes(name);
            let set = self.image.fs.set_xattr(made, name, &value[..length], XattrSet::Any);
            if let Err(error) = set {
                let why = format!("{}: {}", name.display(), error.cause());
                session.complain(self.image.failure(made, why))?;
            }
        }
        Ok(())
    }

    fn tell(&self, source: &Path, place: &Path, session: &mut Session) -> Result<(), Failure> {
        match self.rules.verbose {
            true => say!(session, "{} -> {}", source.display(), self.image.place(place)),
            false => Ok(()),
        }
    }
}

/// Whether a file is something to read to its end, of no size: `/dev/stdin`, a pipe.
fn is_stream(metadata: &Metadata) -> bool {
    let kind = metadata.file_type();
    kind.is_fifo() || kind.is_char_device() || kind.is_socket()
}

/// The nine bits that a copy without `-p` has, before the umask.
fn permissions(metadata: &Metadata) -> u16 {
    (metadata.mode() & 0o777) as u16
}

/// A name in the same directory that nobody has: what the copy is called before it takes the place of another file.
fn beside(place: &Path) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    place.with_file_name(format!(".extant-{}-{}", std::process::id(), now.as_nanos()))
}

/// Where data begin at `at` or behind it; `None` where there are no more.
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
