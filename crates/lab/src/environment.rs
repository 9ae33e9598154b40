//! Where experiments were run: the facts without which their figures mean little.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// A machine and its tools.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Environment {
    /// Name and release of the kernel.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// How many there are.
    pub processors: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// File system and disk that held the images: type and size.
    pub disk: String,
    /// Programs and their versions; missing ones have a note.
    pub tools: Vec<(String, String)>,
    /// Whether root ran it.
    pub is_root: bool,
}

/// Programs that experiments use, and the option that shows their version.
const TOOLS: [(&str, &str); 9] = [
    ("mke2fs", "-V"),
    ("e2fsck", "-V"),
    ("tune2fs", ""),
    ("fuse2fs", "-V"),
    ("mkfs.xfs", "-V"),
    ("xfs_repair", "-V"),
    ("mkfs.btrfs", "-V"),
    ("filefrag", "-V"),
    ("unshare", "-V"),
];

impl Environment {
    /// Reads the facts of this machine; images are stored in `dir`.
    pub fn here(dir: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let system = rustix::system::uname();
        let shown = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let kernel = format!("{} {}", shown(system.sysname()), shown(system.release()));
        Self {
            kernel,
            processor: field(&text("/proc/cpuinfo"), "model name")
                .unwrap_or_else(|| shown(system.machine())),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory: machine_memory().unwrap_or(0),
            disk: disk(dir),
            tools: TOOLS.map(|(name, option)| (name.to_owned(), version(name, option))).to_vec(),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// Whether figures of both can be compared: the kernel and the processor are the same.
    pub fn is_like(&self, other: &Self) -> bool {
        self.kernel == other.kernel && self.processor == other.processor
    }
}

/// Whether a program is on this machine: in one of PATH's directories, unless it is given with its
/// own.
pub fn is_there(program: impl AsRef<Path>) -> bool {
    let program = program.as_ref();
    if program.components().count() > 1 {
        return program.is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Bytes of memory that the machine has.
pub(crate) fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = field(&text, "MemTotal")?.split(' ').next()?.parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// A line `name : value` of a file in /proc.
fn field(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(found, _)| found.trim() == name)?;
    Some(value.trim().to_owned())
}

/// The type of the file system that a directory is in, and its size.
fn disk(dir: &Path) -> String {
    let Ok(dir) = dir.canonicalize() else { return "unknown".to_owned() };
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = table.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let best =
        mounts.filter(|(point, _)| dir.starts_with(point)).max_by_key(|(point, _)| point.len());
    let kind = best.map_or("unknown", |(_, kind)| kind);
    match rustix::fs::statvfs(&dir) {
        Ok(found) => {
            format!("{kind}, {} GiB", found.f_blocks.saturating_mul(found.f_frsize) >> 30)
        }
        Err(_) => kind.to_owned(),
    }
}

/// The first line of a program's output with its version. tune2fs shows it when it is called
/// without arguments.
fn version(name: &str, option: &str) -> String {
    let mut command = Command::new(name);
    if !option.is_empty() {
        command.arg(option);
    }
    let Ok(output) = command.stdin(Stdio::null()).output() else { return "not there".to_owned() };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // Other programs that it calls may print before it.
    let has_digits = |line: &&str| line.chars().any(|letter| letter.is_ascii_digit());
    let mut lines = said.lines().filter(has_digits);
    let own = lines.clone().find(|line| line.starts_with(name));
    let line = own.or_else(|| lines.next());
    line.unwrap_or("of unknown version").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_are_found() {
        let text = "MemTotal:       24683520 kB\nMemFree: 1 kB\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(field(text, "MemTotal").as_deref(), Some("24683520 kB"));
        assert_eq!(field(text, "model name").as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(field(text, "MemTot"), None);
    }

    #[test]
    fn every_tool_is_listed_there_or_not() {
        let here = Environment::here(Path::new("/"));
        assert_eq!(here.tools.len(), TOOLS.len());
        assert!(here.kernel.starts_with("Linux ") && here.processors > 0, "{here:?}");
        assert_eq!(version("no-such-program-anywhere", "-V"), "not there");
    }
}
