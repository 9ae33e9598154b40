//! zfs-fuse: a pool on one device, served by a process of the cell's.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::error::{CellError, Trying};
use super::tool::{finish, run};

/// The pool's name.
const POOL: &str = "extant-lab";
/// Timeout for the server's reply.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two attempts.
const POLL: Duration = Duration::from_millis(20);

/// A pool in use, with its server.
pub(super) struct Pool {
    server: Child,
    /// A directory that holds only a link to the device, for the scan of `zpool import`.
    links: PathBuf,
}

impl Pool {
    /// Makes a pool on a device, mounted at a place, and takes it out of use again.
    pub(super) fn format<'w>(
        device: &Path,
        point: &Path,
        words: impl Iterator<Item = &'w str>,
    ) -> Result<(), CellError> {
        let pool = Self::serve(device, point)?;
        let mut all: Vec<OsString> = ["create", "-f", "-m"].map(Into::into).to_vec();
        all.push(point.into());
        all.extend(words.map(Into::into));
        all.extend([POOL.into(), device.into()]);
        run("zpool", all)?;
        pool.export()
    }

    /// Mounts a pool where it was made for. Of mount options there is noatime.
    pub(super) fn import(device: &Path, point: &Path, options: &str) -> Result<Self, CellError> {
        let mut properties = Vec::new();
        for option in options.split(',').filter(|option| !option.is_empty()) {
            match option {
                "noatime" => properties.push("atime=off"),
                _ => {
                    return Err(CellError(format!(
                        "zfs-fuse: unknown option {option} (expected noatime)"
                    )));
                }
            }
        }
        let pool = Self::serve(device, point)?;
        run("zpool", ["import".as_ref(), "-d".as_ref(), pool.links.as_os_str(), POOL.as_ref()])?;
        for property in properties {
            run("zfs", ["set", property, POOL])?;
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let is_mounted = mounts
            .lines()
            .any(|line| line.split(' ').nth(1).is_some_and(|at| Path::new(at) == point));
        match is_mounted {
            true => Ok(pool),
            false => Err(CellError::new("zfs-fuse: the pool is not mounted")),
        }
    }

    fn serve(device: &Path, point: &Path) -> Result<Self, CellError> {
        // Where its socket lies.
        fs::create_dir_all("/var/run/zfs").trying("/var/run/zfs")?;
        let links = point.with_file_name("zfs");
        fs::create_dir_all(&links).trying(links.display())?;
        let link = links.join("disk");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(device, &link).trying(link.display())?;
        let mut command = Command::new("zfs-fuse");
        command.args(["--no-daemon", "--no-kstat-mount"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().trying("zfs-fuse")?;
        let mut pool = Self { server, links };
        let start = Instant::now();
        while !finish(Command::new("zpool").arg("list"))?.status.success() {
            if let Some(status) = pool.server.try_wait().trying("zfs-fuse")? {
                return Err(CellError(format!("zfs-fuse: {status}")));
            }
            if start.elapsed() > PATIENCE {
                return Err(CellError::new("zfs-fuse does not answer"));
            }
            thread::sleep(POLL);
        }
        Ok(pool)
    }

    /// Writes everything, unmounts it and ends the server.
    pub(super) fn export(self) -> Result<(), CellError> {
        run("zpool", ["export", POOL]).map(drop)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = fs::remove_file(self.links.join("disk"));
        let _ = fs::remove_dir(&self.links);
    }
}
