//! `extant fsck`: checks and repairs a volume, as e2fsck does.

mod conf;
mod console;
mod extended;
mod interrupt;
mod keyboard;
mod many;
mod paths;
mod progress;
mod summary;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant::Verdict;
use extant::rooms::check::pass0::{CheckOpenOptions, OpenError, SuperblockChoice};
use extant::rooms::check::run::{
    self, BadBlocks, End, JournalDevice, RunError, RunFailure, RunOptions,
};
use extant::rooms::check::{BlockTest, CheckOptions, HandledFinding, Report};
use extant::rooms::device::undo::UndoDevice;
use extant::rooms::device::{ByteSize, Device, Direct, FileDeviceOptions, block_devices};
use extant::rooms::image::mkfs::bad_blocks::read_list;
use extant::rooms::image::mkfs::probe::is_ext;
use extant::rooms::journal::{JournalError, NotOpened};
use extant::rooms::layout::RunSet;
use extant::rooms::storage::{Access, DeviceUrl, stat_host};

use super::undo;
use crate::failure::Failure;
use crate::journal_device::{ext_partitions, other_content};
use crate::parse;
use crate::sandbox;
use crate::session::Session;
use crate::waiting::Waiting;
use crate::{err_line, out_line};
use conf::Conf;
use console::{Answering, Console};
use extended::Extended;
use interrupt::Interrupts;
use many::Many;
use progress::{Meter, ProgressFormat};
use summary::Summary;

pub(crate) use extant::rooms::check::run::OPERATIONAL;
/// e2fsck's exit code for a usage error.
pub(crate) const USAGE: u8 = 16;

/// Check and repair a volume, as e2fsck does
///
/// A clean volume whose check is not due is skipped, unless -f is given.
#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    after_help = "Exit codes: 0 no errors, 1 corrected, 4 left uncorrected, 8 operational error, 16 usage, 32 cancelled."
)]
pub(crate) struct Args {
    /// Repair automatically what is safe; stop at anything else
    #[arg(short = 'p', visible_short_alias = 'a')]
    preen: bool,
    /// Change nothing; answer no to all questions
    #[arg(short = 'n')]
    no: bool,
    /// Answer yes to all questions
    #[arg(short = 'y')]
    yes: bool,
    /// Force: check even if the volume is clean
    #[arg(short)]
    force: bool,
    /// Print statistics at the end
    #[arg(short)]
    verbose: bool,
    /// Print time and I/O; twice: for each pass
    #[arg(short, action = clap::ArgAction::Count)]
    times: u8,
    /// Use the backup superblock in this block
    #[arg(short = 'b', value_name = "BLOCK")]
    superblock: Option<u64>,
    /// Block size to use when searching for the superblock
    #[arg(short = 'B', value_name = "BYTES")]
    block_size: Option<u32>,
    /// Check for bad blocks with a read-only test; twice: with a non-destructive read-write test
    #[arg(short = 'c', action = clap::ArgAction::Count)]
    check_blocks: u8,
    /// Write progress to this file descriptor, with a minus from SIGUSR1 on; 0 draws a bar
    #[arg(short = 'C', value_name = "FD", allow_hyphen_values = true)]
    progress_fd: Option<i32>,
    /// Write progress as lines of JSON to standard error, or to the file descriptor of -C
    #[arg(long, value_name = "FORMAT")]
    progress: Option<ProgressFormat>,
    /// Print debugging output
    #[arg(short)]
    debug: bool,
    /// Optimize all directories
    #[arg(short = 'D')]
    directories: bool,
    /// Extended options, separated by commas
    #[arg(short = 'E', value_name = "OPTIONS")]
    extended: Vec<String>,
    /// Buffer of the scan of inodes, in blocks; without effect: whole tables are read
    #[arg(short = 'I', value_name = "BLOCKS", hide = true, allow_hyphen_values = true)]
    scan_buffer: Option<i64>,
    /// Name of the image in messages
    #[arg(short = 'N', value_name = "NAME")]
    name: Option<OsString>,
    /// Inodes that are sorted at once; without effect: whole groups are
    #[arg(short = 'P', value_name = "INODES", hide = true, allow_hyphen_values = true)]
    scan_inodes: Option<i64>,
    /// Flush the image's pages from the cache first
    #[arg(short = 'F')]
    flush: bool,
    /// Device of the external journal; by default it is found by its UUID
    #[arg(short = 'j', value_name = "DEVICE")]
    journal: Option<OsString>,
    /// With -c: keep the existing list of bad blocks
    #[arg(short)]
    keep: bool,
    /// Add the bad blocks listed in a file
    #[arg(short = 'l', value_name = "FILE")]
    add_bad_blocks: Option<PathBuf>,
    /// Replace the list of bad blocks by that of a file
    #[arg(short = 'L', value_name = "FILE")]
    set_bad_blocks: Option<PathBuf>,
    /// Does nothing; for old scripts
    #[arg(short = 'r', hide = true)]
    nothing: bool,
    #[command(flatten)]
    waiting: Waiting,
    /// Print version
    #[arg(short = 'V')]
    version: bool,
    /// Save overwritten blocks in an undo file, for extant undo
    #[arg(short = 'z', value_name = "UNDO_FILE")]
    undo: Option<OsString>,
    /// Number of threads; by default the number of processors
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Number of images that are checked at once; by default the number of processors
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Limit of memory for tables: bytes, or with K, M, G
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Print all findings as one JSON document; for several images, or with --jobs, as a line of
    /// JSON for each
    #[arg(long)]
    json: bool,
    /// Process that has started this one, and with which it ends
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<i32>,
    /// Do not restrict this process (landlock, seccomp)
    #[arg(long)]
    no_sandbox: bool,
    /// Image; several need --json
    #[arg(value_name = "IMAGE", required_unless_present = "version")]
    images: Vec<OsString>,
}

/// Parses the words of a command line and runs it; the exit code. `name` is how we were called.
pub(crate) fn run_words(name: &'static str, is_compat: bool, words: Vec<OsString>) -> u8 {
    let args = if is_compat {
        parse::parse_compat::<Args>(name, words).ok_or(USAGE)
    } else {
        parse::parse_alone::<Args>(name, words).map_err(|error| match parse::refuse(&error) {
            // Help is no error.
            0 => 0,
            _ => USAGE,
        })
    };
    match args {
        Ok(args) => {
            let mut session = Session::new(name, is_compat);
            let outcome = args.run(&mut session);
            session.close_unheard(outcome)
        }
        Err(code) => code,
    }
}

fn usage(what: &str) -> Failure {
    Failure::new(what).with_code(USAGE)
}

/// Options that exclude each other: e2fsck ends with 8 there, and with 16 at what it does not know.
fn conflict(what: &str) -> Failure {
    Failure::new(what).with_code(OPERATIONAL)
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        if self.version {
            err_line!("{}", session.version());
            return Ok(());
        }
        session.out.flush()?;
        if session.is_compat && !self.preen {
            err_line!("{}", session.version());
        }
        if let Some(parent) = self.parent {
            many::end_with(parent)?;
        }
        // Like mke2fs.conf it is theirs: by our own name nothing of the machine is read.
        let conf = match session.is_compat {
            true => Conf::load().map_err(|error| Failure::new(error).with_code(OPERATIONAL))?,
            false => Conf::default(),
        };
        for warning in &conf.warnings {
            session.warn(warning)?;
        }
        let extended =
            Extended::parse(&self.extended).map_err(|error| match session.is_compat {
                // e2fsck's code for an extended option, not that of its usage.
                true => Failure::new(error),
                false => usage(&error),
            })?;
        if extended.fixes_only && extended.bmap_to_extent {
            return Err(conflict("-E fixes_only and -E bmap2extent are incompatible"));
        }
        self.refuse_conflicts(&extended)?;
        let answering = self.answering()?;
        if self.debug {
            // A second subscriber in one process is refused; the first one serves as well.
            let _ = tracing_subscriber::fmt()
                .with_max_level(tracing::Level::DEBUG)
                .with_writer(std::io::stderr)
                .try_init();
        }
        let Some(image) = self.images.first().cloned() else {
            return Err(usage("missing operand: image"));
        };
        if session.is_compat && self.images.len() > 1 {
            let extra = self.images[1].display();
            return Err(usage(&format!("unexpected argument '{extra}' found")));
        }
        if self.images.len() > 1 || self.jobs.is_some() {
            let checked = self.many()?.run(session);
            // The code of an ordinary failure is that of errors that were corrected.
            return match checked.map_err(|failure| failure.with_usual_code(OPERATIONAL))? {
                0 => Ok(()),
                code => Err(Failure::silent(code)),
            };
        }
        let shown = self.name.as_ref().unwrap_or(&image).to_string_lossy().into_owned();
        let code = CheckCommand {
            args: &self,
            conf: &conf,
            extended: &extended,
            called: &session.called,
            is_compat: session.is_compat,
            draws: !session.is_compat && answering != Answering::Ask,
            image: image.to_string_lossy().into_owned(),
            shown,
        }
        .run(&image, answering)?;
        match code {
            0 => Ok(()),
            code => Err(Failure::silent(code)),
        }
    }

    /// Checks of several images, each by a process of its own.
    fn many(&self) -> Result<Many<'_>, Failure> {
        if !self.json {
            return Err(usage("several images and --jobs: --json is required"));
        }
        let for_one = [
            (self.name.is_some(), "-N"),
            (self.progress_fd.is_some(), "-C"),
            (self.journal.is_some(), "-j"),
            (self.lists_bad_blocks(), "-l and -L"),
            (self.undo.is_some(), "-z"),
        ];
        if let Some((_, option)) = for_one.iter().find(|(is_given, _)| *is_given) {
            return Err(usage(&format!("{option}: only valid for one image")));
        }
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let jobs = self.jobs.map_or(processors, NonZeroUsize::get).min(self.images.len()).max(1);
        let threads = self.threads.filter(|threads| *threads > 0);
        let threads = threads.unwrap_or((processors / jobs).max(1));
        Ok(Many { images: &self.images, jobs, words: self.words_for_one(threads) })
    }

    /// The words of a check of one image by a number of threads.
    fn words_for_one(&self, threads: usize) -> Vec<OsString> {
        let flags = [
            (self.preen, "-p"),
            (self.no, "-n"),
            (self.yes, "-y"),
            (self.force, "-f"),
            (self.debug, "-d"),
            (self.directories, "-D"),
            (self.flush, "-F"),
            (self.keep, "-k"),
            (self.check_blocks == 1, "-c"),
            (self.check_blocks > 1, "-cc"),
            (self.no_sandbox, "--no-sandbox"),
        ];
        let given = flags.iter().filter(|(is_given, _)| *is_given);
        let mut words: Vec<OsString> = vec!["fsck".into(), "--json".into()];
        words.extend(given.map(|(_, flag)| OsString::from(flag)));
        let values = [
            ("--threads", Some(threads.to_string())),
            ("--parent", Some(std::process::id().to_string())),
            ("-b", self.superblock.map(|block| block.to_string())),
            ("-B", self.block_size.map(|bytes| bytes.to_string())),
            ("--memory", self.memory.clone()),
            ("--progress", self.progress.map(|_| "json".to_owned())),
        ];
        let extended = self.extended.iter().map(|options| ("-E", Some(options.clone())));
        for (option, value) in values.into_iter().chain(extended) {
            words.extend(value.into_iter().flat_map(|value| [option.into(), value.into()]));
        }
        words.extend(self.waiting.word().map(OsString::from));
        words
    }

    fn answering(&self) -> Result<Answering, Failure> {
        let answering = match (self.preen, self.no, self.yes) {
            (false, false, false) => Answering::Ask,
            (true, false, false) => Answering::Preen,
            (false, true, false) => Answering::No,
            (false, false, true) => Answering::Yes,
            _ => return Err(conflict("only one of the options -p/-a, -n or -y may be specified")),
        };
        if answering == Answering::Ask && !self.json {
            let can_ask = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
            if !can_ask {
                let what = "need terminal for interactive repairs";
                return Err(Failure::new(what).with_code(OPERATIONAL));
            }
        }
        if answering == Answering::Ask && self.json {
            return Err(usage("--json requires -n, -p or -y"));
        }
        Ok(answering)
    }

    fn lists_bad_blocks(&self) -> bool {
        self.add_bad_blocks.is_some() || self.set_bad_blocks.is_some()
    }

    fn refuse_conflicts(&self, extended: &Extended) -> Result<(), Failure> {
        if self.add_bad_blocks.is_some() && self.set_bad_blocks.is_some() {
            return Err(conflict("only one of the options -l and -L may be specified"));
        }
        if self.no && (self.check_blocks > 0 || self.lists_bad_blocks()) {
            return Err(conflict("the -n and -c/-l/-L options are incompatible"));
        }
        if self.no && self.directories {
            return Err(conflict("the -n and -D options are incompatible"));
        }
        if self.check_blocks > 0 && self.lists_bad_blocks() {
            return Err(usage(
                "the -c and the -l/-L options may not be both used at the same time",
            ));
        }
        if self.directories && extended.fixes_only {
            return Err(conflict("-E fixes_only and -D are incompatible"));
        }
        Ok(())
    }

    fn memory(&self) -> Result<Option<u64>, Failure> {
        let Some(text) = &self.memory else { return Ok(None) };
        let size = text.parse::<ByteSize>();
        size.map(|size| Some(size.0)).map_err(|why| usage(&format!("--memory {text}: {why}")))
    }
}

/// One run, once the command line is understood.
struct CheckCommand<'a> {
    args: &'a Args,
    conf: &'a Conf,
    extended: &'a Extended,
    called: &'a str,
    is_compat: bool,
    /// Whether a bar is drawn without -C.
    draws: bool,
    image: String,
    /// Its name in messages about what is in it.
    shown: String,
}

/// A volume being checked: its device, and the undo file before it.
struct Opened {
    device: Arc<dyn Device>,
    undo: Option<Arc<UndoDevice>>,
    /// The device as the image's name says.
    named: extant::rooms::storage::Opened,
    /// Why the journal's own device was not found, where that is known.
    no_journal: Option<JournalError>,
}

impl CheckCommand<'_> {
    fn run(&self, image: &OsString, answering: Answering) -> Result<u8, Failure> {
        let (fd, format) = (self.args.progress_fd, self.args.progress);
        let meter = Meter::new(fd, format, &self.shown, self.draws)
            .map_err(|error| Failure::new(error).with_code(OPERATIONAL))?;
        let interrupts = Interrupts::take();
        let named = self.named_journal(answering)?;
        // Without `-n` a mounted image is refused.
        let is_mounted = extant::rooms::mount::is_mounted(Path::new(image));
        // The last that opens files: of the image no more than its superblock was read, and no
        // thread started.
        let (opened, journal) = self.open_device(image, answering, named)?;
        let outcome = self.run_on(&opened, journal, answering, is_mounted, (meter, interrupts));
        if let Err(error) = opened.named.finish() {
            err_line!("{}: {error}", self.called);
            return outcome.map(|code| code | OPERATIONAL);
        }
        outcome
    }

    fn run_on(
        &self,
        opened: &Opened,
        journal: Option<JournalDevice>,
        answering: Answering,
        is_mounted: bool,
        (meter, interrupts): (Meter, Interrupts),
    ) -> Result<u8, Failure> {
        self.refuse_whole_disk(&*opened.device)?;
        // Of a simulated drive: its clock tells the times.
        let env = opened.named.env.clone();
        let options = RunOptions {
            open: CheckOpenOptions { env, ..self.open_options(journal)? },
            passes: CheckOptions {
                progress: meter.progress(),
                ..self.pass_options(&opened.named)?
            },
            force: self.args.force,
            journal_only: self.extended.journal_only,
            bad_blocks: self.bad_blocks().map_err(|error| self.failed(&error))?,
            discard: self.extended.discard,
        };
        interrupts.cancel(&self.shown, self.called);
        let console = Console::new(answering, self.args.json, self.shown.clone(), meter);
        let console = console.with_paths_on(opened.device.clone()).keeping_quiet(self.is_compat);
        if is_mounted {
            console.say(&format!("Warning!  {} is mounted.", self.shown));
        }
        match run::run(&opened.device, &options, &console, &console) {
            Ok(report) => {
                finish_undo(opened)?;
                self.show(&report, &console)
            }
            Err(error) => Err(self.not_finished(&error, opened)),
        }
    }

    fn pass_options(
        &self,
        named: &extant::rooms::storage::Opened,
    ) -> Result<CheckOptions, Failure> {
        let (defaults, is_simulated) = (CheckOptions::default(), named.is_simulated());
        Ok(CheckOptions {
            threads: if is_simulated { 1 } else { self.args.threads.unwrap_or(0) },
            memory: self.args.memory()?,
            in_parts: self.extended.in_parts,
            optimize_directories: self.args.directories,
            unshare_blocks: self.extended.unshare_blocks,
            bmap_to_extent: self.extended.bmap_to_extent,
            keep_extents: self.extended.keep_extents(),
            check_encoding: self.extended.check_encoding,
            placeholders: self.extended.placeholders,
            carve: self.extended.carve,
            list_discontinuities: self.extended.list_discontinuities,
            read_ahead: self.extended.read_ahead.unwrap_or(defaults.read_ahead),
            #[cfg(feature = "sim")]
            on_work: is_simulated.then(|| extant::costs::check_work(named.env.clone())),
            env: named.env.clone(),
            ..defaults
        })
    }

    /// The list of bad blocks that -c, -l or -L ask for.
    fn bad_blocks(&self) -> Result<Option<BadBlocks>, Failure> {
        let test = match self.args.check_blocks {
            0 => None,
            1 => Some(BlockTest::Read),
            _ => Some(BlockTest::Rewrite),
        };
        let file = self.args.set_bad_blocks.as_ref().or(self.args.add_bad_blocks.as_ref());
        let listed = match file {
            // The check knows where the volume ends.
            Some(file) => read_list(file, u64::MAX).map_err(Failure::new)?,
            None if test.is_none() => return Ok(None),
            None => RunSet::new(),
        };
        let keeps = self.args.keep || self.args.add_bad_blocks.is_some();
        Ok(Some(BadBlocks { test, listed, keeps }))
    }

    /// Shows how a run ended; its exit code.
    fn show(&self, report: &Report, console: &Console) -> Result<u8, Failure> {
        match report.end {
            End::NotOpened | End::Stopped => {
                err_line!("\n{}: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.", console.name());
                err_line!("\t(i.e., without -a or -p options)");
                if self.args.json {
                    let counts = |outcome: &HandledFinding| report.counts(outcome);
                    let (code, verdict) = (report.exit_code(), Verdict::of_report(report));
                    let findings = &report.findings;
                    summary::print_json_alone(
                        &self.image,
                        (code, verdict, None),
                        findings,
                        &counts,
                    );
                }
                return Ok(report.exit_code());
            }
            End::Clean => {
                if let Some(superblock) = &report.superblock {
                    console.say(&summary::clean_line(&console.name(), superblock));
                }
            }
            End::JournalReplayed | End::Checked => {}
        }
        let levels = if self.conf.reports_time { 2 } else { self.args.times };
        let summary = Summary { report, levels };
        if self.args.json {
            let printed = summary.print_json(&self.image);
            printed.map_err(|failure| failure.with_usual_code(OPERATIONAL))?;
        } else if report.end == End::Checked {
            let is_verbose = self.args.verbose || self.conf.is_verbose;
            summary.print(&console.name(), self.args.preen, is_verbose);
        }
        Ok(report.exit_code())
    }

    fn not_finished(&self, error: &RunError, opened: &Opened) -> Failure {
        let RunFailure::Open(failure) = &error.failure else { return self.failed(error) };
        let failure = match failure {
            OpenError::Journal(error) if error.wants_device() => {
                let error = opened.no_journal.as_ref().unwrap_or(error);
                self.failed(&format_args!("{error}: use -j DEVICE"))
            }
            OpenError::NoSuperblock(_) => {
                let found = other_content(Path::new(&self.image), &*opened.device);
                found.map_or_else(|| self.failed(error), |it| it.with_code(OPERATIONAL))
            }
            _ => self.failed(error),
        };
        if self.args.json {
            let end = (OPERATIONAL, Verdict::of_error(error), Some(&failure));
            summary::print_json_alone(&self.image, end, &error.findings, &|_| false);
        }
        failure
    }

    /// A disk whose partitions hold file systems is not searched for backups of a superblock.
    fn refuse_whole_disk(&self, device: &dyn Device) -> Result<(), Failure> {
        let is_volume = is_ext(device).unwrap_or(true);
        if is_volume || self.args.superblock.is_some() || ext_partitions(device).is_empty() {
            return Ok(());
        }
        match other_content(Path::new(&self.image), device) {
            Some(failure) => {
                if self.args.json {
                    let end = (OPERATIONAL, Verdict::Unreadable, Some(&failure));
                    summary::print_json_alone(&self.image, end, &[], &|_| false);
                }
                Err(failure.with_code(OPERATIONAL))
            }
            None => Ok(()),
        }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::at(&self.image, error).with_code(OPERATIONAL)
    }

    /// Opens the image, and the journal's device unless it was `named`; then gives up what needs no
    /// more.
    fn open_device(
        &self,
        image: &OsString,
        answering: Answering,
        named: Option<JournalDevice>,
    ) -> Result<(Opened, Option<JournalDevice>), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(error).with_code(OPERATIONAL);
        let access = if answering == Answering::No { Access::ReadOnly } else { Access::ReadWrite };
        let url = DeviceUrl::parse(image, extant::schemes(), stat_host)
            .map_err(|error| failed(&error))?;
        if self.args.flush {
            drop_cached_pages(&url).map_err(|error| failed(&error))?;
        }
        if self.args.undo.is_some() && answering == Answering::No {
            return Err(usage("the -n and -z options are incompatible"));
        }
        // A search for bad blocks by writing reads the medium, not the page cache.
        let direct = if self.args.check_blocks > 1 { Direct::WherePossible } else { Direct::Off };
        let options = FileDeviceOptions::new().write(access == Access::ReadWrite).direct(direct);
        // After waiting the image must stay free.
        let options = options.shared_lock(self.args.waiting.wait.is_some());
        let options = self.args.waiting.on(options.around_cache(true));
        let files = url.open_files(&options).map_err(|error| failed(&error))?;
        let journal_options = FileDeviceOptions::new().write(access == Access::ReadWrite);
        let journal_options = self.args.waiting.on(journal_options);
        let (journal, no_journal) = match (named, url.plain_device(&files)) {
            (None, Some(Ok(device))) => {
                match run::find_journal(&*device, &self.wanted(), &journal_options) {
                    Ok(found) => (found, None),
                    // Whether the volume needs it is seen later.
                    Err(NotOpened::Journal(error)) => (None, Some(error)),
                    Err(NotOpened::File(error)) => return Err(failed(&error)),
                }
            }
            // OpenArgs the image tells why.
            (named, _) => (named, None),
        };
        let keys = url.keys().map_err(|error| failed(&error))?;
        let part = || url.device(&files, keys).map_err(|error| failed(&error));
        let Some(path) = &self.args.undo else {
            self.restrict()?;
            let named = part()?;
            let device = named.device.clone();
            return Ok((Opened { device, undo: None, named, no_journal }, journal));
        };
        // The undo file is made while paths can be opened; of the image only its partition table
        // and superblock are read before.
        let with_code = |failure: Failure| failure.with_code(OPERATIONAL);
        let undo_dir = self.conf.undo_dir.as_deref();
        let path =
            undo::path_in(undo_dir, path, image, "e2fsck", self.is_compat).map_err(with_code)?;
        let named = part()?;
        let undo = path.map(|path| {
            if self.is_compat && !self.args.json {
                out_line!("{}", undo::announcement(&path, image));
            }
            undo::keep(&named, path).map(Arc::new).map_err(with_code)
        });
        let undo = undo.transpose()?;
        self.restrict()?;
        let device: Arc<dyn Device> = match &undo {
            Some(undo) => undo.clone(),
            None => named.device.clone(),
        };
        Ok((Opened { device, undo, named, no_journal }, journal))
    }

    /// Gives up what reading a damaged image does not need. Lists of bad blocks are read
    /// afterwards.
    fn restrict(&self) -> Result<(), Failure> {
        let lists = [&self.args.add_bad_blocks, &self.args.set_bad_blocks];
        let lists: Vec<_> = lists.into_iter().flatten().map(PathBuf::as_path).collect();
        sandbox::enter(self.args.no_sandbox, &lists)
            .map_err(|failure| failure.with_code(OPERATIONAL))
    }

    /// The device that `-j` names.
    fn named_journal(&self, answering: Answering) -> Result<Option<JournalDevice>, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(error).with_code(OPERATIONAL);
        let Some(name) = &self.args.journal else { return Ok(None) };
        let access = if answering == Answering::No { Access::ReadOnly } else { Access::ReadWrite };
        let url =
            DeviceUrl::parse(name, extant::schemes(), stat_host).map_err(|error| failed(&error))?;
        let options = self.args.waiting.on(FileDeviceOptions::new());
        let device = url.open(access, &options).map_err(|error| failed(&error))?;
        let number = block_devices::number_of(url.path()).filter(|_| url.is_whole());
        Ok(Some(JournalDevice { device: device.device, number }))
    }

    fn wanted(&self) -> SuperblockChoice {
        SuperblockChoice { superblock: self.args.superblock, block_size: self.args.block_size }
    }

    fn open_options(&self, journal: Option<JournalDevice>) -> Result<CheckOpenOptions, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(error).with_code(OPERATIONAL);
        let called = self.called.to_owned();
        Ok(CheckOpenOptions {
            superblock: self.wanted(),
            journal_number: journal.as_ref().and_then(|journal| journal.number),
            journal: journal.map(|journal| journal.device),
            fresh_uuid: extant::random_uuid().map_err(|error| failed(&error))?,
            checks_times: self.args.force,
            journal_evidence: self.extended.journal_evidence(),
            waiting: Some(Arc::new(move |seconds| {
                err_line!("{called}: MMP: the volume may be in use; waiting {seconds} seconds");
            })),
            ..CheckOpenOptions::default()
        })
    }
}

fn finish_undo(opened: &Opened) -> Result<(), Failure> {
    match &opened.undo {
        Some(undo) => undo.finish().map_err(|error| Failure::new(error).with_code(OPERATIONAL)),
        None => Ok(()),
    }
}

/// Has the system forget what it has cached of the image (`-F`).
fn drop_cached_pages(url: &DeviceUrl) -> std::io::Result<()> {
    for part in &url.parts {
        let file = std::fs::File::open(&part.path)?;
        rustix::fs::fsync(&file)?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}
