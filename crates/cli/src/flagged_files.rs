//! Files whose flags, project and version chattr and lsattr reach: of this machine, or in an image.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use extant::rooms::device::host_attributes as host;
use extant::rooms::engine::{Engine, OpenVolume};
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::reader::{Error, Follow, LoadedInode, VolumeRead};
use extant::{InodeFlags, InodeNo};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::failure::Failure;
use crate::reader::{Image, join};
use crate::session::Session;
use crate::writable_image::WritableImage;

/// The file of a name. A link is not followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlaggedFile {
    pub(crate) is_dir: bool,
    /// Whether it can have flags at all.
    has_flags: bool,
    /// Device and inode number.
    id: (u64, u64),
}

impl FlaggedFile {
    /// Refuses a file that has no flags, with the error that the kernel has for it.
    fn check_has_flags(self) -> io::Result<()> {
        if self.has_flags { Ok(()) } else { Err(Errno::OPNOTSUPP.into()) }
    }
}

/// Files whose attributes can be read.
pub(crate) trait FlaggedFiles {
    /// The file of a path.
    fn find(&self, path: &[u8]) -> io::Result<FlaggedFile>;

    /// All names of a directory in its own order, `.` and `..` too.
    fn names(&self, path: &[u8]) -> io::Result<Vec<Vec<u8>>>;

    /// The flags of a file.
    fn flags(&self, path: &[u8]) -> io::Result<InodeFlags>;

    /// The project of a file.
    fn project(&self, path: &[u8]) -> io::Result<u32>;

    /// The version of a file, which is called its generation too.
    fn version(&self, path: &[u8]) -> io::Result<u32>;

    /// A path as it is shown: with its image, if it is in one.
    fn place(&self, path: &[u8]) -> Vec<u8>;

    /// The failure of a call at a path, in e2fsprogs' words.
    fn failure(&self, error: &io::Error, doing: &str, path: &[u8]) -> Failure {
        let place = crate::output::printable(&self.place(path));
        Failure::new(format_args!("{error} {doing} {place}"))
    }
}

/// Files whose attributes can be set.
pub(crate) trait ChangeableFiles: FlaggedFiles {
    /// Sets all flags that users may set.
    fn set_flags(&self, path: &[u8], flags: InodeFlags) -> io::Result<()>;

    /// Sets the project.
    fn set_project(&self, path: &[u8], project: u32) -> io::Result<()>;

    /// Sets the version.
    fn set_version(&self, path: &[u8], version: u32) -> io::Result<()>;
}

/// The files of this machine.
pub(crate) struct OfHost;

impl OfHost {
    fn open(&self, path: &[u8]) -> io::Result<File> {
        self.find(path)?.check_has_flags()?;
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
        // The bits fit: they are those of a C int.
        let flags = flags.bits().cast_signed();
        OpenOptions::new().read(true).custom_flags(flags).open(OsStr::from_bytes(path))
    }
}

impl FlaggedFiles for OfHost {
    fn find(&self, path: &[u8]) -> io::Result<FlaggedFile> {
        let found = fs::symlink_metadata(OsStr::from_bytes(path))?;
        Ok(FlaggedFile {
            is_dir: found.is_dir(),
            has_flags: found.is_dir() || found.is_file(),
            id: (found.dev(), found.ino()),
        })
    }

    fn names(&self, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        // That of std lacks two of the names.
        let dir = rustix::fs::Dir::new(File::open(OsStr::from_bytes(path))?)?;
        dir.map(|entry| Ok(entry?.file_name().to_bytes().to_vec())).collect()
    }

    fn flags(&self, path: &[u8]) -> io::Result<InodeFlags> {
        Ok(InodeFlags::from_bits_retain(host::flags(&self.open(path)?)?))
    }

    fn project(&self, path: &[u8]) -> io::Result<u32> {
        host::project(&self.open(path)?)
    }

    fn version(&self, path: &[u8]) -> io::Result<u32> {
        host::version(&self.open(path)?)
    }

    fn place(&self, path: &[u8]) -> Vec<u8> {
        path.to_vec()
    }
}

impl ChangeableFiles for OfHost {
    fn set_flags(&self, path: &[u8], flags: InodeFlags) -> io::Result<()> {
        host::set_flags(&self.open(path)?, flags.bits())
    }

    fn set_project(&self, path: &[u8], project: u32) -> io::Result<()> {
        host::set_project(&self.open(path)?, project)
    }

    fn set_version(&self, path: &[u8], version: u32) -> io::Result<()> {
        host::set_version(&self.open(path)?, version)
    }
}

/// The files of an image.
pub(crate) struct OfImage<'i, V> {
    name: &'i OsStr,
    volume: &'i V,
}

impl<'i> OfImage<'i, extant::Reader> {
    /// Of an image that is read.
    pub(crate) fn read(name: &'i OsStr, image: &'i Image) -> Self {
        Self { name, volume: &image.volume }
    }
}

impl<'i> OfImage<'i, OpenVolume> {
    /// Of an image that is changed.
    pub(crate) fn changed(name: &'i OsStr, image: &'i WritableImage) -> Self {
        Self { name, volume: image.fs.volume() }
    }

    fn change(
        &self,
        path: &[u8],
        change: impl FnOnce(&Engine, &LoadedInode) -> Result<(), Error>,
    ) -> io::Result<()> {
        let file = self.flagged(path)?;
        self.volume.engine().and_then(|engine| change(engine, &file)).map_err(of_system)
    }
}

/// The system's error of the same number: the words are those of a program on a mount.
fn of_system(error: Error) -> io::Error {
    error.errno().into()
}

impl<V: VolumeRead> OfImage<'_, V> {
    fn inode(&self, path: &[u8]) -> io::Result<LoadedInode> {
        self.volume.resolve(path, Follow::No).map_err(of_system)
    }

    /// A file that can have flags.
    fn flagged(&self, path: &[u8]) -> io::Result<LoadedInode> {
        let file = self.inode(path)?;
        found(&file).check_has_flags()?;
        Ok(file)
    }
}

fn found(file: &LoadedInode) -> FlaggedFile {
    let is_dir = file.is_dir();
    let has_flags = is_dir || file.file_type() == FileType::Regular;
    let InodeNo(number) = file.number;
    FlaggedFile { is_dir, has_flags, id: (0, number.into()) }
}

impl<V: VolumeRead> FlaggedFiles for OfImage<'_, V> {
    fn find(&self, path: &[u8]) -> io::Result<FlaggedFile> {
        Ok(found(&self.inode(path)?))
    }

    fn names(&self, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let dir = self.inode(path)?;
        let entries = self.volume.read_dir(dir.number, 0).map_err(of_system)?;
        entries.map(|entry| entry.map(|entry| entry.name).map_err(of_system)).collect()
    }

    fn flags(&self, path: &[u8]) -> io::Result<InodeFlags> {
        Ok(self.flagged(path)?.flags)
    }

    fn project(&self, path: &[u8]) -> io::Result<u32> {
        Ok(self.flagged(path)?.project.unwrap_or(0))
    }

    fn version(&self, path: &[u8]) -> io::Result<u32> {
        Ok(self.flagged(path)?.generation)
    }

    fn place(&self, path: &[u8]) -> Vec<u8> {
        let slash: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
        [self.name.as_bytes(), b":", slash, path].concat()
    }
}

impl ChangeableFiles for OfImage<'_, OpenVolume> {
    fn set_flags(&self, path: &[u8], flags: InodeFlags) -> io::Result<()> {
        self.change(path, |engine, file| engine.set_flags(file.number, flags).map(|_| ()))
    }

    fn set_project(&self, path: &[u8], project: u32) -> io::Result<()> {
        self.change(path, |engine, file| {
            // As the kernel does: a volume without projects has 0 for every file.
            if file.project.unwrap_or(0) == project {
                return Ok(());
            }
            engine.set_project(file.number, project, true)
        })
    }

    fn set_version(&self, path: &[u8], version: u32) -> io::Result<()> {
        self.change(path, |engine, file| engine.set_generation(file.number, version))
    }
}

/// A step of a walk.
pub(crate) enum Step<'s> {
    /// A file of a directory, by its path, name and kind. The reply is whether a directory is
    /// entered.
    File { path: &'s [u8], name: &'s [u8], found: FlaggedFile },
    /// The files of a directory follow.
    Enter(&'s [u8]),
    /// They are through.
    Leave,
}

/// Walks what is in a directory, and in its directories. A directory that holds itself, which only
/// damaged volumes have, is entered once.
pub(crate) fn walk<F: FlaggedFiles>(
    files: &F,
    top: &[u8],
    session: &mut Session,
    visit: &mut dyn FnMut(Step<'_>, &mut Session) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    struct Open {
        path: Vec<u8>,
        names: std::vec::IntoIter<Vec<u8>>,
        id: (u64, u64),
    }
    let open = |path: Vec<u8>, id| match files.names(&path) {
        Ok(names) => Ok(Open { path, names: names.into_iter(), id }),
        Err(error) => Err(files.failure(&error, "while reading directory", &path)),
    };
    let found = files.find(top).map_err(|error| files.failure(&error, STAT, top))?;
    let mut above = HashSet::from([found.id]);
    let mut stack = vec![open(top.to_vec(), found.id)?];
    while let Some(dir) = stack.last_mut() {
        let Some(name) = dir.names.next() else {
            let left = stack.pop();
            if let Some(dir) = left.filter(|_| !stack.is_empty()) {
                above.remove(&dir.id);
                visit(Step::Leave, session)?;
            }
            continue;
        };
        let path = join(&dir.path, &name);
        let found = match files.find(&path) {
            Ok(found) => found,
            Err(error) => {
                session.error(files.failure(&error, STAT, &path))?;
                continue;
            }
        };
        let enters = visit(Step::File { path: &path, name: &name, found }, session)?;
        if !enters || !found.is_dir || matches!(&name[..], b"." | b"..") {
            continue;
        }
        if !above.insert(found.id) {
            session.error(files.failure(&Errno::LOOP.into(), "while reading directory", &path))?;
            continue;
        }
        visit(Step::Enter(&path), session)?;
        match open(path, found.id) {
            Ok(dir) => stack.push(dir),
            Err(failure) => {
                above.remove(&found.id);
                session.error(failure)?;
                visit(Step::Leave, session)?;
            }
        }
    }
    Ok(())
}

/// The search for a file, in messages.
pub(crate) const STAT: &str = "while trying to stat";
