//! `extant mount`: mounts a volume over FUSE.
//!
//! The command runs itself twice more, in roles that `--role` names: the process that stays
//! outside, and the server that restricts itself (`extant_mount` says what each does).

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use extant::rooms::mount::{MountOptions, MountRequest, Reports, parse_options, serve, supervise};
use extant::rooms::storage::{DeviceUrl, KeySource, stat_host};

use crate::err_line;
use crate::failure::Failure;
use crate::image_path::open_for_reading;
use crate::journal_device::refuse_other_content;
use crate::session::Session;
use crate::waiting::Waiting;

/// Exit code of mount(8) for a mount that failed.
const MOUNT_FAILED: u8 = 32;
/// Message from the supervisor to the waiting command when the volume is mounted.
const READY: &str = "ready";
/// The type that mount(8) hands on.
pub(super) const FS_TYPE: &str = "fuse.extant";

/// Mount a volume over FUSE, without the kernel's ext4
///
/// Ordinary users mount through fusermount3. The server restricts itself before it reads more than
/// the superblock.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Mount options of ext4 and of mount(8), separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Mount read-only, as -o ro: nothing is written, not even to replay the journal
    #[arg(short)]
    read_only: bool,
    /// Stay in the foreground
    #[arg(short)]
    foreground: bool,
    /// Do not restrict the server (landlock, seccomp, capabilities)
    #[arg(long)]
    no_sandbox: bool,
    #[command(flatten)]
    waiting: Waiting,
    /// Role of this process for another one of the same command
    #[arg(long, value_enum, hide = true)]
    role: Option<Role>,
    /// A descriptor that the key is read from
    #[arg(long, value_name = "N", hide = true)]
    key_descriptor: Option<u32>,
    /// Image
    #[arg(value_name = "IMAGE")]
    image: OsString,
    /// Directory to mount on
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Role {
    Supervisor,
    Server,
}

/// Mount a volume over FUSE, as mount(8) calls its helpers
#[derive(Debug, clap::Args)]
pub(crate) struct CompatArgs {
    /// Image to mount
    #[arg(value_name = "IMAGE")]
    image: OsString,
    /// Where
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
    /// Options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Check the options, mount nothing
    #[arg(short)]
    fake: bool,
    /// Do not write to /etc/mtab, which nothing does
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Say what was mounted
    #[arg(short)]
    verbose: bool,
    /// Ignore options that are not known: not supported
    #[arg(short = 's')]
    sloppy: bool,
    /// The mount's name space: not supported
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The type
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
}

impl CompatArgs {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        if self.sloppy {
            return Err(Failure::new("-s: not supported"));
        }
        if self.namespace.is_some() {
            return Err(Failure::new("-N: not supported"));
        }
        if self.fs_type.as_deref().is_some_and(|fs_type| fs_type != FS_TYPE) {
            return Err(Failure::new(format_args!("-t: unknown type (expected {FS_TYPE})")));
        }
        if self.fake {
            return parse_options(self.options.iter().map(String::as_str))
                .map(|_| ())
                .map_err(Failure::new);
        }
        let told = format!("{} on {}", self.image.display(), self.point.display());
        let args = Args::of(self.image, self.point, self.options, false);
        args.run(session).map_err(|failure| failure.with_code(MOUNT_FAILED))?;
        if self.verbose {
            session.warn(told)?;
        }
        Ok(())
    }
}

impl Args {
    /// The command by another name.
    pub(super) fn of(
        image: OsString,
        point: PathBuf,
        options: Vec<String>,
        foreground: bool,
    ) -> Self {
        Self {
            options,
            read_only: false,
            foreground,
            no_sandbox: false,
            waiting: Waiting::default(),
            role: None,
            key_descriptor: None,
            image,
            point,
        }
    }

    pub(crate) fn run(mut self, session: &mut Session) -> Result<(), Failure> {
        let lists = self.options.iter().map(String::as_str).chain(self.read_only.then_some("ro"));
        let mut options = parse_options(lists).map_err(Failure::new)?;
        options.wait = self.waiting.wait.unwrap_or_default();
        if self.role.is_none() {
            for option in &options.removed {
                // As the kernel says it.
                err_line!("extant mount: ignoring removed {option} option");
            }
        }
        self.point = extant::rooms::mount::canonical_point(&self.point).map_err(Failure::new)?;
        if options.remount {
            return extant::rooms::mount::remount(&self.point, &options).map_err(Failure::new);
        }
        // A backup does not depend on the bytes at the primary superblock's place.
        if self.role.is_none() && options.superblock.is_none() {
            self.refuse_other_content()?;
        }
        // Open until the server has it.
        let _key = if self.role.is_none() { self.hand_key_on()? } else { None };
        match self.role {
            None if self.foreground => self.supervise(Reports::Here),
            None => self.launch(),
            Some(Role::Supervisor) => {
                // Without a terminal's signals.
                let _ = rustix::process::setsid();
                self.supervise(Reports::SystemLog)
            }
            Some(Role::Server) => self.serve(options, session),
        }
    }

    /// In the background there is no terminal, and the server's standard input is not the caller's:
    /// a key that comes from one of them is handed on by a descriptor.
    fn hand_key_on(&mut self) -> Result<Option<OwnedFd>, Failure> {
        // The server reports errors in a name.
        let Ok(url) = DeviceUrl::parse(&self.image, extant::schemes(), stat_host) else {
            return Ok(None);
        };
        let failed = |error: io::Error| Failure::new(format_args!("key: {error}"));
        let handed = match url.key_source() {
            Some(source @ KeySource::Prompt) => {
                let key = source.read(&url.path().display().to_string()).map_err(Failure::new)?;
                let (from, to) = io::pipe().map_err(failed)?;
                // A line that was typed fits the pipe.
                (&to).write_all(&key).map_err(failed)?;
                // Not one of the first three, which are the server's own.
                OwnedFd::from(from).try_clone().map_err(failed)?
            }
            Some(KeySource::Descriptor(0)) => {
                io::stdin().as_fd().try_clone_to_owned().map_err(failed)?
            }
            _ => return Ok(None),
        };
        let inherited = rustix::io::fcntl_setfd(&handed, rustix::io::FdFlags::empty());
        inherited.map_err(|errno| failed(errno.into()))?;
        self.key_descriptor = Some(handed.as_raw_fd().cast_unsigned());
        Ok(Some(handed))
    }

    /// This command again, in another role.
    fn again(&self, role: &str) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("extant").args(["mount", "--role", role]);
        for list in &self.options {
            command.arg("-o").arg(list);
        }
        if self.read_only {
            command.arg("-r");
        }
        if self.no_sandbox {
            command.arg("--no-sandbox");
        }
        command.args(self.waiting.word());
        if let Some(number) = self.key_descriptor {
            command.arg("--key-descriptor").arg(number.to_string());
        }
        command.arg("--").arg(&self.image).arg(&self.point);
        command
    }

    /// Starts the process that stays, and waits until the volume is mounted.
    fn launch(&self) -> Result<(), Failure> {
        let mut child = self
            .again("supervisor")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Failure::new)?;
        let said = child.stderr.take().map(|mut stderr| {
            thread::spawn(move || io::copy(&mut stderr, &mut io::stderr()).map(|_| ()))
        });
        let mut told = String::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_string(&mut told).map_err(Failure::new)?;
        }
        if let Some(said) = said {
            // Both ends close together: when the volume is mounted, or with the process.
            let _ = said.join();
        }
        if told.trim_end() == READY {
            return Ok(());
        }
        let status = child.wait().map_err(Failure::new)?;
        let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        Err(Failure::silent(code.max(1)))
    }

    fn supervise(&self, reports: Reports) -> Result<(), Failure> {
        let ready = || {
            if reports == Reports::SystemLog
                && let Err(error) = detach_from_caller()
            {
                err_line!("extant mount: {error}");
            }
        };
        match supervise(&mut self.again("server"), &self.point, reports, ready) {
            Ok(0) => Ok(()),
            Ok(code) => Err(Failure::silent(code)),
            Err(error) => Err(Failure::new(error)),
        }
    }

    fn serve(&self, options: MountOptions, session: &mut Session) -> Result<(), Failure> {
        let control = io::stdin().as_fd().try_clone_to_owned().map_err(Failure::new)?;
        // Messages on the image's damage, one line each.
        let _ = tracing_subscriber::fmt()
            .with_writer(io::stderr)
            .without_time()
            .with_target(false)
            .with_ansi(false)
            .try_init();
        session.out.flush()?;
        let request = MountRequest {
            schemes: extant::schemes().clone(),
            image: self.image.clone(),
            point: self.point.clone(),
            options,
            sandbox: !self.no_sandbox,
            planner: Some(Arc::new(extant::ResizePlanner)),
            key_descriptor: self.key_descriptor,
        };
        serve(&request, UnixStream::from(control)).map_err(Failure::new)
    }

    /// Refuses a file or device that is known to hold something else than a volume, and says what.
    /// The server reports what is not opened here.
    fn refuse_other_content(&self) -> Result<(), Failure> {
        let url = DeviceUrl::parse(&self.image, extant::schemes(), stat_host);
        let whole = url.ok().filter(DeviceUrl::is_whole);
        match whole.and_then(|url| open_for_reading(&url).ok()) {
            Some(device) => refuse_other_content(&self.image, &*device),
            None => Ok(()),
        }
    }
}

/// Tells the command that waits, and lets go of everything that it gave: standard output and error,
/// and its directory.
fn detach_from_caller() -> io::Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{READY}")?;
    stdout.flush()?;
    std::env::set_current_dir(OsStr::new("/"))?;
    let nowhere = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}
