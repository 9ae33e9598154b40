//! The same requests on a file of this machine's disk, around its page cache, and on simulated
//! drives: times of both.
//!
//! `cargo run --release -p extant-sim --example model_beside_disk -- FILE` makes FILE, 256 MiB, and
//! removes it.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use extant_device::{AlignedBuffer, Device, Direct, FileDevice, FileDeviceOptions, Request};
use extant_runtime::env::Env;
use extant_sim::model::Preset;
use extant_sim::{ModelDevice, ModelOptions};

const SIZE: u64 = 256 << 20;
const BLOCK: usize = 4096;

/// Places of 4 KiB that look random and are the same each time.
fn places(count: u64) -> impl Iterator<Item = u64> {
    let blocks = SIZE / BLOCK as u64;
    (1..=count)
        .map(move |number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks * BLOCK as u64)
}

type Work = fn(&dyn Device, &mut AlignedBuffer) -> Result<(), Box<dyn Error>>;

/// The steps, in this order: the first fills the file.
const TRACE: [(&str, Work); 7] = [
    ("256 MiB written in 1 MiB, then a flush", |device, buffer| {
        for at in (0..SIZE).step_by(1 << 20) {
            device.write_at(at, &buffer[..1 << 20])?;
        }
        Ok(device.flush()?)
    }),
    ("256 MiB read in 1 MiB", |device, buffer| {
        for at in (0..SIZE).step_by(1 << 20) {
            device.read_at(at, &mut buffer[..1 << 20])?;
        }
        Ok(())
    }),
    ("2,000 reads of 4 KiB, one by one", |device, buffer| {
        places(2000).try_for_each(|at| Ok(device.read_at(at, &mut buffer[..BLOCK])?))
    }),
    ("2,000 reads of 4 KiB, 32 at once", |device, buffer| {
        let all: Vec<u64> = places(2000).collect();
        for some in all.chunks(32) {
            let requests = some.iter().zip(buffer.chunks_mut(BLOCK));
            let mut batch: Vec<_> = requests.map(|(at, part)| Request::read(*at, part)).collect();
            device.submit(&mut batch)?;
        }
        Ok(())
    }),
    ("2,000 writes of 4 KiB, one by one, then a flush", |device, buffer| {
        for at in places(2000) {
            device.write_at(at, &buffer[..BLOCK])?;
        }
        Ok(device.flush()?)
    }),
    ("200 writes of 4 KiB, a flush after each", |device, buffer| {
        for at in places(200) {
            device.write_at(at, &buffer[..BLOCK])?;
            device.flush()?;
        }
        Ok(())
    }),
    ("2,000 writes of 4 KiB, 32 at once, then a flush", |device, buffer| {
        let all: Vec<u64> = places(2000).collect();
        for some in all.chunks(32) {
            let requests = some.iter().zip(buffer.chunks(BLOCK));
            let mut batch: Vec<_> = requests.map(|(at, part)| Request::write(*at, part)).collect();
            device.submit(&mut batch)?;
        }
        Ok(device.flush()?)
    }),
];

fn times(device: &dyn Device, clock: &Env) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut buffer = AlignedBuffer::new(1 << 20, BLOCK);
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = (at / 3) as u8;
    }
    let mut times = Vec::new();
    for (_, work) in TRACE {
        let start = clock.elapsed();
        work(device, &mut buffer)?;
        times.push(clock.elapsed().saturating_sub(start));
    }
    Ok(times)
}

fn run(path: &Path) -> Result<(), Box<dyn Error>> {
    let mut columns = Vec::new();
    let real = FileDeviceOptions::new().write(true).direct(Direct::Required).open(path)?;
    columns.push(("this machine", times(&real, &Env::threads())?));
    drop(real);
    for name in ["nvme", "ssd-sata", "hdd7200"] {
        let preset = Preset::named(name).ok_or("no such drive")?;
        let image = Arc::new(FileDeviceOptions::new().write(true).open(path)?);
        let drive = ModelDevice::new(preset, image, None, &ModelOptions::default())?;
        columns.push((name, times(&drive, drive.env())?));
    }
    print!("{:50}", "seconds");
    columns.iter().for_each(|(name, _)| print!(" {name:>13}"));
    println!();
    for (row, (what, _)) in TRACE.iter().enumerate() {
        print!("{what:50}");
        columns.iter().for_each(|(_, times)| print!(" {:13.4}", times[row].as_secs_f64()));
        println!();
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file?")?;
    let path = Path::new(&path);
    drop(FileDevice::create_new(path, SIZE)?);
    let outcome = run(path);
    std::fs::remove_file(path)?;
    outcome
}
