//! Times creates, hard links and unlinks on an open volume, each until it is on the device:
//! `cargo run --release -p extant-engine --example names -- IMAGE [FILES] [DIRECTORIES] [THREADS]`.
//! The image is changed.

use extant_device::{Device, FileDeviceOptions as DeviceOptions};
use extant_engine::{Credentials, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_reader::{Error, VolumeRead};
use extant_runtime::env::Env;
use extant_runtime::sync::thread;
use std::sync::Arc;

/// Runs `step` for each file, the files dealt out to threads by directory, and says how fast.
fn timed(
    what: &str,
    volume: &Volume,
    env: &Env,
    (files, threads): (u64, u64),
    step: impl Fn(u64) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let start = env.elapsed();
    let results = thread::scope(|scope| {
        let step = &step;
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || (thread..files).step_by(threads as usize).try_for_each(step))
            })
            .collect();
        workers.into_iter().map(|worker| worker.join()).collect::<Vec<_>>()
    });
    for result in results {
        result.expect("a worker panics only by our own mistake")?;
    }
    let made = env.elapsed() - start;
    volume.sync()?;
    let synced = env.elapsed() - start;
    let rate = files as f64 / synced.as_secs_f64();
    println!("{what}: {made:.2?}, synced {synced:.2?}, {rate:.0} a second");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let image = args.next().ok_or("IMAGE is missing")?;
    let mut number = |default: u64| args.next().map_or(Ok(default), |arg| arg.parse());
    let (files, dirs, threads) = (number(100_000)?, number(1000)?, number(1)?);
    let device: Arc<dyn Device> = Arc::new(DeviceOptions::new().write(true).open(&image)?);
    let env = Env::threads();
    let options = VolumeOptions { memory: 256 << 20, ..VolumeOptions::default() };
    let volume = Volume::open(device, &env, &options)?;
    let by = Credentials::ROOT;
    let made: Vec<InodeNo> = (0..dirs)
        .map(|dir| volume.mkdir(InodeNo::ROOT, format!("dir{dir}").as_bytes(), 0o755, &by))
        .map(|made| made.map(|made| made.number))
        .collect::<Result<_, _>>()?;
    // A thread's files lie in directories of its own.
    let dir_of =
        |file: u64| made[(file % threads + file / threads * threads) as usize % made.len()];
    let size = (files, threads);
    timed("creates", &volume, &env, size, |file| {
        let name = format!("file{file:08}");
        volume.create(dir_of(file), name.as_bytes(), 0o644, &by).map(drop)
    })?;
    timed("links", &volume, &env, size, |file| {
        let dir = dir_of(file);
        let found = volume.lookup(dir, format!("file{file:08}").as_bytes())?;
        volume.link(found.inode, dir, format!("link{file:08}").as_bytes()).map(drop)
    })?;
    for prefix in ["link", "file"] {
        timed(&format!("unlinks of {prefix}s"), &volume, &env, size, |file| {
            volume.unlink(dir_of(file), format!("{prefix}{file:08}").as_bytes())
        })?;
    }
    volume.close()?;
    Ok(())
}
