//! Several images: each is checked by a process of its own, and has a line of JSON. These processes
//! end with this one.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use extant::rooms::check::run::OPERATIONAL;
use extant::rooms::runtime::sync::Mutex;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::interrupt::CANCELLED;
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

/// Has a check end with the process that has started it.
pub(super) fn end_with(parent: i32) -> Result<(), Failure> {
    let set = set_parent_process_death_signal(Some(Signal::TERM));
    set.map_err(|error| Failure::new(error).with_code(OPERATIONAL))?;
    // It may have ended before.
    match getppid().map(|is| is.as_raw_nonzero().get()) == Some(parent) {
        true => Ok(()),
        false => Err(Failure::silent(CANCELLED)),
    }
}

/// The checks that run.
#[derive(Default)]
struct Running {
    children: Vec<Child>,
    /// The signal that ended them; none is started then.
    stopped: Option<i32>,
}

impl Running {
    fn stop(&mut self, signal: i32) {
        self.stopped = Some(signal);
        let Some(signal) = Signal::from_named_raw(signal) else { return };
        for child in &self.children {
            // Those in the list have not been waited for: their numbers are still theirs.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    /// Waits for a check that has closed its output.
    fn wait(&mut self, id: u32) -> io::Result<ExitStatus> {
        let at = self.children.iter().position(|child| child.id() == id);
        let at = at.ok_or(io::ErrorKind::NotFound)?;
        self.children.swap_remove(at).wait()
    }
}

/// Passes the signals that end this process on to the checks.
fn pass_signals_on(running: &Arc<Mutex<Running>>) {
    let Ok(mut signals) = Signals::new([SIGINT, SIGHUP, SIGQUIT, SIGTERM]) else { return };
    let running = running.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            running.lock().stop(signal);
        }
    });
}

/// How a check ended, its document, and its lines of standard error.
type Ended = (ExitStatus, Vec<u8>, Vec<String>);

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
        let running = Arc::new(Mutex::new(Running::default()));
        pass_signals_on(&running);
        let outcome = self.check_all(&running, session);
        let Some(signal) = running.lock().stopped else { return outcome };
        if signal != SIGINT {
            // It ends the program, as if we had not asked for it.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
        outcome.map(|code| code | CANCELLED)
    }

    fn check_all(
        &self,
        running: &Arc<Mutex<Running>>,
        session: &mut Session,
    ) -> Result<u8, Failure> {
        let (next, images) = (&AtomicUsize::new(0), self.images);
        let (results, checked) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                let results = results.clone();
                scope.spawn(move || {
                    while let Some(image) = images.get(next.fetch_add(1, Ordering::Relaxed)) {
                        // The receiver has gone with the reader of standard output.
                        let Some(checked) = self.check(image, running) else { break };
                        if results.send(checked).is_err() {
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

    /// Checks an image; `None` if a signal has ended the checks before.
    fn check(&self, image: &OsStr, running: &Mutex<Running>) -> Option<Checked> {
        let name = image.to_string_lossy();
        match self.output(image, running) {
            Ok(None) => None,
            Ok(Some((status, document, said))) => Some(Checked::of(&name, status, &document, said)),
            Err(error) => {
                let error = without_error_numbers(&error.to_string());
                Some(Checked::failed(&name, OPERATIONAL, &format!("cannot start: {error}")))
            }
        }
    }

    /// Runs the check of an image: how it ended, its document, and the lines of standard error.
    fn output(&self, image: &OsStr, running: &Mutex<Running>) -> io::Result<Option<Ended>> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("extant").args(&self.words).arg("--").arg(image);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut list = running.lock();
        if list.stopped.is_some() {
            return Ok(None);
        }
        let mut child = command.spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let id = child.id();
        list.children.push(child);
        drop(list);
        std::thread::scope(|scope| {
            let said = scope.spawn(|| stderr.map(lines).unwrap_or_default());
            let mut document = Vec::new();
            if let Some(mut stdout) = stdout {
                stdout.read_to_end(&mut document)?;
            }
            let said = said.join().unwrap_or_default();
            Ok(Some((running.lock().wait(id)?, document, said)))
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
