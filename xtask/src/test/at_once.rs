//! All suites, some at a time: each is printed as a whole when it ends. A suite that takes too long
//! is killed, and counts as failed.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::Tally;
use crate::Failure;
use crate::suites::{self, Suite};

/// How many trials the differential of repairs runs, or for how long: a few where it is not set.
const DIFFERENTIAL: &str = "EXTANT_DIFFERENTIAL";

/// Suites that run at the same time: most of them wait for disks and for other programs.
const AT_ONCE: usize = 2;

/// The time that one suite has. The longest takes four to five minutes.
const LIMIT_OF_A_SUITE: Duration = Duration::from_secs(20 * 60);

/// The time that all suites have, together.
const LIMIT_OF_ALL: Duration = Duration::from_secs(45 * 60);

/// The time that a killed suite has to end: a process that waits in the kernel may never do so.
const LIMIT_OF_A_KILL: Duration = Duration::from_secs(20);

/// The suites that take longest, which begin first: none of them is then left to run alone at the
/// end.
const LONGEST: [&str; 12] = [
    "histories",
    "every_code",
    "recovery",
    "mount",
    "differential",
    "resize",
    "fsck",
    "random_damage",
    "evidence",
    "packages",
    "build",
    "lab",
];

/// The most failed tests that are run once more, alone: one may have failed by the load of the
/// machine. Where more fail, none is.
const RUN_ONCE_MORE: usize = 4;

/// The time that such a test has, in seconds.
const LIMIT_OF_A_TEST: u64 = 600;

/// A suite under way.
struct Running {
    name: String,
    child: Child,
    output: File,
    since: Instant,
    limit: Duration,
}

/// How a suite ended.
enum End {
    Exit(ExitStatus),
    /// It was killed after its time.
    Killed,
}

pub(super) fn run(tally: &mut Tally) -> Result<(), Failure> {
    let started = Instant::now();
    let (mut suites, all_build) = suites::build_all()?;
    println!("{} suites were built in {:.0} s", suites.len(), started.elapsed().as_secs_f64());
    if !all_build {
        tally.failed.push("cargo test: a suite did not build".into());
    }
    let all = suites.clone();
    // The next is taken from the end.
    suites.reverse();
    suites.sort_by_key(|suite| {
        std::cmp::Reverse(LONGEST.iter().position(|name| *name == suite.name).unwrap_or(usize::MAX))
    });
    let deadline = Instant::now() + LIMIT_OF_ALL;
    let mut running: Vec<Running> = Vec::new();
    while !suites.is_empty() || !running.is_empty() {
        while running.len() < AT_ONCE
            && Instant::now() < deadline
            && let Some(suite) = suites.pop()
        {
            let limit = LIMIT_OF_A_SUITE.min(deadline.saturating_duration_since(Instant::now()));
            running.push(Running::begin(suite.title(), suite.all_tests(), limit)?);
        }
        if running.is_empty() {
            let late = suites.drain(..).map(|suite| format!("{}: no time was left", suite.name));
            tally.failed.extend(late);
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        for at in (0..running.len()).rev() {
            if let Some(end) = running[at].end()? {
                running.swap_remove(at).close(&end, tally)?;
            }
        }
    }
    run_failed_once_more(&all, tally)?;
    println!("suites took {:.0} s with their build", started.elapsed().as_secs_f64());
    Ok(())
}

/// Runs failed tests alone: one that passes then is listed as unsteady, and did not fail.
fn run_failed_once_more(suites: &[Suite], tally: &mut Tally) -> Result<(), Failure> {
    if tally.failed.len() > RUN_ONCE_MORE {
        return Ok(());
    }
    for failed in std::mem::take(&mut tally.failed) {
        let suite_and_test = failed.split_once(": ").and_then(|(title, test)| {
            let has = |suite: &&Suite| {
                suite.title() == title
                    && suite.tests().is_ok_and(|all| all.iter().any(|it| it == test))
            };
            Some((suites.iter().find(has)?, test))
        });
        let passes = match suite_and_test {
            Some((suite, test)) => {
                println!("once more, alone: {failed}");
                suite.command(test, LIMIT_OF_A_TEST).status()?.success()
            }
            None => false,
        };
        if passes {
            tally.passed += 1;
            tally.unsteady.push(failed);
        } else {
            tally.failed.push(failed);
        }
    }
    Ok(())
}

impl Running {
    fn begin(name: String, mut command: Command, limit: Duration) -> Result<Self, Failure> {
        let output = tempfile::tempfile()?;
        command.stdout(output.try_clone()?).stderr(output.try_clone()?);
        command.env("CARGO_TERM_COLOR", "never");
        // A group of its own: what it has started can be killed with it.
        command.process_group(0);
        if std::env::var_os(DIFFERENTIAL).is_none() {
            command.env(DIFFERENTIAL, "120s");
        }
        let child = command.spawn()?;
        Ok(Self { name, child, output, since: Instant::now(), limit })
    }

    /// How it ended; `None` while it runs.
    fn end(&mut self) -> Result<Option<End>, Failure> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(Some(End::Exit(status)));
        }
        if self.since.elapsed() < self.limit {
            return Ok(None);
        }
        let group = Pid::from_child(&self.child);
        print_processes_of(group);
        // It may have ended since.
        let _ = kill_process_group(group, Signal::KILL);
        let killed = Instant::now();
        while self.child.try_wait()?.is_none() && killed.elapsed() < LIMIT_OF_A_KILL {
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Some(End::Killed))
    }

    /// Prints and counts what it printed.
    fn close(mut self, end: &End, tally: &mut Tally) -> Result<(), Failure> {
        println!("     Running {}", self.name);
        self.output.seek(SeekFrom::Start(0))?;
        let failures = tally.count(self.output, self.name.clone())?;
        let seconds = self.since.elapsed().as_secs_f64();
        match end {
            End::Exit(status) if status.success() || failures > 0 => {
                println!("{} took {seconds:.0} s", self.name);
            }
            End::Exit(status) => tally.failed.push(format!("{}: {status}", self.name)),
            End::Killed => {
                tally.failed.push(format!("{}: killed after {seconds:.0} s", self.name));
            }
        }
        Ok(())
    }
}

/// Prints the processes of a group, what each waits for in the kernel, and the kernel's last
/// messages.
fn print_processes_of(group: Pid) {
    println!("processes of a suite that does not end, and the last messages of the kernel:");
    let group = group.as_raw_nonzero().to_string();
    for args in [&["ps", "-o", "pid,stat,wchan:32,args", "--pgroup", &group][..], &["dmesg"]] {
        // Where the program is missing, its part is.
        let Ok(output) = Command::new(args[0]).args(&args[1..]).output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].iter().for_each(|line| println!("  {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of(script: &str, limit: Duration) -> Tally {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        let mut running = Running::begin("a_suite".into(), shell, limit).expect("sh is there");
        let mut tally = Tally::default();
        loop {
            if let Some(end) = running.end().expect("it can be asked") {
                running.close(&end, &mut tally).expect("its output can be read");
                return tally;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_suite_counts_by_its_line_of_results_or_by_its_end() {
        let minute = Duration::from_secs(60);
        let passed = end_of("echo 'test result: ok. 3 passed; 0 failed; 0 ignored'", minute);
        assert_eq!((passed.passed, passed.failed.len()), (3, 0));
        let died = end_of("kill -9 $$", minute);
        assert_eq!(died.failed, ["a_suite: signal: 9 (SIGKILL)"]);
        let slow = end_of("echo 'test a ... FAILED'; sleep 600 & wait", Duration::from_secs(3));
        assert_eq!(slow.failed[0], "a_suite: a");
        assert!(slow.failed[1].starts_with("a_suite: killed after "), "{:?}", slow.failed);
    }

    #[test]
    fn a_failed_test_is_run_once_more_alone() {
        use std::os::unix::fs::PermissionsExt;

        let directory = tempfile::tempdir().expect("it can be made");
        let program = directory.path().join("suite");
        let script = "#!/bin/sh\n\
                      [ $1 = --list ] && printf 'steady: test\\nbroken: test\\n' && exit\n\
                      [ $1 = steady ]\n";
        std::fs::write(&program, script).expect("it can be written");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("it is ours");
        let message = serde_json::json!({
            "profile": { "test": true },
            "manifest_path": directory.path().join("Cargo.toml"),
            "target": { "name": "a_suite", "kind": ["test"] },
            "executable": program,
        });
        let suite = Suite::of(&message.to_string()).expect("it names a suite");
        let names = ["a_suite: steady", "a_suite: broken", "a_suite: killed after 3 s"];
        let failed = || names.map(String::from).to_vec();

        let mut tally = Tally { failed: failed(), ..Tally::default() };
        run_failed_once_more(std::slice::from_ref(&suite), &mut tally).expect("they run");
        assert_eq!(
            (tally.passed, tally.unsteady, tally.failed),
            (
                1,
                vec![names[0].to_owned()],
                names[1..].iter().map(|&name| name.to_owned()).collect(),
            )
        );

        let mut tally = Tally { failed: [failed(), failed()].concat(), ..Tally::default() };
        run_failed_once_more(&[suite], &mut tally).expect("none runs");
        assert_eq!((tally.unsteady.len(), tally.failed.len()), (0, 6));
    }
}
