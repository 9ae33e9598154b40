//! Mounting, unmounting, and the kernel's table of mounts.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::MountError;
use crate::options::MountOptions;

/// Bytes that one request carries at most.
pub(crate) const MAX_REQUEST: u32 = 1 << 20;
/// The file system type that the kernel shows; and that of mounts that hold their block device,
/// whose servers receive syncfs and the end of the mount.
const FS_TYPE: &str = "fuse.extant";
const BLOCK_FS_TYPE: &str = "fuseblk.extant";
/// The block size of such a mount: every device has that or smaller sectors.
const BLOCK_SIZE: u32 = 4096;
/// Where the control file system of FUSE is mounted, if it is (`filesystems/fuse/fuse.rst` of the
/// kernel's documentation).
const CONTROL: &str = "/sys/fs/fuse/connections";
/// The setuid helper of FUSE, found by PATH.
const FUSERMOUNT: &str = "fusermount3";

/// A line of the kernel's table of mounts (`/proc/self/mountinfo`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MountEntry {
    /// The device number of the mount, `MAJOR:MINOR`.
    pub device: String,
    /// Where it is.
    pub point: PathBuf,
    /// Its type, as `fuse.extant`.
    pub fs_type: String,
    /// The source of the mount: for us the image.
    pub source: PathBuf,
    /// Whether it is read-only.
    pub read_only: bool,
}

impl MountEntry {
    /// Whether it is one of ours.
    pub fn is_ours(&self) -> bool {
        self.fs_type == FS_TYPE || self.fs_type == BLOCK_FS_TYPE
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let separator = fields.iter().position(|field| *field == b"-")?;
        let text = |at: usize| Some(String::from_utf8_lossy(fields.get(at)?).into_owned());
        let path = |at: usize| Some(PathBuf::from(unescaped(fields.get(at)?)));
        let is_read_only =
            |options: &[u8]| options.split(|byte| *byte == b',').any(|one| one == b"ro");
        Some(Self {
            device: text(2)?,
            point: path(4)?,
            fs_type: text(separator + 1)?,
            source: path(separator + 2)?,
            read_only: is_read_only(fields.get(5)?),
        })
    }
}

/// Blanks and special characters are written as three octal digits there.
fn unescaped(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits =
            tail.get(..3).filter(|digits| first == b'\\' && digits.iter().all(u8::is_ascii_digit));
        match digits {
            Some(digits) => {
                let value =
                    digits.iter().fold(0, |value: u32, digit| value << 3 | u32::from(digit & 7));
                bytes.push((value & 0xff) as u8);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// Where the kernel shows the connection of the mount of that device number (`MAJOR:MINOR`) to its
/// server: under one number, as the kernel keeps both together.
pub(crate) fn control_dir(device: &str) -> Option<PathBuf> {
    let (major, minor) = device.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(Path::new(CONTROL).join((major << 20 | minor).to_string()))
}

/// The mounts, in the order of the kernel's table.
pub(crate) fn mounts() -> io::Result<impl Iterator<Item = MountEntry>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let entries: Vec<_> =
        table.split(|byte| *byte == b'\n').filter_map(MountEntry::parse).collect();
    Ok(entries.into_iter())
}

/// Whether a block device or an image is mounted, by the kernel or by a server of ours.
pub fn is_mounted(image: &Path) -> bool {
    let Ok(image) = image.canonicalize() else { return false };
    mounts().is_ok_and(|mut all| all.any(|entry| entry.source == image))
}

/// The last mount at a path, which is a mount point.
///
/// # Errors
/// The kernel's table cannot be read.
pub fn mount_at(point: &Path) -> io::Result<Option<MountEntry>> {
    Ok(mounts()?.filter(|entry| entry.point == point).last())
}

/// A path as in the kernel's table. The last component is not resolved: that would fail for a dead
/// mount.
///
/// # Errors
/// The directory that it lies in does not exist.
pub fn canonical_point(point: &Path) -> Result<PathBuf, MountError> {
    let failed =
        |source| MountError::System { path: point.to_owned(), what: "invalid mount point", source };
    if let Ok(canonical) = point.canonicalize() {
        return Ok(canonical);
    }
    let absolute = std::path::absolute(point).map_err(failed)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize().map_err(failed)?.join(name)),
        // The root, or a path that ends in `..`.
        _ => absolute.canonicalize().map_err(failed),
    }
}

/// Changes the flags of the mount at `point`: it becomes read-only, or executables are disabled.
/// Changes that need the server are refused.
///
/// # Errors
/// Nothing of ours is mounted there, or the kernel refused.
pub fn remount(point: &Path, options: &MountOptions) -> Result<(), MountError> {
    let failed =
        |source| MountError::System { path: point.to_owned(), what: "cannot be remounted", source };
    let entry = mount_at(point).map_err(failed)?.filter(MountEntry::is_ours);
    let entry = entry.ok_or_else(|| MountError::NotMounted(point.to_owned()))?;
    if entry.read_only && !options.read_only {
        return Err(failed(io::Error::other(
            "can only be remounted read-only; unmount and mount again for read-write",
        )));
    }
    rustix::mount::mount_remount(point, options.mount_flags(true), c"")
        .map_err(|errno| failed(errno.into()))
}

/// A mount that waits for its server: the connection to the kernel.
pub(crate) struct Mounted {
    pub(crate) connection: OwnedFd,
}

/// Whether the kernel can hold this image for a mount of ours: a block device, mounted by root.
pub(crate) fn can_hold(image: &Path) -> bool {
    rustix::process::geteuid().is_root()
        && fs::metadata(image).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Mounts a block device at `point` and has the kernel hold it; `None` where this kernel does not
/// know such mounts.
pub(crate) fn mount_holding(
    image: &Path,
    point: &Path,
    options: &MountOptions,
) -> Result<Option<Mounted>, MountError> {
    match mount_directly(image, point, options, BLOCK_FS_TYPE) {
        Err(MountError::System { source, .. })
            if matches!(Errno::from_io_error(&source), Some(Errno::NODEV | Errno::PERM)) =>
        {
            Ok(None)
        }
        done => done.map(Some),
    }
}

/// Mounts at `point`: directly where that is allowed, else by fusermount3.
pub(crate) fn mount(
    image: &Path,
    point: &Path,
    options: &MountOptions,
) -> Result<Mounted, MountError> {
    if rustix::process::geteuid().is_root() {
        match mount_directly(image, point, options, FS_TYPE) {
            Err(MountError::System { source, .. })
                if source.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {}
            done => return done,
        }
    }
    mount_by_helper(image, point, options)
}

fn mount_directly(
    image: &Path,
    point: &Path,
    options: &MountOptions,
    fs_type: &str,
) -> Result<Mounted, MountError> {
    let failed = |path: &Path, what, source: io::Error| MountError::System {
        path: path.to_owned(),
        what,
        source,
    };
    let device = Path::new("/dev/fuse");
    let connection = rustix::fs::open(device, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| failed(device, "cannot be opened", errno.into()))?;
    let metadata =
        fs::metadata(point).map_err(|source| failed(point, "invalid mount point", source))?;
    if !metadata.is_dir() {
        return Err(failed(point, "invalid mount point", Errno::NOTDIR.into()));
    }
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={}{},max_read={MAX_REQUEST}",
        connection.as_raw_fd(),
        metadata.permissions().mode(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        kernel_checks(options),
    );
    if options.allow_other.unwrap_or(true) {
        data.push_str(",allow_other");
    }
    if fs_type == BLOCK_FS_TYPE {
        data.push_str(&format!(",blksize={BLOCK_SIZE}"));
    }
    let data = CString::new(data).expect("made of words and numbers");
    rustix::mount::mount(image, point, fs_type, options.mount_flags(true), &*data)
        .map_err(|errno| failed(point, "cannot be mounted on", errno.into()))?;
    Ok(Mounted { connection })
}

/// The option by which the kernel checks permissions.
fn kernel_checks(options: &MountOptions) -> &'static str {
    if options.fakeroot { "" } else { ",default_permissions" }
}

/// fusermount3 mounts and sends the connection through a socket whose number it finds in its
/// environment.
fn mount_by_helper(
    image: &Path,
    point: &Path,
    options: &MountOptions,
) -> Result<Mounted, MountError> {
    let failed = |source| MountError::System {
        path: PathBuf::from(FUSERMOUNT),
        what: "cannot be run",
        source,
    };
    if let Some(option) = beyond_helper(options) {
        return Err(MountError::BeyondFusermount(option));
    }
    let (ours, its) = UnixStream::pair().map_err(failed)?;
    rustix::io::fcntl_setfd(&its, FdFlags::empty()).map_err(|errno| failed(errno.into()))?;
    let mut command = Command::new(FUSERMOUNT);
    command
        .arg("-o")
        .arg(helper_options(image, options))
        .arg("--")
        .arg(point)
        .env("_FUSE_COMMFD", its.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    drop(its);
    let received = receive_fd(&ours);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // Its output is shown only if it failed.
        let _ = stderr.read_to_string(&mut said);
    }
    let status = child.wait().map_err(failed)?;
    match received {
        Ok(connection) if status.success() => Ok(Mounted { connection }),
        _ => Err(MountError::Fusermount { path: point.to_owned(), said }),
    }
}

/// An option that fusermount3 would take for ordinary users without heeding it, or does not know.
fn beyond_helper(options: &MountOptions) -> Option<&'static str> {
    let options = [
        (options.suid == Some(true), "suid"),
        (options.dev == Some(true), "dev"),
        (options.nosymfollow, "nosymfollow"),
    ];
    options.into_iter().find_map(|(is_set, name)| is_set.then_some(name))
}

fn helper_options(image: &Path, options: &MountOptions) -> OsString {
    let checks = kernel_checks(options);
    let mut list = OsString::from(format!("subtype=extant{checks},max_read={MAX_REQUEST}"));
    let flags = options.mount_flags(false);
    let words = [
        (MountFlags::RDONLY, "ro"),
        (MountFlags::NOEXEC, "noexec"),
        (MountFlags::SYNCHRONOUS, "sync"),
        (MountFlags::DIRSYNC, "dirsync"),
        (MountFlags::NOATIME, "noatime"),
    ];
    for (flag, word) in words {
        if flags.contains(flag) {
            list.push(",");
            list.push(word);
        }
    }
    if options.allow_other == Some(true) {
        list.push(",allow_other");
    }
    // The last: commas and backslashes are escaped there.
    list.push(",fsname=");
    let mut name = Vec::new();
    for byte in image.as_os_str().as_bytes() {
        if matches!(byte, b',' | b'\\') {
            name.push(b'\\');
        }
        name.push(*byte);
    }
    list.push(OsStr::from_bytes(&name));
    list
}

fn receive_fd(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            socket.as_fd(),
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(descriptor) = descriptors.next()
        {
            return Ok(descriptor);
        }
    }
    Err(io::Error::from(io::ErrorKind::UnexpectedEof))
}

/// How a mount is taken away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Detach {
    /// Refused while files are open.
    IfIdle,
    /// The name is removed at once, the rest with the last open file.
    Now,
    /// As [`Self::Now`], of a mount without a server: callers waiting for a reply get an error, if
    /// we have the permission.
    Dead,
}

/// Takes the mount at `point` away: directly where that is allowed, else by fusermount3.
pub(crate) fn detach(point: &Path, how: Detach) -> io::Result<()> {
    let flags = match how {
        Detach::IfIdle => UnmountFlags::empty(),
        Detach::Now | Detach::Dead => UnmountFlags::DETACH,
    };
    let forced = flags | UnmountFlags::FORCE | UnmountFlags::NOFOLLOW;
    if how == Detach::Dead && rustix::mount::unmount(point, forced).is_ok() {
        return Ok(());
    }
    match rustix::mount::unmount(point, flags | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => {}
        done => return Ok(done?),
    }
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-u");
    if how != Detach::IfIdle {
        command.arg("-z");
    }
    let output = command.arg("--").arg(point).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind =
        if said.contains("busy") { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
    Err(io::Error::new(kind, said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::parse_options;

    #[test]
    fn a_line_of_the_kernels_table_is_read() {
        let line = b"36 35 0:57 / /mnt/a\\040b ro,noatime shared:1 - fuse.extant /disk\\054.img rw,user_id=0";
        let expected = MountEntry {
            device: "0:57".to_owned(),
            point: "/mnt/a b".into(),
            fs_type: "fuse.extant".to_owned(),
            source: "/disk,.img".into(),
            read_only: true,
        };
        assert_eq!(MountEntry::parse(line), Some(expected));
        assert_eq!(MountEntry::parse(b"36 35 0:57 /"), None);
    }

    #[test]
    fn connections_have_the_number_of_their_device() {
        assert_eq!(control_dir("0:57"), Some(Path::new(CONTROL).join("57")));
        assert_eq!(control_dir("7:3"), Some(Path::new(CONTROL).join("7340035")));
        assert_eq!((control_dir(""), control_dir("7")), (None, None));
    }

    #[test]
    fn what_the_helper_would_not_heed_is_found() {
        let beyond = |list| beyond_helper(&parse_options([list]).expect("known"));
        assert_eq!(beyond("nodev,suid"), Some("suid"));
        assert_eq!(beyond("dev"), Some("dev"));
        assert_eq!(beyond("nosymfollow,noexec"), Some("nosymfollow"));
        assert_eq!(beyond("nosuid,nodev,ro,noexec,nodiratime,user"), None);
    }

    #[test]
    fn names_of_images_are_escaped_for_the_helper() {
        let list = helper_options(Path::new("/a,b\\c"), &MountOptions::default());
        assert!(list.as_bytes().ends_with(b",fsname=/a\\,b\\\\c"), "{}", list.display());
    }
}
