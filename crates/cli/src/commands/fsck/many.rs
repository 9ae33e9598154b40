//! Several images: each is checked by a process of its own, and has a line of JSON.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use extant::rooms::check::run::OPERATIONAL;
use serde_json::{Value, json};

use crate::err_line;
use crate::failure::Failure;
use crate::output::without_error_numbers;
use crate::session::Session;

/// How lines of progress begin.
const PROGRESS: &str = "{\"";

/// Checks of several images.
pub(super) struct Many<'a> {
    pub(super) images: &'a [OsString],
    /// Number of images that are checked at once.
    pub(super) jobs: usize,
    /// The words of a check of one image.
    pub(super) words: Vec<OsString>,
}

/// A check that has ended.
struct Checked {
    code: u8,
    document: Value,
    /// Lines of standard error.
    said: Vec<String>,
}

impl Many<'_> {
    /// Checks all of them; the exit code is the union of theirs. The lines come in the order in
    /// which the checks end.
    pub(super) fn run(&self, session: &mut Session) -> Result<u8, Failure> {
        let (next, images) = (&AtomicUsize::new(0), self.images);
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

    fn check(&self, image: &OsStr) -> Checked {
        let name = image.to_string_lossy();
        match self.output(image) {
            Ok((status, document, said)) => Checked::of(&name, status, &document, said),
            Err(error) => {
                let error = without_error_numbers(&error.to_string());
                Checked::failed(&name, OPERATIONAL, &format!("cannot start: {error}"))
            }
        }
    }

    /// Runs the check of an image: how it ended, its document, and the lines of standard error.
    fn output(&self, image: &OsStr) -> io::Result<(ExitStatus, Vec<u8>, Vec<String>)> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("extant").args(&self.words).arg("--").arg(image);
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
