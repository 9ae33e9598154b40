use std::io::ErrorKind;
use std::sync::Arc;

use extant_device::{Device, MemoryDevice, Operation};
use extant_journal::{Finish, JournalError, JournalOptions, recover_volume};
use extant_ondisk::BlockNo;
use extant_ondisk::superblock::{SUPERBLOCK_OFFSET, State};
use extant_runtime::env::Env;
use extant_sim::{Effect, Event, Fault, FaultyDevice, Recorder};
use extant_testkit::skip;

use crate::toy::{Random, Toy, Volume};

fn volume() -> Result<Volume, String> {
    Ok(Volume::new(&["-t", "ext4", "-b", "1024", "-J", "size=1"], 512)?.with_log(80))
}

/// Runs a history on a device that fails once. Returns the operations acknowledged before, and the
/// error.
fn until_failure(
    volume: &Volume,
    device: Arc<FaultyDevice>,
    fault: Fault,
    seed: u64,
) -> (Toy, usize, Option<JournalError>) {
    let env = Env::stepped(seed);
    let mut toy = Toy::new(volume, device.clone(), &env, JournalOptions::default(), seed).unwrap();
    device.inject(fault);
    let (mut random, mut acknowledged) = (Random(seed), 0);
    for _ in 0..150 {
        let tid = match toy.operate() {
            Ok(tid) => tid,
            Err(error) => return (toy, acknowledged, Some(error)),
        };
        let done = match random.below(12) {
            0 => toy.journal.commit(tid).map(|()| true),
            1 => toy.journal.checkpoint().map(|()| true),
            2..6 => {
                env.step();
                Ok(false)
            }
            _ => Ok(false),
        };
        match done {
            Ok(true) => acknowledged = toy.history.len() - 1,
            Ok(false) => {}
            Err(error) => return (toy, acknowledged, Some(error)),
        }
    }
    (toy, acknowledged, None)
}

#[test]
fn the_first_failed_write_latches_and_what_was_acknowledged_stays() {
    let volume = match volume() {
        Ok(volume) => volume,
        Err(why) => skip!("{why}"),
    };
    let mut aborted = 0;
    for effect in [Effect::Error(ErrorKind::Other), Effect::Short(700)] {
        for operation in [Operation::Write, Operation::Flush] {
            for passes in 0..60 {
                let memory = Arc::new(volume.base.fork());
                let device = Arc::new(FaultyDevice::new(memory.clone()));
                let fault = Fault::new(effect).on(operation).after(passes).times(1);
                let seed = passes;
                let (toy, acknowledged, error) =
                    until_failure(&volume, device.clone(), fault, seed);
                let what = format!("{effect:?} of {operation:?} {passes}");
                let Some(error) = error else {
                    assert_eq!(device.faults_met(), 0, "{what}: a failure went unnoticed");
                    continue;
                };
                assert!(matches!(error, JournalError::Aborted(_)), "{what}: {error}");
                aborted += 1;
                let journal = &toy.journal;
                for error in [
                    journal.start(1).err(),
                    journal.commit(journal.running()).err(),
                    journal.sync().err(),
                    journal.checkpoint().err(),
                    journal.aborted(),
                ] {
                    assert!(matches!(error, Some(JournalError::Aborted(_))), "{what}: {error:?}");
                }
                let history = toy.history.clone();
                drop(toy);
                let recovered = recover_volume(&*memory, None, Finish::Reset).unwrap().unwrap();
                assert_eq!(recovered.errno, -5, "{what}: the journal recorded the error");
                assert_eq!(recovered.damage, [], "{what}");
                let mut state = [0; 2];
                memory.read_at(1024 + 0x3a, &mut state).unwrap();
                let state = State::from_bits_retain(u16::from_le_bytes(state));
                assert!(state.contains(State::ERRORS), "{what}: {state:?}");
                let found = volume.check(&*memory, &history, &what);
                assert!(found >= acknowledged, "{what}: {found} of {acknowledged} acknowledged");
            }
        }
    }
    assert!(aborted > 100, "{aborted}");
}

#[test]
fn after_the_failure_nothing_is_written_but_the_note_of_it() {
    let volume = match volume() {
        Ok(volume) => volume,
        Err(why) => skip!("{why}"),
    };
    let recorder = Arc::new(Recorder::new(volume.base.clone()));
    let device = Arc::new(FaultyDevice::new(recorder.clone()));
    let fault = Fault::new(Effect::Error(ErrorKind::Other)).on(Operation::Write).after(9).times(1);
    let (toy, _, error) = until_failure(&volume, device.clone(), fault, 3);
    assert!(matches!(error, Some(JournalError::Aborted(_))));
    let place = volume.log(&(device as Arc<dyn Device>)).unwrap().place;
    let superblock = volume.geometry.byte_of(place.runs.runs()[0].start);
    let events = recorder.events();
    let written = events.iter().filter_map(|event| match event {
        Event::Write { offset, .. } => Some(*offset),
        _ => None,
    });
    let written: Vec<u64> = written.collect();
    assert!(written.ends_with(&[superblock, SUPERBLOCK_OFFSET]), "the journal's and the volume's");
    assert!(toy.journal.start(1).is_err());
    let error = toy.journal.close().unwrap_err();
    assert!(matches!(error, JournalError::Aborted(_)));
    assert_eq!(recorder.events().len(), events.len());
}

#[test]
fn a_failed_read_is_told_and_harms_nothing() {
    let volume = match volume() {
        Ok(volume) => volume,
        Err(why) => skip!("{why}"),
    };
    let memory: Arc<MemoryDevice> = Arc::new(volume.base.fork());
    let device = Arc::new(FaultyDevice::new(memory));
    let env = Env::stepped(1);
    let mut toy = Toy::new(&volume, device.clone(), &env, JournalOptions::default(), 1).unwrap();
    toy.operate().unwrap();
    let block = BlockNo(volume.free - 1);
    device.inject(Fault::new(Effect::Error(ErrorKind::Other)).on(Operation::Read).times(1));
    assert!(matches!(toy.journal.read(block).unwrap_err(), JournalError::Device(_)));
    toy.journal.read(block).unwrap();
    let past = BlockNo(volume.geometry.blocks_count);
    assert!(matches!(toy.journal.read(past).unwrap_err(), JournalError::Format(_)));
    toy.operate().unwrap();
    toy.journal.close().unwrap();
}

/// A failed write may have marked the log empty: later transactions would not be replayed.
#[test]
fn a_freeze_that_fails_stops_the_journal() {
    let volume = match volume() {
        Ok(volume) => volume,
        Err(why) => skip!("{why}"),
    };
    for operation in [Operation::Write, Operation::Flush] {
        let mut failed = 0;
        for passes in 0.. {
            let device = Arc::new(FaultyDevice::new(Arc::new(volume.base.fork())));
            let env = Env::stepped(1);
            let mut toy =
                Toy::new(&volume, device.clone(), &env, JournalOptions::default(), 1).unwrap();
            toy.operate().unwrap();
            let fault = Fault::new(Effect::Short(700)).on(operation).after(passes).times(1);
            device.inject(fault);
            let frozen = toy.journal.freeze();
            if device.faults_met() == 0 {
                frozen.unwrap();
                break;
            }
            frozen.unwrap_err();
            failed += 1;
            assert!(toy.journal.aborted().is_some(), "{operation:?} {passes}");
        }
        assert!(failed > 3, "{operation:?}: only {failed} failed");
    }
}
