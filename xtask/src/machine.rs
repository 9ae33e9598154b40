//! The machine that the chores run on: its workspace, cargo, packages and tools.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use extant_testkit::{is_root, tool};

use crate::Failure;

/// Debian packages that tests use, with a program, or another file, that each is known by.
const PACKAGES: [(&str, &str); 38] = [
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
    ("cryptsetup-bin", "cryptsetup"),
    ("qemu-utils", "qemu-img"),
    ("android-sdk-libsparse-utils", "simg2img"),
    ("nbdkit", "nbdkit"),
    ("libnbd-bin", "nbdinfo"),
    ("qemu-system-x86", "qemu-system-x86_64"),
    ("lvm2", "lvm"),
    ("sleuthkit", "fls"),
    ("genimage", "genimage"),
    ("fsarchiver", "fsarchiver"),
    ("policycoreutils", "setfiles"),
    ("fakeroot", "fakeroot"),
    ("mmdebstrap", "mmdebstrap"),
    ("valgrind", "valgrind"),
    ("pkg-config", "pkg-config"),
    ("skopeo", "skopeo"),
    ("umoci", "umoci"),
    ("chromium", "chromium"),
    ("chromium-driver", "chromedriver"),
    ("python3-venv", "/usr/share/doc/python3-venv"),
    // Build dependencies of pjdfstest.
    ("libacl1-dev", "/usr/include/sys/acl.h"),
];

/// Programs that tests use and that come from crates.io, with the versions that were tried.
const CRATES: [(&str, &str); 2] = [("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// A server of S3 from crates.io for the tests of objects, with the version that was tried.
pub(crate) const S3_SERVER: (&str, &str) = ("s3s-fs", "0.14.1");

/// Packages of Python that tests use, with the versions that were tried.
const PYTHON_PACKAGES: [&str; 3] = ["pytest==9.2.0", "fsspec==2026.9.0", "mypy==2.4.1"];

/// The workspace's root: of the checkout that cargo runs us in, which may be a copy of the one that
/// we were built in.
pub(crate) fn workspace() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    let root = || {
        let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let here = here.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        here.parent().expect("xtask lies in the workspace").to_owned()
    };
    ROOT.get_or_init(root)
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

/// The day and the minute, in UTC, as date(1) says them.
pub(crate) fn now_in_words() -> Result<String, Failure> {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output()?;
    Ok(String::from_utf8_lossy(&date.stdout).trim_end().to_owned())
}

/// Processors, memory and kernel of this machine.
pub(crate) fn in_words() -> String {
    let field = |path: &str, name: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "processors".into());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_else(|| "unknown".into());
    let uname = rustix::system::uname();
    let (system, release) = (uname.sysname().to_string_lossy(), uname.release().to_string_lossy());
    format!("{cores} x {model}, {memory} of memory, {system} {release}")
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
        let is_absent = |known: &str| match known.starts_with('/') {
            true => !Path::new(known).exists(),
            false => tool(known).is_none(),
        };
        let absent = PACKAGES.iter().filter(|(_, known)| is_absent(known));
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
    let install = ["install", "--no-install-recommends", "--no-remove"];
    // Packages that are there already are named too: they may have to be upgraded with the others.
    let all = PACKAGES.map(|(package, _)| package);
    if !apt(&[&install[..], &all].concat()) && apt(&["update"]) {
        // One at a time: a package that this release lacks must not keep the others out.
        for package in &wanted {
            // Missing packages are listed at the end.
            apt(&[&install[..], &[*package]].concat());
        }
    }
    missing()
}

/// Builds the programs of [`CRATES`] that are missing, into a directory that stays with what cargo
/// builds; gives what is still missing.
pub(crate) fn install_crates() -> Vec<&'static str> {
    // There may be no network: the end says which programs are missing.
    let is_missing = |(name, version): &&(&str, &str)| install_tool(name, version, &[]).is_err();
    CRATES.iter().filter(is_missing).map(|(name, _)| *name).collect()
}

/// A program of crates.io, and where it is: built with these features if it is missing.
pub(crate) fn install_tool(
    name: &str,
    version: &str,
    features: &[&str],
) -> Result<PathBuf, Failure> {
    let root = target_dir().join("tools");
    let built = root.join("bin").join(name);
    let is_there = || {
        built.is_file().then(|| built.clone()).or_else(|| tool(name).map(|it| it.path().to_owned()))
    };
    if let Some(program) = is_there() {
        return Ok(program);
    }
    println!("installing {name} {version}");
    let mut install = cargo();
    install.args(["install", "--quiet", "--locked", "--version", version, "--root"]);
    install.arg(&root).args(features).arg(name).stdin(Stdio::null());
    install.status()?;
    is_there().ok_or_else(|| format!("{name} {version} was not built").into())
}

/// Makes an environment of Python with the packages of [`PYTHON_PACKAGES`], in a directory that
/// stays with what cargo builds, unless it is there; gives what is still missing.
pub(crate) fn install_python() -> Option<&'static str> {
    let missing = "an environment of Python with pytest, fsspec and mypy";
    python_environment(&PYTHON_PACKAGES).is_err().then_some(missing)
}

/// The programs of the environment of Python, with packages given as pip takes them. A file in it
/// names each that was installed.
pub(crate) fn python_environment(packages: &[&str]) -> Result<PathBuf, Failure> {
    let root = target_dir().join("python");
    let (programs, list) = (root.join("bin"), root.join("installed"));
    let installed = std::fs::read_to_string(&list).unwrap_or_default();
    let is_missing = |package: &&&str| !installed.lines().any(|line| line == **package);
    let wanted: Vec<&str> = packages.iter().filter(is_missing).copied().collect();
    if wanted.is_empty() {
        return Ok(programs);
    }
    let python = tool("python3").ok_or("python3 is not installed")?;
    println!("installing {}", wanted.join(" "));
    let succeeds = |mut command: Command, what: &str| -> Result<(), Failure> {
        match command.stdin(Stdio::null()).status()?.success() {
            true => Ok(()),
            false => Err(format!("{what} failed").into()),
        }
    };
    if !programs.join("python").is_file() {
        let mut make = Command::new(python.path());
        make.args(["-m", "venv"]).arg(&root);
        succeeds(make, "python3 -m venv")?;
    }
    let mut install = Command::new(programs.join("python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(&wanted);
    succeeds(install, "pip install")?;
    let lines = wanted.iter().map(|package| format!("{package}\n"));
    std::fs::write(&list, installed + &lines.collect::<String>())?;
    Ok(programs)
}

/// Free bytes for us where `path` lies.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, Failure> {
    let space = rustix::fs::statvfs(path)?;
    Ok(space.f_bavail * space.f_frsize)
}
