//! Unmounting from outside, and waiting until everything is on the device.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mountpoint::{Detach, canonical_point, detach, mount_at, mounts};
use crate::{MountError, transport};

/// Time between two tests of the image's lock.
const PAUSE: Duration = Duration::from_millis(5);

/// How long a mount that is busy is tried again.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long the server may take to thaw its volume.
const ANSWER: Duration = Duration::from_secs(5);
/// Time between two tries: calls in sequence leave moments between them.
const SHORT_PAUSE: Duration = Duration::from_micros(200);

/// Unmounts `point` and returns when its server has ended or has released the image: everything is
/// on the device then. With `lazy` the name is removed at once, even while files are open, without
/// waiting.
///
/// # Errors
/// Nothing of ours is mounted there, or files are open.
pub fn unmount(point: &Path, lazy: bool) -> Result<(), MountError> {
    let failed =
        |source| MountError::System { path: point.to_owned(), what: "cannot be unmounted", source };
    let point = canonical_point(point)?;
    let entry = mount_at(&point)
        .map_err(failed)?
        .filter(|entry| entry.is_ours())
        .ok_or_else(|| MountError::NotMounted(point.clone()))?;
    thaw(&point);
    let servers = servers(&point);
    let detached = if lazy { detach(&point, Detach::Now) } else { detach_soon(&point) };
    detached.map_err(failed)?;
    if lazy || entry.read_only {
        return Ok(());
    }
    wait_for(&servers, &point).map_err(failed)?;
    // A server in the process of another program has the lock only. An image that we may not open
    // is one whose lock we cannot see.
    let Ok(image) = File::open(&entry.source) else { return Ok(()) };
    while is_locked(&image).map_err(failed)? {
        let is_mounted_again =
            mounts().map_err(failed)?.any(|other| other.is_ours() && other.source == entry.source);
        if is_mounted_again {
            break;
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Unmounts `point` as `umount -f` does: calls that wait for the server end in errors, without
/// waiting for the server. With `lazy` the name is removed even while files are open.
///
/// # Errors
/// The kernel refuses: files are open, or the caller is not root.
pub fn unmount_by_force(point: &Path, lazy: bool) -> Result<(), MountError> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let flags = flags | UnmountFlags::FORCE | UnmountFlags::NOFOLLOW;
    let failed = |errno: Errno| MountError::System {
        path: point.to_owned(),
        what: "cannot be unmounted",
        source: errno.into(),
    };
    rustix::mount::unmount(point, flags).map_err(failed)
}

/// Thaws a frozen volume: the kernel writes back its cache before it unmounts, and without a mount
/// point it cannot be thawed. A server that does not answer within [`ANSWER`] is left alone.
fn thaw(point: &Path) {
    let (point, (done, thawed)) = (point.to_owned(), channel());
    thread::spawn(move || {
        if let Ok(root) = File::open(&point) {
            // Most are not frozen.
            let _ = transport::thaw(&root);
        }
        let _ = done.send(());
    });
    // It is over before, or given up.
    let _ = thawed.recv_timeout(ANSWER);
}

/// Unmounts once no file is open. System calls of other programs that are in progress, such as
/// `statfs`, keep a mount busy for a moment, so that EBUSY is retried.
fn detach_soon(point: &Path) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match detach(point, Detach::IfIdle) {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && begun.elapsed() < PATIENCE =>
            {
                thread::sleep(SHORT_PAUSE);
            }
            done => return done,
        }
    }
}

/// Whether a server of ours whose mount is gone has the lock of an image: it gives it back when all
/// is on the device. umount(8) does not wait for that.
pub fn is_closing(image: &Path) -> bool {
    let Ok(image) = image.canonicalize() else { return false };
    let Ok(mut all) = mounts() else { return false };
    !all.any(|entry| entry.is_ours() && entry.source == image)
        && holders(&image).iter().any(|process| is_server(process))
}

/// The processes that have locks on a file, as far as the kernel shows them; also of files with its
/// number in other file systems, as btrfs shows different devices there.
fn holders(file: &Path) -> Vec<String> {
    let (Ok(metadata), Ok(table)) = (fs::metadata(file), fs::read_to_string("/proc/locks")) else {
        return Vec::new();
    };
    // 1: FLOCK ADVISORY WRITE 4711 fe:00:262147 0 EOF
    let number = format!(":{}", metadata.ino());
    let holder = |line: &str| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let is_meant = fields.get(1) == Some(&"FLOCK")
            && fields.get(5).is_some_and(|place| place.ends_with(&number));
        fields.get(4).filter(|_| is_meant).map(|process| (*process).to_owned())
    };
    table.lines().filter_map(holder).collect()
}

/// Whether a process is a server of ours.
fn is_server(process: &str) -> bool {
    let words = command_line(process);
    words.windows(2).any(|pair| pair == [b"--role".as_slice(), b"server"])
}

/// Whether a process is a server of ours of a mount point, which is its last word.
fn is_server_of(process: &str, point: &Path) -> bool {
    is_server(process)
        && command_line(process).last().is_some_and(|word| word == point.as_os_str().as_bytes())
}

/// The words of a process; none once it has ended.
fn command_line(process: &str) -> Vec<Vec<u8>> {
    let text = fs::read(Path::new("/proc").join(process).join("cmdline")).unwrap_or_default();
    let words = text.split(|byte| *byte == 0).map(<[u8]>::to_vec);
    let mut words: Vec<_> = words.collect();
    // Each word ends with a zero byte.
    words.pop();
    words
}

/// The servers of the mounts at a point, as far as `/proc` shows them. A server of an image that is
/// no file of this machine has no lock that could be waited for.
fn servers(point: &Path) -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let names = processes.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let names = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    names.filter(|name| is_server_of(name, point)).collect()
}

/// Waits until those of the servers have ended whose mounts are gone.
fn wait_for(servers: &[String], point: &Path) -> io::Result<()> {
    loop {
        let left = servers.iter().filter(|process| is_server_of(process, point)).count();
        if left == 0 {
            return Ok(());
        }
        let mounted = mounts()?.filter(|entry| entry.is_ours() && entry.point == point).count();
        if left <= mounted {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
}

fn is_locked(image: &File) -> io::Result<bool> {
    match rustix::fs::flock(image, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            rustix::fs::flock(image, FlockOperation::Unlock)?;
            Ok(false)
        }
        Err(Errno::WOULDBLOCK) => Ok(true),
        // Without locks there is nothing to wait for.
        Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
