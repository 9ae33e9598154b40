//! A file of this machine that gets its name when it is whole.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use rustix::io::Errno;

/// Tries at a name that nobody has.
const NAME_TRIES: u32 = 100;

/// A file without a name, to be written. One that does not get as far as [`Self::publish`] goes away, however the process
/// ends: it has no name that could be left behind, unless its file system knows no files without.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    file: File,
    /// Where the file system knows no files without names.
    temporary: Option<TemporaryName>,
}

#[derive(Debug)]
struct TemporaryName(PathBuf);

impl Drop for TemporaryName {
    fn drop(&mut self) {
        // Renamed by now, or a failure that was reported already.
        let _ = fs::remove_file(&self.0);
    }
}

impl NewFile {
    /// Begins what is to be the file at `path`, in its directory. What is there now stays until the end; behind a symbolic
    /// link that is what the link leads to.
    ///
    /// # Errors
    /// The directory takes no new file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let path = if path.exists() { fs::canonicalize(path)? } else { path.to_owned() };
        if path.file_name().is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match openat(CWD, directory_of(&path), flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => Ok(Self { path, file: file.into(), temporary: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let mut options = File::options();
                options.read(true).write(true).create_new(true);
                let (name, file) = new_name(&path, |name| options.open(name))?;
                Ok(Self { path, file, temporary: Some(name) })
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// The file, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// A path that leads to the file as long as this value lives.
    pub fn way(&self) -> PathBuf {
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

    /// The file is whole: it gets its name, in place of what had it. Nothing is brought to the medium here.
    ///
    /// # Errors
    /// The directory does not take the name.
    pub fn publish(mut self) -> io::Result<()> {
        let name = match self.temporary.take() {
            Some(name) => name,
            None => {
                let (way, flags) = (self.way(), AtFlags::SYMLINK_FOLLOW);
                new_name(&self.path, |name| Ok(linkat(CWD, &way, CWD, name, flags)?))?.0
            }
        };
        fs::rename(&name.0, &self.path)
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A name beside the output's that `take` could take, with what it gave.
fn new_name<T>(
    path: &Path,
    take: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(TemporaryName, T)> {
    // A name may have 255 bytes: what is added must fit.
    let own: String =
        path.file_name().unwrap_or_default().to_string_lossy().chars().take(40).collect();
    let mut last = io::ErrorKind::AlreadyExists.into();
    for number in 0..NAME_TRIES {
        let name = format!(".{own}.{}.{number}", std::process::id());
        let name = directory_of(path).join(name);
        match take(&name) {
            Ok(taken) => return Ok((TemporaryName(name), taken)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
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
        drop(NewFile::create(&path).unwrap());
        let new = NewFile::create(&path).unwrap();
        new.file().write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        new.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(&scratch).len(), 1);
    }

    #[test]
    fn what_a_link_leads_to_is_replaced_and_not_the_link() {
        let scratch = Scratch::new();
        fs::write(scratch.join("file"), "old").unwrap();
        std::os::unix::fs::symlink("file", scratch.join("link")).unwrap();
        NewFile::create(&scratch.join("link")).unwrap().publish().unwrap();
        assert!(scratch.join("link").is_symlink());
        assert_eq!(fs::read(scratch.join("file")).unwrap(), b"");
    }
}
