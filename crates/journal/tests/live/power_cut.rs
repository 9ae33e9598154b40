use std::fs;
use std::sync::Arc;
use std::time::Duration;

use extant_device::{Device, OverlayDevice};
use extant_journal::{Finish, JournalOptions, recover_volume};
use extant_runtime::env::Env;
use extant_sim::{Recorder, Sweep};
use extant_testkit::{LoopMount, TempImage, e2fsck_fn, is_root, skip, tool};

use crate::compare::{differences, e2fsck};
use crate::toy::{Random, Toy, Volume};

/// Mark for the end of opening; acknowledged operations are marked with their count.
const OPENED: u64 = 1 << 32;

struct Case {
    features: &'static str,
    more: &'static [&'static str],
    options: JournalOptions,
    sector_size: u32,
    /// Log size in blocks, so small that the log is nearly full all the time; only our own recovery
    /// accepts it.
    log: Option<u32>,
}

impl Case {
    fn volume(&self) -> Result<Volume, String> {
        let args = [&["-t", "ext4", "-O", self.features], self.more].concat();
        let volume = Volume::new(&args, self.sector_size)?;
        Ok(match self.log {
            Some(blocks) => volume.with_log(blocks),
            None => volume,
        })
    }
}

fn cases() -> Vec<Case> {
    let plain = JournalOptions::default;
    let case = |features, more, options, sector_size| Case {
        features,
        more,
        options,
        sector_size,
        log: None,
    };
    let small: &[&str] = &["-b", "1024", "-J", "size=1"];
    vec![
        case("metadata_csum,64bit", small, plain(), 512),
        case("metadata_csum,^64bit", &["-b", "4096", "-J", "size=4"], plain(), 4096),
        case("^metadata_csum,64bit", small, plain(), 512),
        case("^metadata_csum,^64bit", small, JournalOptions { checksum: true, ..plain() }, 512),
        case("metadata_csum,64bit", small, JournalOptions { async_commit: true, ..plain() }, 512),
        case("^metadata_csum,64bit", small, JournalOptions { async_commit: true, ..plain() }, 512),
        // Transactions of few blocks: many commits.
        case("metadata_csum,64bit", small, JournalOptions { memory: 1 << 16, ..plain() }, 512),
        Case { log: Some(80), ..case("metadata_csum,64bit", small, plain(), 512) },
        Case { log: Some(67), ..case("^metadata_csum,^64bit", small, plain(), 512) },
    ]
}

/// Runs a random history in a stepped runtime, with a mark for each fsync that returned.
fn history(toy: &mut Toy, recorder: &Recorder, env: &Env, seed: u64, operations: u64) {
    let log_is_short = toy.journal.free_log_blocks().is_some_and(|blocks| blocks < 100);
    let mut random = Random(seed);
    for _ in 0..operations {
        toy.operate().unwrap();
        let choice = match random.below(40) {
            // In a short log, many commits and no full checkpoint: checkpoints run when there is no
            // room.
            choice if log_is_short => choice % 2 * 20,
            choice => choice,
        };
        let acknowledged = match choice {
            0..6 => toy.journal.commit(*toy.tids.last().unwrap()).map(|()| true).unwrap(),
            6 => {
                toy.journal.checkpoint().unwrap();
                true
            }
            7 => {
                env.advance(Duration::from_secs(3));
                false
            }
            8..20 => {
                env.step();
                false
            }
            _ => false,
        };
        if acknowledged {
            recorder.mark(toy.history.len() as u64 - 1);
        }
    }
}

fn to_file(device: &dyn Device) -> TempImage {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let image = TempImage::of_size(0).unwrap();
    fs::write(image.path(), bytes).unwrap();
    image
}

#[test]
fn power_loss_keeps_what_was_committed_and_nothing_half() {
    let (mut cuts, mut replayed) = (0, 0);
    for (case, number) in cases().into_iter().zip(1..) {
        for seed in [number, number + 100] {
            let volume = match case.volume() {
                Ok(volume) => volume,
                Err(why) => skip!("{why}"),
            };
            let recorder = Arc::new(Recorder::new(volume.base.clone()));
            let env = Env::stepped(seed);
            let device: Arc<dyn Device> = recorder.clone();
            let mut toy = Toy::new(&volume, device, &env, case.options.clone(), seed).unwrap();
            recorder.mark(OPENED);
            history(&mut toy, &recorder, &env, seed, 400);
            let (history, journal) = (toy.history, toy.journal);
            if case.sector_size == 4096 {
                // The volume's superblock has two small sectors: a write of it can be torn there.
                journal.close().unwrap();
                recorder.mark(history.len() as u64 - 1);
            } else {
                drop(journal);
            }
            let sweep = Sweep { seed, prefixes: 5, subsets: 2, torn: 2 };
            for cut in recorder.cuts(sweep) {
                if !cut.marks.contains(&OPENED) {
                    continue;
                }
                let what = format!("case {number}, seed {seed}, {cut}");
                let least = cut.marks.iter().filter(|mark| **mark != OPENED).max().copied();
                let recovered = recover_volume(&cut.image, None, Finish::Reset).unwrap().unwrap();
                assert_eq!(recovered.damage, [], "{what}");
                let found = volume.check(&cut.image, &history, &what) as u64;
                assert!(found >= least.unwrap_or(0), "{what}: {found} of {least:?} acknowledged");
                cuts += 1;
                replayed += u32::from(recovered.blocks > 0);
            }
        }
    }
    assert!(cuts > 2000 && replayed > cuts / 2, "{replayed} of {cuts} replayed something");
}

#[test]
fn e2fsck_and_the_kernel_recover_what_we_left() {
    if tool("e2fsck").is_none() {
        skip!("no e2fsck");
    }
    for (case, seed) in cases().into_iter().filter(|case| case.log.is_none()).zip(40..) {
        let volume = match case.volume() {
            Ok(volume) => volume,
            Err(why) => skip!("{why}"),
        };
        let recorder = Arc::new(Recorder::new(volume.base.clone()));
        let env = Env::stepped(seed);
        let device: Arc<dyn Device> = recorder.clone();
        let mut toy = Toy::new(&volume, device, &env, case.options.clone(), seed).unwrap();
        recorder.mark(OPENED);
        history(&mut toy, &recorder, &env, seed, 150);
        let (history, journal) = (toy.history, toy.journal);
        drop(journal);
        let sweep = Sweep { seed, prefixes: 2, subsets: 1, torn: 0 };
        let cuts: Vec<_> = recorder.cuts(sweep).filter(|cut| cut.marks.contains(&OPENED)).collect();
        for (at, cut) in cuts.iter().enumerate().step_by(cuts.len().div_ceil(8)) {
            let what = format!("{} {:?} seed {seed}, {cut}", case.features, case.options);
            let theirs = to_file(&cut.image);
            let with_kernel = at % 16 == 0 && is_root();
            if with_kernel {
                let kernel = to_file(&cut.image);
                match LoopMount::new(&kernel.path(), "") {
                    Ok(mount) => mount.unmount().unwrap(),
                    Err(why) => panic!("{what}: {why}"),
                }
                let bytes = fs::read(kernel.path()).unwrap();
                let device = extant_device::MemoryDevice::from_bytes(&bytes);
                volume.check(&device, &history, &format!("kernel, {what}"));
            }
            let (status, said) = e2fsck(&theirs.path(), &["-y", "-E", "journal_only"]);
            assert!(status <= 1, "{what}: {said}");
            let ours = OverlayDevice::new(Arc::new(cut.image.fork()));
            recover_volume(&ours, None, Finish::Reset).unwrap();
            let ours = to_file(&ours);
            let different = differences(&ours.path(), &theirs.path());
            assert!(different.is_empty(), "{what}: {said}\n{different:x?}");
            e2fsck_fn(&ours.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
        }
    }
}
