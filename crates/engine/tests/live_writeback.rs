//! Delayed data under writeback: the calls that proceed during it, and those that wait for its end.

mod common;

use common::pause;
use extant_device::{Device, DeviceError, MemoryDevice, Request, RequestKind};
use extant_engine::{Credentials, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_reader::{ReaderOptions, VolumeRead};
use extant_runtime::env::Env;
use extant_runtime::sync::thread::scope;
use extant_runtime::sync::{Condvar, Mutex};
use extant_testkit::{TempImage, e2fsck_fn, skip, tool};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const MIB: usize = 1 << 20;

/// A device on which long writes wait until the test lets them through.
#[derive(Debug)]
struct Gate {
    inner: MemoryDevice,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    has_arrived: bool,
}

impl Gate {
    fn close(&self) {
        *self.state.lock() = State { is_closed: true, has_arrived: false };
    }

    fn wait_for_arrival(&self) {
        let mut state = self.state.lock();
        while !state.has_arrived {
            self.changed.wait(&mut state);
        }
    }

    fn open(&self) {
        self.state.lock().is_closed = false;
        self.changed.notify_all();
    }
}

impl Device for Gate {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let is_long = |request: &Request<'_>| match &request.kind {
            RequestKind::Write { buffers, .. } => {
                buffers.slices().iter().any(|it| it.len() >= MIB / 8)
            }
            _ => false,
        };
        if batch.iter().any(is_long) {
            let mut state = self.state.lock();
            state.has_arrived = true;
            self.changed.notify_all();
            while state.is_closed {
                self.changed.wait(&mut state);
            }
        }
        self.inner.submit(batch)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

/// A volume with a file of 2 MiB of sevens, delayed, on a device with a closed gate.
fn volume_and_file() -> Result<(Arc<Gate>, Volume, InodeNo), String> {
    tool("mke2fs").ok_or("mke2fs is not installed")?;
    let image = TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", "1024"])?;
    let inner =
        MemoryDevice::from_bytes(&std::fs::read(image.path()).map_err(|it| it.to_string())?);
    let gate = Arc::new(Gate { inner, state: Mutex::default(), changed: Condvar::new() });
    let options = VolumeOptions { memory: 256 << 20, ..VolumeOptions::default() };
    let volume =
        Volume::open(gate.clone(), &Env::threads(), &options).map_err(|error| error.to_string())?;
    let file = volume.create(InodeNo::ROOT, b"file", 0o644, &Credentials::ROOT).unwrap().number;
    assert_eq!(volume.write(file, 0, &vec![7; 2 * MIB]).unwrap(), 2 * MIB);
    gate.close();
    Ok((gate, volume, file))
}

fn contents(volume: &impl VolumeRead, file: InodeNo) -> Vec<u8> {
    let mut bytes = vec![0; 8 * MIB];
    let count = volume.read(file, 0, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

/// The file as another volume on the same device has it; e2fsck finds nothing.
fn stored(gate: &Gate, file: InodeNo) -> Vec<u8> {
    let mut bytes = vec![0; gate.size() as usize];
    gate.read_at(0, &mut bytes).unwrap();
    let image = TempImage::of_size(gate.size()).unwrap();
    std::fs::write(image.path(), &bytes).unwrap();
    e2fsck_fn(&image.path()).unwrap();
    let device = Arc::new(MemoryDevice::from_bytes(&bytes));
    contents(&ReaderOptions::default().open(device).unwrap(), file)
}

#[test]
fn data_are_read_and_delayed_beside_those_on_their_way() {
    let (gate, volume, file) = match volume_and_file() {
        Ok(all) => all,
        Err(why) => skip!("{why}"),
    };
    let mut expected = vec![7; 2 * MIB];
    scope(|scope| {
        let writer = scope.spawn(|| volume.sync());
        gate.wait_for_arrival();
        // None of these returns before the gate opens, if it waits for the writeback.
        assert_eq!(contents(&volume, file), expected);
        assert_eq!(volume.write(file, 2 * MIB as u64, &[8; 3000]).unwrap(), 3000);
        assert_eq!(volume.write(file, 2 * MIB as u64 + 100, &[9; 5000]).unwrap(), 5000);
        expected.extend([8; 100]);
        expected.extend([9; 5000]);
        assert_eq!(contents(&volume, file), expected);
        assert_eq!(volume.inode(file).unwrap().size, expected.len() as u64);
        gate.open();
        writer.join().unwrap().unwrap();
    });
    assert_eq!(contents(&volume, file), expected);
    volume.close().unwrap();
    assert_eq!(stored(&gate, file), expected);
}

/// The effect of a call on a file under writeback, and on its contents.
type Change = (&'static str, fn(&Volume, InodeNo), fn(&mut Vec<u8>));

#[test]
fn what_changes_data_on_their_way_waits_for_them() {
    let changes: [Change; 4] = [
        (
            "overwrite",
            |volume, file| assert_eq!(volume.write(file, 5000, &[9; 3000]).unwrap(), 3000),
            |bytes| bytes[5000..8000].fill(9),
        ),
        (
            "append",
            |volume, file| {
                assert_eq!(volume.append_by(file, &[9; 3000], &Credentials::ROOT).unwrap().1, 3000)
            },
            |bytes| bytes.extend([9; 3000]),
        ),
        (
            "truncate",
            |volume, file| volume.truncate(file, 5000).unwrap(),
            |bytes| bytes.truncate(5000),
        ),
        (
            "a write over its end",
            |volume, file| {
                assert_eq!(volume.write(file, 2 * MIB as u64 - 5000, &[9; 9000]).unwrap(), 9000);
            },
            |bytes| {
                bytes.truncate(2 * MIB - 5000);
                bytes.extend([9; 9000]);
            },
        ),
    ];
    for (name, change, model) in changes {
        let (gate, volume, file) = match volume_and_file() {
            Ok(all) => all,
            Err(why) => skip!("{why}"),
        };
        let mut expected = vec![7; 2 * MIB];
        model(&mut expected);
        scope(|scope| {
            let writer = scope.spawn(|| volume.sync());
            gate.wait_for_arrival();
            let changer = scope.spawn(|| change(&volume, file));
            // Long enough for the change to come to where it waits, most of the time.
            pause(Duration::from_millis(50));
            gate.open();
            changer.join().unwrap();
            writer.join().unwrap().unwrap();
        });
        assert_eq!(contents(&volume, file), expected, "{name}");
        volume.close().unwrap();
        assert_eq!(stored(&gate, file), expected, "{name}");
    }
}
