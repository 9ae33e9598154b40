//! Contents written, read and removed in bulk, on a volume in process or in a directory: what
//! `cargo xtask bench` times.
//!
//! - `contents write volume IMAGE THREADS BYTES OPTIONS`: THREADS threads write a file of BYTES
//!   bytes each, in pieces of 64 KiB, and fsync it. Fails where a file has more than 4 extents, and
//!   more than twice as many as it must have. `directory PATH` instead of `volume IMAGE` does the
//!   same by system calls.
//! - `contents read volume IMAGE OPTIONS`: reads the files in the root; `contents read file PATH`:
//!   reads one by system calls.
//! - `contents tree IMAGE DIRS FILES BYTES OPTIONS`: makes directories with files of BYTES bytes,
//!   one after the other, as document 001's low-memory tests do; `contents remove IMAGE OPTIONS`
//!   removes all that, and prints the seconds from the first call until it was on the disk.
//!
//! OPTIONS are words separated by commas: `memory=N` (MiB; the image is opened around the page
//! cache then), `delalloc`, `nodelalloc`, `mballoc`, `nomballoc`, `data=ordered`, `data=writeback`,
//! `defaults`.

use extant_device::{AlignedBuffer, Direct};
use extant_engine::{AllocatorKind, Credentials, DataMode, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_reader::VolumeRead;
use extant_runtime::env::Env;
use extant_runtime::sync::thread;
use rustix::fs::{CWD, Mode, OFlags};
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

type Failure = Box<dyn Error + Send + Sync>;

/// Bytes of one write.
const PIECE: usize = 64 << 10;
/// Bytes of one read.
const READ: usize = 1 << 20;
/// Extents that a file of two has at most, and bytes of the longest extent.
const MOST_EXTENTS: u64 = 4;
const EXTENT: u64 = 128 << 20;

fn open(image: &str, words: &str) -> Result<Volume, Failure> {
    let mut options = VolumeOptions::default();
    let mut direct = Direct::Off;
    for word in words.split(',') {
        match word {
            "defaults" => {}
            "delalloc" => options.delalloc = Some(true),
            "nodelalloc" => options.delalloc = Some(false),
            "mballoc" => options.allocator = AllocatorKind::MultiBlock,
            "nomballoc" => options.allocator = AllocatorKind::Plain,
            "data=ordered" => options.data = Some(DataMode::Ordered),
            "data=writeback" => options.data = Some(DataMode::Writeback),
            word => match word.strip_prefix("memory=") {
                Some(size) => {
                    options.memory = size.parse::<u64>()? << 20;
                    direct = Direct::WherePossible;
                }
                None => return Err(format!("no such option: {word}").into()),
            },
        }
    }
    let device = extant_device::FileDeviceOptions::new().write(true).direct(direct);
    let device = Arc::new(device.open(Path::new(image))?);
    Ok(Volume::open(device, &Env::threads(), &options)?)
}

/// Runs `work` for the numbers below a limit, each on a thread of its own.
fn side_by_side(
    threads: usize,
    work: impl Fn(usize) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        all.into_iter().try_for_each(|one| one.join().map_err(|_| "a thread panicked")?)
    })
}

fn piece_of(number: usize) -> AlignedBuffer {
    let mut piece = AlignedBuffer::new(PIECE, 4096);
    piece.fill(number as u8 | 1);
    piece
}

fn write_volume(volume: Volume, threads: usize, bytes: u64) -> Result<(), Failure> {
    let made = |number| {
        let name = format!("file{number:04}");
        volume.create(InodeNo::ROOT, name.as_bytes(), 0o644, &Credentials::ROOT)
    };
    let files = (0..threads).map(made).collect::<Result<Vec<_>, _>>()?;
    side_by_side(threads, |number| {
        let (piece, file) = (piece_of(number), files[number].number);
        for at in (0..bytes).step_by(PIECE) {
            volume.write_by(file, at, &piece, &Credentials::ROOT)?;
        }
        Ok(volume.fsync(file)?)
    })?;
    let counts = files
        .iter()
        .map(|file| Ok(volume.extents(file.number)?.count()))
        .collect::<Result<Vec<usize>, Failure>>()?;
    let (most, all) = (counts.iter().max().copied().unwrap_or(0), counts.iter().sum::<usize>());
    println!("extents a file: {:.2}, at most {most}", all as f64 / threads as f64);
    volume.close()?;
    let allowed = MOST_EXTENTS.max(2 * bytes.div_ceil(EXTENT));
    if most as u64 > allowed {
        return Err(format!("a file has {most} extents, {allowed} are allowed").into());
    }
    Ok(())
}

fn write_directory(path: &str, threads: usize, bytes: u64) -> Result<(), Failure> {
    side_by_side(threads, |number| {
        let name = Path::new(path).join(format!("file{number:04}"));
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY;
        let file = rustix::fs::openat(CWD, &name, flags, Mode::from_raw_mode(0o644))?;
        let piece = piece_of(number);
        for at in (0..bytes).step_by(PIECE) {
            let mut done = 0;
            while done < PIECE {
                done += rustix::io::pwrite(&file, &piece[done..], at + done as u64)?;
            }
        }
        Ok(rustix::fs::fsync(&file)?)
    })
}

fn read_volume(volume: &impl VolumeRead) -> Result<u64, Failure> {
    let mut buffer = AlignedBuffer::new(READ, 4096);
    let mut all = 0;
    for entry in volume.read_dir(InodeNo::ROOT, 0)? {
        let entry = entry?;
        if !entry.name.starts_with(b"file") {
            continue;
        }
        let file = volume.lookup(InodeNo::ROOT, &entry.name)?.inode;
        let mut at = 0;
        loop {
            let count = volume.read(file, at, &mut buffer)?;
            if count == 0 {
                break;
            }
            at += count as u64;
        }
        all += at;
    }
    Ok(all)
}

fn read_file(path: &str) -> Result<u64, Failure> {
    let file = rustix::fs::openat(CWD, path, OFlags::RDONLY, Mode::empty())?;
    let mut buffer = AlignedBuffer::new(READ, 4096);
    let mut at = 0;
    loop {
        let count = rustix::io::pread(&file, &mut buffer[..], at)?;
        if count == 0 {
            return Ok(at);
        }
        at += count as u64;
    }
}

fn make_tree(volume: Volume, dirs: u32, files: u32, bytes: u64) -> Result<(), Failure> {
    let piece = piece_of(6);
    for dir in 0..dirs {
        let name = format!("dir{dir:03}");
        let dir = volume.mkdir(InodeNo::ROOT, name.as_bytes(), 0o755, &Credentials::ROOT)?.number;
        for file in 0..files {
            let name = format!("file{file:05}");
            let file = volume.create(dir, name.as_bytes(), 0o644, &Credentials::ROOT)?.number;
            volume.acquire(file)?;
            for at in (0..bytes).step_by(PIECE) {
                let len = PIECE.min((bytes - at) as usize);
                volume.write_by(file, at, &piece[..len], &Credentials::ROOT)?;
            }
            volume.release(file, 1)?;
        }
    }
    Ok(volume.close()?)
}

fn remove_tree(volume: Volume) -> Result<(), Failure> {
    let names = |dir| -> Result<Vec<Vec<u8>>, Failure> {
        let mut names = Vec::new();
        for entry in volume.read_dir(dir, 0)? {
            names.push(entry?.name);
        }
        names.retain(|name| name.starts_with(b"dir") || name.starts_with(b"file"));
        Ok(names)
    };
    // Opening and closing are not its: the clock runs from the first call until all of it is on the
    // disk.
    let clock = Env::threads();
    let started = clock.elapsed();
    for name in names(InodeNo::ROOT)? {
        let dir = volume.lookup(InodeNo::ROOT, &name)?.inode;
        for file in names(dir)? {
            volume.unlink(dir, &file)?;
        }
        volume.rmdir(InodeNo::ROOT, &name)?;
    }
    volume.sync()?;
    println!("elapsed: {:.6}", (clock.elapsed() - started).as_secs_f64());
    Ok(volume.close()?)
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["write", "volume", image, threads, bytes, words] => {
            write_volume(open(image, words)?, threads.parse()?, bytes.parse()?)?;
        }
        ["write", "directory", path, threads, bytes] => {
            write_directory(path, threads.parse()?, bytes.parse()?)?;
        }
        ["read", "volume", image, words] => {
            let volume = open(image, words)?;
            writeln!(std::io::stdout(), "{} bytes", read_volume(&volume)?)?;
            volume.close()?;
        }
        ["read", "file", path] => writeln!(std::io::stdout(), "{} bytes", read_file(path)?)?,
        ["tree", image, dirs, files, bytes, words] => {
            make_tree(open(image, words)?, dirs.parse()?, files.parse()?, bytes.parse()?)?;
        }
        ["remove", image, words] => remove_tree(open(image, words)?)?,
        _ => return Err("usage: see the first lines of the source".into()),
    }
    Ok(())
}
