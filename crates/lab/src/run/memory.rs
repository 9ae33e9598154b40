//! A limit of memory for a cell and all that it starts, page cache included: a control group.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Control groups of memory, as a version of them has them.
#[derive(Debug)]
struct Version {
    /// Where they are.
    place: &'static str,
    /// The file of a group that limits it.
    limit: &'static str,
    /// The one with the most that it used.
    peak: &'static str,
    /// The one with how often the kernel ended a process of it.
    events: &'static str,
}

static VERSIONS: [Version; 2] = [
    Version {
        place: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        peak: "memory.max_usage_in_bytes",
        events: "memory.oom_control",
    },
    Version {
        place: "/sys/fs/cgroup",
        limit: "memory.max",
        peak: "memory.peak",
        events: "memory.events",
    },
];

/// The file with a group's processes.
const MEMBERS: &str = "cgroup.procs";

/// Groups are named so, with the number of the process that made them and how many it had made
/// before.
const PREFIX: &str = "extant-lab-";
static MADE: AtomicU32 = AtomicU32::new(0);

/// A control group; it is removed when this is dropped.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    group: PathBuf,
    version: &'static Version,
}

impl MemoryLimit {
    /// Makes a control group with a memory limit in bytes.
    pub(super) fn new(bytes: u64) -> Result<Self, String> {
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{made}", std::process::id());
        let mut why = "no memory controller (cgroup)".to_owned();
        for version in &VERSIONS {
            let place = Path::new(version.place);
            if !place.join(MEMBERS).exists() {
                continue;
            }
            sweep(place);
            let group = place.join(&name);
            // One that was left by a process of the same number has its figures.
            let _ = fs::remove_dir(&group);
            let _ = fs::create_dir(&group);
            let made = Self { group, version };
            match fs::write(made.group.join(version.limit), bytes.to_string()) {
                Ok(()) => return Ok(made),
                Err(error) => why = format!("{}: {error}", version.place),
            }
        }
        Err(format!("memory cannot be limited: {why}"))
    }

    /// The most bytes that it used so far; `None` where this kernel does not count that.
    pub(super) fn peak(&self) -> Option<u64> {
        self.text(self.version.peak).trim().parse().ok()
    }

    /// How many processes of it the kernel ended as there was no memory left.
    pub(super) fn killed(&self) -> u64 {
        kills(&self.text(self.version.events))
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.group.join(file)).unwrap_or_default()
    }

    /// The file that takes members: a process that writes 0 to it joins.
    pub(super) fn members(&self) -> PathBuf {
        self.group.join(MEMBERS)
    }
}

/// Processes that the kernel ended, as a group's events count them.
fn kills(events: &str) -> u64 {
    let mut counts = events.lines().filter_map(|line| line.strip_prefix("oom_kill "));
    counts.next().and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Removes groups whose run has been killed: their number is not a process any more.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if number.is_some_and(|number| !Path::new("/proc").join(number).exists()) {
            // One that still has members stays.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Busy for a moment after its last process.
        for _ in 0..100 {
            match fs::remove_dir(&self.group) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killed_processes_are_counted_in_both_versions() {
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), 2);
        assert_eq!(kills("low 0\nhigh 0\nmax 31\noom 1\noom_kill 1\noom_group_kill 0\n"), 1);
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"), 0);
        assert_eq!(kills(""), 0);
    }
}
