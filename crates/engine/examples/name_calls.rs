//! Many calls on names, on a volume in process or on a mounted directory: what `cargo xtask bench`
//! times.
//!
//! `name_calls volume IMAGE create|link|rename|unlink|write|lookup|read COUNT [CALLERS]` makes the
//! calls on the volume of an image, `directory` instead of `volume` by system calls on a directory;
//! both end when everything is on the disk. `memory` instead makes them on a copy of the image in
//! memory, and `counted` does so with a wall clock that stands still and without commits by age, so
//! that a run takes as many instructions as the next one. The number of callers that share the
//! directories; one without a number. The seconds from the first call to the last one's end on the
//! disk are printed. With `prepare-` before it, what the calls need is made.
//! `name_calls open-volume IMAGE` opens a volume, makes a file of a new name and closes it.

use extant_device::{Device, MemoryDevice, data_runs};
use extant_engine::{Credentials, Engine, RenameFlags, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_reader::VolumeRead;
use extant_runtime::env::{Env, WallTime};
use extant_runtime::sync::thread;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::error::Error;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Files of one directory.
const PER_DIRECTORY: usize = 1000;
/// The contents written into a file.
const WRITTEN: [u8; 100] = [b'w'; 100];

/// Where the calls go.
trait Target {
    type Dir;
    fn make_dir(&self, name: &str) -> Result<Self::Dir, Box<dyn Error>>;
    fn dir(&self, name: &str) -> Result<Self::Dir, Box<dyn Error>>;
    fn create(&self, dir: &Self::Dir, name: &str) -> Result<(), Box<dyn Error>>;
    fn link(&self, dir: &Self::Dir, name: &str, to: &str) -> Result<(), Box<dyn Error>>;
    fn rename(&self, dir: &Self::Dir, name: &str, to: &str) -> Result<(), Box<dyn Error>>;
    fn unlink(&self, dir: &Self::Dir, name: &str) -> Result<(), Box<dyn Error>>;
    /// Writes a few bytes at the file's start.
    fn write(&self, dir: &Self::Dir, name: &str) -> Result<(), Box<dyn Error>>;
    fn lookup(&self, dir: &Self::Dir, name: &str) -> Result<(), Box<dyn Error>>;
    /// Reads what `write` wrote.
    fn read(&self, dir: &Self::Dir, name: &str) -> Result<(), Box<dyn Error>>;
    fn finish(self) -> Result<(), Box<dyn Error>>;
}

struct Directory(OwnedFd);

impl Target for Directory {
    type Dir = OwnedFd;

    fn make_dir(&self, name: &str) -> Result<OwnedFd, Box<dyn Error>> {
        rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o755))?;
        self.dir(name)
    }

    fn dir(&self, name: &str) -> Result<OwnedFd, Box<dyn Error>> {
        Ok(rustix::fs::openat(&self.0, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?)
    }

    fn create(&self, dir: &OwnedFd, name: &str) -> Result<(), Box<dyn Error>> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        drop(rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o644))?);
        Ok(())
    }

    fn link(&self, dir: &OwnedFd, name: &str, to: &str) -> Result<(), Box<dyn Error>> {
        Ok(rustix::fs::linkat(dir, name, dir, to, AtFlags::empty())?)
    }

    fn rename(&self, dir: &OwnedFd, name: &str, to: &str) -> Result<(), Box<dyn Error>> {
        Ok(rustix::fs::renameat(dir, name, dir, to)?)
    }

    fn unlink(&self, dir: &OwnedFd, name: &str) -> Result<(), Box<dyn Error>> {
        Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?)
    }

    fn write(&self, dir: &OwnedFd, name: &str) -> Result<(), Box<dyn Error>> {
        let file = rustix::fs::openat(dir, name, OFlags::WRONLY, Mode::empty())?;
        rustix::io::pwrite(&file, &WRITTEN, 0)?;
        Ok(())
    }

    fn lookup(&self, dir: &OwnedFd, name: &str) -> Result<(), Box<dyn Error>> {
        rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    fn read(&self, dir: &OwnedFd, name: &str) -> Result<(), Box<dyn Error>> {
        let file = rustix::fs::openat(dir, name, OFlags::RDONLY, Mode::empty())?;
        let mut bytes = [0; 2 * WRITTEN.len()];
        is_whole(rustix::io::pread(&file, &mut bytes, 0)?)
    }

    fn finish(self) -> Result<(), Box<dyn Error>> {
        Ok(rustix::fs::syncfs(&self.0)?)
    }
}

impl Target for Volume {
    type Dir = InodeNo;

    fn make_dir(&self, name: &str) -> Result<InodeNo, Box<dyn Error>> {
        Ok(self.mkdir(InodeNo::ROOT, name.as_bytes(), 0o755, &Credentials::ROOT)?.number)
    }

    fn dir(&self, name: &str) -> Result<InodeNo, Box<dyn Error>> {
        Ok(VolumeRead::lookup(self, InodeNo::ROOT, name.as_bytes())?.inode)
    }

    fn create(&self, dir: &InodeNo, name: &str) -> Result<(), Box<dyn Error>> {
        Engine::create(self, *dir, name.as_bytes(), 0o644, &Credentials::ROOT)?;
        Ok(())
    }

    fn link(&self, dir: &InodeNo, name: &str, to: &str) -> Result<(), Box<dyn Error>> {
        let file = VolumeRead::lookup(self, *dir, name.as_bytes())?.inode;
        Engine::link(self, file, *dir, to.as_bytes())?;
        Ok(())
    }

    fn rename(&self, dir: &InodeNo, name: &str, to: &str) -> Result<(), Box<dyn Error>> {
        Engine::rename(self, *dir, name.as_bytes(), *dir, to.as_bytes(), RenameFlags::empty())?;
        Ok(())
    }

    fn unlink(&self, dir: &InodeNo, name: &str) -> Result<(), Box<dyn Error>> {
        Ok(Engine::unlink(self, *dir, name.as_bytes())?)
    }

    fn write(&self, dir: &InodeNo, name: &str) -> Result<(), Box<dyn Error>> {
        let file = VolumeRead::lookup(self, *dir, name.as_bytes())?.inode;
        Engine::write(self, file, 0, &WRITTEN)?;
        Ok(())
    }

    fn lookup(&self, dir: &InodeNo, name: &str) -> Result<(), Box<dyn Error>> {
        VolumeRead::lookup(self, *dir, name.as_bytes())?;
        Ok(())
    }

    fn read(&self, dir: &InodeNo, name: &str) -> Result<(), Box<dyn Error>> {
        let file = VolumeRead::lookup(self, *dir, name.as_bytes())?.inode;
        let mut bytes = [0; 2 * WRITTEN.len()];
        is_whole(VolumeRead::read(self, file, 0, &mut bytes)?)
    }

    fn finish(self) -> Result<(), Box<dyn Error>> {
        Ok(self.close()?)
    }
}

/// Whether a read found what was written.
fn is_whole(count: usize) -> Result<(), Box<dyn Error>> {
    let is_whole = count == WRITTEN.len();
    is_whole.then_some(()).ok_or_else(|| format!("{count} bytes were read").into())
}

fn open_volume(image: &Path) -> Result<Volume, Box<dyn Error>> {
    let device = extant_device::FileDeviceOptions::new().write(true).open(image)?;
    let options = VolumeOptions::default();
    Ok(Volume::open(Arc::new(device), &Env::threads(), &options)?)
}

fn open_directory(path: &Path) -> Result<Directory, Box<dyn Error>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    Ok(Directory(rustix::fs::openat(CWD, path, flags, Mode::empty())?))
}

fn prepare<T: Target>(target: T, call: &str, count: usize) -> Result<(), Box<dyn Error>> {
    for number in 0..count.div_ceil(PER_DIRECTORY) {
        let dir = target.make_dir(&format!("d{number:05}"))?;
        if call != "create" {
            for file in 0..PER_DIRECTORY.min(count - number * PER_DIRECTORY) {
                target.create(&dir, &format!("file-{file:06}"))?;
            }
        }
    }
    target.finish()
}

fn run<T: Target + Sync>(
    target: T,
    call: &str,
    count: usize,
    callers: usize,
) -> Result<(), Box<dyn Error>> {
    let clock = Env::threads();
    // They are the same in each directory.
    let names: Vec<(String, String)> = (0..PER_DIRECTORY)
        .map(|file| (format!("file-{file:06}"), format!("other-{file:06}")))
        .collect();
    let started = clock.elapsed();
    let outcomes = thread::scope(|scope| {
        let target = &target;
        let names = &names;
        let one = |caller| move || part(target, call, count, names, caller, callers).map_err(said);
        let all: Vec<_> = (0..callers).map(|caller| scope.spawn(one(caller))).collect();
        all.into_iter().map(|one| one.join().map_err(|_| "a caller panicked")).collect::<Vec<_>>()
    });
    for outcome in outcomes {
        outcome??;
    }
    let called = clock.elapsed() - started;
    target.finish()?;
    println!("calls alone: {:.6}", called.as_secs_f64());
    println!("elapsed: {:.6}", (clock.elapsed() - started).as_secs_f64());
    Ok(())
}

/// Errors cross threads as their text.
fn said(error: Box<dyn Error>) -> String {
    error.to_string()
}

/// The share of one of several callers.
fn part<T: Target>(
    target: &T,
    call: &str,
    count: usize,
    names: &[(String, String)],
    caller: usize,
    callers: usize,
) -> Result<(), Box<dyn Error>> {
    for number in (caller..count.div_ceil(PER_DIRECTORY)).step_by(callers) {
        let dir = target.dir(&format!("d{number:05}"))?;
        for (name, other) in &names[..PER_DIRECTORY.min(count - number * PER_DIRECTORY)] {
            match call {
                "create" => target.create(&dir, name)?,
                "link" => target.link(&dir, name, other)?,
                "rename" => target.rename(&dir, name, other)?,
                "unlink" => target.unlink(&dir, name)?,
                "write" => target.write(&dir, name)?,
                "lookup" => target.lookup(&dir, name)?,
                "read" => target.read(&dir, name)?,
                other => return Err(format!("no such call: {other}").into()),
            }
        }
    }
    Ok(())
}

/// The volume of an image that was copied into memory.
fn copied(image: &Path, env: &Env, options: &VolumeOptions) -> Result<Volume, Box<dyn Error>> {
    let file = extant_device::FileDevice::open(image)?;
    let device = MemoryDevice::new(file.size());
    let mut bytes = vec![0; 1 << 20];
    for run in data_runs(&file, 0..file.size()) {
        let run = run?;
        for at in run.clone().step_by(bytes.len()) {
            let piece = &mut bytes[..(run.end - at).min(1 << 20) as usize];
            file.read_at(at, piece)?;
            device.write_at(at, piece)?;
        }
    }
    Ok(Volume::open(Arc::new(device), env, options)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["open-volume", image] => {
            let volume = open_volume(image.as_ref())?;
            let name = format!("made-by-{}", std::process::id());
            Engine::create(&volume, InodeNo::ROOT, name.as_bytes(), 0o644, &Credentials::ROOT)?;
            volume.finish()
        }
        ["volume", image, call, count] => {
            run(open_volume(image.as_ref())?, call, count.parse()?, 1)
        }
        ["volume", image, call, count, callers] => {
            run(open_volume(image.as_ref())?, call, count.parse()?, callers.parse()?)
        }
        ["memory", image, call, count, callers] => {
            let volume = copied(image.as_ref(), &Env::threads(), &VolumeOptions::default())?;
            run(volume, call, count.parse()?, callers.parse()?)
        }
        ["counted", image, call, count] => {
            let env = Env::threads_at(WallTime { seconds: 1_800_000_000, nanoseconds: 0 });
            let commit_interval = Duration::from_secs(1 << 20);
            let options = VolumeOptions { commit_interval, ..VolumeOptions::default() };
            run(copied(image.as_ref(), &env, &options)?, call, count.parse()?, 1)
        }
        ["prepare-volume", image, call, count] => {
            prepare(open_volume(image.as_ref())?, call, count.parse()?)
        }
        ["directory", path, call, count] => {
            run(open_directory(path.as_ref())?, call, count.parse()?, 1)
        }
        ["prepare-directory", path, call, count] => {
            for entry in std::fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()? {
                if entry.file_name() != "lost+found" {
                    std::fs::remove_dir_all(entry.path())?;
                }
            }
            prepare(open_directory(path.as_ref())?, call, count.parse()?)
        }
        _ => Err("usage: see the first lines of the source".into()),
    }
}
