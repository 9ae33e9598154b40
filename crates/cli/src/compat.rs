//! The names of e2fsprogs: called through a link of such a name, we behave as that command.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::commands::{
    chattr, clone, debugfs, defrag, frag, freefrag, fsck, info, label, lsattr, mkfs, resize, tune,
    undo,
};
#[cfg(feature = "mount")]
use crate::commands::{fuse2fs, mount, umount};
use crate::failure::Failure;
use crate::session::Session;
use crate::{parse, unimplemented};

/// A command of another project whose name we answer to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CompatCommand {
    /// Its name, as messages begin.
    pub(crate) name: &'static str,
    /// Our command.
    command: &'static str,
}

const COMMANDS: [CompatCommand; 24] = [
    CompatCommand { name: "mke2fs", command: "mkfs" },
    CompatCommand { name: "mkfs.ext2", command: "mkfs" },
    CompatCommand { name: "mkfs.ext3", command: "mkfs" },
    CompatCommand { name: "mkfs.ext4", command: "mkfs" },
    CompatCommand { name: "e2fsck", command: "fsck" },
    CompatCommand { name: "fsck.ext2", command: "fsck" },
    CompatCommand { name: "fsck.ext3", command: "fsck" },
    CompatCommand { name: "fsck.ext4", command: "fsck" },
    CompatCommand { name: "dumpe2fs", command: "info" },
    CompatCommand { name: "filefrag", command: "frag" },
    CompatCommand { name: "tune2fs", command: "tune" },
    CompatCommand { name: "resize2fs", command: "resize" },
    CompatCommand { name: "debugfs", command: "debugfs" },
    CompatCommand { name: "chattr", command: "chattr" },
    CompatCommand { name: "lsattr", command: "lsattr" },
    CompatCommand { name: "e2freefrag", command: "freefrag" },
    CompatCommand { name: "e2image", command: "clone" },
    CompatCommand { name: "e2label", command: "label" },
    CompatCommand { name: "e2mmpstatus", command: "mmp" },
    CompatCommand { name: "e2undo", command: "undo" },
    CompatCommand { name: "e4defrag", command: "defrag" },
    CompatCommand { name: "fuse2fs", command: "mount" },
    CompatCommand { name: "mount.fuse.extant", command: "mount" },
    CompatCommand { name: "umount.fuse.extant", command: "umount" },
];

/// The exit code of dumpe2fs and filefrag for a command line that means nothing.
const USAGE: u8 = 1;

/// The command of e2fsprogs that `argv[0]` names.
pub(crate) fn called_as(program: Option<&OsString>) -> Option<CompatCommand> {
    let name = Path::new(program?).file_name().and_then(OsStr::to_str)?;
    COMMANDS.into_iter().find(|command| command.name == name)
}

/// The names that this build answers to.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let is_built = |command: &CompatCommand| unimplemented::refusal(command.command).is_none();
    COMMANDS.into_iter().filter(is_built).map(|command| command.name)
}

/// Programs of e2fsprogs that are not built, with what serves in their place.
const NOT_BUILT: [(&str, &str); 6] = [
    ("badblocks", "use e2fsck -c or mke2fs -c"),
    ("logsave", "redirect the output to a file"),
    ("e2scrub", "use e2fsck on a snapshot"),
    ("e2scrub_all", "use e2fsck on snapshots"),
    ("e4crypt", "use fscryptctl"),
    ("mklost+found", "e2fsck creates the directory"),
];

/// The refusal of a link with the name of a program that is not built, whatever its arguments.
pub(crate) fn not_built(program: Option<&OsString>) -> Option<(&'static str, Failure)> {
    let called = Path::new(program?).file_name()?;
    let (name, instead) = NOT_BUILT.into_iter().find(|(name, _)| called == *name)?;
    Some((name, Failure::new(format_args!("not included in extant: {instead}"))))
}

/// The refusal of a link whose name means nothing: `None` where the program's own name is in it.
pub(crate) fn unknown(program: Option<&OsString>) -> Option<Failure> {
    let name = Path::new(program?).file_name()?.to_string_lossy().into_owned();
    if name.starts_with("extant") {
        return None;
    }
    let known: Vec<_> = COMMANDS.iter().map(|command| command.name).collect();
    let known = known.join(", ");
    Some(Failure::usage(format_args!("unknown program name (expected extant, {known})")))
}

impl CompatCommand {
    /// Whether its exit code is made of e2fsck's.
    fn is_check(self) -> bool {
        self.command == "fsck"
    }

    /// Runs our command by that name; the exit code.
    pub(crate) fn run(self, arguments: Vec<OsString>) -> u8 {
        if self.is_check() {
            return fsck::run_words(self.name, true, arguments);
        }
        let mut session = Session::new(self.name, true);
        let outcome = match self.command {
            "mkfs" => mkfs::run(arguments.into_iter().skip(1), &mut session),
            "info" => match parse::parse_compat::<info::Args>(self.name, arguments) {
                Some(args) => args.run(&mut session),
                None => return USAGE,
            },
            // Of e2fsprogs too it is another name of dumpe2fs.
            "mmp" => {
                let mut words = arguments;
                words.insert(1, "-m".into());
                match parse::parse_compat::<info::Args>(self.name, words) {
                    Some(args) => args.run(&mut session),
                    None => return USAGE,
                }
            }
            "freefrag" => match parse::parse_compat::<freefrag::Args>(self.name, arguments) {
                Some(args) => args.run(&mut session),
                None => return USAGE,
            },
            "clone" => match parse::parse_compat::<clone::CompatArgs>(self.name, arguments) {
                Some(args) => args.run(&mut session),
                None => return USAGE,
            },
            "defrag" => match parse::parse_compat::<defrag::Args>(self.name, arguments) {
                Some(args) => args.run(&mut session),
                None => return USAGE,
            },
            "label" => match parse::parse_compat::<label::Args>(self.name, arguments) {
                Some(args) => args.run(&mut session),
                None => return USAGE,
            },
            "frag"
                if arguments.len() == 2
                    && ["-V", "-VV"].map(OsStr::new).contains(&&*arguments[1]) =>
            {
                frag::say_version(arguments[1] == "-VV", &mut session)
            }
            "frag" => {
                match parse::parse_compat::<frag::Args>(self.name, frag::with_equals(arguments)) {
                    Some(args) => args.run(&mut session),
                    None => return USAGE,
                }
            }
            "chattr" => {
                let words = chattr::with_modes(arguments, 1);
                match parse::parse_compat::<chattr::Args>(self.name, words) {
                    Some(args) => args.run(&mut session),
                    None => return USAGE,
                }
            }
            "lsattr" => match parse::parse_compat::<lsattr::Args>(self.name, arguments) {
                Some(args) => args.run(&mut session),
                None => return USAGE,
            },
            "tune" => match parse::parse_compat::<tune::Args>(self.name, arguments) {
                Some(args) => args.run(&mut session),
                None => return USAGE,
            },
            "resize" => match parse::parse_compat::<resize::Args>(self.name, arguments) {
                Some(args) => args.run(&mut session),
                None => return USAGE,
            },
            "debugfs" => match parse::parse_compat::<debugfs::Args>(self.name, arguments) {
                Some(args) => args.run(&mut session),
                None => return USAGE,
            },
            "undo" => match parse::parse_compat::<undo::Args>(self.name, arguments) {
                Some(args) => args.run(&mut session),
                None => return USAGE,
            },
            #[cfg(feature = "mount")]
            "mount" if self.name == "fuse2fs" => {
                match parse::parse_compat::<fuse2fs::Args>(self.name, arguments) {
                    Some(args) => args.run(&mut session),
                    None => return USAGE,
                }
            }
            #[cfg(feature = "mount")]
            "mount" => match parse::parse_compat::<mount::CompatArgs>(self.name, arguments) {
                Some(args) => args.run(&mut session),
                None => return USAGE,
            },
            #[cfg(feature = "mount")]
            "umount" => match parse::parse_compat::<umount::CompatArgs>(self.name, arguments) {
                Some(args) => args.run(&mut session),
                None => return USAGE,
            },
            command => Err(unimplemented::refusal(command)
                .unwrap_or_else(|| Failure::not_built(format_args!("extant {command}")))),
        };
        session.close(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_any_directory_is_a_command_of_e2fsprogs() {
        let name = |path: &str| called_as(Some(&path.into())).map(|command| command.command);
        assert_eq!(name("/sbin/mkfs.ext4"), Some("mkfs"));
        assert_eq!(name("dumpe2fs"), Some("info"));
        assert_eq!(name("./extant"), None);
        assert_eq!(name("mke2fs.old"), None);
    }
}
