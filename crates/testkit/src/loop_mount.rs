//! A kernel mount of an image through a loop device, always unmounted on drop.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::{Scratch, TempImage, tool};

/// Time to wait for a free loop device: they are few and shared.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest wait for the loop device of a mount that failed.
const DETACHED_WITHIN: Duration = Duration::from_secs(10);
/// Number of attempts to unmount: a mount can be busy briefly (a scanner, a late child).
const UNMOUNT_TRIES: u32 = 50;

/// Offset of the superblock, that of its feature words, and three features in them
/// (`Documentation/filesystems/ext4/super.rst`).
const SUPERBLOCK: u64 = 1024;
const FEATURES: u64 = 0x5C;
const FAST_COMMIT: u32 = 0x400;
const RECOVER: u32 = 0x4;
const EXTENTS: u32 = 0x40;

/// The final writes of a file system that is shut down.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flush {
    /// The running transaction is committed.
    Log,
    /// Nothing is written.
    Nothing,
}

/// A mounted image. Dropping it unmounts and detaches the loop device, also after a panic.
#[derive(Debug)]
pub struct LoopMount {
    point: Scratch,
    mounted: bool,
    image: PathBuf,
    /// The device of an external journal, detached after the mount.
    _journal: Option<LoopDevice>,
}

/// A file attached to a loop device, detached when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    /// The path in the kernel's form.
    file: PathBuf,
}

impl LoopDevice {
    /// Needs root; the error is the message of losetup.
    pub fn new(file: &Path) -> Result<Self, String> {
        Self::with_sectors(file, 512)
    }

    /// As [`Self::new`], a device that cannot be written.
    pub fn read_only(file: &Path) -> Result<Self, String> {
        Self::with_options(file, &["--read-only"])
    }

    /// As [`Self::new`], with sectors of `sector_size` bytes.
    pub fn with_sectors(file: &Path, sector_size: u32) -> Result<Self, String> {
        Self::with_options(file, &["--sector-size", &sector_size.to_string()])
    }

    fn with_options(file: &Path, options: &[&str]) -> Result<Self, String> {
        let file = file.canonicalize().map_err(|error| format!("{}: {error}", file.display()))?;
        let started = Instant::now();
        loop {
            let mut losetup = Command::new("losetup");
            let output = losetup
                .args(["--find", "--show"])
                .args(options)
                .arg(&file)
                .env("LC_ALL", "C")
                .output();
            let output = output.map_err(|error| format!("losetup: {error}"))?;
            if output.status.success() {
                let path = String::from_utf8_lossy(&output.stdout).trim().into();
                return Ok(Self { path, file });
            }
            if started.elapsed() > PATIENCE {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
            sleep(Duration::from_millis(200));
        }
    }

    /// The device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.path).status();
        if !detached.as_ref().is_ok_and(std::process::ExitStatus::success) {
            eprintln!("losetup --detach {}: {detached:?}", self.path.display());
            return;
        }
        // The kernel detaches it a little later if another process has it open.
        let started = Instant::now();
        while backs(&self.file, &self.path) && started.elapsed() < PATIENCE {
            sleep(Duration::from_millis(10));
        }
    }
}

/// Whether a loop device is attached to this file.
fn backs(file: &Path, device: &Path) -> bool {
    let Some(name) = device.file_name() else { return false };
    let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
    std::fs::read_to_string(backing).is_ok_and(|backing| Path::new(backing.trim_end()) == file)
}

impl LoopMount {
    /// Mounts an ext2, ext3 or ext4 image with the kernel's ext4. `options` as for `mount -o`
    /// (`"ro,noload"`, `""`). The error is the message of mount. Needs root.
    pub fn new(image: &Path, options: &str) -> Result<Self, String> {
        Self::of_type("ext4", image, options)
    }

    /// Mounts an image whose journal is in another file.
    pub fn with_journal(image: &Path, journal: &Path, options: &str) -> Result<Self, String> {
        let journal = LoopDevice::new(journal)?;
        let mut all = format!("journal_path={}", journal.path.display());
        if !options.is_empty() {
            all = format!("{options},{all}");
        }
        let mut mount = Self::of_type("ext4", image, &all)?;
        mount._journal = Some(journal);
        Ok(mount)
    }

    /// Mounts an image of any file system type of the kernel. An image whose log a kernel may fail
    /// on is refused.
    pub fn of_type(fs_type: &str, image: &Path, options: &str) -> Result<Self, String> {
        if !options.split(',').any(|option| option == "noload") && may_stop_the_kernel(image) {
            return Err("mount: not tried: the kernel fails on fast commits without extents".into());
        }
        let point = Scratch::new();
        let options = if options.is_empty() { "loop".into() } else { format!("loop,{options}") };
        let started = Instant::now();
        loop {
            let mut mount = Command::new("mount");
            mount.args(["-t", fs_type, "-o", &options]).arg(image).arg(point.path());
            let output = mount.env("LC_ALL", "C").output();
            let output = output.map_err(|error| format!("mount: {error}"))?;
            if output.status.success() {
                return Ok(Self { point, mounted: true, image: image.into(), _journal: None });
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let no_loop_device = said.contains("free loop device") || said.contains("setup loop");
            if !no_loop_device || started.elapsed() > PATIENCE {
                // The kernel detaches the device a little later; one of the caller's own stays.
                let failed = Instant::now();
                while backs_a_loop_device(image) && failed.elapsed() < DETACHED_WITHIN {
                    sleep(Duration::from_millis(10));
                }
                return Err(said);
            }
            sleep(Duration::from_millis(200));
        }
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// Shuts the mounted file system down (`EXT4_IOC_SHUTDOWN`, which has the number of xfs_io's
    /// `shutdown`): nothing is written after it. With `flush`, the log is committed first.
    /// Unmounting leaves the image as it was then.
    pub fn shut_down(&self, flush: Flush) -> Result<(), String> {
        let xfs_io = tool("xfs_io").ok_or("no xfs_io here")?;
        let command = match flush {
            Flush::Log => "shutdown -f",
            Flush::Nothing => "shutdown",
        };
        let output = xfs_io.run(["-x".as_ref(), "-c".as_ref(), command.as_ref(), self.path()]);
        // It always exits with 0.
        match output.stderr.is_empty() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Unmounts now, so that the image has all writes; the error is the message of umount.
    pub fn unmount(mut self) -> Result<(), String> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), String> {
        if !self.mounted {
            return Ok(());
        }
        let mut said = String::new();
        for _ in 0..UNMOUNT_TRIES {
            match Command::new("umount").arg(self.path()).env("LC_ALL", "C").output() {
                Ok(output) if output.status.success() => {
                    self.mounted = false;
                    self.wait_until_detached();
                    return Ok(());
                }
                Ok(output) => said = String::from_utf8_lossy(&output.stderr).into_owned(),
                Err(error) => said = error.to_string(),
            }
            sleep(Duration::from_millis(100));
        }
        Err(said)
    }
}

impl LoopMount {
    /// The kernel detaches the loop device a little later if another process has it open.
    fn wait_until_detached(&self) {
        let started = Instant::now();
        while backs_a_loop_device(&self.image) && started.elapsed() < PATIENCE {
            sleep(Duration::from_millis(10));
        }
    }
}

/// Whether the image has fast commits to replay and no extents: ext4_fc_replay of kernel 6.18 then
/// ends in a BUG of the kernel, and no sync(2) returns after it.
fn may_stop_the_kernel(image: &Path) -> bool {
    let mut features = [0; 8];
    let read = std::fs::File::open(image)
        .and_then(|file| file.read_exact_at(&mut features, SUPERBLOCK + FEATURES));
    if read.is_err() {
        return false;
    }
    let [compat, incompat] = [&features[..4], &features[4..]]
        .map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")));
    compat & FAST_COMMIT != 0 && incompat & RECOVER != 0 && incompat & EXTENTS == 0
}

fn backs_a_loop_device(file: &Path) -> bool {
    let Ok(file) = file.canonicalize() else { return false };
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices.into_iter().any(|device| {
        let backing = std::fs::read_to_string(device.path().join("loop/backing_file"));
        backing.is_ok_and(|backing| Path::new(backing.trim_end()) == file)
    })
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        if let Err(said) = self.take_down() {
            // Finally a lazy unmount, or removing the scratch directory would delete files in the
            // image.
            let lazy = Command::new("umount").arg("-l").arg(self.path()).status();
            eprintln!("umount {}: {said} ({lazy:?})", self.path().display());
        }
    }
}

/// Creates an image as after a power cut: mounts `image` with `options`, lets `work` change the
/// mounted directory, and copies the image while it is still mounted. `work` calls fsync for data
/// that the copy must have. Needs root.
pub fn left_dirty(
    image: &Path,
    options: &str,
    work: impl FnOnce(&Path),
) -> Result<TempImage, String> {
    // While the image is copied no commit begins by the clock: the copy would have blocks of before
    // and of after it. A volume without a journal does not take the option.
    let calm = format!("{options},commit=600");
    let mount = LoopMount::new(image, calm.trim_start_matches(','))
        .or_else(|_| LoopMount::new(image, options))?;
    work(mount.path());
    let copy = copied(image);
    mount.unmount()?;
    copy
}

/// A copy of an image in its current state, with holes.
pub fn copied(image: &Path) -> Result<TempImage, String> {
    let copy = TempImage::of_size(0).map_err(|error| error.to_string())?;
    let mut cp = Command::new("cp");
    cp.arg("--sparse=always").arg(image).arg(copy.path());
    let status = cp.status().map_err(|error| format!("cp: {error}"))?;
    if status.success() { Ok(copy) } else { Err(format!("cp: {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TempImage, is_root, skip};

    fn is_mounted(path: &Path) -> bool {
        let mounts = std::fs::read_to_string("/proc/mounts").expect("Linux lists its mounts");
        mounts.contains(path.to_str().expect("scratch paths are UTF-8"))
    }

    #[test]
    fn a_panic_unmounts_too() {
        if !is_root() {
            skip!("a loop mount needs root");
        }
        let image = match TempImage::by_mke2fs(4 << 20, &["-t", "ext2"]) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let mount = match LoopMount::new(&image.path(), "ro") {
            Ok(mount) => mount,
            Err(why) => skip!("no loop mount here: {why}"),
        };
        let point = mount.path().to_owned();
        assert!(point.join("lost+found").is_dir());
        assert!(is_mounted(&point));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _mount = mount;
            std::panic::resume_unwind(Box::new("a failed assertion"));
        }));
        assert!(outcome.is_err());
        assert!(!is_mounted(&point));
        assert!(!point.exists());
    }

    #[test]
    fn fast_commits_without_extents_are_not_mounted() {
        let args = ["-t", "ext3", "-O", "fast_commit,^extent,^64bit"];
        let image = match TempImage::by_mke2fs(32 << 20, &args) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        assert!(!may_stop_the_kernel(&image.path()));
        let file = std::fs::File::options().read(true).write(true).open(image.path()).unwrap();
        let mut incompat = [0];
        file.read_exact_at(&mut incompat, SUPERBLOCK + FEATURES + 4).unwrap();
        file.write_all_at(&[incompat[0] | 4], SUPERBLOCK + FEATURES + 4).unwrap();
        assert!(may_stop_the_kernel(&image.path()));
        assert!(LoopMount::new(&image.path(), "").unwrap_err().contains("not tried"));
    }

    #[test]
    fn a_refused_mount_says_why() {
        if !is_root() {
            skip!("a loop mount needs root");
        }
        let image = TempImage::of_size(1 << 20).unwrap();
        assert!(LoopMount::new(&image.path(), "ro").unwrap_err().contains("mount"));
    }
}
