//! A volume that says that it is clean is believed by those who open it: it must be whole at every
//! cut of its opening and closing.

use super::cuts::committed;
use super::verify::{OPENED, Recorded};
use crate::devices::Devices;
use crate::random::{SIZE, fresh};
use crate::volumes::{self, Kind};
use extant_device::OverlayDevice;
use extant_engine::{Credentials, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_ondisk::superblock::State;
use extant_runtime::env::Env;
use extant_sim::{Cut, Recorder, Sweep};
use extant_testkit::history::{Family, Profile, generate};
use extant_testkit::{skip, tool};
use std::sync::Arc;

/// A cut: what e2fsck makes of it where it looks at the flag first, and what a mount leaves that
/// believes it. Whether the volume said that it is clean.
fn verify(kind: Kind, cut: &Cut) -> Result<bool, String> {
    let has_journal = kind.has_journal();
    let devices = || Devices::of(kind, Arc::new(OverlayDevice::new(Arc::new(cut.image.fork()))));
    // The flag of a torn superblock is not believed.
    let Some(state) = devices().state() else { return Ok(false) };
    let preened = devices().to_files();
    let output = preened.e2fsck("-p")?;
    // Without a journal there may be work that it leaves to a manual check.
    let is_whole = output.status.code().is_some_and(|code| code <= 1);
    if is_whole {
        preened.is_clean().map_err(|what| format!("after e2fsck -p: {what}"))?;
    } else if has_journal {
        return Err(format!("e2fsck -p: {}", String::from_utf8_lossy(&output.stdout)));
    }
    let mounted = devices();
    let live = mounted.options(VolumeOptions::default());
    let is_clean = state.contains(State::CLEAN);
    let volume = Volume::open(mounted.volume.clone(), &Env::stepped(1), &live);
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
        let volume = Volume::open(device, &env, &VolumeOptions::default());
        let volume = volume.unwrap();
        for index in 0..30 {
            let file = format!("file{index}");
            let by = Credentials::ROOT;
            let file = volume.create(InodeNo::ROOT, file.as_bytes(), 0o644, &by).unwrap();
            volume.write(file.number, 0, &vec![7; 3000 * (index % 7)]).unwrap();
        }
        volume.close().unwrap();
        let mut said_clean = 0;
        for cut in recorder.cuts(Sweep { seed, prefixes: 2, subsets: 2, torn: 1 }) {
            match verify(kind, &cut) {
                Ok(is_clean) => said_clean += usize::from(is_clean),
                Err(what) => panic!("{name}, {cut}: {what}"),
            }
        }
        assert!(said_clean > 0, "{name}: no cut says that it is clean");
    }
}

/// Volumes without a journal that are closed and opened again: the flag comes and goes, and where a
/// cut has left it the tree is that of the history.
#[test]
fn a_volume_without_a_journal_that_says_that_it_is_clean_is_whole() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    for (seed, name) in (220..).zip(["no-journal", "ext2-1k", "ext2-4k"]) {
        let kind = volumes::all().into_iter().find(|kind| kind.name == name).unwrap();
        let base = fresh(kind, SIZE / 3).expect("mke2fs was asked for");
        let profile = committed(Profile::all()).with(&[(Family::Reopens, 12)]).steps(60);
        for (_, seed) in volumes::rounds(seed) {
            let history = generate(seed, &profile, &kind.rules());
            let options = VolumeOptions::default();
            let (recorded, recorder) = Recorded::run(kind, &base, options, history, seed)
                .unwrap_or_else(|wrong| panic!("{name}, seed {seed}: {wrong}"));
            let mut said_clean = 0;
            for cut in recorder.cuts(Sweep { seed, prefixes: 2, subsets: 1, torn: 1 }) {
                if !cut.marks.contains(&OPENED) {
                    continue;
                }
                let verified = verify(kind, &cut).and_then(|is_clean| {
                    if !is_clean {
                        return Ok(());
                    }
                    said_clean += 1;
                    let volume = Devices::of(kind, Arc::new(cut.image.fork())).open();
                    let volume = volume.map_err(|error| format!("not opened: {error}"))?;
                    recorded.verify(&cut.marks, &volume).map(drop)
                });
                verified.unwrap_or_else(|what| panic!("{name}, seed {seed}, {cut}: {what}"));
            }
            assert!(said_clean > 2, "{name}, seed {seed}: {said_clean} cuts say that it is clean");
        }
    }
}
