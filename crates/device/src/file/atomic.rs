//! A file of this machine that gets its name when it is whole.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat, renameat, unlinkat};
use rustix::io::Errno;

/// Number of attempts to find an unused name.
const NAME_TRIES: u32 = 100;
/// The permissions of a new file before the umask.
const READ_WRITE: u16 = 0o666;

/// A file without a name, to be written. Unless it reaches [`Self::persist`] it is removed, however
/// the process ends: it has no name that could remain, unless its file system does not
/// support files without one.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    directory: Arc<OwnedFd>,
    name: OsString,
    file: File,
    /// Where the file system knows no files without names.
    temporary: Option<TemporaryName>,
}

#[derive(Debug)]
struct TemporaryName {
    directory: Arc<OwnedFd>,
    name: OsString,
}

impl Drop for TemporaryName {
    fn drop(&mut self) {
        // Renamed by now, or a failure that was reported already.
        let _ = unlinkat(&*self.directory, &self.name, AtFlags::empty());
    }
}

impl AtomicFile {
    /// Begins the file that is to be at `path`, in its directory. An existing file stays until the
    /// end; if it is a symbolic link, its target is replaced.
    ///
    /// # Errors
    /// The directory takes no new file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let path = if path.exists() { fs::canonicalize(path)? } else { path.to_owned() };
        let Some(name) = path.file_name().map(OsStr::to_owned) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file name"));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, directory_of(&path), flags, Mode::empty())?;
        Self::in_directory(directory, name, path, READ_WRITE)
    }

    /// The same for a name in a directory that is open, with these permissions before the umask.
    ///
    /// # Errors
    /// The directory takes no new file.
    pub fn create_at(
        directory: BorrowedFd<'_>,
        name: &OsStr,
        permissions: u16,
    ) -> io::Result<Self> {
        let directory = directory.try_clone_to_owned()?;
        Self::in_directory(directory, name.to_owned(), PathBuf::from(name), permissions)
    }

    fn in_directory(
        directory: OwnedFd,
        name: OsString,
        path: PathBuf,
        permissions: u16,
    ) -> io::Result<Self> {
        let directory = Arc::new(directory);
        let mode = Mode::from_raw_mode(permissions.into());
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match openat(&*directory, ".", flags, mode) {
            Ok(file) => Ok(Self { path, directory, name, file: file.into(), temporary: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
                let open = |name: &OsStr| openat(&*directory, name, flags, mode);
                let (temporary, file) = new_name(&name, open)?;
                let temporary = TemporaryName { directory: directory.clone(), name: temporary };
                Ok(Self { path, directory, name, file: file.into(), temporary: Some(temporary) })
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// The file, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// A path that leads to the file as long as this value lives.
    pub fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// The file that it is to be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that it is in.
    pub fn directory(&self) -> &Path {
        directory_of(&self.path)
    }

    /// The file is complete: it gets its name, in place of an existing file. Nothing is flushed to
    /// the medium here.
    ///
    /// # Errors
    /// The directory does not take the name.
    pub fn persist(self) -> io::Result<()> {
        let directory = &*self.directory;
        let temporary = match &self.temporary {
            Some(temporary) => temporary.name.clone(),
            None => match self.link(&self.name) {
                Err(Errno::EXIST) => new_name(&self.name, |name| self.link(name))?.0,
                linked => return Ok(linked?),
            },
        };
        // The link is removed if it cannot be renamed.
        let temporary = TemporaryName { directory: self.directory.clone(), name: temporary };
        Ok(renameat(directory, &temporary.name, directory, &self.name)?)
    }

    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        let directory = self.directory.as_fd();
        match linkat(CWD, self.proc_path(), directory, name, AtFlags::SYMLINK_FOLLOW) {
            // Without /proc root can do it by the descriptor.
            Err(Errno::NOENT) => linkat(&self.file, "", directory, name, AtFlags::EMPTY_PATH),
            linked => linked,
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A name next to another one that `take` could take, with what it gave.
pub fn new_name<T>(
    target: &OsStr,
    take: impl Fn(&OsStr) -> Result<T, Errno>,
) -> Result<(OsString, T), Errno> {
    // A name may have 255 bytes: what is added must fit.
    let own: String = target.to_string_lossy().chars().take(40).collect();
    for number in 0..NAME_TRIES {
        let name = OsString::from(format!(".{own}.{}.{number}", std::process::id()));
        match take(&name) {
            Ok(taken) => return Ok((name, taken)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::Scratch;
    use std::io::Write;

    fn names(scratch: &Scratch) -> Vec<String> {
        let names = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_has_no_name_before_it_is_whole_and_replaces_the_old_one_then() {
        let scratch = Scratch::new();
        let path = scratch.join("n".repeat(255));
        fs::write(&path, "old").unwrap();
        drop(AtomicFile::create(&path).unwrap());
        let new = AtomicFile::create(&path).unwrap();
        new.file().write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        new.persist().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(&scratch).len(), 1);
    }

    #[test]
    fn what_a_link_leads_to_is_replaced_and_not_the_link() {
        let scratch = Scratch::new();
        fs::write(scratch.join("file"), "old").unwrap();
        std::os::unix::fs::symlink("file", scratch.join("link")).unwrap();
        AtomicFile::create(&scratch.join("link")).unwrap().persist().unwrap();
        assert!(scratch.join("link").is_symlink());
        assert_eq!(fs::read(scratch.join("file")).unwrap(), b"");
    }
}
