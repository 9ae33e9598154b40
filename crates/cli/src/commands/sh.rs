//! `extant sh`: commands run on one image, which is opened once.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::rc::Rc;

use crate::failure::Failure;
use crate::image_path::ImagePath;
use crate::lines::{ask, for_each_line};
use crate::say;
use crate::session::Session;
use crate::writable_image::{HeldImage, OpenArgs};

/// The prompt.
const PROMPT: &str = "extant> ";
/// Commands of the program that run in a shell.
const COMMANDS: [&str; 23] = [
    "cat", "chattr", "chmod", "chown", "cp", "df", "du", "find", "getfattr", "ln", "ls", "lsattr",
    "mkdir", "mknod", "mv", "rm", "rmdir", "setfattr", "stat", "touch", "tree", "truncate",
    "quota",
];
/// Commands whose operands are images.
const OF_IMAGES: [&str; 2] = ["df", "quota"];

/// Run commands on one image, which is opened once
///
/// Commands are those of this program, without IMAGE: before paths, which begin at the root of the
/// image; for cp, host:PATH is a file of this machine. They are read from standard input, one on
/// each line, or separated by ';'. Words are quoted as for sh(1); '#' begins a comment. Patterns in
/// paths are matched inside the image, quoted or not. 'sync' puts all changes on the device, which
/// the end of the shell does too; 'exit' ends it. The exit code is 1 if any command failed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run these commands instead; may be repeated
    #[arg(short = 'c', value_name = "COMMANDS")]
    commands: Vec<OsString>,
    /// Stop at the first command that fails
    #[arg(short = 'e')]
    stop: bool,
    #[command(flatten)]
    open_args: OpenArgs,
    /// File or block device
    #[arg(value_name = "IMAGE")]
    image: OsString,
}

/// Runs the words of a command, the program's name first, by the table of commands; with the image
/// that it works on.
pub(crate) type RunWords = fn(Vec<OsString>, &OsStr, &mut Session) -> Result<(), Failure>;

/// The state of a shell.
struct Shell<'a> {
    args: &'a Args,
    run_words: RunWords,
    held: Rc<HeldImage>,
    /// Whether commands come from standard input.
    reads_input: bool,
    /// The number of the line, where messages name it.
    line: Option<u64>,
    has_failed: bool,
    has_ended: bool,
}

impl Args {
    pub(crate) fn run(self, run_words: RunWords, session: &mut Session) -> Result<(), Failure> {
        let inside = ImagePath::parse(&self.image)?;
        inside.check_is_image()?;
        let held = Rc::new(HeldImage::open(&inside, self.open_args)?);
        let mut shell = Shell {
            args: &self,
            run_words,
            held: held.clone(),
            reads_input: self.commands.is_empty(),
            line: None,
            has_failed: false,
            has_ended: false,
        };
        let outcome = shell.run(session);
        let has_failed = shell.has_failed;
        drop(shell);
        let closed = Rc::into_inner(held).map_or(Ok(()), HeldImage::close);
        if let Err(failure) = closed {
            session.error(failure)?;
        }
        outcome?;
        if has_failed { Err(Failure::silent(1)) } else { Ok(()) }
    }
}

impl Shell<'_> {
    fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        if !self.reads_input {
            for commands in &self.args.commands {
                self.run_line(commands.as_bytes(), session)?;
                if self.has_ended {
                    break;
                }
            }
            return Ok(());
        }
        if io::stdin().is_terminal() {
            return ask(PROMPT, |line| {
                self.run_line(line, session)?;
                Ok(!self.has_ended)
            });
        }
        for_each_line(&mut io::stdin().lock(), |line| {
            self.line = Some(self.line.unwrap_or(0) + 1);
            self.run_line(line, session)?;
            Ok(!self.has_ended)
        })
    }

    /// Runs the commands of a line.
    fn run_line(&mut self, line: &[u8], session: &mut Session) -> Result<(), Failure> {
        let commands = match split(line) {
            Ok(commands) => commands,
            Err(why) => {
                let failure = Failure::new(self.place(why));
                return self.failed(failure, session);
            }
        };
        for words in commands {
            self.run_command(words, session)?;
            if self.has_ended {
                break;
            }
        }
        Ok(())
    }

    /// A text with the line that it is about.
    fn place(&self, what: &str) -> String {
        match self.line {
            Some(line) => format!("line {line}: {what}"),
            None => what.to_owned(),
        }
    }

    fn failed(&mut self, failure: Failure, session: &mut Session) -> Result<(), Failure> {
        self.has_failed = true;
        self.has_ended |= self.args.stop;
        session.error(failure)
    }

    fn run_command(&mut self, words: Vec<OsString>, session: &mut Session) -> Result<(), Failure> {
        let Some((name, rest)) = words.split_first() else { return Ok(()) };
        let name = name.to_string_lossy().into_owned();
        let words = match self.words_of(&name, rest) {
            Ok(Some(words)) => words,
            Ok(None) => return self.run_own(&name, rest, session),
            Err(why) => {
                let failure = Failure::new(self.place(&format!("{name}: {why}")));
                return self.failed(failure, session);
            }
        };
        session.out.flush()?;
        let called = format!("{}: {}", session.called, self.place(&name));
        let mut inner = Session::new(called, false);
        inner.held = Some(self.held.clone());
        let outcome = (self.run_words)(words, &self.args.image, &mut inner);
        let code = inner.close(outcome);
        if code == Failure::broken_pipe().code() {
            return Err(Failure::broken_pipe());
        }
        if code != 0 {
            self.has_failed = true;
            self.has_ended |= self.args.stop;
        }
        Ok(())
    }

    /// The words that the table of commands knows; `None` for a command of the shell itself.
    fn words_of(&self, name: &str, rest: &[OsString]) -> Result<Option<Vec<OsString>>, String> {
        if matches!(name, "exit" | "quit" | "sync") || name == "help" && rest.is_empty() {
            return Ok(None);
        }
        let mut words: Vec<OsString> = vec!["extant".into()];
        if let ("help", [of]) = (name, rest) {
            if !COMMANDS.iter().any(|known| of == known) {
                return Err(format!("{}: unknown command", of.display()));
            }
            words.extend([of.clone(), "--help".into()]);
            return Ok(Some(words));
        }
        if !COMMANDS.contains(&name) {
            return Err("unknown command: 'help' lists those of this shell".to_owned());
        }
        let is_any = |wanted: &[&str]| rest.iter().any(|word| wanted.iter().any(|it| word == it));
        if name == "find" && is_any(&["-exec", "--exec", "--exec-together"]) {
            return Err("-exec: not supported here: the image is open".to_owned());
        }
        let sources = rest.split_last().map_or(&[][..], |(_, sources)| sources);
        if name == "cp" && self.reads_input && sources.iter().any(|word| word == "-") {
            return Err("-: standard input has the commands: give them by -c".to_owned());
        }
        words.push(name.into());
        match name {
            "cp" => words.extend_from_slice(rest),
            name if OF_IMAGES.contains(&name) => {
                words.extend_from_slice(rest);
                words.push(self.args.image.clone());
            }
            _ => {
                words.extend(["--image".into(), self.args.image.clone()]);
                words.extend_from_slice(rest);
            }
        }
        Ok(Some(words))
    }

    /// A command of the shell itself.
    fn run_own(
        &mut self,
        name: &str,
        rest: &[OsString],
        session: &mut Session,
    ) -> Result<(), Failure> {
        if !rest.is_empty() {
            let failure = Failure::new(self.place(&format!("{name}: too many arguments")));
            return self.failed(failure, session);
        }
        match name {
            "sync" => match self.held.sync() {
                Ok(()) => Ok(()),
                Err(failure) => self.failed(failure, session),
            },
            "help" => {
                let mut names = COMMANDS.to_vec();
                names.extend(["exit", "help", "sync"]);
                names.sort_unstable();
                say!(session, "{}", names.join(" "))?;
                say!(session, "'help COMMAND' shows the options of a command.")?;
                session.out.flush()
            }
            _ => {
                self.has_ended = true;
                Ok(())
            }
        }
    }
}

/// The commands of a line, each as its words: blanks separate words, `;` and new lines commands.
/// Quotes and backslashes are those of sh(1); `#` at the beginning of a word begins a comment.
pub(crate) fn split(line: &[u8]) -> Result<Vec<Vec<OsString>>, &'static str> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let is_end = matches!(byte, b' ' | b'\t' | b'\r' | b';' | b'\n');
        if is_end {
            if let (Some(word), Some(words)) = (word.take(), commands.last_mut()) {
                words.push(OsString::from_vec(word));
            }
            if matches!(byte, b';' | b'\n') {
                commands.push(Vec::new());
            }
            continue;
        }
        if byte == b'#' && word.is_none() {
            while bytes.next_if(|byte| *byte != b'\n').is_some() {}
            continue;
        }
        let word = word.get_or_insert_default();
        match byte {
            b'\'' => loop {
                match bytes.next().ok_or("missing closing quote")? {
                    b'\'' => break,
                    byte => word.push(byte),
                }
            },
            b'"' => loop {
                match bytes.next().ok_or("missing closing quote")? {
                    b'"' => break,
                    b'\\' => {
                        let escaped = bytes.next().ok_or("missing closing quote")?;
                        if !matches!(escaped, b'"' | b'\\' | b'$' | b'`') {
                            word.push(b'\\');
                        }
                        word.push(escaped);
                    }
                    byte => word.push(byte),
                }
            },
            b'\\' => word.push(bytes.next().ok_or("missing character after backslash")?),
            byte => word.push(byte),
        }
    }
    if let (Some(word), Some(words)) = (word, commands.last_mut()) {
        words.push(OsString::from_vec(word));
    }
    commands.retain(|words| !words.is_empty());
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::split;

    fn words(line: &str) -> Vec<Vec<String>> {
        let commands = split(line.as_bytes()).unwrap();
        let text = |word: &std::ffi::OsString| word.to_str().unwrap().to_owned();
        commands.iter().map(|words| words.iter().map(text).collect()).collect()
    }

    #[test]
    fn lines_are_split_as_by_a_shell() {
        assert_eq!(words("ls -l /etc"), [["ls", "-l", "/etc"]]);
        assert_eq!(words(" a ; b;;c\nd "), [["a"], ["b"], ["c"], ["d"]]);
        assert_eq!(
            words("rm 'a b' \"c;d\" e\\ f g''h ''"),
            [["rm", "a b", "c;d", "e f", "gh", ""]]
        );
        assert_eq!(words("a 'x\\*' \"\\*\\\"\" \\*"), [["a", "x\\*", "\\*\"", "*"]]);
        assert_eq!(words("# all of it"), Vec::<Vec<String>>::new());
        assert_eq!(words("a#b # c; d\ne"), [["a#b"], ["e"]]);
        for line in ["'", "\"a", "a\\", "\"\\"] {
            assert!(split(line.as_bytes()).is_err(), "{line}");
        }
    }
}
