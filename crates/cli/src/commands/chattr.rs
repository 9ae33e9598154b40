//! `extant chattr`: sets the flags, the project and the version of files, as chattr does.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant::InodeFlags;
use extant::rooms::device::c_number;

use crate::failure::Failure;
use crate::flagged_files::{ChangeableFiles, OfHost, OfImage, STAT, Step, walk};
use crate::image_path::inside_or_host;
use crate::parse;
use crate::session::Session;
use crate::writable_image::{NoMatch, OpenArgs, WritableImages};
use crate::{err_line, say};

/// chattr's exit code for every failure.
const FAILED: u8 = 1;
/// The letters of flags that may be set.
const LETTERS: &str = "aAcCdDeFijmPsStTux";

/// Change file attributes, as chattr does
///
/// MODE is + (add), - (remove) or = (set to exactly) and letters of aAcCdDeFijmPsStTux, such as +i
/// or -aS. The file system refuses what a file cannot have.
#[derive(Debug, clap::Args)]
#[command(override_usage = "extant chattr [OPTIONS] [MODE]... FILE...")]
pub(crate) struct Args {
    /// Recurse into directories
    #[arg(short = 'R', action = clap::ArgAction::Count)]
    recursive: u8,
    /// Print the version, and what is set
    #[arg(short = 'V', action = clap::ArgAction::Count)]
    verbose: u8,
    /// Suppress most error messages
    #[arg(short = 'f', action = clap::ArgAction::Count)]
    quiet: u8,
    /// Set the version of the file (generation); refused on volumes with metadata_csum
    #[arg(
        short = 'v',
        value_name = "VERSION",
        overrides_with = "version",
        allow_hyphen_values = true
    )]
    version: Option<String>,
    /// Set the project
    #[arg(short, value_name = "PROJECT", overrides_with = "project", allow_hyphen_values = true)]
    project: Option<String>,
    /// A change of flags: the words of [`with_modes`]
    #[arg(long = "mode", hide = true)]
    modes: Vec<String>,
    /// Image; the operands are then paths in it
    #[arg(long, value_name = "IMAGE")]
    image: Option<OsString>,
    #[command(flatten)]
    open_args: OpenArgs,
    /// IMAGE:/path, or a file of this machine
    #[arg(value_name = "FILE", required = true)]
    files: Vec<OsString>,
}

/// The command line, whose first `skipped` words are names of commands, with each change of flags
/// as `--mode=CHANGE`: `-Vi` means `-V --mode=-i`. The first word that is neither is a file, and so
/// are all after it.
pub(crate) fn with_modes(arguments: Vec<OsString>, skipped: usize) -> Vec<OsString> {
    let mut words = arguments.into_iter();
    let mut read: Vec<OsString> = words.by_ref().take(skipped).collect();
    while let Some(word) = words.next() {
        let Some(text) = word.to_str().filter(|text| text.starts_with(['-', '+', '='])) else {
            read.extend(["--".into(), word]);
            break;
        };
        if text == "--" {
            read.push(word);
            break;
        }
        if text.starts_with("--") {
            let has_value = !text.contains('=') && text != "--help";
            read.push(word);
            read.extend(words.next().filter(|_| has_value));
            continue;
        }
        let Some(letters) = text.strip_prefix('-') else {
            read.push(format!("--mode={text}").into());
            continue;
        };
        let is_option = |letter: &char| "RVfvp".contains(*letter);
        for option in letters.chars().filter(is_option) {
            read.push(format!("-{option}").into());
            if matches!(option, 'v' | 'p') {
                read.extend(words.next());
            }
        }
        let flags: String = letters.chars().filter(|letter| !is_option(letter)).collect();
        if !flags.is_empty() {
            read.push(format!("--mode=-{flags}").into());
        }
    }
    read.extend(words);
    read
}

/// Why a command line means nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Misuse {
    /// The whole message.
    Line(&'static str),
    /// A word that is wrong; the usage text follows.
    Word(String),
}

impl Misuse {
    /// The failure of the command: in chattr's form by its name.
    fn failure(self, session: &Session) -> Failure {
        match self {
            Self::Line(why) if session.is_compat => {
                err_line!("{why}");
                Failure::silent(FAILED)
            }
            Self::Word(why) if session.is_compat => {
                Failure::new(why + "\n\n" + &parse::usage::<Args>(&session.called))
            }
            Self::Line(why) => Failure::usage(why),
            Self::Word(why) => Failure::usage(why),
        }
    }
}

/// The change of a file.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Change {
    add: InodeFlags,
    remove: InodeFlags,
    /// The flags that a file has in place of all others.
    set: Option<InodeFlags>,
    version: Option<u32>,
    project: Option<u32>,
}

impl Change {
    fn read(args: &Args) -> Result<Self, Misuse> {
        let mut change = Self::default();
        let mut has_change = false;
        for mode in &args.modes {
            let (operator, letters) = mode.split_at(1);
            let mut flags = InodeFlags::empty();
            for letter in letters.chars() {
                let unknown = || Misuse::Word(format!("invalid attribute '{letter}'"));
                flags |= flag(letter).ok_or_else(unknown)?;
            }
            has_change = true;
            match operator {
                "+" => change.add |= flags,
                "=" => change.set = Some(change.set.unwrap_or_default() | flags),
                _ => change.remove |= flags,
            }
        }
        let adds_or_removes = args.modes.iter().any(|mode| !mode.starts_with('='));
        change.version = number(args.version.as_deref(), "version")?;
        change.project = number(args.project.as_deref(), "project")?;
        if !has_change && change.version.is_none() && change.project.is_none() {
            return Err(Misuse::Line("Must use '-v', =, - or +"));
        }
        if change.set.is_some() && adds_or_removes {
            return Err(Misuse::Line("= is incompatible with - and +"));
        }
        if change.add.intersects(change.remove) {
            return Err(Misuse::Line("Can't both set and unset same flag."));
        }
        Ok(change)
    }

    /// The flags of a file after it.
    fn applied(&self, flags: InodeFlags) -> InodeFlags {
        self.set.unwrap_or((flags - self.remove) | self.add)
    }
}

fn flag(letter: char) -> Option<InodeFlags> {
    let (flag, _, _) = InodeFlags::SHOWN.iter().find(|(_, shown, _)| *shown == letter)?;
    LETTERS.contains(letter).then_some(*flag)
}

/// A number as strtoul(3) reads it, of which the low 32 bits count; nothing is 0.
fn number(text: Option<&str>, what: &str) -> Result<Option<u32>, Misuse> {
    let Some(text) = text else { return Ok(None) };
    let wrong = || Misuse::Word(format!("bad {what} - {text}"));
    let number = match text.trim_start().strip_prefix('-') {
        Some(digits) => c_number(digits).map(u64::wrapping_neg).ok_or_else(wrong)?,
        None if text.is_empty() => 0,
        None => c_number(text).ok_or_else(wrong)?,
    };
    // As chattr does.
    Ok(Some(number as u32))
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let change = Change::read(&self).map_err(|misuse| misuse.failure(session))?;
        if self.verbose > 0 {
            err_line!("{}", session.version());
        }
        let mut images = WritableImages::new(self.open_args, session);
        let mut outcome = Ok(());
        for file in &self.files {
            let inside = inside_or_host(self.image.as_deref(), file);
            let changed = match inside {
                Ok(Some(inside)) => images.of(&inside).and_then(|image| {
                    let files = OfImage::changed(&inside.name, image);
                    let paths = image.named(Path::new(&inside.path), NoMatch::Fails)?;
                    paths.iter().try_for_each(|path| {
                        self.change_operand(change, &files, path.as_os_str().as_bytes(), session)
                            .or_else(|failure| self.report(failure, session))
                    })
                }),
                Ok(None) => self.change_operand(change, &OfHost, file.as_bytes(), session),
                Err(failure) => Err(failure),
            };
            if let Err(failure) = changed {
                outcome = self.report(failure, session);
            }
            if outcome.is_err() {
                break;
            }
        }
        images.close(session)?;
        outcome
    }

    /// Reports a failure and continues.
    fn report(&self, failure: Failure, session: &mut Session) -> Result<(), Failure> {
        let failure = failure.with_usual_code(FAILED);
        session.error(if self.quiet > 0 { failure.unsaid() } else { failure })
    }

    fn change_operand<F: ChangeableFiles>(
        &self,
        change: Change,
        files: &F,
        path: &[u8],
        session: &mut Session,
    ) -> Result<(), Failure> {
        let found = files.find(path).map_err(|error| files.failure(&error, STAT, path))?;
        if let Err(failure) = self.change(change, files, path, found.is_dir, session)? {
            self.report(failure, session)?;
        }
        if self.recursive == 0 || !found.is_dir {
            return Ok(());
        }
        walk(files, path, session, &mut |step, session| {
            let Step::File { path, name, found } = step else { return Ok(true) };
            if matches!(name, b"." | b"..") {
                return Ok(false);
            }
            if let Err(failure) = self.change(change, files, path, found.is_dir, session)? {
                self.report(failure, session)?;
            }
            Ok(true)
        })
    }

    /// Changes one file. The inner result is why it could not be changed.
    fn change<F: ChangeableFiles>(
        &self,
        change: Change,
        files: &F,
        path: &[u8],
        is_dir: bool,
        session: &mut Session,
    ) -> Result<Result<(), Failure>, Failure> {
        let flags = match files.flags(path) {
            Ok(flags) => change.applied(flags),
            Err(error) => return Ok(Err(files.failure(&error, "while reading flags on", path))),
        };
        // As chattr: this one is told, and not added where it means nothing.
        let is_left_out = !is_dir && change.set.is_none();
        let possible = if is_left_out { flags - InodeFlags::DIRSYNC } else { flags };
        let set = files.set_flags(path, possible);
        let set = set.map_err(|error| files.failure(&error, "while setting flags on", path));
        self.tell("Flags", files, path, &flags.letters(), session)?;
        if let (Ok(()), Some(version)) = (&set, change.version) {
            let set = files.set_version(path, version);
            self.tell("Version", files, path, &version.to_string(), session)?;
            if let Err(error) = set {
                return Ok(Err(files.failure(&error, "while setting version on", path)));
            }
        }
        if let (Ok(()), Some(project)) = (&set, change.project) {
            let set = files.set_project(path, project);
            self.tell("Project", files, path, &project.to_string(), session)?;
            return Ok(set.map_err(|error| files.failure(&error, "while setting project on", path)));
        }
        Ok(set)
    }

    fn tell<F: ChangeableFiles>(
        &self,
        what: &str,
        files: &F,
        path: &[u8],
        value: &str,
        session: &mut Session,
    ) -> Result<(), Failure> {
        if self.verbose == 0 {
            return Ok(());
        }
        session.out.bytes(what.as_bytes())?;
        session.out.bytes(b" of ")?;
        session.out.name(&files.place(path))?;
        say!(session, " set as {value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Change, String> {
        let words = line.split(' ').map(OsString::from).collect();
        let args = parse::parse_alone::<Args>("chattr", with_modes(words, 1));
        let args = args.map_err(|error| error.to_string())?;
        Change::read(&args).map_err(|misuse| format!("{misuse:?}"))
    }

    #[test]
    fn words_are_read_as_chattr_reads_them() {
        let (a, i) = (InodeFlags::APPEND, InodeFlags::IMMUTABLE);
        let none = Change::default();
        let rows = [
            ("chattr +ai f", Change { add: a | i, ..none }),
            ("chattr -Vi -R +a f", Change { add: a, remove: i, ..none }),
            ("chattr -ia f -a", Change { remove: a | i, ..none }),
            ("chattr = f", Change { set: Some(InodeFlags::empty()), ..none }),
            ("chattr =a =i -- -f", Change { set: Some(a | i), ..none }),
            ("chattr -vV 0x10 f", Change { version: Some(16), ..none }),
            ("chattr -p 7 -v -1 f", Change { project: Some(7), version: Some(u32::MAX), ..none }),
            ("chattr + f", none),
        ];
        for (line, change) in rows {
            assert_eq!(read(line), Ok(change), "{line}");
        }
        let wrong = [
            "+z f", "f", "- f", "+a =i f", "+a -a f", "-v x f", "-p 018 f", "+a", "-p 7", "+a+i f",
        ];
        for line in wrong {
            assert!(read(&format!("chattr {line}")).is_err(), "{line}");
        }
    }
}
