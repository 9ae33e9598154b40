//! A limit of memory for a cell and all that it starts, page cache included: a control group.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups of memory are, by version, with the file that limits them.
const PLACES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// Files that count the processes which a full group has cost their lives, in a line `oom_kill` and a number, by version as well.
const KILLS: [&str; 2] = ["memory.oom_control", "memory.events"];

/// The file with a group's processes.
const MEMBERS: &str = "cgroup.procs";

/// Groups are named so, with the number of the process that made them.
const PREFIX: &str = "extant-lab-";

/// A control group; it is removed when this is dropped.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    group: PathBuf,
}

impl MemoryLimit {
    /// Makes a control group with so many bytes of memory.
    pub(super) fn new(bytes: u64) -> Result<Self, String> {
        let name = format!("{PREFIX}{}", std::process::id());
        let mut why = "there is no controller of memory".to_owned();
        for (place, limit) in PLACES {
            if !Path::new(place).join(MEMBERS).exists() {
                continue;
            }
            sweep(Path::new(place));
            let group = Path::new(place).join(&name);
            // One that was left by a process of the same number is used again.
            let _ = fs::create_dir(&group);
            let made = Self { group };
            match fs::write(made.group.join(limit), bytes.to_string()) {
                Ok(()) => return Ok(made),
                Err(error) => why = format!("{place}: {error}"),
            }
        }
        Err(format!("memory cannot be limited: {why}"))
    }

    /// Whether the kernel killed a process because the group was full.
    pub(super) fn has_killed(&self) -> bool {
        KILLS.iter().any(|file| {
            let said = fs::read_to_string(self.group.join(file)).unwrap_or_default();
            kills(&said) > 0
        })
    }

    /// The file that takes members: a process that writes 0 to it joins.
    pub(super) fn members(&self) -> PathBuf {
        self.group.join(MEMBERS)
    }
}

/// Processes killed, as one of [`KILLS`] counts them.
fn kills(said: &str) -> u64 {
    let mut numbers = said.lines().filter_map(|line| line.strip_prefix("oom_kill "));
    numbers.next().and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// Takes groups away whose run has been killed: their number is no process any more.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
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
