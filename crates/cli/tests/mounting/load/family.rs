//! The end of a program with all its processes. Programs that wait for each other end by a signal;
//! a process that waits in the kernel for an answer of our server does not.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const PAUSE: Duration = Duration::from_millis(20);
/// Time to end after SIGTERM.
const AFTER_TERM: Duration = Duration::from_secs(5);
/// Time to end after SIGKILL.
const AFTER_KILL: Duration = Duration::from_secs(30);
/// Without a server no call lasts as long as this.
const UNSERVED_CALL: Duration = Duration::from_secs(2);

/// How a program ended.
pub(super) enum ProgramEnd {
    Exited(ExitStatus),
    /// It was ended by signals: what its processes did until then.
    Late(String),
    /// Some of its processes wait in the kernel: which, and where.
    Stuck(String),
}

/// A program that was started as the leader of a process group, and its descendants. All of them
/// are killed when this is dropped.
pub(super) struct Family {
    child: Child,
    status: Option<ExitStatus>,
    /// By process ID: the start times. Processes stay here after their end.
    members: BTreeMap<i32, u64>,
}

impl Family {
    pub(super) fn new(child: Child) -> Self {
        let mut family = Self { child, status: None, members: BTreeMap::new() };
        let leader = family.leader();
        if let Some(task) = Task::read(&Path::new("/proc").join(leader.to_string())) {
            family.members.insert(leader, task.started);
        }
        family
    }

    /// Waits until the program has ended, at most `limit`, then ends by signals what is left of its
    /// processes. `is_served`: whether the mount has its server.
    pub(super) fn wait(&mut self, limit: Duration, is_served: bool) -> ProgramEnd {
        let start = Instant::now();
        // Processes whose parents end are found while these run.
        while !self.has_exited() && start.elapsed() < limit {
            self.find();
            thread::sleep(PAUSE);
        }
        let exited = self.status;
        let left = told(&self.tasks());
        if !is_served && let Some(why) = self.waits_in_kernel() {
            return ProgramEnd::Stuck(why);
        }
        if !self.ends_by(Signal::TERM, AFTER_TERM) && !self.ends_by(Signal::KILL, AFTER_KILL) {
            return ProgramEnd::Stuck(told(&self.tasks()));
        }
        exited.map_or(ProgramEnd::Late(left), ProgramEnd::Exited)
    }

    fn leader(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn has_exited(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("a child");
        }
        self.status.is_some()
    }

    /// Finds descendants.
    fn find(&mut self) {
        let all = tasks_in(Path::new("/proc"));
        let started: BTreeMap<_, _> = all.iter().map(|task| (task.number, task.started)).collect();
        // Until it was waited for, no other group has the leader's number.
        let group = self.status.is_none().then(|| self.leader());
        loop {
            let known = self.members.len();
            for task in &all {
                // Not one that has got the number of a member since.
                let parent = started.get(&task.parent);
                let is_descendant = parent.is_some() && self.members.get(&task.parent) == parent;
                if is_descendant || group == Some(task.group) {
                    self.members.entry(task.number).or_insert(task.started);
                }
            }
            if self.members.len() == known {
                return;
            }
        }
    }

    /// The threads of processes that have not ended.
    fn tasks(&mut self) -> Vec<Task> {
        self.find();
        let process = |number: &i32| Path::new("/proc").join(number.to_string());
        let is_member = |number: &i32, started: u64| {
            Task::read(&process(number)).is_some_and(|task| task.started == started)
        };
        let members = self.members.iter().filter(|(number, since)| is_member(number, **since));
        members
            .flat_map(|(number, _)| tasks_in(&process(number).join("task")))
            .filter(|task| !matches!(task.state, 'Z' | 'X'))
            .collect()
    }

    /// Threads that are in one call although there is no server: which, and where.
    fn waits_in_kernel(&mut self) -> Option<String> {
        let mut before = self.tasks();
        before.retain(Task::waits_in_kernel);
        if before.is_empty() {
            return None;
        }
        thread::sleep(UNSERVED_CALL);
        let mut after = self.tasks();
        after.retain(|task| task.waits_in_kernel() && before.iter().any(|it| it.is_as(task)));
        (!after.is_empty()).then(|| told(&after))
    }

    /// Whether all processes end within a time after a signal.
    fn ends_by(&mut self, signal: Signal, limit: Duration) -> bool {
        let start = Instant::now();
        loop {
            let tasks = self.tasks();
            let has_exited = self.has_exited();
            if tasks.is_empty() && has_exited {
                return true;
            }
            if start.elapsed() > limit {
                return false;
            }
            // Those too that were started since.
            for process in tasks.iter().filter_map(|task| Pid::from_raw(task.process)) {
                // It may have ended by itself.
                let _ = kill_process(process, signal);
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.ends_by(Signal::KILL, AFTER_TERM);
    }
}

/// A thread, as `/proc` shows it.
struct Task {
    dir: PathBuf,
    number: i32,
    process: i32,
    name: String,
    state: char,
    parent: i32,
    group: i32,
    /// In clock ticks since the system's start.
    started: u64,
}

impl Task {
    /// `None` where it has ended.
    fn read(dir: &Path) -> Option<Self> {
        let text = fs::read_to_string(dir.join("stat")).ok()?;
        let (head, rest) = text.rsplit_once(") ")?;
        let (number, name) = head.split_once(" (")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = number.parse().ok()?;
        let of_thread = dir.parent().filter(|parent| parent.ends_with("task"));
        let process = of_thread.and_then(|it| it.parent()?.file_name()?.to_str()?.parse().ok());
        Some(Self {
            dir: dir.to_owned(),
            number,
            process: process.unwrap_or(number),
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// Its kernel functions, the innermost first; empty where this cannot be read.
    fn stack(&self) -> String {
        let stack = fs::read_to_string(self.dir.join("stack")).unwrap_or_default();
        let functions = stack.lines().filter_map(|line| line.split_once("] "));
        let names = functions.map(|(_, function)| function.split('+').next().unwrap_or(function));
        names.collect::<Vec<_>>().join(" < ")
    }

    /// Work that it does not stop for every signal.
    fn waits_in_kernel(&self) -> bool {
        self.state == 'D' || self.stack().contains("fuse_")
    }

    fn is_as(&self, other: &Self) -> bool {
        (self.number, self.started) == (other.number, other.started)
    }
}

/// The tasks that a directory of `/proc` names by numbers.
fn tasks_in(dir: &Path) -> Vec<Task> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_number = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    entries
        .filter(|entry| is_number(&entry.file_name()))
        .filter_map(|entry| Task::read(&entry.path()))
        .collect()
}

/// Each thread with its state and place in the kernel.
fn told(tasks: &[Task]) -> String {
    let line = |task: &Task| {
        format!("{} {} in state {}: {}", task.number, task.name, task.state, task.stack())
    };
    tasks.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn processes_that_wait_for_each_other_are_ended_with_their_descendants() {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    // The first has a group of its own; only the second ends by SIGTERM.
    let script =
        "trap '' TERM; set -m; sleep 1000 & set +m; (trap - TERM; sleep 1000) & sleep 1000";
    let mut command = Command::new("bash");
    command.args(["-c", script]).stdin(Stdio::null()).process_group(0);
    let mut family = Family::new(command.spawn().expect("bash runs"));
    let is_sleep = |task: &Task| task.name == "sleep";
    while family.tasks().into_iter().filter(is_sleep).count() < 3 {
        thread::sleep(PAUSE);
    }
    let ProgramEnd::Late(why) = family.wait(Duration::ZERO, true) else {
        panic!("it has not ended")
    };
    assert_eq!(why.matches(" sleep in state ").count(), 3, "{why}");
    let left = family.tasks();
    assert!(left.is_empty(), "{}", told(&left));

    let mut command = Command::new("bash");
    command.args(["-c", "exit 3"]).process_group(0);
    let mut family = Family::new(command.spawn().expect("bash runs"));
    let exited = family.wait(Duration::from_secs(60), false);
    assert!(matches!(exited, ProgramEnd::Exited(status) if status.code() == Some(3)));
}
