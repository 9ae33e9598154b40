//! The reference tools of e2fsprogs, run with a time limit and without a locale.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Directories of administration tools that an ordinary user's PATH lacks.
const ADMIN_PATHS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Whether the tests run as root: loop mounts, devices and other owners need it.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A program found on this machine.
#[derive(Clone, Debug)]
pub struct Tool {
    path: PathBuf,
}

/// Searches for a program in PATH and in the administration directories.
pub fn tool(name: &str) -> Option<Tool> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(ADMIN_PATHS.iter().map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
        .map(|path| Tool { path })
}

impl Tool {
    /// The program's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command for it, under `timeout -k 5 60` and LC_ALL=C: e2fsck can hang on damaged images
    /// and ignore SIGTERM.
    pub fn command(&self) -> Command {
        self.command_within(60)
    }

    /// As [`Self::command`], with another limit in seconds.
    pub fn command_within(&self, seconds: u32) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", &seconds.to_string()]).arg(&self.path).env("LC_ALL", "C");
        command
    }

    /// Runs it to the end; panics only if it cannot be started.
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        let output = self.command().args(args).output();
        output.unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }

    /// Runs it and returns standard output, or its messages if it failed.
    pub fn text<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<String, String> {
        self.text_of(&self.run(args))
    }

    /// Standard output of a run, or its messages if it failed.
    fn text_of(&self, output: &Output) -> Result<String, String> {
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(said(&self.path, output))
        }
    }

    /// As [`Self::text`], for a program that occasionally fails with `complaint` although its
    /// arguments are right: it is run again, for at most a minute.
    pub fn text_despite<A: AsRef<OsStr>>(
        &self,
        complaint: &str,
        args: &[A],
    ) -> Result<String, String> {
        let started = Instant::now();
        loop {
            let text = self.text(args.iter().map(AsRef::as_ref));
            let is_by_chance = text.as_ref().is_err_and(|said| said.contains(complaint));
            if !is_by_chance || started.elapsed() > Duration::from_secs(60) {
                return text;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn said(program: &Path, output: &Output) -> String {
    format!(
        "{}: {}\n{}{}",
        program.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn required(name: &str) -> Result<Tool, String> {
    tool(name).ok_or_else(|| format!("{name} is not installed"))
}

/// `e2fsck -fn IMAGE`: Ok if it finds no errors, otherwise its exit status and output.
pub fn e2fsck_fn(image: &Path) -> Result<(), String> {
    required("e2fsck")?.text([OsStr::new("-fn"), image.as_os_str()]).map(drop)
}

/// `e2fsck -fn IMAGE`: Ok if it prints only the names of its passes and the summary. Messages that
/// an extent tree could be narrower or shorter are ignored: the kernel leaves such trees too.
pub fn e2fsck_is_silent(image: &Path) -> Result<(), String> {
    e2fsck_is_silent_with(image, None)
}

/// As [`e2fsck_is_silent`], for a large volume: a check may take `seconds`.
pub fn e2fsck_is_silent_within(image: &Path, seconds: u32) -> Result<(), String> {
    let e2fsck = required("e2fsck")?;
    let output = e2fsck.command_within(seconds).arg("-fn").arg(image).output();
    is_silent(e2fsck.text_of(&output.map_err(|error| error.to_string())?)?)
}

/// As [`e2fsck_is_silent`], for a volume with an external journal.
pub fn e2fsck_is_silent_with(image: &Path, journal: Option<&Path>) -> Result<(), String> {
    let mut args = vec![OsStr::new("-fn")];
    args.extend(journal.into_iter().flat_map(|journal| [OsStr::new("-j"), journal.as_os_str()]));
    args.push(image.as_os_str());
    is_silent(required("e2fsck")?.text(args)?)
}

/// Whether e2fsck said only what it says of every volume; else all of it.
fn is_silent(said: String) -> Result<(), String> {
    let is_usual = |line: &str| {
        let is_pass = line.starts_with("Pass ") && line.contains(": ");
        let is_summary = line.contains(" files (") && line.ends_with(" blocks");
        let is_tree = line.contains("extent tree (at level") && line.contains("could be");
        line.is_empty() || is_pass || is_summary || is_tree
    };
    match said.lines().find(|line| !is_usual(line)) {
        None => Ok(()),
        Some(_) => Err(said),
    }
}

/// `debugfs -R COMMAND IMAGE`: standard output. debugfs exits with 0 on failure, so anything on
/// standard error in addition to its banner is the error.
pub fn debugfs(image: &Path, command: &str) -> Result<String, String> {
    let debugfs = required("debugfs")?;
    let output = debugfs.run([OsStr::new("-R"), OsStr::new(command), image.as_os_str()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let failed = errors.lines().any(|line| !line.starts_with("debugfs ") && !line.is_empty());
    if failed || !output.status.success() {
        return Err(said(debugfs.path(), &output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `dumpe2fs -h IMAGE` as a map: `"Block count" -> "65536"`.
pub fn dumpe2fs_h(image: &Path) -> Result<BTreeMap<String, String>, String> {
    let text = required("dumpe2fs")?.text([OsStr::new("-h"), image.as_os_str()])?;
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    Ok(lines.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect())
}

/// `mke2fs ARGS` with the machine's configuration; set `MKE2FS_CONFIG` through [`Tool::command`]
/// for another one.
pub fn mke2fs<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Result<String, String> {
    required("mke2fs")?.text(args)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scratch, skip};

    #[test]
    fn a_missing_tool_is_none() {
        assert!(tool("no-such-tool-anywhere").is_none());
    }

    #[test]
    fn the_oracles_distinguish_a_fresh_image_from_a_damaged_one() {
        if tool("mke2fs").is_none() {
            skip!("mke2fs is not installed");
        }
        let scratch = Scratch::new();
        let image = scratch.join("disk.img");
        let path = image.to_str().expect("scratch paths are UTF-8");
        mke2fs(["-q", "-F", "-t", "ext4", path, "4M"]).unwrap();
        assert_eq!(e2fsck_fn(&image), Ok(()));
        assert_eq!(e2fsck_is_silent(&image), Ok(()));
        assert_eq!(dumpe2fs_h(&image).unwrap()["Filesystem magic number"], "0xEF53");
        assert!(debugfs(&image, "ls /").unwrap().contains("lost+found"));
        assert!(debugfs(&image, "cat /absent").is_err());

        let mut bytes = std::fs::read(&image).unwrap();
        bytes[1024 + 0x0c] ^= 1; // s_free_blocks_count_lo, and with it the superblock's checksum
        std::fs::write(&image, bytes).unwrap();
        assert!(e2fsck_fn(&image).is_err());
        assert!(e2fsck_is_silent(&image).is_err());
    }
}
