//! Opening a file or block device, and locking it exclusively if it is written.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::access::FileDevice;
use super::around::Around;
use super::direct::{DirectFile, direct_alignment};
use super::ioctl;
use super::lock::{self, Holder, Mode};
use super::ring::Ring;
use crate::errno;
use extant_runtime::env::Env;
use extant_runtime::sync::atomic::{AtomicBool, AtomicU64};

/// Whether requests go around the page cache.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Direct {
    /// Through the page cache.
    #[default]
    Off,
    /// Around it where the file system can.
    WherePossible,
    /// Around it, or the open fails.
    Required,
}

/// How to open a [`FileDevice`].
#[derive(Clone, Debug, Default)]
pub struct FileDeviceOptions {
    write: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    size: Option<u64>,
    direct: Direct,
    around_cache: bool,
    shared_lock: bool,
    locks_for_qemu: bool,
    claimed: bool,
    keeps_times: bool,
    loop_backing: LoopBacking,
    patience: Duration,
    wait: Duration,
    is_closing: Option<fn(&Path) -> bool>,
}

/// Whether a file that backs a loop device is written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LoopBacking {
    /// It is refused.
    #[default]
    Refused,
    /// It is refused while the loop device is mounted or otherwise claimed.
    Unclaimed,
    /// It is written: the caller answers for what that does to a mounted file system.
    Written,
}

/// A file or block device that was not opened.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Neither a regular file nor a block device.
    #[error("{}: not a regular file or block device{}", path.display(), stream_hint(path))]
    NotADevice {
        /// The file.
        path: PathBuf,
    },
    /// A block device that was to be written is read-only.
    #[error("{}: the device is read-only", path.display())]
    ReadOnly {
        /// The device.
        path: PathBuf,
    },
    /// Another process, or another open device of this one, has it locked; a block device may be
    /// mounted.
    #[error("{}: in use: {}", path.display(), use_of(*.mounted, holder.as_ref()))]
    InUse {
        /// The file.
        path: PathBuf,
        /// A block device refused exclusive use; otherwise a lock on the file.
        mounted: bool,
        /// The holder, as far as it is visible.
        holder: Option<Holder>,
    },
    /// Writing the file would change what a loop device shows without its user's knowledge.
    #[error("{}: in use: backs the loop device {}{}", path.display(), loop_device.display(), mounted_on(mount.as_deref()))]
    BacksLoopDevice {
        /// The file.
        path: PathBuf,
        /// The loop device.
        loop_device: PathBuf,
        /// Where that is mounted, if it is.
        mount: Option<PathBuf>,
    },
    /// The file system does not do requests around the page cache.
    #[error("{}: the file system does not support direct I/O (O_DIRECT)", path.display())]
    NoDirect {
        /// The file.
        path: PathBuf,
    },
    /// A size was given for a block device.
    #[error("{}: cannot resize a block device", path.display())]
    FixedSize {
        /// The device.
        path: PathBuf,
    },
}

impl FileError {
    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Open { source, .. } => errno::of_io(source),
            Self::NotADevice { .. } | Self::NoDirect { .. } | Self::FixedSize { .. } => {
                errno::EINVAL
            }
            Self::ReadOnly { .. } => errno::EROFS,
            Self::InUse { .. } | Self::BacksLoopDevice { .. } => errno::EBUSY,
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> io::ErrorKind {
        errno::kind(self.errno())
    }
}

fn use_of(mounted: bool, holder: Option<&Holder>) -> String {
    match (mounted, holder) {
        (true, Some(holder @ Holder::Mount(_))) => format!("mounted {holder}"),
        (true, Some(holder @ Holder::Process { .. })) => format!("opened exclusively {holder}"),
        (true, Some(holder)) => format!("used {holder}"),
        (true, None) => "mounted or opened exclusively".to_owned(),
        (false, Some(holder)) => format!("locked {holder}"),
        (false, None) => "locked by another program".to_owned(),
    }
}

fn mounted_on(mount: Option<&Path>) -> String {
    mount.map_or_else(String::new, |place| format!(", mounted on {}", place.display()))
}

/// How long a lock on a block device is waited for at least: udev holds a shared one while it
/// probes a device that was just written.
const PROBING: Duration = Duration::from_secs(3);
/// How long a program that is about to give a file back is waited for.
const CLOSING: Duration = Duration::from_secs(30);
/// The pause between two tries at what is in use.
const PAUSE: Duration = Duration::from_millis(20);
/// Number of retries of a block device that is in use, and the pauses after them: a process that
/// another thread just starts holds copies of all descriptors for a short time, and with them those
/// that were closed.
const BUSY_TRIES: usize = 10;
const BUSY_PAUSE: rustix::thread::Timespec =
    rustix::thread::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

impl FileDevice {
    /// Opens a file or block device for reading, through the page cache and without a lock.
    ///
    /// # Errors
    /// As [`FileDeviceOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        FileDeviceOptions::new().open(path)
    }

    /// Makes a new file of `size` bytes, all hole, for reading and writing.
    ///
    /// # Errors
    /// The file is there already, or as [`FileDeviceOptions::open`].
    pub fn create_new(path: impl AsRef<Path>, size: u64) -> Result<Self, FileError> {
        FileDeviceOptions::new().write(true).create_new(true).size(size).open(path)
    }
}

impl FileDeviceOptions {
    /// For reading, through the page cache, without a lock.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads and writes. The device is had exclusively: a block device is opened O_EXCL, and either
    /// kind is locked.
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Makes the file if it is not there. Needs [`FileDeviceOptions::write`].
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Makes the file, which must not be there. Needs [`FileDeviceOptions::write`].
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Empties a regular file, once it is locked. Needs [`FileDeviceOptions::write`].
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Gives a regular file this size in bytes, once it is locked. Needs
    /// [`FileDeviceOptions::write`].
    pub fn size(mut self, size: u64) -> Self {
        self.size = Some(size);
        self
    }

    /// Whether requests go around the page cache.
    pub fn direct(mut self, direct: Direct) -> Self {
        self.direct = direct;
        self
    }

    /// Whether [`Device::read_around`](crate::Device::read_around) and
    /// [`Device::write_around`](crate::Device::write_around) go around the page cache of a device
    /// that otherwise goes through it. Where the file system cannot, nothing is different.
    pub fn around_cache(mut self, around_cache: bool) -> Self {
        self.around_cache = around_cache;
        self
    }

    /// Locks a device opened for reading against its writers.
    pub fn shared_lock(mut self, shared_lock: bool) -> Self {
        self.shared_lock = shared_lock;
        self
    }

    /// Also takes the lock by which QEMU excludes other users of an image that it writes: an image
    /// that a virtual machine runs on is in use, and none is started on this one.
    pub fn locks_for_qemu(mut self, locks_for_qemu: bool) -> Self {
        self.locks_for_qemu = locks_for_qemu;
        self
    }

    /// Opens a block device without O_EXCL: another program claims it for the caller, as the kernel
    /// does for a mount.
    pub fn claimed(mut self, claimed: bool) -> Self {
        self.claimed = claimed;
        self
    }

    /// Opens without changing the times of a regular file: whether its file system can punch holes
    /// is seen at the first hole, and not before.
    pub fn keeps_times(mut self, keeps_times: bool) -> Self {
        self.keeps_times = keeps_times;
        self
    }

    /// Whether a file that backs a loop device is written.
    pub fn loop_backing(mut self, loop_backing: LoopBacking) -> Self {
        self.loop_backing = loop_backing;
        self
    }

    /// How long a lock of another program is waited for. Without it the open fails at once; a lock
    /// on a block device is waited for at least three seconds, since udev takes one for a short
    /// time.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long any use by others is waited for: a lock, a mount, a loop device. [`Duration::MAX`]
    /// waits without end.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Waits up to 30 seconds for the program that has locked a file if `is_closing` is true of the
    /// file: that program is about to close it.
    pub fn wait_while(mut self, is_closing: fn(&Path) -> bool) -> Self {
        self.is_closing = Some(is_closing);
        self
    }

    /// Whether the file is to be written.
    pub fn writes(&self) -> bool {
        self.write
    }

    /// Whether a file that is not there is made.
    pub fn makes(&self) -> bool {
        self.write && (self.create || self.create_new)
    }

    /// The size that a file is given, in bytes.
    pub fn new_size(&self) -> Option<u64> {
        self.size
    }

    /// Without what makes a file or changes its size.
    pub fn without_changes(mut self) -> Self {
        (self.create, self.create_new, self.truncate, self.size) = (false, false, false, None);
        self
    }

    /// Opens the file or block device at `path`.
    ///
    /// # Errors
    /// See [`FileError`]. Nothing was changed then, except that a new file may have been made.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<FileDevice, FileError> {
        let path = path.as_ref();
        // A try at a busy device takes its time too.
        let (clock, mut is_sure) = (Env::threads(), self.is_closing.is_none());
        loop {
            match self.open_once(path) {
                Err(error) if self.is_closing_after(&error) && clock.elapsed() < CLOSING => {
                    is_sure = false;
                    pause();
                }
                // It may have been given back between the two looks.
                Err(FileError::InUse { .. }) if !std::mem::replace(&mut is_sure, true) => {}
                Err(error) if clock.elapsed() < self.patience_with(&error) => pause(),
                Err(error) => return Err(error.with_holder()),
                opened => return opened,
            }
        }
    }

    fn is_closing_after(&self, error: &FileError) -> bool {
        let FileError::InUse { path, mounted: false, .. } = error else { return false };
        self.is_closing.is_some_and(|is_closing| is_closing(path))
    }

    fn patience_with(&self, error: &FileError) -> Duration {
        match error {
            FileError::InUse { path, mounted: false, .. } => {
                let is_block =
                    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
                let least = if is_block { PROBING } else { Duration::ZERO };
                self.wait.max(self.patience).max(least)
            }
            FileError::InUse { .. } | FileError::BacksLoopDevice { .. } => self.wait,
            _ => Duration::ZERO,
        }
    }

    fn open_once(&self, path: &Path) -> Result<FileDevice, FileError> {
        let failed = |source| FileError::Open { path: path.to_owned(), source };
        // Checked first: opening a fifo would wait for its other end.
        let is_block = match fs::metadata(path) {
            Ok(metadata) => is_block(path, &metadata)?,
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && (self.create || self.create_new) =>
            {
                false
            }
            Err(error) => return Err(failed(error)),
        };
        let file = self.open_file(path, is_block)?;
        let metadata = file.metadata().map_err(failed)?;
        if is_block != self::is_block(path, &metadata)? {
            return Err(FileError::NotADevice { path: path.to_owned() });
        }
        // The kernel opens some of them for writing, and fails each write.
        if is_block
            && self.write
            && ioctl::is_read_only(&file).map_err(|errno| failed(errno.into()))?
        {
            return Err(FileError::ReadOnly { path: path.to_owned() });
        }
        self.lock(path, &file)?;
        if self.write {
            self.refuse_loop_backing(path, &metadata)?;
        }
        if is_block && self.size.is_some() {
            return Err(FileError::FixedSize { path: path.to_owned() });
        }
        if self.write && self.truncate && !is_block {
            file.set_len(0).map_err(failed)?;
        }
        if let (true, Some(size)) = (self.write, self.size) {
            file.set_len(size).map_err(failed)?;
        }
        self.finish(path, file, is_block).map_err(failed)
    }

    fn open_file(&self, path: &Path, is_block: bool) -> Result<File, FileError> {
        let failed = |source| FileError::Open { path: path.to_owned(), source };
        let mut flags = OFlags::CLOEXEC;
        if is_block && self.write && !self.claimed {
            flags |= OFlags::EXCL;
        }
        let open_once = |flags: OFlags| {
            fs::OpenOptions::new()
                .read(true)
                .write(self.write)
                .create(self.create)
                .create_new(self.create_new && !is_block)
                .custom_flags(flags.bits().cast_signed())
                .open(path)
        };
        let is_busy = |result: &io::Result<File>| {
            is_block && result.as_ref().is_err_and(|error| is_errno(error, Errno::BUSY))
        };
        let open = |flags| {
            let mut result = open_once(flags);
            for _ in 0..BUSY_TRIES {
                if !is_busy(&result) {
                    break;
                }
                let _ = rustix::thread::nanosleep(&BUSY_PAUSE);
                result = open_once(flags);
            }
            result
        };
        let result =
            if self.direct == Direct::Off { open(flags) } else { open(flags | OFlags::DIRECT) };
        match result {
            Err(error) if self.direct != Direct::Off && is_errno(&error, Errno::INVAL) => {
                if self.direct == Direct::Required {
                    return Err(FileError::NoDirect { path: path.to_owned() });
                }
                // Linux may have made the new file before it found that it cannot open it so.
                let mut again = self.clone();
                (again.direct, again.create) = (Direct::Off, self.create || self.create_new);
                again.create_new = false;
                again.open_file(path, is_block)
            }
            Err(error) if is_block && is_errno(&error, Errno::BUSY) => {
                Err(FileError::in_use(path, true))
            }
            result => result.map_err(failed),
        }
    }

    fn lock(&self, path: &Path, file: &File) -> Result<(), FileError> {
        let mode = match (self.write, self.shared_lock) {
            (true, _) => Mode::Exclusive,
            (false, true) => Mode::Shared,
            (false, false) => return Ok(()),
        };
        let for_qemu = || match self.write && self.locks_for_qemu {
            true => lock::take_for_qemu(file),
            false => Ok(()),
        };
        match lock::take(file, mode).and_then(|()| for_qemu()) {
            Ok(()) => Ok(()),
            Err(Errno::WOULDBLOCK) => Err(FileError::in_use(path, false)),
            // A file system without locks cannot protect the image; the work is not refused for
            // that.
            Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) => {
                tracing::warn!(path = %path.display(), "the file system has no locks");
                Ok(())
            }
            Err(errno) => Err(FileError::Open { path: path.to_owned(), source: errno.into() }),
        }
    }

    fn refuse_loop_backing(&self, path: &Path, metadata: &Metadata) -> Result<(), FileError> {
        if self.loop_backing == LoopBacking::Written {
            return Ok(());
        }
        for loop_device in loop_devices_backed_by(metadata) {
            if self.loop_backing == LoopBacking::Refused || is_claimed(&loop_device) {
                let number = fs::metadata(&loop_device).map(|found| found.rdev());
                let mount = number.ok().and_then(lock::mounted_on);
                let path = path.to_owned();
                return Err(FileError::BacksLoopDevice { path, loop_device, mount });
            }
        }
        Ok(())
    }

    fn finish(&self, path: &Path, file: File, is_block: bool) -> io::Result<FileDevice> {
        let size = if is_block { ioctl::size(&file)? } else { file.metadata()?.len() };
        let is_direct = rustix::fs::fcntl_getfl(&file)?.contains(OFlags::DIRECT);
        let sector_size = if is_block { rustix::fs::ioctl_blksszget(&file)? } else { 512 };
        let direct = if is_direct {
            let (sector, memory) = direct_alignment(&file, is_block.then_some(sector_size));
            let cached = (!is_block)
                .then(|| fs::OpenOptions::new().read(true).write(self.write).open(path))
                .transpose()?;
            if let Some(cached) = &cached {
                let (a, b) = (cached.metadata()?, file.metadata()?);
                if (a.dev(), a.ino()) != (b.dev(), b.ino()) {
                    return Err(io::Error::other("the file was replaced while it was opened"));
                }
            }
            Some(DirectFile::new(cached, sector, memory))
        } else {
            None
        };
        let around = match self.around_cache && !is_direct {
            true => Around::open(path, &file, size, self.write, is_block.then_some(sector_size)),
            false => None,
        };
        let ring = match &direct {
            Some(direct) if self.write => Ring::new(direct.alignment()).map(Box::new),
            _ => None,
        };
        let punches = !is_block && self.write && (self.keeps_times || can_punch(&file, size));
        Ok(FileDevice {
            file,
            path: path.to_owned(),
            size: AtomicU64::new(size),
            is_block,
            read_only: !self.write,
            sector_size,
            direct,
            ring,
            around: around.map(Box::new),
            punches: AtomicBool::new(punches),
        })
    }
}

impl FileError {
    fn in_use(path: &Path, mounted: bool) -> Self {
        Self::InUse { path: path.to_owned(), mounted, holder: None }
    }

    /// The same with the file's holder: the search is done only in the last try.
    fn with_holder(self) -> Self {
        let Self::InUse { path, mounted, .. } = self else { return self };
        let holder = match mounted {
            true => fs::metadata(&path).ok().and_then(|found| lock::claimed_by(found.rdev())),
            false => File::open(&path).ok().and_then(|file| lock::locked_by(&file)),
        };
        Self::InUse { path, mounted, holder }
    }
}

/// Sleeps between two tries at what is in use.
fn pause() {
    let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() };
    let _ = rustix::thread::nanosleep(&pause);
}

/// Whether a block device is mounted or otherwise claimed: the kernel gives it to no other program
/// then.
fn is_claimed(device: &Path) -> bool {
    let flags = (OFlags::EXCL | OFlags::CLOEXEC).bits().cast_signed();
    match fs::OpenOptions::new().read(true).custom_flags(flags).open(device) {
        Ok(_) => false,
        Err(error) if is_errno(&error, Errno::BUSY) => true,
        // It cannot be opened without privilege: the mounts give the answer.
        Err(_) => fs::metadata(device).is_ok_and(|found| lock::mounted_on(found.rdev()).is_some()),
    }
}

/// How to work on an image that comes from a pipe or a socket.
fn stream_hint(path: &Path) -> &'static str {
    let kind = fs::metadata(path).map(|found| found.file_type());
    match kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket()) {
        true => ": save the image to a file first",
        false => "",
    }
}

fn is_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

fn is_block(path: &Path, metadata: &Metadata) -> Result<bool, FileError> {
    match metadata.file_type() {
        kind if kind.is_file() => Ok(false),
        kind if kind.is_block_device() => Ok(true),
        _ => Err(FileError::NotADevice { path: path.to_owned() }),
    }
}

/// Tried past the end of the file, where no data can be lost.
fn can_punch(file: &File, size: u64) -> bool {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, size.next_multiple_of(4096), 4096).is_ok()
}

/// The loop devices that show this file. Files are the same if device and inode are.
fn loop_devices_backed_by(metadata: &Metadata) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let name: OsString = entry.file_name();
        if !name.as_encoded_bytes().starts_with(b"loop") {
            continue;
        }
        let Ok(mut backing) = fs::read(entry.path().join("loop/backing_file")) else { continue };
        while backing.last() == Some(&b'\n') {
            backing.pop();
        }
        let backing: OsString = std::os::unix::ffi::OsStringExt::from_vec(backing);
        let Ok(other) = fs::metadata(backing) else { continue };
        let same_file = (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
        let same_device = other.file_type().is_block_device()
            && metadata.file_type().is_block_device()
            && other.rdev() == metadata.rdev();
        if same_file || same_device {
            found.push(Path::new("/dev").join(name));
        }
    }
    found
}
