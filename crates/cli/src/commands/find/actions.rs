//! What `find` does with the files that it found.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};
use std::process::Command;

use super::{Args, Found};
use crate::failure::Failure;
use crate::image_path::ImagePath;
use crate::session::Session;
use crate::writable_image::{In, OpenArgs, WritableImages};

/// Bytes of names that one command of `-exec {} +` gets, well below what the kernel takes.
const COMMAND_LINE: usize = 64 << 10;

/// What is done with the files, once all are found.
pub(super) enum Actions {
    Delete(OpenArgs),
    /// A command for each file, its name in place of `{}`.
    Each(Vec<OsString>),
    /// A command for many files, their names at its end.
    Together(Vec<OsString>),
}

impl Actions {
    /// The actions of a command line. With a command to run, the process is not restricted: it
    /// could not run it.
    pub(super) fn of(args: &mut Args) -> Result<Option<Self>, Failure> {
        if let Some(option) = args.open_args.given().filter(|_| !args.delete) {
            return Err(Failure::usage(format_args!("{option}: only with -delete")));
        }
        let actions = match (args.delete, args.exec.take(), args.exec_together.take()) {
            (true, ..) => Self::Delete(args.open_args),
            (_, Some(command), _) => Self::Each(command),
            (.., Some(command)) => Self::Together(command),
            _ => return Ok(None),
        };
        args.operands.no_sandbox = true;
        Ok(Some(actions))
    }

    /// `operands` are those that the files were found below.
    pub(super) fn run(
        self,
        operands: &[ImagePath],
        found: Vec<Found>,
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
                    if !execute(words, session)? {
                        let program = command[0].display();
                        session.error(Failure::new(format_args!("{program}: it failed")))?;
                    }
                    names = rest;
                }
                Ok(())
            }
        }
    }
}

impl Found {
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
    found: Vec<Found>,
    open_args: OpenArgs,
    session: &mut Session,
) -> Result<(), Failure> {
    operands.iter().try_for_each(ImagePath::check_path_given)?;
    let mut images = WritableImages::new(open_args);
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

/// Runs a command and waits for it: whether its exit code was 0.
fn execute(words: Vec<OsString>, session: &mut Session) -> Result<bool, Failure> {
    // What was printed comes before what the command prints.
    session.out.flush()?;
    let (program, arguments) =
        words.split_first().ok_or_else(|| Failure::usage("-exec: no command"))?;
    match Command::new(program).args(arguments).status() {
        Ok(status) => Ok(status.success()),
        Err(error) => {
            session.error(Failure::at(program, error))?;
            Ok(true)
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
