//! A whole run: files are made, aged, synced; then all threads start together, and the clock stops
//! after the last sync.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::operate::{End, LiveSet, Record, Worker, buffer, draw_size, fill_file};
use super::profile::{Ageing, FileSet, Profile, Sizes, Start, ThreadGroup};
use super::trial::{Group, Measured, TrialResult};
use super::{RunError, failed};
use crate::cpu::Cpu;
use crate::files::{Access, Files, Intent, OpenFile, Space};

/// How often ageing samples the space in use. (FFSB samples once a second, in which a small volume
/// becomes full.)
const SAMPLE_PERIOD: Duration = Duration::from_millis(5);

/// Empty files that ageing starts with.
const FIRST_FILES: usize = 10;

/// Runs a profile on a file system.
///
/// # Errors
/// A call failed or did less than requested, or an operation found no file that it could use:
/// nothing is measured then.
pub fn run(profile: &Profile, files: &dyn Files) -> Result<TrialResult, RunError> {
    let mut random = profile.seed.map_or_else(Rng::new, Rng::with_seed);
    let start = Instant::now();
    let sets: Vec<LiveSet<'_>> = profile.filesystems.iter().map(LiveSet::new).collect();
    let seeded: Vec<_> = sets.iter().map(|set| (set, random.fork())).collect();
    let built: Result<Vec<()>, RunError> = thread::scope(|scope| {
        let build = |(set, random)| scope.spawn(move || set_up(profile, files, set, random));
        let builders: Vec<_> = seeded.into_iter().map(build).collect();
        builders
            .into_iter()
            .map(|builder| builder.join().expect("setting up never panics"))
            .collect()
    });
    built?;
    let setup_seconds = start.elapsed().as_secs_f64();
    sync(files, &sets)?;
    if profile.time.is_zero() {
        return Ok(TrialResult { setup_seconds, measured: None });
    }
    if let Some(command) = &profile.callout {
        call_out(command)?;
    }
    Ok(TrialResult { setup_seconds, measured: Some(measure(profile, files, &sets, random)?) })
}

fn sync(files: &dyn Files, sets: &[LiveSet<'_>]) -> Result<(), RunError> {
    sets.iter().try_for_each(|set| {
        let place = &set.spec.location;
        files.sync(place).map_err(failed("sync", place))
    })
}

/// The command's words go where errors go: standard output is for the result.
fn call_out(command: &str) -> Result<(), RunError> {
    let failed = |what: String| RunError::Callout { command: command.to_owned(), what };
    let output = Command::new("sh").arg("-c").arg(command).stdout(std::io::stderr()).status();
    match output {
        Err(error) => Err(failed(error.to_string())),
        Ok(status) if !status.success() => Err(failed(status.to_string())),
        Ok(_) => Ok(()),
    }
}

fn measure(
    profile: &Profile,
    files: &dyn Files,
    sets: &[LiveSet<'_>],
    mut random: Rng,
) -> Result<Measured, RunError> {
    let crew = |number: usize, end| Crew {
        group: &profile.thread_groups[number],
        direct: profile.direct_io,
        ages: false,
        profile,
        files,
        sets,
        end,
    };
    let end = End::default();
    let crews: Vec<Crew<'_>> = (0..profile.thread_groups.len()).map(|n| crew(n, &end)).collect();
    let (mut start, mut before) = (Instant::now(), Cpu::default());
    let groups = work(&crews, &end, &mut random, || {
        (start, before) = (Instant::now(), Cpu::now());
        end.wait(profile.time);
        Ok(())
    })?;
    sync(files, sets)?;
    let elapsed_seconds = start.elapsed().as_secs_f64();
    Ok(Measured { elapsed_seconds, cpu: Cpu::now().since(before), groups })
}

/// The threads of a group, before they run.
struct Crew<'p> {
    group: &'p ThreadGroup,
    direct: bool,
    ages: bool,
    profile: &'p Profile,
    files: &'p dyn Files,
    sets: &'p [LiveSet<'p>],
    end: &'p End,
}

impl<'p> Crew<'p> {
    fn worker(&self, mut random: Rng) -> Worker<'p> {
        let block = self.group.read.block.max(self.group.write.block);
        // The end of a file may be read with the bytes after it.
        let buffer = buffer(block.next_multiple_of(4096), self.profile, &mut random);
        Worker {
            files: self.files,
            group: self.group,
            sets: self.sets,
            end: self.end,
            direct: self.direct,
            aligned: self.profile.align_io,
            ages: self.ages,
            record: Record::new(self.group.stats.as_ref().filter(|_| !self.ages)),
            random,
            buffer,
        }
    }
}

/// Starts all threads of all crews together and runs `until` at the same time; when it returns, or
/// one of them fails, all end. The results of each crew are added up.
fn work(
    crews: &[Crew<'_>],
    end: &End,
    random: &mut Rng,
    until: impl FnOnce() -> Result<(), RunError>,
) -> Result<Vec<Group>, RunError> {
    let gate = RwLock::new(());
    let closed = gate.write().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut refused = None;
        for crew in crews {
            let mut started = Vec::new();
            for _ in 0..crew.group.threads {
                let mut worker = crew.worker(random.fork());
                let gate = &gate;
                let run = move || {
                    drop(gate.read());
                    let result = worker.run();
                    if result.is_err() {
                        end.call();
                    }
                    result.map(|()| worker.record.group)
                };
                match thread::Builder::new().spawn_scoped(scope, run) {
                    Ok(thread) => started.push(thread),
                    Err(error) => {
                        refused = Some(error);
                        end.call();
                        break;
                    }
                }
            }
            threads.push(started);
        }
        drop(closed);
        let waited = if refused.is_none() { until() } else { Ok(()) };
        end.call();
        let mut groups = Vec::new();
        for (crew, started) in crews.iter().zip(threads) {
            let mut sum = Record::new(crew.group.stats.as_ref()).group;
            for thread in started {
                sum.add(&thread.join().expect("a worker never panics")?);
            }
            groups.push(sum);
        }
        waited?;
        refused.map_or(Ok(groups), |source| Err(RunError::Thread(source)))
    })
}

/// Makes a file set, or takes over the existing one.
fn set_up(
    profile: &Profile,
    files: &dyn Files,
    set: &LiveSet<'_>,
    mut random: Rng,
) -> Result<(), RunError> {
    let spec = set.spec;
    if spec.reuse && take_over(files, set)? {
        return Ok(());
    }
    for root in [set.data.root(), set.meta.root()] {
        match files.remove_tree(root) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("remove", root)(error));
            }
            _ => files.create_dir(root).map_err(failed("make", root))?,
        }
    }
    for _ in 0..spec.dirs {
        set.data.add_dir(|path| files.create_dir(path).map_err(failed("make", path)))?;
    }
    if let Some(ageing) = &spec.ageing {
        age(profile, files, set, ageing, &mut random)?;
    }
    let buffer = buffer(spec.create_block, profile, &mut random);
    let before = space(files, spec)?.used();
    let mut made = 0;
    loop {
        let is_enough = match spec.start {
            Start::Files(count) => made >= count,
            Start::Bytes(bytes) => space(files, spec)?.used().saturating_sub(before) >= bytes,
            Start::Utilization(share) => space(files, spec)?.utilization() >= share,
        };
        if is_enough {
            return Ok(());
        }
        let file = set.data.next(&mut random);
        let size = draw_size(&spec.sizes, &mut random);
        make_file(files, &file.path, size, &buffer)?;
        set.data.made(&file);
        made += 1;
    }
}

fn space(files: &dyn Files, spec: &FileSet) -> Result<Space, RunError> {
    files.space(&spec.location).map_err(failed("stat", &spec.location))
}

fn make_file(files: &dyn Files, path: &Path, size: u64, bytes: &[u8]) -> Result<(), RunError> {
    let access = Access { intent: Intent::Create, direct: false };
    let file = files.open(path, access).map_err(failed("make", path))?;
    let write = |file: &dyn OpenFile, bytes: &[u8], at| file.write_at(bytes, at);
    fill_file(&*file, size, bytes, write).map(drop).map_err(failed("write", path))
}

/// Makes the file system old: some threads create, append and delete until so much of it is in use.
fn age(
    profile: &Profile,
    files: &dyn Files,
    set: &LiveSet<'_>,
    ageing: &Ageing,
    random: &mut Rng,
) -> Result<(), RunError> {
    for _ in 0..FIRST_FILES {
        let file = set.fill.next(random);
        make_file(files, &file.path, 0, &[])?;
        set.fill.made(&file);
    }
    let end = End::default();
    let crew = Crew {
        group: &ageing.group,
        direct: false,
        ages: true,
        profile,
        files,
        sets: std::slice::from_ref(set),
        end: &end,
    };
    let until = || {
        while !end.is_here() && space(files, set.spec)?.utilization() < ageing.utilization {
            end.wait(SAMPLE_PERIOD);
        }
        Ok(())
    };
    work(&[crew], &end, random, until).map(drop)
}

/// Whether the existing files are those that the profile requires: the same number in the same
/// number of directories, each of a size that it could have made, and nothing in the meta area.
/// They are used then.
fn take_over(files: &dyn Files, set: &LiveSet<'_>) -> Result<bool, RunError> {
    let spec = set.spec;
    let Start::Files(count) = spec.start else { return Ok(false) };
    let Some(top) = listed(files, set.data.root())? else { return Ok(false) };
    if listed(files, set.meta.root())?.is_none_or(|names| !names.is_empty()) {
        return Ok(false);
    }
    let mut found = Vec::new();
    let mut add = |names: Vec<(PathBuf, bool)>, dir: &Path, place| -> Result<bool, RunError> {
        for (name, is_dir) in names {
            let number = name.to_str().and_then(|name| name.strip_prefix("datafile")?.parse().ok());
            let (false, Some(number)) = (is_dir, number) else { return Ok(false) };
            let path = dir.join(name);
            let size = files.size(&path).map_err(failed("stat", &path))?;
            if !could_be(&spec.sizes, size) {
                return Ok(false);
            }
            found.push((number, place));
        }
        Ok(true)
    };
    let (dirs, plain): (Vec<_>, Vec<_>) = top.into_iter().partition(|(_, is_dir)| *is_dir);
    if dirs.len() != spec.dirs as usize || !add(plain, set.data.root(), 0)? {
        return Ok(false);
    }
    for number in 0..spec.dirs {
        let dir = set.data.dir(number);
        let Some(names) = listed(files, &dir)? else { return Ok(false) };
        if !add(names, &dir, number + 1)? {
            return Ok(false);
        }
    }
    if found.len() != count as usize || set.data.adopt(found).is_none() {
        return Ok(false);
    }
    for _ in 0..spec.dirs {
        set.data.add_dir(|_| Ok::<(), RunError>(()))?;
    }
    Ok(true)
}

/// The contents of a directory; `None` if it does not exist.
fn listed(files: &dyn Files, dir: &Path) -> Result<Option<Vec<(PathBuf, bool)>>, RunError> {
    match files.list(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        names => names.map(Some).map_err(failed("list", dir)),
    }
}

fn could_be(sizes: &Sizes, size: u64) -> bool {
    match sizes {
        Sizes::Uniform { min, max } => size == *min || (*min..*max).contains(&size),
        Sizes::Weighted(weighted) => {
            weighted.iter().any(|(one, weight)| *one == size && *weight > 0)
        }
    }
}

#[cfg(test)]
mod tests;
