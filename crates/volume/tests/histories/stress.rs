//! Many threads on one volume. Each has a directory and a model of its own; all of them fight over a few names as well.

use crate::common;
use crate::devices::Devices;
use crate::engine::Engine;
use crate::random::{SIZE, fresh};
use crate::volumes;
use extant_device::env::Env;
use extant_device::sync::thread;
use extant_ondisk::InodeNo;
use extant_testkit::history::{Family, Model, Profile, Rules, generate, replay};
use extant_testkit::tree::Random;
use extant_testkit::{TreeSnapshot, differences, skip};
use extant_volume::{Creator, Error, LiveOptions, OpenOptions, RenameFlags, Volume};
use std::sync::Arc;

const THREADS: u64 = 6;

/// The part of a tree below a directory, as a tree of its own.
fn part(tree: &TreeSnapshot, dir: &[u8]) -> TreeSnapshot {
    let below = [dir, b"/"].concat();
    let strip = |path: &[u8]| path.strip_prefix(&below[..]).unwrap_or_default().to_vec();
    let is_in = |path: &[u8]| path == dir || path.starts_with(&below);
    let entries = tree.entries.iter().filter(|(path, _)| is_in(path)).map(|(path, entry)| {
        let mut entry = entry.clone();
        entry.same_as = entry.same_as.as_deref().map(strip);
        (strip(path), entry)
    });
    TreeSnapshot { entries: entries.collect() }
}

#[test]
fn threads_with_directories_of_their_own_do_not_disturb_each_other() {
    for name in ["ext4-1k", "ext2-1k", "ext4-4k", "bigalloc", "external"] {
        let kind = volumes::all().into_iter().find(|kind| kind.name == name).unwrap();
        let devices = match fresh(kind, SIZE) {
            Ok(base) => Devices::of(kind, Arc::new(base)),
            Err(why) => skip!("{why}"),
        };
        let (env, options) = (Env::threads(), devices.options(LiveOptions::default()));
        let volume =
            OpenOptions::default().open_live(devices.volume.clone(), &env, &options).unwrap();
        let volume = Arc::new(volume);
        let rules = Rules { counts_inodes: false, may_fill: true, ..kind.rules() };
        // The others would wait for ever behind one that freezes the volume twice.
        let profile = Profile::all().without(&[Family::Freezes]).by_anybody();
        let profile = profile.steps(400 * volumes::rounds() as usize);
        let models: Vec<Model> = thread::scope(|scope| {
            let run = |number: u64| {
                let name = format!("t{number}");
                let root = volume.mkdir(InodeNo::ROOT, name.as_bytes(), 0o755, &Creator::ROOT);
                let (root, volume) = (root.unwrap().number, volume.clone());
                let mut engine = Engine::on(volume, root, devices.clone(), &env, options.clone());
                let mut model = Model::new(rules.clone()).without_lost_and_found();
                let history = generate(number, &profile, &rules);
                replay(&history, &mut model, &mut engine)
                    .unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
                model
            };
            let threads: Vec<_> =
                (0..THREADS).map(|number| scope.spawn(move || run(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let tree = common::snapshot(&volume).unwrap();
        for (number, model) in models.iter().enumerate() {
            let found = part(&tree, format!("t{number}").as_bytes());
            let lines = differences(&model.snapshot(&found), &found);
            assert!(lines.is_empty(), "{name}, thread {number}:\n{}", lines.join("\n"));
        }
        Arc::into_inner(volume).unwrap().close().unwrap();
        devices.to_files().is_silent().unwrap();
    }
}

/// One call on a few names that all threads use; whether it may end so.
fn fight(volume: &Volume, dirs: &[InodeNo], random: &mut Random) {
    let dir = dirs[random.below(dirs.len() as u64) as usize];
    let other_dir = dirs[random.below(dirs.len() as u64) as usize];
    let name = format!("n{}", random.below(6)).into_bytes();
    let outcome = match random.below(10) {
        0 | 1 => volume.create(dir, &name, 0o644, &Creator::ROOT).map(drop),
        2 => volume.mkdir(dir, &name, 0o755, &Creator::ROOT).map(drop),
        3 => volume.rmdir(dir, &name),
        4 => volume.rename(dir, &name, other_dir, b"n0", RenameFlags::empty()),
        5 => volume
            .tmpfile(dir, 0o600, &Creator::ROOT)
            .and_then(|nameless| volume.release(nameless.number, 1)),
        // What a path leads to is held while it is used; it may have gone before.
        6 | 7 => volume
            .lookup(dir, &name)
            .and_then(|found| volume.acquire(found.inode))
            .and_then(|held| volume.release(held.number, 1)),
        _ => volume.unlink(dir, &name),
    };
    match outcome {
        Ok(())
        | Err(
            Error::Exists
            | Error::NotFound
            | Error::NotADirectory
            | Error::IsADirectory
            | Error::NotEmpty
            | Error::FreeInode(_)
            | Error::Invalid(_),
        ) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn threads_that_fight_over_names_leave_a_whole_volume() {
    for name in ["ext4-1k", "no-journal"] {
        let kind = volumes::all().into_iter().find(|kind| kind.name == name).unwrap();
        let devices = match fresh(kind, SIZE) {
            Ok(base) => Devices::of(kind, Arc::new(base)),
            Err(why) => skip!("{why}"),
        };
        let options = devices.options(LiveOptions::default());
        let device = devices.volume.clone();
        let volume = OpenOptions::default().open_live(device, &Env::threads(), &options).unwrap();
        let dirs: Vec<InodeNo> = (0..4)
            .map(|number| {
                let name = format!("d{number}");
                volume.mkdir(InodeNo::ROOT, name.as_bytes(), 0o755, &Creator::ROOT).unwrap().number
            })
            .collect();
        thread::scope(|scope| {
            for seed in 0..THREADS {
                let (volume, dirs) = (&volume, &dirs);
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for round in 0..2000 {
                        fight(volume, dirs, &mut random);
                        if round % 300 == 0 {
                            volume.sync().unwrap();
                        }
                    }
                });
            }
        });
        common::snapshot(&volume).unwrap();
        volume.close().unwrap();
        devices.to_files().is_silent().unwrap();
    }
}
