//! The volume that a cell works on: it is made, mounted, checked and mounted again, for every kind
//! of target.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use extant::{Direct, FileSystem, open_device};

use super::engine;
use super::error::{CellError, Trying};
use super::layers::Mapped;
use super::protocol::Cell;
use super::tool::{complaint, finish, needs, run};
use super::zfs::Pool;
use crate::charged::Charged;
use crate::clock::Clock;
use crate::environment::machine_memory;
use crate::files::{Files, Mounted};
use crate::target::System;

/// Time limit for a server to mount, and to write all data when it is unmounted.
const PATIENCE: Duration = Duration::from_secs(600);
/// Largest volume size in bytes: more than any disk has, so that the system refuses such a file
/// with its own error.
const MOST_VOLUME: u64 = 1 << 62;
/// Interval at which a mount point or a server is polled.
const POLL: Duration = Duration::from_millis(2);
/// Names passed to one command at most.
const AT_ONCE: usize = 1000;

/// A target's volume.
pub(super) struct TargetVolume<'c> {
    cell: &'c Cell,
    /// The image, the given device, or the mapping over that device; with the simulated drive that
    /// holds it.
    image: PathBuf,
    /// The image's file.
    file: PathBuf,
    /// The device mapping over the device; it is removed when this is dropped.
    _mapped: Option<Mapped>,
    /// Mount point.
    point: PathBuf,
}

/// A volume in use.
pub(super) struct MountedVolume {
    /// Access to the volume's files.
    pub(super) files: Box<dyn Files>,
    /// Directory on the volume for the experiment.
    pub(super) root: PathBuf,
    /// Clock of the measurements.
    pub(super) clock: Clock,
    /// Reason why data is cached a second time, in the page cache of the image's file, if that
    /// could not be avoided.
    pub(super) cached: Option<String>,
    end: End,
}

/// How the use of a volume is ended.
enum End {
    Engine(FileSystem),
    Mount(MountGuard),
    Pool(Pool),
    Nothing,
}

/// Size in bytes of a volume with this much free space: whole mebibytes, at least the target's
/// minimum.
pub(super) fn volume_size(room: u64, least: u64) -> u64 {
    room.clamp(least, MOST_VOLUME).next_multiple_of(1 << 20)
}

impl<'c> TargetVolume<'c> {
    /// Prepares the volume of a cell.
    pub(super) fn new(cell: &'c Cell) -> Result<Self, CellError> {
        let point = cell.scratch.join("mount");
        fs::create_dir_all(&point).trying(point.display())?;
        let layers = &cell.target.layers;
        let device = cell.settings.device.as_deref();
        let mapped = match (layers.is_empty(), device) {
            (true, _) => None,
            (false, Some(device)) => Some(Mapped::over(device, layers)?),
            (false, None) => {
                return Err(CellError::new("layers require --device, or `extant lab vm run`"));
            }
        };
        let file = match (&mapped, device) {
            (Some(mapped), _) => mapped.top().to_owned(),
            (None, Some(device)) => device.to_owned(),
            (None, None) => cell.scratch.join("image"),
        };
        let image = match cell.target.system.drive() {
            Some(_) if device.is_some() => {
                return Err(CellError::new("a simulated drive cannot use a device"));
            }
            Some(drive) => on_drive(cell, drive, &file),
            None => file.clone(),
        };
        Ok(Self { cell, image, file, _mapped: mapped, point })
    }

    fn system(&self) -> &System {
        &self.cell.target.system
    }

    /// Whether the target is a directory, which is neither made nor checked.
    pub(super) fn is_dir(&self) -> bool {
        matches!(self.system(), System::Dir(_))
    }

    /// Makes the volume, and an image of `bytes` bytes for it if no device was given.
    pub(super) fn format(&self, bytes: u64) -> Result<(), CellError> {
        self.format_with(bytes, &[])
    }

    /// The same with words of the experiment before the target's own.
    pub(super) fn format_with(&self, bytes: u64, words: &[&str]) -> Result<(), CellError> {
        if self.is_dir() {
            return Ok(());
        }
        if self.cell.settings.device.is_none() {
            self.make_image(bytes)?;
        }
        let own = self.words_of_drive();
        let own = own.iter().map(String::as_str);
        let words = own.chain(words.iter().copied()).chain(self.cell.target.mkfs_words());
        let make = |program: &str, first: &[&str]| {
            let mut all: Vec<String> = first.iter().map(|word| (*word).to_owned()).collect();
            all.extend(words.clone().map(str::to_owned));
            all.push(self.image.to_string_lossy().into_owned());
            run(program, all).map(drop)
        };
        match self.system() {
            System::Engine | System::Extant | System::Model(_) => {
                let opened = open_device(&self.image, true, Direct::Off).trying("extant mkfs")?;
                extant::format(&*opened.device, words.clone()).trying("extant mkfs")?;
                opened.finish().trying("extant mkfs")
            }
            System::Kernel(name @ ("xfs" | "btrfs")) => {
                make(&format!("mkfs.{name}"), &["-f", "-q"])
            }
            System::Kernel("jfs") => make("jfs_mkfs", &["-q"]),
            System::Kernel("nilfs2") => make("mkfs.nilfs2", &["-f", "-q"]),
            System::ZfsFuse => Pool::format(&self.image, &self.point, words),
            System::Kernel(name) => make("mke2fs", &["-F", "-q", "-t", name]),
            System::Fuse2fs => make("mke2fs", &["-F", "-q", "-t", "ext4"]),
            System::Dir(_) => Ok(()),
        }
    }

    /// Options of mkfs on a simulated drive: no random values, so that directories are listed in
    /// the same order in each run.
    pub(super) fn words_of_drive(&self) -> Vec<String> {
        if self.system().drive().is_none() {
            return Vec::new();
        }
        let seed = self.cell.settings.seed;
        let uuid = format!("{:08x}-0000-4000-8000-{:012x}", seed >> 32, seed & 0xffff_ffff);
        vec!["-U".to_owned(), uuid.clone(), "-E".to_owned(), format!("hash_seed={uuid}")]
    }

    /// Makes the image again, as one hole.
    pub(super) fn make_image(&self, bytes: u64) -> Result<(), CellError> {
        let _ = fs::remove_file(&self.file);
        let image = File::create(&self.file).trying(self.file.display())?;
        image.set_len(bytes).trying(self.file.display())
    }

    /// The image's file, whichever drive it is on.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The image or the given device, as our own commands take it.
    pub(super) fn image(&self) -> &Path {
        &self.image
    }

    /// Mounts the volume, or opens it in this process.
    pub(super) fn mount(&self) -> Result<MountedVolume, CellError> {
        let options = self.cell.target.mount.as_str();
        let mut cached = None;
        let end = match self.system() {
            System::Engine | System::Model(_) => {
                let (fs, simulated) = engine::open(&self.image, options, self.memory())?;
                let files: Box<dyn Files> = match &simulated {
                    Some(env) => Box::new(Charged::new(fs.clone(), env.clone())),
                    None => Box::new(fs.clone()),
                };
                let (root, clock) = ("/".into(), Clock::of(simulated));
                return Ok(MountedVolume { files, root, clock, cached, end: End::Engine(fs) });
            }
            System::Dir(path) => {
                let root = work_dir(path);
                fs::create_dir_all(&root).trying(root.display())?;
                let (files, clock) = (Box::new(Mounted), Clock::default());
                return Ok(MountedVolume { files, root, clock, cached, end: End::Nothing });
            }
            _ if !self.cell.isolated => {
                return Err(CellError::new(
                    "mounting needs root, or user namespaces for all users and unshare(1)",
                ));
            }
            System::ZfsFuse => {
                let pool = Pool::import(&self.image, &self.point, options)?;
                let root = self.point.clone();
                let (files, clock) = (Box::new(Mounted), Clock::default());
                return Ok(MountedVolume { files, root, clock, cached, end: End::Pool(pool) });
            }
            System::Extant => {
                let options = match options.split(',').any(|option| option.starts_with("memory=")) {
                    true => options.to_owned(),
                    // With a memory limit the image is opened with direct I/O, as for the other
                    // targets.
                    false => format!("memory={},{options}", self.memory()),
                };
                let words = ["mount", "-o", options.trim_end_matches(',')].map(AsRef::as_ref);
                let places = [self.image.as_os_str(), self.point.as_os_str()];
                run(&self.cell.program, words.into_iter().chain(places))?;
                MountGuard::new(&self.point, Some(self.cell.program.clone()), None)
            }
            System::Kernel(name) => {
                let looped = self.cell.settings.device.is_none().then_some("loop");
                let list = [looped.unwrap_or_default(), options];
                let list: Vec<_> = list.into_iter().filter(|part| !part.is_empty()).collect();
                let list = if list.is_empty() { "rw".to_owned() } else { list.join(",") };
                let words = ["-t", name, "-o", &list].map(AsRef::as_ref);
                let places = [self.image.as_os_str(), self.point.as_os_str()];
                run("mount", words.into_iter().chain(places))?;
                let guard = MountGuard::new(&self.point, None, None);
                if looped.is_some() {
                    cached = self.go_around_the_page_cache().err().map(|error| error.0);
                }
                guard
            }
            System::Fuse2fs => self.serve_by_fuse2fs(options)?,
        };
        let (files, clock) = (Box::new(Mounted), Clock::default());
        Ok(MountedVolume { files, root: self.point.clone(), clock, cached, end: End::Mount(end) })
    }

    /// Memory for our own engine, in bytes: half of the limit, if there is one, because the process
    /// needs memory too; else a quarter of the machine's, since the kernel's caches would use all
    /// of it. On simulated drives it is the same on every machine.
    fn memory(&self) -> u64 {
        const USUAL: u64 = 256 << 20;
        match self.cell.memory() {
            Some(limit) => limit / 2,
            None if self.system().drive().is_some() => USUAL,
            None => machine_memory().map_or(USUAL, |all| (all / 4).max(USUAL)),
        }
    }

    /// The loop device's own requests go past the page cache then, as the engine's do: what is
    /// cached is cached once. Where the image's file system cannot do that, it stays as it is.
    fn go_around_the_page_cache(&self) -> Result<(), CellError> {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let point = self.point.to_string_lossy();
        let line = table.lines().find(|line| line.split(' ').nth(1) == Some(&point));
        let device = line.and_then(|line| line.split(' ').next());
        let device = device.ok_or_else(|| CellError::new("cannot find the loop device"))?;
        run("losetup", ["--direct-io=on", device]).map(drop)
    }

    /// Unmounts with the server in the foreground: only its exit shows that everything is written.
    fn serve_by_fuse2fs(&self, options: &str) -> Result<MountGuard, CellError> {
        let before = fs::metadata(&self.point).trying(self.point.display())?.dev();
        let mut command = Command::new("fuse2fs");
        command.arg(&self.image).arg(&self.point).arg("-f");
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        needs("fuse2fs")?;
        let mut server = command.spawn().trying("fuse2fs")?;
        let start = Instant::now();
        while fs::metadata(&self.point).is_ok_and(|found| found.dev() == before) {
            if let Some(status) = server.try_wait().trying("fuse2fs")? {
                return Err(CellError(format!("fuse2fs ended without mounting: {status}")));
            }
            if start.elapsed() > PATIENCE {
                let _ = server.kill();
                return Err(CellError::new("fuse2fs does not mount"));
            }
            thread::sleep(POLL);
        }
        Ok(MountGuard::new(&self.point, None, Some(server)))
    }

    /// Checkers for the volume's format: name and command. They write nothing.
    pub(super) fn checkers(&self) -> Vec<(&'static str, Command)> {
        let command = |program: &Path, words: &[&str]| {
            let mut command = Command::new(program);
            command.args(words).arg(&self.image);
            command
        };
        match self.system() {
            // nilfs2 has no checker, and zfs-fuse checks itself.
            System::Dir(_) | System::ZfsFuse | System::Kernel("nilfs2") => Vec::new(),
            System::Kernel("jfs") => {
                vec![("jfs_fsck", command(Path::new("jfs_fsck"), &["-n"]))]
            }
            System::Kernel("xfs") => {
                let file = if self.cell.settings.device.is_none() { "-nf" } else { "-n" };
                vec![("xfs_repair", command(Path::new("xfs_repair"), &[file]))]
            }
            System::Kernel("btrfs") => {
                vec![("btrfs check", command(Path::new("btrfs"), &["check", "--readonly"]))]
            }
            // Its times are those of the virtual clock, which other checkers do not use.
            System::Model(_) => {
                vec![("extant fsck", command(&self.cell.program, &["fsck", "-fn", "--json"]))]
            }
            _ => vec![
                ("e2fsck", command(Path::new("e2fsck"), &["-fn"])),
                ("extant fsck", command(&self.cell.program, &["fsck", "-fn"])),
            ],
        }
    }

    /// Extents of files, by their paths in the volume, which is not mounted; `None` where they can
    /// only be seen mounted.
    pub(super) fn extents_unmounted(&self, paths: &[PathBuf]) -> Option<Result<f64, CellError>> {
        if !self.system().is_ext() {
            return None;
        }
        let named = |path: &PathBuf| format!("{}:{}", self.image.display(), path.display());
        Some(mean_extents(&self.cell.program, &["frag"], paths.iter().map(named)))
    }

    /// Drops the caches of files, so that they are read from the disk again; an ordinary user
    /// cannot.
    pub(super) fn drop_caches(&self) {
        if self.system().drive().is_some() {
            return;
        }
        if let Ok(image) = File::open(&self.image) {
            let _ = image.sync_all();
        }
        let _ = fs::write("/proc/sys/vm/drop_caches", "3");
    }
}

/// The URL of an image on a simulated drive. Each run has a seed of its own. Contents get an eighth
/// if memory is limited, else a quarter of an experiment's memory: the page cache has the rest.
fn on_drive(cell: &Cell, drive: &str, file: &Path) -> PathBuf {
    const USUAL: u64 = 2 << 30;
    let memory = cell.memory().map_or(USUAL, |limit| limit / 8);
    let seed = cell.settings.seed.wrapping_add(u64::from(cell.run));
    format!("model:{drive}:{}?seed={seed}&memory={memory}", file.display()).into()
}

/// Seconds of a check on a simulated drive by the drive's clock: of the whole check, and of each
/// pass.
pub(super) fn simulated_times(said: &str) -> Result<(f64, Vec<(u32, f64)>), CellError> {
    let said: serde_json::Value = serde_json::from_str(said).trying("extant fsck")?;
    let seconds = said["seconds"].as_f64();
    let seconds = seconds.ok_or_else(|| CellError::new("extant fsck printed no times"))?;
    let passes = said["passes"].as_array().into_iter().flatten();
    let times = passes.filter_map(|pass| {
        Some((u32::try_from(pass["pass"].as_u64()?).ok()?, pass["seconds"].as_f64()?))
    });
    Ok((seconds, times.collect()))
}

/// A directory of ours in a given directory.
pub(crate) fn work_dir(path: &Path) -> PathBuf {
    path.join("extant-lab-scratch")
}

/// Runs a checker, which must not find an error.
pub(super) fn check(command: &mut Command) -> Result<String, CellError> {
    let output = finish(command)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(complaint(command, &output)),
    }
}

/// Mean number of extents by the output of filefrag: `PATH: N extents found`.
pub(super) fn mean_extents(
    program: &Path,
    words: &[&str],
    files: impl Iterator<Item = String>,
) -> Result<f64, CellError> {
    let files: Vec<String> = files.collect();
    let mut counts: Vec<f64> = Vec::new();
    for some in files.chunks(AT_ONCE) {
        let all = words.iter().copied().chain(some.iter().map(String::as_str));
        counts.extend(run(program, all)?.lines().filter_map(extents_in));
    }
    match counts.is_empty() {
        true => Err(CellError::new("no extents were counted")),
        false => Ok(counts.iter().sum::<f64>() / counts.len() as f64),
    }
}

fn extents_in(line: &str) -> Option<f64> {
    let (_, counted) = line.rsplit_once(": ")?;
    let mut words = counted.split(' ');
    let count = words.next()?.parse().ok()?;
    words.next().filter(|word| word.starts_with("extent")).map(|_| count)
}

impl MountedVolume {
    /// Ends the use: everything is on the device when this returns.
    pub(super) fn close(self) -> Result<(), CellError> {
        drop(self.files);
        match self.end {
            End::Engine(fs) => fs.close().trying("engine: close"),
            End::Mount(guard) => guard.unmount(),
            End::Pool(pool) => pool.export(),
            End::Nothing => Ok(()),
        }
    }
}

/// Unmounts when it is dropped, also after a failure.
struct MountGuard {
    point: PathBuf,
    /// The command `extant`, if the mount is our own.
    ours: Option<PathBuf>,
    server: Option<Child>,
    is_mounted: bool,
}

impl MountGuard {
    fn new(point: &Path, ours: Option<PathBuf>, server: Option<Child>) -> Self {
        Self { point: point.to_owned(), ours, server, is_mounted: true }
    }

    fn unmount(mut self) -> Result<(), CellError> {
        match &self.ours {
            Some(program) => run(program, ["umount".as_ref(), self.point.as_os_str()])?,
            None => run("umount", [&self.point])?,
        };
        self.is_mounted = false;
        if let Some(server) = &mut self.server {
            let status = server.wait().trying("server")?;
            if !status.success() {
                return Err(CellError(format!("server: {status}")));
            }
        }
        Ok(())
    }
}

impl Drop for MountGuard {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = run("umount", ["-l".as_ref(), self.point.as_os_str()]);
        }
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_read_from_filefrags_lines() {
        assert_eq!(extents_in("/a: b/c: 12 extents found"), Some(12.0));
        assert_eq!(extents_in("/a: 1 extent found, perfection would be 1"), Some(1.0));
        assert_eq!(extents_in("/a: 3 blocks"), None);
        assert_eq!(extents_in("nothing"), None);
    }
}
