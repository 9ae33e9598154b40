//! The machine that the chores run on: its workspace, cargo, packages and tools.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use extant_testkit::{is_root, tool};

use crate::Failure;

/// Debian packages that tests use, with a program that each is known by.
const PACKAGES: [(&str, &str); 17] = [
    ("e2fsprogs", "mke2fs"),
    ("fdisk", "sfdisk"),
    ("fuse3", "fusermount3"),
    ("xfsprogs", "mkfs.xfs"),
    ("btrfs-progs", "mkfs.btrfs"),
    ("acl", "getfacl"),
    ("attr", "setfattr"),
    ("zstd", "zstd"),
    ("xz-utils", "xz"),
    ("mount", "losetup"),
    ("fio", "fio"),
    ("stress-ng", "stress-ng"),
    ("rsync", "rsync"),
    ("git", "git"),
    ("sqlite3", "sqlite3"),
    ("postgresql", "pg_lsclusters"),
    ("fuse2fs", "fuse2fs"),
];

/// The workspace's root.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The cargo that runs us, in the workspace.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace());
    cargo
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace().join(dir),
        None => workspace().join("target"),
    }
}

/// Builds the release binary and says where it is.
pub(crate) fn release_binary() -> Result<PathBuf, Failure> {
    let built = cargo().args(["build", "--release", "--package", "extant-cli"]).status()?;
    if !built.success() {
        return Err("the release build failed".into());
    }
    Ok(target_dir().join("release/extant"))
}

/// Builds an example of a crate for release and says where it is.
pub(crate) fn release_example(package: &str, example: &str) -> Result<PathBuf, Failure> {
    let args = ["build", "--release", "--package", package, "--example", example];
    if !cargo().args(args).status()?.success() {
        return Err("the release build failed".into());
    }
    Ok(target_dir().join("release/examples").join(example))
}

/// Installs the missing packages where root and apt-get are there; gives what is still missing.
pub(crate) fn install_packages() -> Vec<&'static str> {
    let missing = || {
        let absent = PACKAGES.iter().filter(|(_, program)| tool(program).is_none());
        absent.map(|(package, _)| *package).collect::<Vec<_>>()
    };
    let wanted = missing();
    if wanted.is_empty() || !is_root() || tool("apt-get").is_none() {
        return wanted;
    }
    println!("installing {}", wanted.join(" "));
    let apt = |args: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.args(["-q", "-y", "-o", "DPkg::Lock::Timeout=120"]).args(args);
        apt.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        apt.status().is_ok_and(|status| status.success())
    };
    let install = ["install", "--no-install-recommends"];
    if !apt(&[&install, &wanted[..]].concat()) && apt(&["update"]) {
        // One at a time: a package that this release lacks must not keep the others out.
        for package in &wanted {
            // What is missing in the end is said in the end.
            apt(&[&install, &[*package][..]].concat());
        }
    }
    missing()
}

/// Free bytes for us where `path` lies.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, Failure> {
    let space = rustix::fs::statvfs(path)?;
    Ok(space.f_bavail * space.f_frsize)
}
