//! Many threads on one volume. Each has a directory and a model of its own; all of them fight over
//! a few names as well.

use crate::common;
use crate::devices::Devices;
use crate::engine::Engine;
use crate::random::{SIZE, fresh};
use crate::volumes;
use extant_engine::{Credentials, DataMode, OpenVolume, RenameFlags, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_reader::{Error, VolumeRead};
use extant_runtime::env::Env;
use extant_runtime::sync::thread;
use extant_testkit::history::{Family, Model, Profile, Rules, bytes_of, generate, replay};
use extant_testkit::tree::Random;
use extant_testkit::{TreeSnapshot, differences, skip};
use std::collections::BTreeMap;
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
    for name in ["ext4-1k", "ext2-1k", "ext4-4k", "bigalloc", "external", "fast-commit"] {
        let kind = volumes::all().into_iter().find(|kind| kind.name == name).unwrap();
        let devices = match fresh(kind, SIZE) {
            Ok(base) => Devices::of(kind, Arc::new(base)),
            Err(why) => skip!("{why}"),
        };
        let (env, options) = (Env::threads(), devices.options(VolumeOptions::default()));
        let volume = Volume::open(devices.volume.clone(), &env, &options).unwrap();
        let volume = Arc::new(volume);
        let rules = Rules { counts_inodes: false, may_fill: true, ..kind.rules() };
        // The others would wait for ever after a thread that freezes the volume twice.
        let profile = Profile::all().without(&[Family::Freezes]).by_anybody();
        let profile = profile.steps(400 * volumes::count() as usize);
        let models: Vec<Model> = thread::scope(|scope| {
            let run = |number: u64| {
                let name = format!("t{number}");
                let root = volume.mkdir(InodeNo::ROOT, name.as_bytes(), 0o755, &Credentials::ROOT);
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
        let tree = common::snapshot(&*volume).unwrap();
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
    let other_name = format!("n{}", random.below(6)).into_bytes();
    let how = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
    let how = how[random.below(3) as usize];
    let found = || volume.lookup(dir, &name).map(|found| found.inode);
    let outcome = match random.below(15) {
        0 | 1 => volume.create(dir, &name, 0o644, &Credentials::ROOT).map(drop),
        2 => volume.mkdir(dir, &name, 0o755, &Credentials::ROOT).map(drop),
        3 => volume.rmdir(dir, &name),
        4..7 => volume.rename(dir, &name, other_dir, &other_name, how),
        7 => volume
            .tmpfile(dir, 0o600, &Credentials::ROOT)
            .and_then(|unlinked| volume.release(unlinked.number, 1)),
        // The inode of a path is held while it is used; it may be deleted before.
        8 | 9 => found()
            .and_then(|file| volume.acquire(file))
            .and_then(|held| volume.release(held.number, 1)),
        10 => found().and_then(|file| volume.link(file, other_dir, &other_name)).map(drop),
        11 => found().and_then(|file| volume.write(file, random.below(9000), &name)).map(drop),
        12 => found().and_then(|file| volume.fsync(file)),
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
            | Error::LinksDirectory
            | Error::TooManyLinks
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
        let options = devices.options(VolumeOptions::default());
        let device = devices.volume.clone();
        let volume = Volume::open(device, &Env::threads(), &options).unwrap();
        let dirs: Vec<InodeNo> = (0..4)
            .map(|number| {
                let name = format!("d{number}");
                volume
                    .mkdir(InodeNo::ROOT, name.as_bytes(), 0o755, &Credentials::ROOT)
                    .unwrap()
                    .number
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
        common::snapshot(&*volume).unwrap();
        volume.close().unwrap();
        devices.to_files().is_silent().unwrap();
    }
}

/// The names of one thread in directories that all share, and what they hold.
#[derive(Default)]
struct Owned {
    files: BTreeMap<(usize, Vec<u8>), Vec<u8>>,
    made: u64,
}

impl Owned {
    fn pick(&self, random: &mut Random) -> Option<(usize, Vec<u8>)> {
        let at = random.below(self.files.len().max(1) as u64) as usize;
        self.files.keys().nth(at).cloned()
    }

    fn new_name(&mut self, me: u64, random: &mut Random) -> (usize, Vec<u8>) {
        self.made += 1;
        (random.below(DIRS as u64) as usize, format!("t{me}-{}", self.made).into_bytes())
    }

    /// One call on a name of its own: files are made, filled, cut, renamed, made durable and
    /// removed.
    fn step(&mut self, me: u64, volume: &Volume, dirs: &[InodeNo], random: &mut Random) {
        let Some(key) = self.pick(random).filter(|_| random.below(4) > 0) else {
            let (dir, name) = self.new_name(me, random);
            volume.create(dirs[dir], &name, 0o644, &Credentials::ROOT).unwrap();
            self.files.insert((dir, name), Vec::new());
            return;
        };
        let (dir, name) = (dirs[key.0], &key.1);
        let file = volume.lookup(dir, name).unwrap().inode;
        match random.below(8) {
            0..3 => {
                let bytes = bytes_of(random.below(1 << 20), 1 + random.below(6000));
                let content = self.files.get_mut(&key).unwrap();
                let at = random.below(content.len() as u64 + 1) as usize;
                assert_eq!(volume.write(file, at as u64, &bytes).unwrap(), bytes.len());
                content.resize(content.len().max(at + bytes.len()), 0);
                content[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            3 => {
                let content = self.files.get_mut(&key).unwrap();
                content.resize(random.below(9000) as usize, 0);
                volume.truncate(file, content.len() as u64).unwrap();
            }
            4 => volume.fsync(file).unwrap(),
            5 => {
                let to = self.new_name(me, random);
                let flags = RenameFlags::NOREPLACE;
                volume.rename(dir, name, dirs[to.0], &to.1, flags).unwrap();
                let content = self.files.remove(&key).unwrap();
                self.files.insert(to, content);
            }
            6 => {
                // Over another file of its own.
                let Some(to) = self.pick(random).filter(|to| *to != key) else { return };
                volume.rename(dir, name, dirs[to.0], &to.1, RenameFlags::empty()).unwrap();
                let content = self.files.remove(&key).unwrap();
                self.files.insert(to, content);
            }
            _ => {
                volume.unlink(dir, name).unwrap();
                self.files.remove(&key);
            }
        }
    }
}

/// Directories that all threads share.
const DIRS: usize = 3;

#[test]
fn threads_in_the_same_directories_do_not_disturb_each_other() {
    for (name, data) in [("ext4-1k", None), ("ext3-4k", None), ("ext4-4k", Some(DataMode::Journal))]
    {
        let kind = volumes::all().into_iter().find(|kind| kind.name == name).unwrap();
        let devices = match fresh(kind, SIZE) {
            Ok(base) => Devices::of(kind, Arc::new(base)),
            Err(why) => skip!("{why}"),
        };
        let options = VolumeOptions { data, ..devices.options(VolumeOptions::default()) };
        let device = devices.volume.clone();
        let volume = Volume::open(device, &Env::threads(), &options).unwrap();
        let dirs: Vec<InodeNo> = (0..DIRS)
            .map(|number| {
                let name = format!("d{number}");
                volume
                    .mkdir(InodeNo::ROOT, name.as_bytes(), 0o755, &Credentials::ROOT)
                    .unwrap()
                    .number
            })
            .collect();
        let owned: Vec<Owned> = thread::scope(|scope| {
            let run = |me: u64| {
                let (volume, dirs) = (&volume, &dirs);
                move || {
                    let (mut owned, mut random) = (Owned::default(), Random::new(me + 50));
                    for _ in 0..600 * volumes::count() {
                        owned.step(me, volume, dirs, &mut random);
                    }
                    owned
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|me| scope.spawn(run(me))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let is_as_owned = |volume: &OpenVolume| {
            let mut names = 0;
            for dir in &dirs {
                names += volume.read_dir(*dir, 0).unwrap().count() - 2;
            }
            assert_eq!(names, owned.iter().map(|owned| owned.files.len()).sum::<usize>());
            for ((dir, name), content) in owned.iter().flat_map(|owned| &owned.files) {
                let file = volume.lookup(dirs[*dir], name).unwrap().inode;
                let mut found = vec![0; content.len() + 1];
                let count = volume.read(file, 0, &mut found).unwrap();
                assert!(found[..count] == content[..], "{}", name.escape_ascii());
            }
        };
        let volume = OpenVolume::from(volume);
        is_as_owned(&volume);
        volume.close().unwrap();
        devices.to_files().is_silent().unwrap();
        is_as_owned(&devices.open().unwrap().into());
    }
}
