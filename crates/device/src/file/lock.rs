//! Locks on files and block devices: between extant's processes, and with other programs.
//!
//! There are two, since each does what the other cannot:
//! - flock(2) on the whole file is what other programs take. systemd's protocol for block devices
//!   is this lock ("Locking Block Device Access", systemd.io): udev does not probe a device while
//!   it is held. `flock`, `udevadm lock` and systemd-repart hold it while they run a command on the
//!   device, so that a lock of an ancestor counts as ours.
//! - A record lock of the open file description (fcntl(2), F_OFD_SETLK) on one byte after the end
//!   of every file excludes other processes of extant, which may all run under the lock of one
//!   ancestor.

use std::fmt;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// The byte by which processes of extant exclude each other.
const OURS_AT: i64 = i64::MAX - 1;
/// A byte that is locked for a short time, so that the kernel shows by which name it lists the
/// locks of a file.
const NAME_AT: i64 = i64::MAX - 2;
/// The bytes on which QEMU has record locks (F_OFD_SETLK): from 100 on for what a process does with
/// an image, from 200 on for what it does not want of others.
const QEMU_AT: i64 = 100;
const QEMU_BYTES: i64 = 200;
/// Number of ancestors that are examined at most.
const MOST_ANCESTORS: usize = 1000;

/// How a file is locked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mode {
    /// Shared with other readers.
    Shared,
    /// Without others.
    Exclusive,
}

/// The holder of a file or a block device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Holder {
    /// A process, by its number and name.
    Process {
        /// Its number.
        pid: u32,
        /// The name of its program, at most 15 bytes of it.
        name: String,
    },
    /// A file system that is mounted there.
    Mount(PathBuf),
    /// A block device that is made of it, by its name.
    Device(String),
    /// The kernel swaps to it.
    Swap,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, name } => write!(f, "by {name} (process {pid})"),
            Self::Mount(path) => write!(f, "on {}", path.display()),
            Self::Device(name) => write!(f, "by the block device {name}"),
            Self::Swap => f.write_str("as swap space"),
        }
    }
}

/// Locks a file without waiting. The error is [`Errno::WOULDBLOCK`] where another program, or
/// another open device of ours, has it locked.
pub(super) fn take(file: &File, mode: Mode) -> Result<(), Errno> {
    let (byte, whole) = match mode {
        Mode::Shared => (libc::F_RDLCK, FlockOperation::NonBlockingLockShared),
        Mode::Exclusive => (libc::F_WRLCK, FlockOperation::NonBlockingLockExclusive),
    };
    let excludes_ours = match record_lock(file, byte, OURS_AT, 1) {
        Ok(()) => true,
        Err(Errno::WOULDBLOCK | Errno::ACCESS) => return Err(Errno::WOULDBLOCK),
        // A file system without record locks: flock alone decides.
        Err(_) => false,
    };
    match rustix::fs::flock(file, whole) {
        Err(Errno::WOULDBLOCK) if excludes_ours && is_locked_by_ancestor(file) => Ok(()),
        Err(errno) => {
            release(file);
            Err(errno)
        }
        Ok(()) => Ok(()),
    }
}

/// Releases both locks explicitly: a process that another thread is just starting holds a copy of
/// the descriptor for a short time, and with it the locks. A file without locks does not mind.
pub(super) fn release(file: &File) {
    let _ = record_lock(file, libc::F_UNLCK, OURS_AT, 1);
    let _ = record_lock(file, libc::F_UNLCK, QEMU_AT, QEMU_BYTES);
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

/// Locks the bytes of a file by which QEMU's processes exclude each other. The error is
/// [`Errno::WOULDBLOCK`] where one of them has opened the image to be written.
pub(super) fn take_for_qemu(file: &File) -> Result<(), Errno> {
    match record_lock(file, libc::F_WRLCK, QEMU_AT, QEMU_BYTES) {
        Err(Errno::WOULDBLOCK | Errno::ACCESS) => Err(Errno::WOULDBLOCK),
        // A file system without record locks: QEMU has none there either.
        _ => Ok(()),
    }
}

/// Sets or clears a record lock on some bytes for the open file description.
#[allow(unsafe_code)]
fn record_lock(file: &File, kind: libc::c_int, at: i64, length: i64) -> Result<(), Errno> {
    let lock = libc::flock {
        // The constants are 0, 1 and 2, SEEK_SET is 0.
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at,
        l_len: length,
        l_pid: 0,
    };
    let lock: *const libc::flock = &raw const lock;
    // SAFETY: the descriptor is open as long as `file` is borrowed, and F_OFD_SETLK reads one
    // `flock`, which `lock` points to and which lives until the call returns.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, lock) };
    match done {
        -1 => {
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
        }
        _ => Ok(()),
    }
}

/// The name by which the kernel lists a file's locks: its device and inode as the kernel has them,
/// which need not be those that stat(2) gives.
fn listed_as(file: &File) -> Option<String> {
    record_lock(file, libc::F_RDLCK, NAME_AT, 1).ok()?;
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()));
    let _ = record_lock(file, libc::F_UNLCK, NAME_AT, 1);
    info.ok()?.lines().find_map(|line| Some(Listed::parse(line)?.name.to_owned()))
}

/// A lock as proc_pid_fdinfo(5) shows it: `lock: 1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF`.
struct Listed<'l> {
    kind: &'l str,
    access: &'l str,
    /// The process that has locked it.
    pid: &'l str,
    name: &'l str,
}

impl<'l> Listed<'l> {
    fn parse(line: &'l str) -> Option<Self> {
        Self::parse_entry(line.strip_prefix("lock:")?)
    }

    /// The same as /proc/locks has it: `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`.
    fn parse_entry(line: &'l str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(1);
        let (kind, _, access) = (words.next()?, words.next()?, words.next()?);
        let (pid, name) = (words.next()?, words.next()?);
        Some(Self { kind, access, pid, name })
    }
}

/// Whether this process or its ancestors hold the flock of the file: an exclusive one, or all that
/// are shared.
fn is_locked_by_ancestor(file: &File) -> bool {
    let Some(name) = listed_as(file) else { return false };
    let is_flock = |lock: &Listed<'_>| lock.kind == "FLOCK" && lock.name == name;
    let ancestors = ancestors();
    let is_exclusive = |lock: &Listed<'_>| is_flock(lock) && lock.access == "WRITE";
    if ancestors.iter().any(|pid| holds(*pid, &is_exclusive)) {
        return true;
    }
    let Ok(table) = fs::read_to_string("/proc/locks") else { return false };
    let mut all = table.lines().filter_map(Listed::parse_entry).filter(is_flock).peekable();
    all.peek().is_some()
        && all.all(|lock| {
            let is_this = |other: &Listed<'_>| is_flock(other) && other.pid == lock.pid;
            ancestors.iter().any(|pid| holds(*pid, &is_this))
        })
}

/// This process, its parent and so on.
fn ancestors() -> Vec<u32> {
    let first = Some(std::process::id());
    let next = |pid: &u32| parent_of(*pid).filter(|parent| *parent != 0);
    std::iter::successors(first, next).take(MOST_ANCESTORS).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

/// Whether an open file description of the process has such a lock.
fn holds(pid: u32, is_meant: &dyn Fn(&Listed<'_>) -> bool) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return false };
    descriptors.flatten().any(|descriptor| {
        fs::read_to_string(descriptor.path())
            .is_ok_and(|info| info.lines().filter_map(Listed::parse).any(|lock| is_meant(&lock)))
    })
}

/// The first process that has the file locked, where it can be seen.
pub(super) fn locked_by(file: &File) -> Option<Holder> {
    let name = listed_as(file)?;
    let pid = processes().into_iter().find(|pid| holds(*pid, &|lock| lock.name == name))?;
    Some(process(pid))
}

/// The holder of a block device, or of a partition of it, as far as it is visible.
pub(super) fn claimed_by(number: u64) -> Option<Holder> {
    let directory = sysfs(number);
    let mut numbers = vec![number];
    for child in fs::read_dir(&directory).into_iter().flatten().flatten() {
        let number = fs::read_to_string(child.path().join("dev")).ok();
        numbers.extend(number.and_then(|text| device_number(text.trim())));
    }
    numbers.iter().find_map(|number| {
        mounted_on(*number)
            .map(Holder::Mount)
            .or_else(|| made_of(*number))
            .or_else(|| is_swap(*number).then_some(Holder::Swap))
            .or_else(|| opened_by(*number))
    })
}

fn sysfs(number: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Whether a path is the node of a block device.
fn is_node_of(path: &Path, number: u64) -> bool {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    fs::metadata(path)
        .is_ok_and(|found| found.file_type().is_block_device() && found.rdev() == number)
}

/// A mount of a block device in this mount namespace.
pub(crate) struct DeviceMount {
    /// The directory.
    pub(crate) place: PathBuf,
    /// The type of the file system, as the kernel names it.
    pub(crate) kind: String,
    /// Whether the file system is read-only, whatever this mount of it is.
    pub(crate) is_read_only: bool,
}

/// Where a block device is mounted in this mount namespace.
pub(super) fn mounted_on(number: u64) -> Option<PathBuf> {
    mount_of(number).map(|mount| mount.place)
}

/// The first mount of a block device in this mount namespace.
pub(crate) fn mount_of(number: u64) -> Option<DeviceMount> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (device, place) = (words.nth(2)?, words.nth(1)?);
        let mut after = line.split_once(" - ")?.1.split(' ');
        // Some file systems have a number of their own.
        let (kind, source) = (after.next()?, after.next()?);
        let is_read_only = after.next()?.split(',').any(|option| option == "ro");
        let is_there = device_number(device) == Some(number)
            || source.starts_with('/') && is_node_of(&unescaped(source), number);
        let mount = || DeviceMount { place: unescaped(place), kind: kind.to_owned(), is_read_only };
        is_there.then(mount)
    })
}

/// A path of mountinfo or of /proc/swaps, where blanks are `\040`.
fn unescaped(text: &str) -> PathBuf {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).map(|octal| u8::from_str_radix(octal, 8)) {
            Some(Ok(byte)) if byte.is_ascii() => {
                path.push(char::from(byte));
                path.push_str(part.get(3..).unwrap_or_default());
            }
            _ => {
                path.push('\\');
                path.push_str(part);
            }
        }
    }
    PathBuf::from(path)
}

fn made_of(number: u64) -> Option<Holder> {
    let upper = fs::read_dir(sysfs(number).join("holders")).ok()?.flatten().next()?;
    let name = fs::read_to_string(upper.path().join("dm/name")).ok();
    let name = name.map(|name| name.trim().to_owned());
    Some(Holder::Device(name.unwrap_or_else(|| upper.file_name().to_string_lossy().into_owned())))
}

fn is_swap(number: u64) -> bool {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut paths = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    paths.any(|path| is_node_of(&unescaped(path), number))
}

/// The first process that has opened a block device exclusively.
fn opened_by(number: u64) -> Option<Holder> {
    let has = |pid: u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut descriptors = descriptors.filter(|it| is_node_of(&it.path(), number));
        descriptors.any(|descriptor| {
            let number = descriptor.file_name().to_str().and_then(|name| name.parse().ok());
            number.is_some_and(|descriptor| is_exclusive(pid, descriptor))
        })
    };
    processes().into_iter().find(|pid| has(*pid)).map(process)
}

fn is_exclusive(pid: u32, descriptor: RawFd) -> bool {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|text| i32::from_str_radix(text.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_EXCL != 0)
}

/// All processes that can be seen, the oldest numbers first.
fn processes() -> Vec<u32> {
    let names =
        fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut pids: Vec<u32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

fn process(pid: u32) -> Holder {
    let own = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let comm = own("comm");
    let called = own("cmdline");
    let called = called.split('\0').next().and_then(|path| path.rsplit('/').next());
    let name = match (comm.trim_end(), called) {
        // Started as /proc/self/exe: its argument 0 is more useful.
        ("exe", Some(called)) if !called.is_empty() => called,
        ("", _) => "a program",
        (comm, _) => comm,
    };
    Holder::Process { pid, name: name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_read_as_the_kernel_shows_it() {
        let line = "lock:\t1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF";
        let lock = Listed::parse(line).expect("it is a lock");
        assert_eq!((lock.kind, lock.access, lock.name), ("FLOCK", "WRITE", "08:01:5678"));
        assert!(Listed::parse("pos:\t0").is_none());
        assert!(Listed::parse("lock:\t1: FLOCK").is_none());
    }

    #[test]
    fn blanks_of_a_listed_path_are_read() {
        assert_eq!(unescaped("/mnt/a\\040b\\134"), Path::new("/mnt/a b\\"));
        assert_eq!(unescaped("/mnt/\\9"), Path::new("/mnt/\\9"));
    }
}
