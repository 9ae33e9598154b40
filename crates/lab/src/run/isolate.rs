//! Processes whose mounts and children end with them, however they end.
//!
//! unshare(1) gives a cell a mount and a PID namespace of its own. When the cell's process, which
//! is the first of its PID namespace, ends, the kernel kills all others in it; with the last of
//! them the mount namespace goes, and with that every mount, and the loop devices under them, which
//! mount(8) sets to be freed then. `--kill-child` ends the cell with unshare, and at the end of
//! standard input the cell knows that we are gone.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// How processes are kept apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Isolation {
    /// By root.
    Root,
    /// As an ordinary user, who is root inside: FUSE can be mounted, disks cannot.
    User,
    /// Not at all: nothing is mounted then.
    None,
}

const ROOT: [&str; 6] = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"];
const USER: [&str; 2] = ["--user", "--map-root-user"];

impl Isolation {
    /// The best that works here.
    pub(super) fn found() -> Self {
        let works = |isolation: &Self| {
            let mut command = isolation.command(Path::new("true"));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        [Self::Root, Self::User].into_iter().find(works).unwrap_or(Self::None)
    }

    /// A command that runs a program so, in a process group of its own: a terminal's signals go to
    /// us.
    pub(super) fn command(self, program: &Path) -> Command {
        let words: Vec<&str> = match self {
            Self::None => {
                let mut command = Command::new(program);
                command.process_group(0);
                return command;
            }
            Self::Root => ROOT.to_vec(),
            Self::User => USER.into_iter().chain(ROOT).collect(),
        };
        let mut command = Command::new("unshare");
        command.args(words).arg(program).process_group(0);
        command
    }
}
