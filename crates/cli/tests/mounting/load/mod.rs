//! Mixed load on a mount while its disk fails, its server is stopped and killed, and power is cut:
//! all that was acknowledged is there afterwards, nothing hangs, and the server's memory is
//! bounded.
//!
//! `EXTANT_SEED=N` runs other rounds, `EXTANT_TRIAL=N` only one of them, and with
//! `EXTANT_LOAD_SECONDS=N` each is N seconds longer. A seed repeats volume, options, works and
//! faults; which call a fault meets depends on the machine.

mod disk;
mod family;
mod model;
mod plan;
mod programs;
mod watch;
mod wire;
mod works;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use extant_testkit::tree::{self, Random};
use extant_testkit::{LoopMount, Scratch, copied, e2fsck_fn, skip, tool};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};

use super::{Mount, can_mount, image};
use disk::Disk;
use plan::{End, Plan, Step};
use programs::{Durable, Failure, Running};
use watch::{Calls, Watch, locked};
use works::{Pages, Shared, Tree};

const SIZE: &str = "384M";
/// Rounds of a long run, by a seed from the environment or with EXTANT_SLOW, and of the plain test.
const ROUNDS: u64 = 6;
const FEW_ROUNDS: u64 = 3;
/// The seed of the plain test: with all programs its rounds have failing reads, failing writes, two
/// power cuts and a kill.
const USUAL: u64 = 3;
/// Time for a program to end after it was told to stop.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);
/// The same where the server was killed: programs may wait for each other for good then.
const UNSERVED_LIMIT: Duration = Duration::from_secs(10);
/// The longest that a round may take.
const ROUND_LIMIT: Duration = Duration::from_secs(400);

/// Result of a run.
#[derive(Default)]
struct Sums {
    load: Duration,
    faults: u64,
    kills: u64,
    cuts: u64,
    checked: u64,
}

/// Files that must be there after a round.
struct Kept {
    pages: Vec<Pages>,
    tree: Tree,
    programs: Vec<Durable>,
    /// Whether requests of the disk were to fail.
    has_failed: bool,
}

#[test]
fn what_was_acknowledged_survives_failing_disks_and_killed_servers_under_load() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (asked, only) = (number("EXTANT_SEED"), number("EXTANT_TRIAL"));
    let is_long = asked.is_some() || std::env::var_os("EXTANT_SLOW").is_some();
    let seed: u64 = asked.unwrap_or(USUAL);
    let more = Duration::from_secs(number("EXTANT_LOAD_SECONDS").unwrap_or(0));
    let mut random = Random::new(seed);
    let (works, missing) = plan::works();
    let scratch = open_to_all();
    let source = scratch.join("source");
    // Work that each of the volumes takes.
    let options = tree::Options { many: 200, block: 1024, ..tree::Options::default() };
    tree::grow(&source, 5, &options).expect("a tree");
    let kind = plan::VOLUMES[random.below(plan::VOLUMES.len() as u64) as usize];
    let image = image(&scratch, kind, SIZE);
    let mut sums = Sums::default();
    let rounds = if is_long { ROUNDS } else { FEW_ROUNDS };
    for round in 0..rounds {
        let plan = Plan::draw(&mut random, &works, more);
        if only.is_some_and(|only| only != round) {
            continue;
        }
        let names: Vec<_> = plan.works.iter().map(|work| work.name).collect();
        let what = format!(
            "seed {seed} round {round}: mke2fs {kind:?}, -o {}, {names:?}, {:?}, {:?}",
            plan.options, plan.steps, plan.end
        );
        println!("{what}");
        let start = Instant::now();
        Round { plan, what: &what, image: &image, source: &source }.run(round, &mut sums);
        println!("  {:.1} s", start.elapsed().as_secs_f64());
        assert!(start.elapsed() < ROUND_LIMIT + more, "{what}: it took {:?}", start.elapsed());
    }
    println!(
        "soak: rounds={rounds} load_seconds={} faults={} kills={} power_cuts={} acknowledged={}",
        sums.load.as_secs(),
        sums.faults,
        sums.kills,
        sums.cuts,
        sums.checked
    );
    if !missing.is_empty() {
        skip!("{}", missing.join(", "));
    }
}

/// Scratch space that programs of another user reach.
fn open_to_all() -> Scratch {
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).expect("chmod");
    scratch
}

struct Round<'a> {
    plan: Plan,
    what: &'a str,
    image: &'a Path,
    source: &'a Path,
}

impl Round<'_> {
    fn run(&self, number: u64, sums: &mut Sums) {
        let (plan, what) = (&self.plan, self.what);
        let scratch = open_to_all();
        let disk = Disk::new(self.image, scratch.join("disk"), plan.number).expect("a disk");
        let mount = Mount::new(&scratch, &disk.image(), &["-o", plan.options]);
        let dir = format!("r{number}");
        fs::create_dir(mount.path().join(&dir)).expect("mkdir");
        let kept = self.load(&disk, mount, &dir, sums);
        if let End::PowerCut { loses_all } = plan.end {
            disk.cut_power(loses_all).expect("the backing file is written");
            sums.cuts += 1;
        }
        sums.kills += u64::from(plan.end.is_kill());
        sums.faults += disk.injected();
        let is_sound = !plan.end.is_kill() && !plan.fails();
        match is_sound {
            true => e2fsck_fn(disk.backing()).unwrap_or_else(|said| panic!("{what}: {said}")),
            false => self.judge_repaired_copy(disk.backing(), &dir, &kept),
        }
        // Elsewhere: what is left of the works may know where it was.
        let after = open_to_all();
        let again = Mount::new(&after, &disk.image(), &[]);
        kept.judge(&again.path().join(&dir), true)
            .unwrap_or_else(|why| panic!("{what}: after the next mount: {why}"));
        sums.checked += kept.count();
        fs::remove_dir_all(again.path().join(&dir)).expect("it is removed");
        again.unmount();
        drop(disk);
        e2fsck_fn(self.image).unwrap_or_else(|said| panic!("{what}: after the next mount: {said}"));
    }

    /// Works until the server's end; what must be there then.
    fn load(&self, disk: &Disk, mount: Mount, dir: &str, sums: &mut Sums) -> Kept {
        let (plan, what) = (&self.plan, self.what);
        let server = mount.server();
        let shared = Arc::new(Shared {
            calls: Arc::default(),
            dir: mount.path().join(dir),
            stop: AtomicBool::new(false),
            trouble: AtomicBool::new(false),
            failures: Mutex::default(),
        });
        let point = mount.path().to_owned();
        let watch = Self::watch(&shared, &server, &point);
        let running: Vec<_> = plan
            .works
            .iter()
            .map(|work| Running::start(work, self.source, &shared.dir, plan.number))
            .collect::<Result<_, _>>()
            .unwrap_or_else(|why| panic!("{what}: {why}"));
        let start = Instant::now();
        let pages: Vec<_> = (0..2)
            .map(|number| {
                let (shared, seed) = (shared.clone(), plan.number ^ number);
                thread::spawn(move || Pages::work(&shared, &format!("pages{number}"), seed))
            })
            .collect();
        let (of_tree, seed) = (shared.clone(), plan.number);
        let tree = thread::spawn(move || Tree::work(&of_tree, "names", seed));
        thread::sleep(plan.warm_up);
        for step in &plan.steps {
            self.take(step, disk, &shared, &server);
        }
        let mount = if plan.end.is_kill() {
            shared.trouble.store(true, Ordering::SeqCst);
            check_memory(plan, &server, what);
            shared.calls.call("kill", || mount.kill_server());
            None
        } else {
            Some(mount)
        };
        sums.load += start.elapsed();
        shared.stop.store(true, Ordering::SeqCst);
        running.iter().for_each(Running::ask_to_stop);
        let joined = "a work ends";
        let pages = pages.into_iter().map(|work| work.join().expect(joined)).collect();
        let tree = tree.join().expect(joined);
        let mut programs = Vec::new();
        for work in running {
            let limit = if mount.is_some() { PROGRAM_LIMIT } else { UNSERVED_LIMIT };
            let (ended, durable) = work.wait(limit, mount.is_some());
            match ended {
                Ok(()) => {}
                Err(Failure::Ended(why)) => {
                    println!("  {why}");
                    shared.fail_if_sound(|| why);
                }
                Err(Failure::Stuck(why)) => {
                    take_away(&server, &point);
                    panic!("{what}: {why}");
                }
            }
            programs.push(durable);
        }
        check_calls(&shared.calls, what);
        if let Some(mount) = mount {
            check_memory(plan, &server, what);
            shared.calls.call("the end of the mount", || match plan.end {
                End::Terminate => mount.terminate_server(),
                _ if plan.fails() => mount.unmount_whatever_it_says(what),
                _ => mount.unmount(),
            });
        }
        disk.fail_by(&[]);
        drop(watch);
        check_calls(&shared.calls, what);
        let failures = locked(&shared.failures);
        assert!(failures.is_empty(), "{what}: {}", failures.join("\n"));
        Kept { pages, tree, programs, has_failed: plan.fails() }
    }

    fn watch(shared: &Arc<Shared>, server: &str, point: &Path) -> Watch {
        let (of_watch, server, point) = (shared.clone(), server.to_owned(), point.to_owned());
        Watch::new(&shared.calls, move || {
            of_watch.trouble.store(true, Ordering::SeqCst);
            take_away(&server, &point);
        })
    }

    fn take(&self, step: &Step, disk: &Disk, shared: &Shared, server: &str) {
        match step {
            Step::Faults(faults, time) => {
                let fails = faults.iter().any(|fault| fault.is_failure());
                if fails {
                    shared.trouble.store(true, Ordering::SeqCst);
                }
                disk.fail_by(faults);
                thread::sleep(*time);
                if !(fails && self.plan.fails_to_the_end) {
                    disk.fail_by(&[]);
                }
            }
            Step::Pause(time) => {
                send(server, Signal::STOP);
                thread::sleep(*time);
                send(server, Signal::CONT);
            }
            Step::Quiet(time) => thread::sleep(*time),
        }
    }

    /// e2fsck on a copy, which the kernel reads then.
    fn judge_repaired_copy(&self, image: &Path, dir: &str, kept: &Kept) {
        let what = self.what;
        let copy = copied(image).unwrap_or_else(|why| panic!("{what}: {why}"));
        let repaired =
            tool("e2fsck").expect("it is there").run(["-fy".as_ref(), copy.path().as_os_str()]);
        let said = String::from_utf8_lossy(&repaired.stdout);
        // Any repair beyond the log and orphans is damage.
        let is_right = repaired.status.code().is_some_and(|code| code <= 1);
        assert!(is_right, "{what}: e2fsck -fy: {said}");
        let mount =
            LoopMount::new(&copy.path(), "ro").unwrap_or_else(|why| panic!("{what}: {why}"));
        kept.judge(&mount.path().join(dir), false)
            .unwrap_or_else(|why| panic!("{what}: after e2fsck -fy: {why}\n{said}"));
    }
}

impl Plan {
    /// Whether requests of the disk fail in it.
    fn fails(&self) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Faults(faults, _) => faults.iter().any(|fault| fault.is_failure()),
            Step::Pause(_) | Step::Quiet(_) => false,
        })
    }
}

impl Kept {
    /// Compares a directory after a crash with what was acknowledged; programs check theirs where
    /// they can write.
    fn judge(&self, dir: &Path, can_write: bool) -> Result<(), String> {
        let pages = self.pages.iter().find_map(|pages| pages.refuses(dir, self.has_failed));
        let programs = || {
            let mut programs = self.programs.iter().filter(|_| can_write);
            programs.find_map(|program| program.refuses(dir))
        };
        let why = pages.or_else(|| self.tree.refuses(dir)).or_else(programs);
        why.map_or(Ok(()), Err)
    }

    /// Items that had to be there.
    fn count(&self) -> u64 {
        let sectors: u64 = self.pages.iter().map(Pages::certain).sum();
        sectors + self.tree.certain() + self.programs.iter().map(Durable::count).sum::<u64>()
    }
}

/// No call has taken too long.
fn check_calls(calls: &Calls, what: &str) {
    let hung = calls.hung();
    assert!(hung.is_empty(), "{what}: these calls did not return: {}", hung.join(", "));
}

/// Kills the server and removes the mount, so that calls on it return.
fn take_away(server: &str, point: &Path) {
    send(server, Signal::KILL);
    let _ = rustix::mount::unmount(point, UnmountFlags::FORCE | UnmountFlags::DETACH);
}

/// Sends a signal without a program: starting one closes our files in it, and waits for a server
/// that has been stopped.
fn send(server: &str, signal: Signal) {
    let server = server.parse().ok().and_then(Pid::from_raw);
    // It may have ended by itself.
    let _ = kill_process(server.expect("a process"), signal);
}

/// The server's memory has stayed within the bound that its options give.
fn check_memory(plan: &Plan, server: &str, what: &str) {
    let status = PathBuf::from("/proc").join(server).join("status");
    // It may have ended by itself.
    let Ok(status) = fs::read_to_string(status) else { return };
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let Some(peak) = peak.map(|kilobytes| kilobytes << 10) else { return };
    println!("  the server had {} MiB", peak >> 20);
    assert!(peak <= plan.memory_bound(), "{what}: the server had {peak} bytes in memory");
}
