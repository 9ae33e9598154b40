//! `extant lab vm`: experiments in a guest, for file systems that this machine's kernel does not
//! have.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::experiment::Bytes;
use crate::run::{Alone, Watch, run_with};
use crate::target::LabTarget;
use crate::vm::{Acceleration, Guest, Image, Options};

use super::console::{CommandError, Console};
use super::run::{Changes, Display, ended, plan, report_to};

/// The targets of document 002, if the user gives none.
const TARGETS: &str = "ext4:noatime,ext4+linear:noatime,ext4+linear+crypt:noatime,btrfs:noatime,\
     xfs:noatime,jfs:noatime,nilfs2:noatime,zfs-fuse:noatime";

/// Memory of a guest for its kernel and its first file system.
const LEAST_MEMORY: u64 = 512 << 20;

/// Run experiments in a QEMU guest made of Debian packages
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Prepare(PrepareArgs),
    Run(Box<RunArgs>),
}

/// Fetch the packages with apt and make the guest; nothing is installed
#[derive(Debug, clap::Args)]
struct PrepareArgs {
    #[command(flatten)]
    place: GuestDir,
}

/// Where a guest is kept.
#[derive(Debug, clap::Args)]
struct GuestDir {
    /// Where the guest's kernel and files are kept [default: extant/vm in the user's cache
    /// directory]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

/// Run experiments in the guest, prepared first if needed
///
/// Without --targets it measures those of document 002: ext4, also over dm-linear and over
/// dm-linear and dm-crypt, btrfs, xfs, jfs, nilfs2 and zfs-fuse. Samples and report are those of
/// `lab run`; the samples say why something cannot run.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Output directory: samples.jsonl, run.json
    #[arg(long, value_name = "DIR", default_value = super::run::OUT)]
    out: PathBuf,
    #[command(flatten)]
    place: GuestDir,
    #[command(flatten)]
    changes: Changes,
    /// Memory of the guest
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    guest_memory: Bytes,
    /// Number of processors of the guest
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,
    /// Accelerator: kvm, emulation, or auto, which tries them in this order
    #[arg(long, value_name = "HOW", default_value = "auto")]
    accel: Acceleration,
    /// Size of the guest's disk, a sparse file in --out; volumes have this size
    #[arg(long, value_name = "SIZE", default_value = "16G")]
    disk: Bytes,
    /// Time limit of one run of one target
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Names of experiments, or all
    #[arg(value_name = "EXPERIMENT", required = true)]
    names: Vec<String>,
}

impl Args {
    pub(crate) fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        match self.command {
            Command::Prepare(args) => args.run(console),
            Command::Run(args) => args.run(console),
        }
    }
}

impl GuestDir {
    /// The user's own directory: no other user may put a kernel there.
    fn dir(&self) -> Result<PathBuf, CommandError> {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache = || {
            let home = || var("HOME").map(|home| Path::new(&home).join(".cache"));
            var("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)
        };
        match &self.cache {
            Some(dir) => Ok(dir.clone()),
            None => cache()
                .map(|dir| dir.join("extant/vm"))
                .ok_or_else(|| CommandError::usage("HOME is not set (use --cache)")),
        }
    }
}

impl PrepareArgs {
    fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        let dir = self.place.dir()?;
        let mut said = Ok(());
        let image = Image::prepare(&dir, &mut |what| {
            if said.is_ok() {
                said = console.warn(format_args!("{what}"));
            }
        });
        said?;
        let image = image.map_err(CommandError::new)?;
        for (name, why) in image.missing() {
            console.warn(format_args!("without {name}: {why}"))?;
        }
        if !crate::environment::is_there(crate::vm::QEMU) {
            console.warn(format_args!("{} is still missing", crate::vm::QEMU))?;
        }
        console.line(format_args!("{}: {}", dir.display(), image.kernel_package()))
    }
}

impl RunArgs {
    fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        let experiments = self.changes.chosen(&self.names)?;
        let mut settings = self.changes.settings()?;
        if settings.device.is_some() {
            return Err(CommandError::usage("--device is not supported for guests"));
        }
        if self.guest_memory.0 < LEAST_MEMORY {
            return Err(CommandError::usage("--guest-memory: at least 512M"));
        }
        if settings.targets.is_empty() {
            settings.targets = LabTarget::list(TARGETS).map_err(CommandError::usage)?;
        }
        self.changes.warn(&experiments, console)?;
        let cache = self.place.dir()?;
        let mut plan = plan(experiments, settings, &self.out)?;
        let _alone = Alone::in_dir(&plan.out).map_err(CommandError::new)?;
        let mut display = Display::new()?;
        let image = match Image::kept(&cache) {
            Some(image) => Ok(image),
            None => Image::prepare(&cache, &mut |what| display.bar.set_message(what.to_owned())),
        };
        display.bar.set_message("starting the guest");
        let options = Options {
            memory: self.guest_memory.0,
            processors: self.cpus,
            acceleration: self.accel,
            disk: self.disk.0,
            patience: Duration::from_secs(self.timeout),
            scratch: plan.out.join("guest"),
            program: plan.program.clone(),
        };
        let mut guest = Guest::start(image, options, &|| display.is_interrupted());
        plan.guest = guest.described();
        let outcome = run_with(&plan, &mut guest, &mut display);
        drop(guest);
        display.bar.finish_and_clear();
        ended(outcome)?;
        report_to(&self.out, console)
    }
}
