//! Several images: each is checked by a process of its own, and has a line of JSON.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read};
use std::num::NonZeroUsize;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use serde_json::{Value, json};

use super::{Args, OPERATIONAL, usage};
use crate::err_line;
use crate::failure::Failure;
use crate::session::Session;

/// How lines of progress begin.
const PROGRESS: &str = "{\"";

/// Checks of several images.
pub(super) struct Many<'a> {
    args: &'a Args,
    jobs: usize,
    /// Threads of each check.
    threads: usize,
}

/// A check that has ended.
struct Checked {
    code: u8,
    document: Value,
    /// Lines of standard error.
    said: Vec<String>,
}

impl<'a> Many<'a> {
    /// # Errors
    /// There are options that several images cannot share.
    pub(super) fn new(args: &'a Args) -> Result<Self, Failure> {
        if !args.json {
            return Err(usage("several images and --jobs: --json is required"));
        }
        let for_one = [
            (args.name.is_some(), "-N"),
            (args.progress_fd.is_some(), "-C"),
            (args.journal.is_some(), "-j"),
            (args.lists_bad_blocks(), "-l and -L"),
            (args.undo.is_some(), "-z"),
        ];
        if let Some((_, option)) = for_one.iter().find(|(is_given, _)| *is_given) {
            return Err(usage(&format!("{option}: only valid for one image")));
        }
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let jobs = args.jobs.map_or(processors, NonZeroUsize::get).min(args.images.len()).max(1);
        let threads = args.threads.filter(|threads| *threads > 0);
        let threads = threads.unwrap_or((processors / jobs).max(1));
        Ok(Self { args, jobs, threads })
    }

    /// Checks all of them; the exit code is the union of theirs. The lines come in the order in
    /// which the checks end.
    pub(super) fn run(&self, session: &mut Session) -> Result<u8, Failure> {
        let (next, images) = (&AtomicUsize::new(0), &self.args.images);
        let (results, checked) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                let results = results.clone();
                scope.spawn(move || {
                    while let Some(image) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
                        // The receiver has gone with the reader of standard output.
                        if results.send(self.check(image)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(results);
            let mut code = 0;
            for checked in checked {
                code |= checked.code;
                for line in &checked.said {
                    err_line!("{line}");
                }
                session.out.json_line(&checked.document)?;
            }
            Ok(code)
        })
    }

    /// The words of a check of one image.
    fn words(&self) -> Vec<OsString> {
        let args = self.args;
        let flags = [
            (args.preen, "-p"),
            (args.no, "-n"),
            (args.yes, "-y"),
            (args.force, "-f"),
            (args.debug, "-d"),
            (args.directories, "-D"),
            (args.flush, "-F"),
            (args.keep, "-k"),
            (args.check_blocks == 1, "-c"),
            (args.check_blocks > 1, "-cc"),
            (args.no_sandbox, "--no-sandbox"),
        ];
        let given = flags.iter().filter(|(is_given, _)| *is_given);
        let mut words: Vec<OsString> = vec!["fsck".into(), "--json".into()];
        words.extend(given.map(|(_, flag)| OsString::from(flag)));
        let mut value = |option: &str, value: Option<String>| {
            if let Some(value) = value {
                words.extend([option.into(), value.into()]);
            }
        };
        value("--threads", Some(self.threads.to_string()));
        value("-b", args.superblock.map(|block| block.to_string()));
        value("-B", args.block_size.map(|bytes| bytes.to_string()));
        value("--memory", args.memory.clone());
        value("--progress", args.progress.map(|_| "json".to_owned()));
        for options in &args.extended {
            value("-E", Some(options.clone()));
        }
        words.extend(args.waiting.word().map(OsString::from));
        words
    }

    fn check(&self, image: &OsStr) -> Checked {
        let name = image.to_string_lossy();
        match self.output(image) {
            Ok((status, document, said)) => Checked::of(&name, status, &document, said),
            Err(error) => Checked::failed(&name, OPERATIONAL, &format!("cannot start: {error}")),
        }
    }

    /// Runs the check of an image: how it ended, its document, and the lines of standard error.
    fn output(&self, image: &OsStr) -> io::Result<(ExitStatus, Vec<u8>, Vec<String>)> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("extant").args(self.words()).arg("--").arg(image);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        std::thread::scope(|scope| {
            let said = scope.spawn(|| stderr.map(lines).unwrap_or_default());
            let mut document = Vec::new();
            if let Some(mut stdout) = stdout {
                stdout.read_to_end(&mut document)?;
            }
            let said = said.join().unwrap_or_default();
            Ok((child.wait()?, document, said))
        })
    }
}

/// The lines of standard error; those of progress are passed on at once.
fn lines(stderr: ChildStderr) -> Vec<String> {
    let mut said = Vec::new();
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        match line.starts_with(PROGRESS) {
            true => err_line!("{line}"),
            false => said.push(line),
        }
    }
    said
}

impl Checked {
    fn of(image: &str, status: ExitStatus, document: &[u8], said: Vec<String>) -> Self {
        let Some(code) = status.code() else {
            let signal = status.signal().unwrap_or_default();
            return Self::failed(image, OPERATIONAL, &format!("ended by signal {signal}"));
        };
        let code = u8::try_from(code).unwrap_or(OPERATIONAL);
        match serde_json::from_slice(document) {
            Ok(document) => Self { code, document, said },
            // The image was not opened: standard error says why.
            Err(_) => Self::failed(image, code, &said.join("\n")),
        }
    }

    fn failed(image: &str, code: u8, error: &str) -> Self {
        let document = json!({
            "image": image,
            "exit_code": code,
            "verdict": "unreadable",
            "finished": false,
            "modified": false,
            "findings": [],
            "error": error,
        });
        Self { code, document, said: Vec::new() }
    }
}
