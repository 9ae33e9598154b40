//! The process outside the sandbox: starts the server, and takes the mount away when it ends.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::{io, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::MountError;
use crate::mountpoint::{Detach, control_dir, detach, mount_at};
use crate::serve::{ASKS_TO_STOP, LIVES, MOUNTED, READY, STOP, UNMOUNTED};

/// Destination of the server's messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reports {
    /// To this process's standard error.
    Here,
    /// There until the volume is mounted, then to the system's log.
    SystemLog,
}

/// The system's log.
const SYSTEM_LOG: &str = "/dev/log";
/// Facility "daemon", severity "warning" (RFC 5424: 8 × 3 + 4).
const LOG_PRIORITY: u32 = 28;
/// pidfd_open(2): of one thread, not of its process; since Linux 6.9.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());

enum Event {
    Line(String),
    /// The server has ended, or is about to: its end of the connection is closed, or one of its
    /// threads is no more.
    Gone,
    Signal,
    /// The kernel has written back its cache of open files.
    Flushed,
}

/// Starts `server`, whose standard input becomes its end of the connection to this process, and
/// stays until it has ended: then its exit code. `ready` is called when the volume is mounted.
///
/// # Errors
/// The server could not be started, or ended before the volume was mounted.
pub fn supervise(
    server: &mut Command,
    point: &Path,
    reports: Reports,
    ready: impl FnOnce(),
) -> Result<u8, MountError> {
    let failed = |source| MountError::System {
        path: point.to_owned(),
        what: "cannot be supervised",
        source,
    };
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    let (ours, its) = UnixStream::pair().map_err(failed)?;
    server.stdin(OwnedFd::from(its)).stdout(Stdio::null());
    if reports == Reports::SystemLog {
        server.stderr(Stdio::piped());
    }
    let mut child = server.spawn().map_err(failed)?;
    // Its end must be the server's alone, or its end would not be seen.
    server.stdin(Stdio::null());
    let is_mounted = Arc::new(AtomicBool::new(false));
    let log = child.stderr.take().map(|stderr| pass_on(stderr, is_mounted.clone()));

    let (sender, events) = channel();
    let lines = ours.try_clone().map_err(failed)?;
    let (of_lines, of_signals) = (sender.clone(), sender.clone());
    thread::spawn(move || {
        for line in BufReader::new(lines).lines().map_while(Result::ok) {
            let _ = of_lines.send(Event::Line(line));
        }
        let _ = of_lines.send(Event::Gone);
    });
    thread::spawn(move || {
        for _ in signals.forever() {
            let _ = of_signals.send(Event::Signal);
        }
    });

    let mut supervisor = Supervisor {
        point,
        control: ours,
        device: None,
        abort: None,
        is_watched: false,
        is_stopping: false,
    };
    let mut ready = Some(ready);
    loop {
        match events.recv().unwrap_or(Event::Gone) {
            Event::Line(line) if line == READY => {
                if let Some(ready) = ready.take() {
                    // Earlier output must not follow it.
                    is_mounted.store(true, Ordering::Release);
                    ready();
                }
            }
            Event::Line(line) if line == ASKS_TO_STOP => supervisor.stop(&sender),
            // Its device number may soon be another mount's.
            Event::Line(line) if line == UNMOUNTED => supervisor.device = None,
            Event::Line(line) => {
                if let Some(device) = line.strip_prefix(MOUNTED) {
                    supervisor.is_mounted_as(device.trim());
                } else if let Some(thread) = line.strip_prefix(LIVES) {
                    supervisor.watch(thread.trim());
                }
            }
            Event::Signal => supervisor.stop(&sender),
            Event::Flushed => supervisor.order(),
            Event::Gone => break,
        }
    }
    // Before the wait: a thread of the server may be inside the kernel and wait for a reply that
    // never comes.
    supervisor.clean_up();
    let code = exit_code(&mut child).map_err(failed)?;
    if let Some(log) = log {
        // It ends with the server's standard error.
        let _ = log.join();
    }
    if ready.is_some() && code == 0 {
        return Err(MountError::ServerEnded);
    }
    Ok(code)
}

fn exit_code(child: &mut Child) -> io::Result<u8> {
    let status = child.wait()?;
    // One that was killed has no code of its own.
    Ok(status.code().map_or(1, |code| u8::try_from(code).unwrap_or(1)))
}

/// The supervisor's knowledge of the mount.
struct Supervisor<'a> {
    point: &'a Path,
    control: UnixStream,
    /// The device number of the mount, once there is one.
    device: Option<String>,
    /// Writing to it ends the mount's connection to its server, if it still exists, and no other
    /// one.
    abort: Option<File>,
    is_watched: bool,
    is_stopping: bool,
}

impl Supervisor<'_> {
    /// The server reports the mount before it reads the image; later messages may be forged by the
    /// image.
    fn is_mounted_as(&mut self, device: &str) {
        if self.device.is_some() {
            return;
        }
        self.device = Some(device.to_owned());
        if self.is_there() {
            // Where the kernel's control file system is mounted, and the mount is ours.
            let abort = |dir: PathBuf| File::options().write(true).open(dir.join("abort")).ok();
            self.abort = control_dir(device).and_then(abort);
        }
    }

    /// Has a thread wait for the end of that thread of the server, which lives as long as the
    /// server.
    ///
    /// A killed server has ended when its last thread has, and its connection to the kernel with
    /// it. A thread that has the kernel drop its cache of a file waits there for requests on that
    /// file; once the other threads are gone no thread answers those. So the supervisor ends the
    /// connection. Kernels before 6.9 do not report the end of threads: there it does not.
    fn watch(&mut self, thread: &str) {
        let Some(thread) = thread.parse().ok().and_then(Pid::from_raw) else { return };
        if self.is_watched {
            return;
        }
        self.is_watched = true;
        let (watched, control) = match (pidfd_open(thread, PIDFD_THREAD), self.control.try_clone())
        {
            (Ok(watched), Ok(control)) => (Some(watched), control),
            (Err(Errno::SRCH), Ok(control)) => (None, control),
            _ => return,
        };
        let abort = self.abort.take();
        thread::spawn(move || {
            let wait = |watched: OwnedFd| {
                retry_on_intr(|| poll(&mut [PollFd::new(&watched, PollFlags::IN)], None))
            };
            if watched.map_or(Ok(0), wait).is_err() {
                return;
            }
            if let Some(mut abort) = abort {
                // One that has ended by itself needs no more.
                let _ = abort.write_all(b"1");
            }
            // The server's output is read before its end is seen.
            let _ = control.shutdown(Shutdown::Read);
        });
    }

    /// Unmounts; where files are open, has the kernel write what it keeps of them, and orders the
    /// server to end. A second call does not wait for that.
    fn stop(&mut self, sender: &Sender<Event>) {
        if self.is_stopping {
            return self.order();
        }
        self.is_stopping = true;
        if !self.is_there() {
            // It is gone here; another mount namespace may still have it.
            return self.order();
        }
        if detach(self.point, Detach::IfIdle).is_ok() {
            return;
        }
        let (point, sender) = (self.point.to_owned(), sender.clone());
        thread::spawn(move || {
            if let Ok(root) = File::open(point) {
                let _ = rustix::fs::syncfs(root);
            }
            let _ = sender.send(Event::Flushed);
        });
    }

    fn order(&mut self) {
        // A server that has gone needs no order.
        let _ = writeln!(self.control, "{STOP}");
    }

    /// Whether the mount exists, and no other one has replaced it.
    fn is_there(&self) -> bool {
        let found = mount_at(self.point).ok().flatten();
        found.is_some_and(|entry| self.device.as_deref() == Some(&entry.device))
    }

    /// Takes a mount away whose server has ended, or is about to.
    fn clean_up(&self) {
        if self.is_there()
            && let Err(error) = detach(self.point, Detach::Dead)
        {
            eprintln!("{}: cannot be unmounted: {error}", self.point.display());
        }
    }
}

/// Copies the server's output: to standard error until the volume is mounted, then to the system's
/// log.
fn pass_on(stderr: ChildStderr, is_mounted: Arc<AtomicBool>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let log = UnixDatagram::unbound().and_then(|socket| {
            socket.connect(SYSTEM_LOG)?;
            Ok(socket)
        });
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            match (&log, is_mounted.load(Ordering::Acquire)) {
                (_, false) => eprintln!("{line}"),
                (Ok(log), true) => {
                    let message = format!("<{LOG_PRIORITY}>extant[{}]: {line}", std::process::id());
                    // If the log is full or gone, only the line is lost.
                    let _ = log.send(message.as_bytes());
                }
                (Err(_), true) => {}
            }
        }
    })
}
