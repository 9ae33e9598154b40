//! Actions of `find`: files are deleted, or given to a command.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};
use std::process::{Command, ExitStatus};

use extant::rooms::ondisk::InodeNo;

use crate::failure::Failure;
use crate::image_path::ImagePath;
use crate::session::Session;
use crate::writable_image::{In, OpenArgs, WritableImages};

/// Bytes of names that one command of `-exec {} +` gets, well below what the kernel takes.
const COMMAND_LINE: usize = 64 << 10;

/// The actions of a command line that are more than output.
#[derive(Debug, clap::Args)]
pub(super) struct ActionArgs {
    /// Delete the files that were found, what a directory holds before the directory
    #[arg(long)]
    delete: bool,
    /// Run the command for each file that was found, with `IMAGE:/path` for each `{}`; ends with
    /// `;`, or with `{} +` for many files a command. The process is not restricted
    #[arg(
        long,
        value_name = "COMMAND",
        num_args = 1..,
        value_terminator = ";",
        allow_hyphen_values = true,
        conflicts_with = "delete"
    )]
    exec: Option<Vec<OsString>>,
    /// The form that `-exec COMMAND {} +` is turned into.
    #[arg(
        long,
        hide = true,
        num_args = 1..,
        value_terminator = ";",
        allow_hyphen_values = true,
        conflicts_with_all = ["delete", "exec"]
    )]
    exec_together: Option<Vec<OsString>>,
    #[command(flatten)]
    open_args: OpenArgs,
}

/// A file that an action is done with.
pub(super) struct MatchedFile {
    /// The index of the operand.
    pub(super) operand: usize,
    pub(super) path: Vec<u8>,
    pub(super) number: InodeNo,
}

impl ActionArgs {
    /// The action that is asked for.
    pub(super) fn parsed(&mut self) -> Result<Option<Actions>, Failure> {
        if let Some(option) = self.open_args.given().filter(|_| !self.delete) {
            return Err(Failure::usage(format_args!("{option}: only with -delete")));
        }
        Ok(match (self.delete, self.exec.take(), self.exec_together.take()) {
            (true, ..) => Some(Actions::Delete(self.open_args)),
            (_, Some(command), _) => Some(Actions::Each(command)),
            (.., Some(command)) => Some(Actions::Together(command)),
            _ => None,
        })
    }
}

/// An action, which begins when all files are found.
pub(super) enum Actions {
    Delete(OpenArgs),
    /// A command for each file, its name in place of `{}`.
    Each(Vec<OsString>),
    /// A command for many files, their names at its end.
    Together(Vec<OsString>),
}

impl Actions {
    /// `operands` are those that the files were found below.
    pub(super) fn run(
        self,
        operands: &[ImagePath],
        found: Vec<MatchedFile>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        match self {
            Self::Delete(open_args) => delete(operands, found, open_args, session),
            Self::Each(command) => found.iter().try_for_each(|it| {
                let name = it.name(operands);
                let words = command.iter().map(|word| with_name(word, &name)).collect();
                // Its exit code is a test in find(1), which nothing follows here.
                execute(words, session).map(drop)
            }),
            Self::Together(command) => {
                let mut names: Vec<_> = found.iter().map(|it| it.name(operands)).collect();
                while !names.is_empty() {
                    let mut bytes = 0;
                    let mut fits = |name: &OsString| {
                        bytes += name.len() + 1;
                        bytes <= COMMAND_LINE
                    };
                    let count = names.iter().take_while(|name| fits(name)).count().max(1);
                    let rest = names.split_off(count);
                    let words = [&command[..], &names[..]].concat();
                    if let Some(status) = execute(words, session)?.filter(|it| !it.success()) {
                        session.error(Failure::at(&command[0], status))?;
                    }
                    names = rest;
                }
                Ok(())
            }
        }
    }
}

impl MatchedFile {
    /// `IMAGE:/path`.
    fn name(&self, operands: &[ImagePath]) -> OsString {
        let image = operands[self.operand].name.as_bytes();
        let slash: &[u8] = if self.path.starts_with(b"/") { b"" } else { b"/" };
        OsString::from_vec([image, b":", slash, &self.path].concat())
    }
}

/// Deletes them, what a directory holds first. One that cannot be deleted does not stop the next.
fn delete(
    operands: &[ImagePath],
    found: Vec<MatchedFile>,
    open_args: OpenArgs,
    session: &mut Session,
) -> Result<(), Failure> {
    operands.iter().try_for_each(ImagePath::check_path_given)?;
    let mut images = WritableImages::new(open_args, session);
    let mut outcome = Ok(());
    // The walk comes by a directory before it comes by what it holds.
    for it in found.into_iter().rev() {
        let path = Path::new(OsStr::from_bytes(&it.path));
        let is_root = !path.components().any(|part| matches!(part, Component::Normal(_)));
        if is_root {
            continue;
        }
        let deleted = images.of(&operands[it.operand]).and_then(|image| {
            let now = image.fs.symlink_metadata(path).within(image)?;
            if now.inode() != it.number {
                return Err(image.failure(path, "another file has this name now; not deleted"));
            }
            match now.is_dir() {
                true => image.fs.remove_dir(path).within(image),
                false => image.fs.remove_file(path).within(image),
            }
        });
        if let Err(failure) = deleted
            && let Err(failure) = session.error(failure)
        {
            outcome = Err(failure);
            break;
        }
    }
    images.close(session)?;
    outcome
}

/// The word with the name for each `{}`.
fn with_name(word: &OsStr, name: &OsStr) -> OsString {
    let (mut bytes, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(at) = rest.windows(2).position(|two| two == b"{}") {
        bytes.extend_from_slice(&rest[..at]);
        bytes.extend_from_slice(name.as_bytes());
        rest = &rest[at + 2..];
    }
    bytes.extend_from_slice(rest);
    OsString::from_vec(bytes)
}

/// Runs a command and waits for it: how it ended, where it began.
fn execute(words: Vec<OsString>, session: &mut Session) -> Result<Option<ExitStatus>, Failure> {
    // The paths that were printed come before the output of the command.
    session.out.flush()?;
    let (program, arguments) =
        words.split_first().ok_or_else(|| Failure::usage("-exec: no command"))?;
    match Command::new(program).args(arguments).status() {
        Ok(status) => Ok(Some(status)),
        Err(error) => {
            session.error(Failure::at(program, error))?;
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_braces_is_the_name() {
        let name = OsStr::new("disk.img:/a");
        for (word, expected) in [
            ("{}", "disk.img:/a"),
            ("x{}y{}", "xdisk.img:/aydisk.img:/a"),
            ("{", "{"),
            ("{{}}", "{disk.img:/a}"),
        ] {
            assert_eq!(with_name(OsStr::new(word), name), OsStr::new(expected));
        }
    }
}
