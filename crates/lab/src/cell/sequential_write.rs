//! Document 003: FFSB writes large files; then umount, check, mount, extents, rm.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{CellError, Trying};
use super::protocol::Cell;
use super::recorder::Recorder;
use super::tool::needs;
use super::volume::{
    MountedVolume, TargetVolume, check, mean_extents, simulated_times, volume_size,
};
use crate::clock::Clock;
use crate::experiment::{SequentialWrite, Settings};
use crate::ffsb::profile::{Sizes, Start};
use crate::ffsb::{self, Profile};

/// Volumes of every target can be that small.
const LEAST_VOLUME: u64 = 1 << 30;
/// Below the volume's root.
const DIR: &str = "test";
/// Where FFSB makes its files.
const DATA: &str = "test/data";

pub(super) fn run(
    cell: &Cell,
    work: &SequentialWrite,
    recorder: &mut Recorder<'_>,
) -> Result<(), CellError> {
    let place = TargetVolume::new(cell)?;
    let settings = &cell.settings;
    recorder.announce("mkfs");
    let room = (work.volume.0 as f64 * settings.sizes * settings.counts) as u64;
    place.format(volume_size(room, LEAST_VOLUME))?;

    let mounted = place.mount()?;
    recorder.follow(&mounted);
    let names = write(&mounted, &profile(work, settings)?, recorder)?;
    recorder.timed("umount", || mounted.close())?;

    let inside = |name: &PathBuf| Path::new("/").join(DATA).join(name);
    let paths: Vec<PathBuf> = names.iter().map(inside).collect();
    let mut extents = place.extents_unmounted(&paths).transpose()?;
    for (name, mut checker) in place.checkers() {
        if let Err(error) = needs(checker.get_program()) {
            recorder.skip(name, error);
            continue;
        }
        place.drop_caches();
        if cell.target.system.drive().is_some() {
            recorder.announce(name);
            let (seconds, _) = simulated_times(&check(&mut checker)?)?;
            recorder.record(name, "check_seconds", seconds);
            continue;
        }
        let (_, seconds) = recorder.timed(name, || check(&mut checker))?;
        recorder.record(name, "check_seconds", seconds);
    }

    place.drop_caches();
    let mounted = place.mount()?;
    recorder.follow(&mounted);
    if extents.is_none() {
        let named = names.iter().map(|name| mounted.root.join(DATA).join(name));
        let named = named.map(|path| path.to_string_lossy().into_owned());
        // Not every file system reports them.
        match mean_extents(Path::new("filefrag"), &[], named) {
            Ok(mean) => extents = Some(mean),
            Err(error) => recorder.skip("extents", error),
        }
    }
    if let Some(extents) = extents {
        recorder.record("write", "extents_per_file", extents);
    }
    let root = mounted.root.join(DIR);
    let removed = recorder.timed("rm", || {
        mounted.files.remove_tree(&root).trying("rm")?;
        mounted.files.sync(&mounted.root).trying("sync")
    });
    let (_, seconds) = removed?;
    recorder.record("rm", "remove_seconds", seconds);
    recorder.timed("umount after rm", || mounted.close())?;
    Ok(())
}

/// Runs the profile; the names of the files that it made.
fn write(
    mounted: &MountedVolume,
    profile: &Profile,
    recorder: &mut Recorder<'_>,
) -> Result<Vec<PathBuf>, CellError> {
    let root = mounted.root.join(DIR);
    let mut profile = profile.clone();
    for set in &mut profile.filesystems {
        set.location.clone_from(&root);
    }
    mounted.files.create_dir(&root).trying("mkdir")?;
    recorder.announce("write");
    let outcome = match &mounted.clock {
        Clock::Machine(_) => ffsb::run(&profile, &*mounted.files),
        clock => ffsb::run_in_turns(&profile, &*mounted.files, clock),
    };
    let outcome = outcome.map_err(CellError::new)?;
    let measured = outcome.measured.ok_or_else(|| CellError::new("the profile has no time"))?;
    let counts = measured.groups.iter().flat_map(|group| group.operations.values());
    let (mut bytes, mut calls) = (0, 0);
    for counts in counts {
        (bytes, calls) = (bytes + counts.written_bytes, calls + counts.transactions);
    }
    recorder.times("write", measured.elapsed_seconds, measured.cpu);
    recorder.record("write", "io_bytes", bytes as f64);
    recorder.record("write", "iops", calls as f64 / measured.elapsed_seconds);
    let throughput = bytes as f64 / measured.elapsed_seconds;
    recorder.record("write", "throughput_bytes_per_second", throughput);
    if let Some(busy) = measured.cpu.machine_seconds {
        recorder.record("write", "cpu_seconds_per_gigabyte", busy * 1e9 / (bytes as f64).max(1.0));
    }
    let data = mounted.root.join(DATA);
    let list = |dir: &Path| mounted.files.list(dir).trying("list");
    let (dirs, names): (Vec<_>, Vec<_>) = list(&data)?.into_iter().partition(|it| it.1);
    let mut names: Vec<PathBuf> = names.into_iter().map(|(name, _)| name).collect();
    // There are directories at the top only.
    for (dir, _) in dirs {
        names.extend(list(&data.join(&dir))?.into_iter().map(|(name, _)| dir.join(name)));
    }
    Ok(names)
}

/// The profile as it is run here. Its time shrinks with the number of bytes that it writes, unless
/// another is given.
fn profile(work: &SequentialWrite, settings: &Settings) -> Result<Profile, CellError> {
    let mut profile: Profile = work.profile.parse().map_err(CellError::new)?;
    let scale = (settings.sizes * settings.counts).min(1.0);
    let seconds = settings.time.unwrap_or(profile.time.as_secs_f64() * scale);
    profile.time = Duration::try_from_secs_f64(seconds.max(0.001)).map_err(CellError::new)?;
    profile.seed = profile.seed.or(Some(settings.seed));
    for set in &mut profile.filesystems {
        match &mut set.sizes {
            Sizes::Uniform { min, max } => {
                (*min, *max) = (settings.size(*min), settings.size(*max));
            }
            Sizes::Weighted(sizes) => {
                sizes.iter_mut().for_each(|(size, _)| *size = settings.size(*size));
            }
        }
        if let Start::Files(count @ 1..) = &mut set.start {
            *count = settings.count_u32(*count);
        }
    }
    for group in &mut profile.thread_groups {
        group.threads = settings.count_u32(group.threads);
    }
    Ok(profile)
}
