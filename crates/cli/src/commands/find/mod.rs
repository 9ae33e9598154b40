//! `extant find`: paths below a directory that pass every test, and what is done with them.

mod actions;
mod criteria;
mod rows;

use std::ffi::OsString;

use extant::rooms::ondisk::InodeNo;
use extant::rooms::reader::Follow;

use super::Operands;
use crate::describe::JsonFile;
use crate::failure::Failure;
use crate::reader::Descend;
use crate::session::Session;
use crate::writable_image::OpenArgs;
use actions::Actions;
use criteria::Criteria;
use rows::{row, show_rows};

/// Find files by name, type, size and time
///
/// As in find(1), each test may be written with one dash; N means exactly N, +N more, -N less. A
/// file is shown if all tests hold; `!`, `-o` and parentheses are not supported. -delete and -exec
/// begin when all files are found, and do not show them unless -print is given.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The base name matches the shell pattern
    #[arg(long, value_name = "PATTERN")]
    name: Vec<OsString>,
    /// Like -name, ignoring case
    #[arg(long, value_name = "PATTERN")]
    iname: Vec<OsString>,
    /// The whole path matches the shell pattern
    #[arg(long, value_name = "PATTERN")]
    path: Vec<OsString>,
    /// The type is one of these, separated by commas: b c d f l p s
    #[arg(long = "type", value_name = "TYPES")]
    types: Option<String>,
    /// The size is N units, rounded up: c (bytes), w, b (512 bytes, the default), k, M or G
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    size: Vec<String>,
    /// Modified after this file of the same image
    #[arg(long, value_name = "/PATH")]
    newer: Option<OsString>,
    /// Modified N days ago (whole days, the rest is ignored)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    mtime: Vec<String>,
    /// Read N days ago
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    atime: Vec<String>,
    /// Changed (the inode) N days ago
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    ctime: Vec<String>,
    /// Modified N minutes ago (rounded up)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    mmin: Vec<String>,
    /// Read N minutes ago
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    amin: Vec<String>,
    /// Changed (the inode) N minutes ago
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    cmin: Vec<String>,
    /// The file has N hard links
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    links: Option<String>,
    /// The inode number is N
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    inum: Option<String>,
    /// The numeric user ID is N
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    uid: Option<String>,
    /// The numeric group ID is N
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    gid: Option<String>,
    /// Owned by this user: a number, or a name in the image's /etc/passwd
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Of this group: a number, or a name in the image's /etc/group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// The permission bits are exactly MODE; -MODE: all of them are set; /MODE: any of them; octal
    #[arg(long, value_name = "MODE", allow_hyphen_values = true)]
    perm: Option<String>,
    /// The file or directory is empty
    #[arg(long)]
    empty: bool,
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
    /// What `-exec COMMAND {} +` is turned into.
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
    operands: Operands,
    #[command(flatten)]
    open_args: OpenArgs,
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
        let actions = Actions::of(&mut self)?;
        let criteria = Criteria::of(&self)?;
        let is_shown = actions.is_none() || self.print || self.print0 || self.ls || self.json;
        let (mut shown, mut rows, mut found) = (Vec::new(), Vec::new(), Vec::new());
        let mut operand = 0;
        self.operands.each(session, |image, path, session| {
            let at = operand;
            operand += 1;
            let compared = criteria.compared(image)?;
            let start = image.resolve(path, Follow::No)?;
            image.walk(start, path, session, &mut |walked, session| {
                if self.mindepth.is_none_or(|depth| walked.depth >= depth)
                    && criteria.hold(image, walked, &compared)
                {
                    if actions.is_some() {
                        found.push(Found {
                            operand: at,
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

/// A file that an action is done with.
struct Found {
    /// The index of the operand.
    operand: usize,
    path: Vec<u8>,
    number: InodeNo,
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
