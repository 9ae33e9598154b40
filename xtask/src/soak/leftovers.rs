//! Where a slice has its temporary files, and what it leaves mounted there when its limit ends it.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

/// A directory for the temporary files of one slice. Dropping it takes away what is mounted in it,
/// and then the directory.
#[derive(Debug)]
pub(super) struct Temporary(TempDir);

impl Temporary {
    pub(super) fn new() -> io::Result<Self> {
        tempfile::Builder::new().prefix("soak-").tempdir().map(Self)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Where something is mounted in it, the last mount first.
    fn mounts(&self) -> io::Result<Vec<PathBuf>> {
        let table = std::fs::read("/proc/self/mountinfo")?;
        let mut points = mount_points(&table);
        // The kernel resolves links in the paths that it lists; a dead mount is only in the last
        // part of them.
        let directory = std::fs::canonicalize(self.path())?;
        points.retain(|point| point.starts_with(&directory));
        points.reverse();
        Ok(points)
    }

    /// Takes away what is mounted in it; what it was.
    fn unmount(&self) -> io::Result<Vec<PathBuf>> {
        let mounts = self.mounts()?;
        for point in &mounts {
            // Forced, so that requests that a dead FUSE server does not answer fail; programs may
            // still be at work there.
            let _ = unmount(point, UnmountFlags::FORCE);
            let _ = unmount(point, UnmountFlags::DETACH);
        }
        Ok(mounts)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        match self.unmount() {
            Ok(mounts) => mounts.iter().for_each(|it| println!("unmounted {}", it.display())),
            Err(error) => println!("{}: not unmounted: {error}", self.path().display()),
        }
    }
}

/// The mount points of `/proc/self/mountinfo`, in its order.
fn mount_points(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points.map(|point| PathBuf::from(std::ffi::OsStr::from_bytes(&unescaped(point)))).collect()
}

/// Blanks, tabs, line ends and backslashes are three octal digits after a backslash.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let [first, tail @ ..] = rest {
        let digits =
            tail.get(..3).filter(|_| *first == b'\\').and_then(|it| str::from_utf8(it).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::{is_root, skip, tool};
    use std::process::Command;

    #[test]
    fn mount_points_are_read_with_their_blanks() {
        let table = b"24 29 0:22 / /sys rw - sysfs sysfs rw\n40 29 0:41 / /tmp/a\\040b\\134 rw - tmpfs tmpfs rw\n";
        assert_eq!(mount_points(table), [Path::new("/sys"), Path::new("/tmp/a b\\")]);
    }

    #[test]
    fn what_a_slice_leaves_mounted_goes_with_its_directory() {
        if !is_root() || tool("mount").is_none() {
            skip!("mounting needs root");
        }
        let temporary = Temporary::new().unwrap();
        let outer = temporary.path().join("a mount");
        let mount = |point: &Path| {
            std::fs::create_dir(point).unwrap();
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "none"]).arg(point).status().is_ok_and(|it| it.success())
        };
        if !mount(&outer) || !mount(&outer.join("inner")) {
            skip!("no tmpfs can be mounted here");
        }
        // Busy as a program at work makes it.
        let held = std::fs::File::create(outer.join("inner/file")).unwrap();
        assert_eq!(temporary.mounts().unwrap().len(), 2);
        let path = temporary.path().to_owned();
        drop(temporary);
        assert!(!path.exists());
        let table = std::fs::read("/proc/self/mountinfo").unwrap();
        assert!(!mount_points(&table).iter().any(|point| point.starts_with(&path)));
        drop(held);
    }
}
