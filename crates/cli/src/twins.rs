//! The names of e2fsprogs: called through a link of such a name, we behave as that command.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::commands::{frag, fsck, info, mkfs, tune};
#[cfg(feature = "mount")]
use crate::commands::{mount, umount};
use crate::failure::Failure;
use crate::session::Session;
use crate::{later, parse};

/// A command of another project whose name we answer to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Twin {
    /// Its name, as messages begin.
    pub(crate) name: &'static str,
    /// Our command.
    command: &'static str,
}

const TWINS: [Twin; 13] = [
    Twin { name: "mke2fs", command: "mkfs" },
    Twin { name: "mkfs.ext2", command: "mkfs" },
    Twin { name: "mkfs.ext3", command: "mkfs" },
    Twin { name: "mkfs.ext4", command: "mkfs" },
    Twin { name: "e2fsck", command: "fsck" },
    Twin { name: "fsck.ext2", command: "fsck" },
    Twin { name: "fsck.ext3", command: "fsck" },
    Twin { name: "fsck.ext4", command: "fsck" },
    Twin { name: "dumpe2fs", command: "info" },
    Twin { name: "filefrag", command: "frag" },
    Twin { name: "tune2fs", command: "tune" },
    Twin { name: "mount.fuse.extant", command: "mount" },
    Twin { name: "umount.fuse.extant", command: "umount" },
];

/// The exit code of dumpe2fs and filefrag for a command line that means nothing.
const USAGE: u8 = 1;

/// The twin that `argv[0]` names.
pub(crate) fn called_as(program: Option<&OsString>) -> Option<Twin> {
    let name = Path::new(program?).file_name().and_then(OsStr::to_str)?;
    TWINS.into_iter().find(|twin| twin.name == name)
}

impl Twin {
    /// Whether its exit code is made of e2fsck's.
    fn is_check(self) -> bool {
        self.command == "fsck"
    }

    /// Runs our command as the twin; the exit code.
    pub(crate) fn run(self, arguments: Vec<OsString>) -> u8 {
        if self.is_check() {
            return fsck::run_words(self.name, true, arguments);
        }
        let mut session = Session::new(self.name, true);
        let outcome = match self.command {
            "mkfs" => mkfs::run(arguments.into_iter().skip(1), &mut session),
            "info" => match parse::parse_alone::<info::Args>(self.name, arguments) {
                Ok(args) => args.run(&mut session),
                Err(error) => return usage_code(&error),
            },
            "frag" => {
                match parse::parse_alone::<frag::Args>(self.name, frag::with_equals(arguments)) {
                    Ok(args) => args.run(&mut session),
                    Err(error) => return usage_code(&error),
                }
            }
            "tune" => match parse::parse_alone::<tune::Args>(self.name, arguments) {
                Ok(args) => args.run(&mut session),
                Err(error) => return usage_code(&error),
            },
            #[cfg(feature = "mount")]
            "mount" => match parse::parse_alone::<mount::TwinArgs>(self.name, arguments) {
                Ok(args) => args.run(&mut session),
                Err(error) => return usage_code(&error),
            },
            #[cfg(feature = "mount")]
            "umount" => match parse::parse_alone::<umount::TwinArgs>(self.name, arguments) {
                Ok(args) => args.run(&mut session),
                Err(error) => return usage_code(&error),
            },
            command => Err(later::refusal(command)
                .unwrap_or_else(|| Failure::not_built(format_args!("extant {command}")))),
        };
        session.close(outcome)
    }
}

fn usage_code(error: &clap::Error) -> u8 {
    parse::refuse(error).min(USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_any_directory_is_a_twin() {
        let name = |path: &str| called_as(Some(&path.into())).map(|twin| twin.command);
        assert_eq!(name("/sbin/mkfs.ext4"), Some("mkfs"));
        assert_eq!(name("dumpe2fs"), Some("info"));
        assert_eq!(name("./extant"), None);
        assert_eq!(name("mke2fs.old"), None);
    }
}
