//! `extant find`: paths below a directory that pass every test, and what is done with them.

mod actions;
mod criteria;
mod rows;

use std::ffi::OsString;

use extant::rooms::reader::Follow;

use super::Operands;
use crate::describe::JsonFile;
use crate::failure::Failure;
use crate::reader::Descend;
use crate::session::Session;
use actions::{ActionArgs, MatchedFile};
use criteria::{Criteria, CriteriaArgs};
use rows::{row, show_rows};

/// Find files by name, type, size and time
///
/// As in find(1), each test may be written with one dash; N means exactly N, +N more, -N less. A
/// file is shown if all tests hold; `!`, `-o` and parentheses are not supported. -delete and -exec
/// begin when all files are found, and do not show them unless -print is given.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    tests: CriteriaArgs,
    /// Skip files at levels less than this; 0 is the operand itself
    #[arg(long, value_name = "LEVELS")]
    mindepth: Option<u32>,
    /// Descend at most this many levels
    #[arg(long, value_name = "LEVELS")]
    maxdepth: Option<u32>,
    /// Print the paths; the default where no other action is given
    #[arg(long)]
    print: bool,
    /// Print a NUL after each path, not a newline
    #[arg(long, conflicts_with = "print")]
    print0: bool,
    /// Print in the format of `ls -l -i`
    #[arg(long, conflicts_with_all = ["print", "print0", "json"])]
    ls: bool,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["print", "print0"])]
    json: bool,
    #[command(flatten)]
    actions: ActionArgs,
    #[command(flatten)]
    operands: Operands,
}

/// Words of find(1) that are written with one dash.
const WORDS: [&str; 26] = [
    "name", "iname", "path", "type", "size", "newer", "links", "inum", "uid", "gid", "perm",
    "empty", "mindepth", "maxdepth", "print", "print0", "ls", "mtime", "atime", "ctime", "mmin",
    "amin", "cmin", "user", "group", "delete",
];

/// Whether a word of find(1) may have this name; an unknown one is reported by its whole name.
fn is_word(word: &str) -> bool {
    word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// The command line with `-name` and its kin as `--name`, which is how the table knows them.
pub(crate) fn with_long_options(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut long: Vec<OsString> = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.to_str().and_then(|it| it.strip_prefix('-')) {
            Some("exec" | "-exec") => long.extend(command_of(&mut arguments)),
            Some(word) if WORDS.contains(&word) || is_word(word) => {
                long.push(format!("--{word}").into());
            }
            _ => long.push(argument),
        }
    }
    long
}

/// `-exec` and the arguments to its end. Without an end it has no command, which is refused.
fn command_of(arguments: &mut impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut command = Vec::new();
    for argument in arguments {
        if argument == "+" && command.last().is_some_and(|last| last == "{}") {
            command.pop();
            return [vec!["--exec-together".into()], command, vec![";".into()]].concat();
        }
        if argument == ";" {
            return [vec!["--exec".into()], command, vec![argument]].concat();
        }
        command.push(argument);
    }
    vec!["--exec".into()]
}

impl Args {
    pub(crate) fn run(mut self, session: &mut Session) -> Result<(), Failure> {
        let actions = self.actions.parsed()?;
        // A restricted process could neither run a command nor open the image again.
        self.operands.no_sandbox |= actions.is_some();
        let criteria = Criteria::of(&self.tests)?;
        let is_shown = actions.is_none() || self.print || self.print0 || self.ls || self.json;
        let (mut shown, mut rows, mut found) = (Vec::new(), Vec::new(), Vec::new());
        self.operands.each_named(session, |named, session| {
            let (image, path) = (&*named.image, &named.path[..]);
            let compared = criteria.compared(image)?;
            let start = image.resolve(path, Follow::No)?;
            image.walk(start, path, session, &mut |walked, session| {
                if self.mindepth.is_none_or(|depth| walked.depth >= depth)
                    && criteria.hold(image, walked, &compared)
                {
                    if actions.is_some() {
                        found.push(MatchedFile {
                            operand: named.operand,
                            path: walked.path.clone(),
                            number: walked.file.number,
                        });
                    }
                    if self.json {
                        shown.push(JsonFile::new(image, &walked.path, &walked.file));
                    } else if self.ls {
                        rows.push(row(image, walked));
                    } else if is_shown {
                        session.out.name(&walked.path)?;
                        session.out.bytes(if self.print0 { b"\0" } else { b"\n" })?;
                    }
                }
                let is_deep = self.maxdepth.is_some_and(|depth| walked.depth >= depth);
                Ok(if is_deep { Descend::No } else { Descend::Yes })
            })
        })?;
        if self.json {
            session.out.json_array(|element| shown.iter().try_for_each(element))?;
        }
        show_rows(&rows, session)?;
        match actions {
            Some(actions) => actions.run(&self.operands.inside()?, found, session),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_may_be_written_as_in_find() {
        let words = ["find", "disk.img:/", "-name", "-name*", "-size", "-5k", "-x"];
        let words = words.map(OsString::from).to_vec();
        let long = ["find", "disk.img:/", "--name", "-name*", "--size", "-5k", "-x"];
        assert_eq!(with_long_options(words), long.map(OsString::from).to_vec());
    }

    #[test]
    fn a_command_keeps_its_words() {
        let long = |words: &str| {
            let words = words.split(' ').map(OsString::from).collect();
            let long: Vec<_> = with_long_options(words).into_iter().collect();
            long.iter().map(|it| it.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(long("-exec rm -name {} ; -name x"), "--exec rm -name {} ; --name x");
        assert_eq!(long("-exec cat -v {} + -print"), "--exec-together cat -v ; --print");
        assert_eq!(long("-exec expr 1 + 2 ;"), "--exec expr 1 + 2 ;");
        assert_eq!(long("-exec cat {} -name x"), "--exec");
    }
}
