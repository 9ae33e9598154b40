//! Where the image goes: a file without a name until it is whole, or a block device.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use extant_device::{Direct, FileDevice, OpenOptions};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, linkat, openat};
use rustix::io::Errno;

use super::error::BuildError;

/// Tries at a name that nobody has.
const NAME_TRIES: u32 = 100;

/// A block device, or a file that gets its name at the end. A file that does not get so far goes away: it has no name
/// that could be left behind, unless its file system knows no files without.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    device: FileDevice,
    /// `None` for a block device.
    unnamed: Option<Unnamed>,
}

#[derive(Debug)]
enum Unnamed {
    /// Held open; it has no name at all.
    File(File),
    /// A name beside the output's, removed when dropped.
    Temporary(TemporaryName),
}

#[derive(Debug)]
struct TemporaryName(PathBuf);

impl Drop for TemporaryName {
    fn drop(&mut self) {
        // Renamed by now, or a failure that was reported already.
        let _ = fs::remove_file(&self.0);
    }
}

fn failed(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::Io { path, action, source }
}

/// Whether the image goes to a block device, and its size then.
pub(super) fn block_device_size(path: &Path) -> Result<Option<u64>, BuildError> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(metadata) = fs::metadata(path) else { return Ok(None) };
    if !metadata.file_type().is_block_device() {
        return Ok(None);
    }
    let device = FileDevice::open(path)?;
    Ok(Some(extant_device::Device::size(&device)))
}

impl Output {
    /// Opens the block device, or makes a file of `bytes` bytes, all hole, in the directory of `path`.
    pub(super) fn new(path: &Path, bytes: u64, is_block: bool) -> Result<Self, BuildError> {
        let options = OpenOptions::new().write(true).direct(Direct::WherePossible);
        if is_block {
            let device = options.open(path)?;
            return Ok(Self { path: path.to_owned(), device, unnamed: None });
        }
        // What is there is replaced at the end; what is in use is not.
        let path = if path.exists() {
            drop(OpenOptions::new().write(true).open(path)?);
            fs::canonicalize(path).map_err(failed(path, "find it"))?
        } else {
            path.to_owned()
        };
        let directory = directory_of(&path);
        let mode = Mode::from_raw_mode(0o666);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let (device, unnamed) = match openat(CWD, directory, flags, mode) {
            Ok(file) => {
                let file = File::from(file);
                let device = options.size(bytes).open(proc_path(&file))?;
                (device, Unnamed::File(file))
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let name = new_name(&path, |name| {
                    OpenOptions::new().write(true).create_new(true).open(name).is_ok()
                })?;
                let device = options.size(bytes).open(&name.0)?;
                (device, Unnamed::Temporary(name))
            }
            Err(errno) => return Err(failed(&path, "create it")(errno.into())),
        };
        Ok(Self { path, device, unnamed: Some(unnamed) })
    }

    /// The device to write to.
    pub(super) fn device(&self) -> &FileDevice {
        &self.device
    }

    /// Asks for the room of a range in one piece, so that writers need not wait for each other's allocations. A file
    /// system that cannot do so is asked for it piece by piece later.
    pub(super) fn reserve(&self, offset: u64, length: u64) -> Result<(), BuildError> {
        if self.unnamed.is_none() || length == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(self.device.file(), FallocateFlags::KEEP_SIZE, offset, length) {
            Err(Errno::NOSPC) => Err(failed(&self.path, "find room for it")(Errno::NOSPC.into())),
            _ => Ok(()),
        }
    }

    /// The image is whole and on the medium: it gets its name.
    pub(super) fn finish(self) -> Result<(), BuildError> {
        let Some(unnamed) = self.unnamed else { return Ok(()) };
        let path = &self.path;
        self.device.file().sync_all().map_err(failed(path, "bring it to the medium"))?;
        let name = match unnamed {
            Unnamed::Temporary(name) => name,
            Unnamed::File(file) => {
                let from = proc_path(&file);
                let flags = AtFlags::SYMLINK_FOLLOW;
                new_name(path, |name| linkat(CWD, &from, CWD, name, flags).is_ok())?
            }
        };
        fs::rename(&name.0, path).map_err(failed(path, "give it its name"))?;
        let directory = File::open(directory_of(path)).and_then(|directory| directory.sync_all());
        directory.map_err(failed(path, "bring its name to the medium"))
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The way to an open file that needs no name.
fn proc_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A name beside the output's that `take` could take.
fn new_name(path: &Path, take: impl Fn(&Path) -> bool) -> Result<TemporaryName, BuildError> {
    let own = path.file_name().unwrap_or_default().to_string_lossy();
    for number in 0..NAME_TRIES {
        let name = format!(".{own}.{}.{number}", std::process::id());
        let name = directory_of(path).join(name);
        if take(&name) {
            return Ok(TemporaryName(name));
        }
    }
    Err(failed(path, "find a temporary name for it")(io::ErrorKind::AlreadyExists.into()))
}
