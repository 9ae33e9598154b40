//! Mounts for the tests: each is taken away again whatever happens, and nothing waits without a
//! limit.

mod awake;
mod bad_directory;
mod blocks;
mod control;
mod direct;
mod failures;
mod fuse2fs;
mod growth;
mod hostile;
mod kills;
mod lazytime;
mod load;
mod options;
#[path = "../common/program.rs"]
mod program;
mod programs;
mod rings;
mod semantics;
mod suites;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use extant_testkit::{Scratch, is_root, mke2fs, tool};

/// Seconds that any command gets.
const LIMIT: &str = "180";

/// Whether volumes can be mounted here; else why not.
pub(crate) fn can_mount() -> Result<(), String> {
    if !Path::new("/dev/fuse").exists() {
        return Err("no /dev/fuse here".to_owned());
    }
    if !is_root() {
        return Err("a loop mount to compare with needs root".to_owned());
    }
    tool("mke2fs").map(|_| ()).ok_or_else(|| "no mke2fs here".to_owned())
}

/// Waits for what comes soon.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: for half a minute it has not come");
}

/// An image that mke2fs made in scratch space.
pub(crate) fn image(scratch: &Scratch, args: &[&str], size: &str) -> PathBuf {
    let path = scratch.join("disk.img");
    let words = ["-q", "-F"].iter().chain(args).copied();
    let words: Vec<&str> = words.chain([path.to_str().expect("a plain path"), size]).collect();
    mke2fs(words).expect("mke2fs");
    path
}

/// Runs `extant` with a time limit: its exit code and all that it said.
pub(crate) fn extant(words: &[&str], paths: &[&Path]) -> (i32, String) {
    let output = Command::new("timeout")
        .args(["-k", "5", LIMIT, env!("CARGO_BIN_EXE_extant")])
        .args(words)
        .args(paths)
        .output()
        .expect("timeout runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

/// A mount of ours.
pub(crate) struct Mount {
    point: PathBuf,
    image: PathBuf,
}

impl Mount {
    pub(crate) fn new(scratch: &Scratch, image: &Path, words: &[&str]) -> Self {
        let point = scratch.join("mount");
        fs::create_dir_all(&point).expect("a mount point");
        let mount = Self { point, image: image.to_owned() };
        let (code, said) = extant(&[&["mount"], words].concat(), &[image, &mount.point]);
        assert_eq!(code, 0, "{said}");
        mount
    }

    /// A mount that is there.
    pub(crate) fn found(point: PathBuf, image: &Path) -> Self {
        Self { point, image: image.to_owned() }
    }

    /// Whether it still answers.
    pub(crate) fn is_served(&self) -> bool {
        let entry = extant::rooms::mount::mount_at(&self.point).expect("the table");
        let answer = fs::metadata(&self.point).err().and_then(|error| error.raw_os_error());
        // A root that is broken is answered for too.
        entry.is_some_and(|entry| entry.is_ours())
            && answer != Some(rustix::io::Errno::NOTCONN.raw_os_error())
    }

    /// Unmounts a volume that may be too broken to be closed well.
    pub(crate) fn unmount_whatever_it_says(self, name: &str) {
        let (code, said) = extant(&["umount"], &[&self.point]);
        assert!(code == 0 || code == 1, "{name}: {code}: {said}");
        assert!(!said.contains("panicked"), "{name}: {said}");
    }

    pub(crate) fn path(&self) -> &Path {
        &self.point
    }

    /// Tries again for a while: a program that another test starts has this test's open files until
    /// it runs.
    pub(crate) fn unmount(self) {
        let (mut code, mut said) = extant(&["umount"], &[&self.point]);
        for _ in 0..50 {
            if !said.contains("busy") {
                break;
            }
            thread::sleep(Duration::from_millis(100));
            (code, said) = extant(&["umount"], &[&self.point]);
        }
        assert_eq!(code, 0, "{said}");
    }

    /// The process that has the image open.
    fn server(&self) -> String {
        let processes = fs::read_dir("/proc").expect("/proc").flatten();
        let holds = |process: &Path| {
            let Ok(files) = fs::read_dir(process.join("fd")) else { return false };
            files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|to| to == self.image))
        };
        let found: Vec<PathBuf> =
            processes.map(|process| process.path()).filter(|process| holds(process)).collect();
        assert_eq!(found.len(), 1, "processes that have the image: {found:?}");
        found[0].file_name().expect("a number").to_string_lossy().into_owned()
    }

    fn end_server(self, signal: &str) {
        let server = self.server();
        let status = Command::new("kill").args([signal, &server]).status();
        assert!(status.expect("kill runs").success());
        for _ in 0..3000 {
            let is_mounted =
                extant::rooms::mount::mount_at(&self.point).expect("the table").is_some();
            if !is_mounted && !Path::new("/proc").join(&server).exists() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the server or its mount is still there");
    }

    /// `kill -9`, until the mount is gone.
    pub(crate) fn kill_server(self) {
        self.end_server("-KILL");
    }

    /// SIGTERM, until the mount is gone.
    pub(crate) fn terminate_server(self) {
        self.end_server("-TERM");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Gone already unless the test failed.
        if extant::rooms::mount::mount_at(&self.point).is_ok_and(|entry| entry.is_some()) {
            let _ = Command::new("timeout").args([LIMIT, "umount", "-l"]).arg(&self.point).status();
        }
    }
}
