//! A volume that says that it is clean is believed by those who open it: it must be whole at every cut of its closing.

use crate::devices::Devices;
use crate::random::{SIZE, fresh};
use crate::volumes;
use extant_device::env::Env;
use extant_device::{Device, OverlayDevice, Recorder, Sweep};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, State};
use extant_ondisk::{GroupNo, InodeNo};
use extant_testkit::{skip, tool};
use extant_volume::{Creator, LiveOptions, OpenOptions, SuperblockAt};
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// Marks the call of [`extant_volume::Volume::close`].
const CLOSING: u64 = 1;

/// Whether power loss has torn the superblock: its flag is not believed then.
pub(super) fn has_torn_superblock(device: &dyn Device) -> bool {
    let mut raw = RawSuperblock::new_zeroed();
    device.read_at(SUPERBLOCK_OFFSET, raw.as_mut_bytes()).unwrap();
    raw.verify(GroupNo(0)).is_err()
}

/// A cut of an end: what e2fsck makes of it where it looks at the flag first, and what a mount leaves that believes it. Whether the
/// volume said that it is clean.
fn judge(devices: &dyn Fn() -> Devices, has_journal: bool) -> Result<bool, String> {
    if has_torn_superblock(&*devices().volume) {
        return Ok(false);
    }
    let preened = devices().to_files();
    let output = preened.e2fsck("-p")?;
    // Without a journal there may be work that it leaves to people, and says so.
    let is_whole = output.status.code().is_some_and(|code| code <= 1);
    if is_whole {
        preened.is_clean().map_err(|what| format!("after e2fsck -p: {what}"))?;
    } else if has_journal {
        return Err(format!("e2fsck -p: {}", String::from_utf8_lossy(&output.stdout)));
    }
    let mounted = devices();
    let options = OpenOptions { superblock: SuperblockAt::Primary, ..OpenOptions::default() };
    let live = mounted.options(LiveOptions::default());
    let read = devices().open().map_err(|error| format!("not opened: {error}"))?;
    let is_clean = read.superblock().state.contains(State::CLEAN);
    let volume = options.open_live(mounted.volume.clone(), &Env::stepped(1), &live);
    let volume = volume.map_err(|error| format!("not opened for changes: {error}"))?;
    volume.close().map_err(|error| format!("not closed: {error}"))?;
    if is_clean || has_journal {
        mounted.to_files().is_clean().map_err(|what| format!("after a mount: {what}"))?;
    }
    Ok(is_clean)
}

#[test]
fn a_clean_flag_is_written_when_all_before_it_is_durable() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    for (seed, name) in (200..).zip(["no-journal", "ext2-1k", "ext4-1k"]) {
        let kind = volumes::all().into_iter().find(|kind| kind.name == name).unwrap();
        let base = fresh(kind, SIZE / 3).expect("mke2fs was asked for");
        let recorder = Arc::new(Recorder::new(Arc::new(base)));
        let env = Env::stepped(seed);
        let device = Devices::recorded(kind, &recorder).volume;
        let volume = OpenOptions::default().open_live(device, &env, &LiveOptions::default());
        let volume = volume.unwrap();
        for index in 0..30 {
            let file = format!("file{index}");
            let by = Creator::ROOT;
            let file = volume.create(InodeNo::ROOT, file.as_bytes(), 0o644, &by).unwrap();
            volume.write(file.number, 0, &vec![7; 3000 * (index % 7)]).unwrap();
        }
        recorder.mark(CLOSING);
        volume.close().unwrap();
        let has_journal = !matches!(name, "no-journal" | "ext2-1k");
        let mut said_clean = 0;
        for cut in recorder.cuts(Sweep { seed, prefixes: 2, subsets: 2, torn: 1 }) {
            if !cut.marks.contains(&CLOSING) {
                continue;
            }
            let devices =
                || Devices::of(kind, Arc::new(OverlayDevice::new(Arc::new(cut.image.fork()))));
            match judge(&devices, has_journal) {
                Ok(is_clean) => said_clean += usize::from(is_clean),
                Err(what) => panic!("{name}, {cut}: {what}"),
            }
        }
        assert!(said_clean > 0, "{name}: no cut says that it is clean");
    }
}
