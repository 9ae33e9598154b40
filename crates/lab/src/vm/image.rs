//! The guest's kernel and first file system, kept for later runs.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::cpio::Writer;
use super::modules;
use super::packages::{self, said};
use super::{Trying, VmError};
use crate::environment::is_there;
use crate::target::{LabTarget, System};

/// The contents, by this version of the code: others are made again.
const FORM: u32 = 1;
const DESCRIPTION: &str = "guest.json";
const KERNEL: &str = "vmlinuz";
const BASE: &str = "base.cpio";

/// Packages, and the programs that are taken from each.
const PROGRAMS: [(&str, &[&str]); 11] = [
    ("busybox-static", &["busybox"]),
    ("util-linux", &["unshare", "blkdiscard"]),
    ("mount", &["mount", "umount"]),
    ("e2fsprogs", &["mke2fs", "e2fsck", "tune2fs", "filefrag"]),
    ("fuse2fs", &["fuse2fs"]),
    ("xfsprogs", &["mkfs.xfs", "xfs_repair"]),
    ("btrfs-progs", &["mkfs.btrfs", "btrfs"]),
    ("jfsutils", &["jfs_mkfs", "jfs_fsck"]),
    ("nilfs-tools", &["mkfs.nilfs2", "mount.nilfs2", "umount.nilfs2", "nilfs_cleanerd"]),
    ("zfs-fuse", &["zfs-fuse", "zpool", "zfs"]),
    ("dmsetup", &["dmsetup"]),
];

/// Configuration files of packages.
const FILES: [&str; 2] = ["etc/mke2fs.conf", "etc/nilfs_cleanerd.conf"];

/// Where a package has programs.
const PROGRAM_DIRS: [&str; 4] = ["usr/sbin", "usr/bin", "sbin", "bin"];

/// Without these there is no guest.
const NEEDED: [&str; 4] = ["busybox", "unshare", "mount", "umount"];

/// The package that names the kernel's.
const KERNEL_PACKAGE: &str = "linux-image-amd64";

/// Which modules there may be something in for us.
const MODULE_DIRS: [&str; 8] = [
    "/kernel/fs/",
    "/kernel/crypto/",
    "/kernel/lib/",
    "/kernel/arch/",
    "/kernel/drivers/block/",
    "/kernel/drivers/md/",
    "/kernel/drivers/virtio/",
    "/kernel/drivers/char/",
];

/// The init of the guest: it loads modules, carries out orders until there are no more, and ends.
const INIT: &str = "#!/bin/busybox sh
export PATH=/bin
b=/bin/busybox
$b hostname localhost
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev
$b mkdir -p /dev/shm
for dir in /dev/shm /run /tmp; do $b mount -t tmpfs tmpfs $dir; done
$b mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo +memory > /sys/fs/cgroup/cgroup.subtree_control
for module in $($b cat /lib/modules/first); do $b insmod /lib/modules/$module.ko; done
tries=0
until port=$(echo /dev/vport*) && [ -e \"$port\" ]; do
  tries=$((tries + 1))
  [ $tries -gt 100 ] && echo 'extant: no port' && $b poweroff -f
  $b sleep 0.1
done
extant lab guest 0<>$port 1>&0 2>/dev/console
echo \"extant: the lab ended with $?\"
$b poweroff -f
";

/// A kernel and a file system to boot.
#[derive(Clone, Debug)]
pub struct Image {
    dir: PathBuf,
    description: Description,
}

/// Files kept next to them.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Description {
    form: u32,
    /// The kernel's package.
    kernel: String,
    /// Programs and modules that could not be had, with the reason.
    missing: BTreeMap<String, String>,
    /// Modules to load for a module, in order.
    modules: BTreeMap<String, Vec<String>>,
}

impl Image {
    /// The one in a directory; `None` without one, or with one of another version.
    pub fn kept(dir: &Path) -> Option<Self> {
        let text = fs::read(dir.join(DESCRIPTION)).ok()?;
        let description: Description = serde_json::from_slice(&text).ok()?;
        let is_ours =
            description.form == FORM && dir.join(KERNEL).exists() && dir.join(BASE).exists();
        is_ours.then(|| Self { dir: dir.to_owned(), description })
    }

    /// Makes one from Debian's packages; `report` is called with the progress.
    ///
    /// # Errors
    /// A required program or package is not available: the error names it.
    pub fn prepare(dir: &Path, report: &mut dyn FnMut(&str)) -> Result<Self, VmError> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(VmError("guests are made for x86_64 only".to_owned()));
        }
        let tools = ["apt-get", "apt-cache", "dpkg-deb", "dpkg-query", "ldd"];
        if let Some(missing) = tools.into_iter().find(|tool| !is_there(tool)) {
            return Err(VmError(format!(
                "{missing} is not there: guests are made of Debian's packages"
            )));
        }
        fs::create_dir_all(dir).trying(dir.display())?;
        remove_left(dir);
        // Another one may be doing the same: each has a place of its own, and the last one stays.
        let work = dir.join(format!("work-{}", std::process::id()));
        let made = Self::make(dir, &work, report);
        let _ = fs::remove_dir_all(&work);
        made
    }

    fn make(dir: &Path, work: &Path, report: &mut dyn FnMut(&str)) -> Result<Self, VmError> {
        let (files, root) = (work.join("packages"), work.join("root"));
        let of_kernel = packages::depends(KERNEL_PACKAGE)?;
        let kernel = of_kernel.into_iter().find(|name| name.starts_with("linux-image-"));
        let kernel =
            kernel.ok_or_else(|| VmError(format!("apt knows no kernel for {KERNEL_PACKAGE}")))?;
        let tools: Vec<&str> = PROGRAMS.iter().map(|(package, _)| *package).collect();
        let libraries = packages::libraries_of(&tools);
        let names: Vec<String> = tools
            .iter()
            .map(|name| (*name).to_owned())
            .chain(libraries.clone())
            .chain([kernel.clone()])
            .collect();
        report(&format!("fetching {kernel} and {} other packages", names.len() - 1));
        let absent = packages::fetch(&names, &files)?;
        report("unpacking");
        fs::create_dir_all(&root).trying(root.display())?;
        for package in tools.iter().copied().chain(libraries.iter().map(String::as_str)) {
            if let Some(file) = packages::file_of(package, &files) {
                packages::unpack(&file, &root)?;
            }
        }
        let package = packages::file_of(&kernel, &files).ok_or_else(|| {
            VmError(absent.get(&kernel).cloned().unwrap_or_else(|| format!("no {kernel}")))
        })?;
        let found = Modules::read(&package)?;
        let mut missing = BTreeMap::new();
        let new = |name: &str| work.join(format!("new-{name}"));
        let base = File::create(new(BASE)).trying(new(BASE).display())?;
        let mut archive = Writer::new(BufWriter::new(base));
        let modules = found.write(&mut archive, &mut missing).trying("modules")?;
        for (package, programs) in PROGRAMS {
            for program in programs {
                let why = match find(&root, program) {
                    Some(path) => add_program(&mut archive, &root, program, &path).err(),
                    None => Some(VmError(match absent.get(package) {
                        Some(why) => why.clone(),
                        None => format!("package {package} has no {program}"),
                    })),
                };
                if let Some(why) = why {
                    missing.insert((*program).to_owned(), why.0);
                }
            }
        }
        if let Some((name, why)) = NEEDED
            .into_iter()
            .chain(modules::OF_THE_GUEST)
            .find_map(|name| Some((name, missing.get(name)?)))
        {
            return Err(VmError(format!("{name}: {why}")));
        }
        furnish(&mut archive, &root, &modules).trying("base.cpio")?;
        archive.finish().trying("base.cpio")?;
        fs::write(new(KERNEL), &found.kernel).trying(dir.display())?;
        let description = Description { form: FORM, kernel, missing, modules };
        let text = serde_json::to_vec_pretty(&description).expect("plain data");
        fs::write(new(DESCRIPTION), text).trying(dir.display())?;
        for name in [KERNEL, BASE, DESCRIPTION] {
            fs::rename(new(name), dir.join(name)).trying(dir.display())?;
        }
        Ok(Self { dir: dir.to_owned(), description })
    }

    /// The kernel's file.
    pub(super) fn kernel(&self) -> PathBuf {
        self.dir.join(KERNEL)
    }

    /// The kernel's package.
    pub fn kernel_package(&self) -> &str {
        &self.description.kernel
    }

    /// The missing part, and the reason.
    pub fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        self.description.missing.iter().map(|(name, why)| (name.as_str(), why.as_str()))
    }

    /// Why a target cannot run in there, as far as it can be known.
    pub(super) fn lacks(&self, target: &LabTarget) -> Option<String> {
        let dm: &[&str] = if target.layers.is_empty() { &[] } else { &["dmsetup"] };
        let needed = programs_of(&target.system).iter().chain(dm).copied();
        needed.chain(modules::needed_by(target)).find_map(|name| {
            let why = self.description.missing.get(name)?;
            Some(format!("the guest has no {name}: {why}"))
        })
    }

    /// Writes the archive that the guest starts from: the base, `extant` and its libraries.
    pub(super) fn write_initrd(&self, program: &Path, to: &Path) -> Result<(), VmError> {
        let mut out = BufWriter::new(File::create(to).trying(to.display())?);
        let mut base = File::open(self.dir.join(BASE)).trying(self.dir.display())?;
        io::copy(&mut base, &mut out).trying(to.display())?;
        let mut archive = Writer::new(&mut out);
        // Symbols are most of a program that was built for tests.
        let bare = to.with_extension("extant");
        let stripped = said(Command::new("strip").arg("-o").arg(&bare).arg(program));
        let chosen = if stripped.is_ok() { &bare } else { program };
        let added = add_program(&mut archive, Path::new("/"), "extant", chosen);
        let _ = fs::remove_file(&bare);
        added?;
        archive.finish().trying(to.display())?;
        out.flush().trying(to.display())
    }
}

/// Removes the remains of processes that were killed while they made an image.
fn remove_left(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix("work-").filter(|number| number.parse::<u32>().is_ok());
        if process.is_some_and(|number| !Path::new("/proc").join(number).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Programs to make, run and check a system.
fn programs_of(system: &System) -> &'static [&'static str] {
    match system {
        System::Engine | System::Model(_) | System::Extant | System::Dir(_) => &[],
        System::Kernel("xfs") => &["mkfs.xfs", "xfs_repair"],
        System::Kernel("btrfs") => &["mkfs.btrfs", "btrfs"],
        System::Kernel("jfs") => &["jfs_mkfs", "jfs_fsck"],
        System::Kernel("nilfs2") => &["mkfs.nilfs2"],
        System::Kernel(_) => &["mke2fs", "e2fsck"],
        System::Fuse2fs => &["mke2fs", "e2fsck", "fuse2fs"],
        System::ZfsFuse => &["zfs-fuse", "zpool", "zfs"],
    }
}

/// The kernel's package, as far as it is of use.
struct Modules {
    kernel: Vec<u8>,
    built_in: BTreeSet<String>,
    files: BTreeMap<String, Vec<u8>>,
}

impl Modules {
    fn read(package: &Path) -> Result<Self, VmError> {
        let is_wanted = |path: &str| {
            path.starts_with("boot/vmlinuz-")
                || path.ends_with("/modules.builtin")
                || MODULE_DIRS.iter().any(|dir| path.contains(dir))
        };
        let mut found =
            Self { kernel: Vec::new(), built_in: BTreeSet::new(), files: BTreeMap::new() };
        packages::each_file(package, is_wanted, |path, bytes| {
            if path.starts_with("boot/") {
                found.kernel = bytes;
            } else if path.ends_with("/modules.builtin") {
                let text = String::from_utf8_lossy(&bytes);
                found.built_in.extend(text.lines().filter_map(modules::name_of));
            } else if let Some(name) = modules::name_of(&path) {
                let bytes = if path.ends_with(".xz") { plain(&bytes) } else { Some(bytes) };
                found.files.extend(bytes.map(|bytes| (name, bytes)));
            }
        })?;
        match found.kernel.is_empty() {
            true => Err(VmError(format!("{}: it holds no kernel", package.display()))),
            false => Ok(found),
        }
    }

    /// Puts the requirements of targets into the archive; and for each module the list of modules
    /// to load.
    fn write(
        &self,
        archive: &mut Writer<impl Write>,
        missing: &mut BTreeMap<String, String>,
    ) -> io::Result<BTreeMap<String, Vec<String>>> {
        let depends = self.depends();
        let mut orders = BTreeMap::new();
        for name in modules::all() {
            let Some(order) = modules::closure(name, &depends, &self.built_in) else {
                missing.insert(name.to_owned(), "its kernel has no such module".to_owned());
                continue;
            };
            for module in &order {
                archive.file(&format!("lib/modules/{module}.ko"), &self.files[module])?;
            }
            orders.insert(name.to_owned(), order);
        }
        Ok(orders)
    }

    /// Dependencies of the wanted ones, and theirs.
    fn depends(&self) -> BTreeMap<String, Vec<String>> {
        let mut found = BTreeMap::new();
        let mut waiting: Vec<String> = modules::all().into_iter().map(str::to_owned).collect();
        while let Some(name) = waiting.pop() {
            let Some(bytes) = self.files.get(&name) else { continue };
            if let Entry::Vacant(place) = found.entry(name) {
                let needed = place.insert(modules::depends(bytes));
                waiting.extend(needed.clone());
            }
        }
        found
    }
}

/// A module without its compression.
fn plain(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    liblzma::read::XzDecoder::new(bytes).read_to_end(&mut plain).ok()?;
    Some(plain)
}

fn find(root: &Path, program: &str) -> Option<PathBuf> {
    PROGRAM_DIRS.iter().map(|dir| root.join(dir).join(program)).find(|path| path.is_file())
}

/// A program with its libraries.
fn add_program(
    archive: &mut Writer<impl Write>,
    root: &Path,
    name: &str,
    path: &Path,
) -> Result<(), VmError> {
    for (library, path) in packages::libraries(path, root)? {
        let inside = match library.strip_prefix('/') {
            Some(loader) => loader.to_owned(),
            None => format!("lib/x86_64-linux-gnu/{library}"),
        };
        if !archive.has(&inside) {
            let bytes = fs::read(&path).trying(path.display())?;
            archive.file(&inside, &bytes).trying(path.display())?;
        }
    }
    let bytes = fs::read(path).trying(path.display())?;
    archive.file(&format!("bin/{name}"), &bytes).trying(path.display())
}

/// Directories, links and configuration.
fn furnish(
    archive: &mut Writer<impl Write>,
    root: &Path,
    modules: &BTreeMap<String, Vec<String>>,
) -> io::Result<()> {
    for dir in ["proc", "sys", "dev", "run", "tmp", "mnt", "var/lib", "var/lock", "root"] {
        archive.directory(dir)?;
    }
    for (path, to) in [
        ("sbin", "bin"),
        ("usr/bin", "../bin"),
        ("usr/sbin", "../bin"),
        ("bin/sh", "busybox"),
        ("bin/true", "busybox"),
        ("bin/insmod", "busybox"),
        ("var/run", "../run"),
        ("etc/mtab", "/proc/self/mounts"),
    ] {
        archive.link(path, to)?;
    }
    for file in FILES {
        // Its programs have defaults without it.
        if let Ok(bytes) = fs::read(root.join(file)) {
            archive.file(file, &bytes)?;
        }
    }
    archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")?;
    archive.file("etc/group", b"root:x:0:\n")?;
    archive.file("etc/hosts", b"127.0.0.1 localhost\n")?;
    let mut first: Vec<&String> = Vec::new();
    for name in modules::OF_THE_GUEST.iter().filter_map(|name| modules.get(*name)).flatten() {
        if !first.contains(&name) {
            first.push(name);
        }
    }
    let first: String = first.iter().map(|name| format!("{name}\n")).collect();
    archive.file("lib/modules/first", first.as_bytes())?;
    archive.file(super::agent::ORDERS, &serde_json::to_vec(modules).expect("plain data"))?;
    archive.file("init", INIT.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_preparation_has_left_is_removed() {
        let dir = tempfile::tempdir().expect("a place for the test");
        // No process has this number: there are four million at most.
        let ours = format!("work-{}", std::process::id());
        for name in ["work-4194999", &ours, "work-of-others", "base.cpio"] {
            fs::create_dir_all(dir.path().join(name).join("packages")).expect("made");
        }
        remove_left(dir.path());
        let mut left: Vec<_> = fs::read_dir(dir.path()).expect("there").flatten().collect();
        left.sort_by_key(fs::DirEntry::file_name);
        let left: Vec<_> = left.iter().map(fs::DirEntry::file_name).collect();
        assert_eq!(left, ["base.cpio", &*ours, "work-of-others"]);
        remove_left(&dir.path().join("nothing"));
    }
}
