//! `extant tune`: changes features and fields of a volume in place, as tune2fs does.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use extant::rooms::device::{Device, FileDeviceOptions, block_devices};
use extant::rooms::image::tune::{self, Request, TuneError};
use extant::rooms::journal::JournalError;
use extant::rooms::runtime::env::Env;
use extant::rooms::storage::{Access, DeviceUrl, stat_host};

use super::{info, undo};
use crate::failure::Failure;
use crate::journal_device;
use crate::session::Session;
use crate::terminal::Terminal;
use crate::time;
use crate::waiting::Waiting;
use crate::{err_line, say};

/// Change features, label, UUID, journal and quotas, as tune2fs does
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Features: has_journal dir_index fast_commit stable_inodes orphan_file filetype extent \
    flex_bg ea_inode large_dir encrypt mmp metadata_csum_seed casefold large_file huge_file dir_nlink extra_isize \
    sparse_super uninit_bg metadata_csum quota project read-only verity; with ^ off, where that can be."
)]
pub(crate) struct Args {
    /// Maximum mount count between checks, or random; 0 and -1 for none
    #[arg(short = 'c', value_name = "COUNT", allow_hyphen_values = true)]
    max_mounts: Option<OsString>,
    /// Mount count since the last check
    #[arg(short = 'C', value_name = "COUNT", allow_hyphen_values = true)]
    mount_count: Option<OsString>,
    /// Behavior of the kernel on errors: continue, remount-ro, panic
    #[arg(short = 'e', value_name = "BEHAVIOR", allow_hyphen_values = true)]
    errors: Option<OsString>,
    /// Extended options, separated by commas
    #[arg(short = 'E', value_name = "OPTIONS", allow_hyphen_values = true)]
    extended: Vec<OsString>,
    /// Force; twice: do not replay the journal
    #[arg(short, action = clap::ArgAction::Count)]
    force: u8,
    /// Group that may use the reserved blocks
    #[arg(short = 'g', value_name = "GROUP", allow_hyphen_values = true)]
    reserved_gid: Option<OsString>,
    /// Interval between checks: days, or a number with d, w, m
    #[arg(short = 'i', value_name = "INTERVAL", allow_hyphen_values = true)]
    interval: Option<OsString>,
    /// Inode size; not supported, as inode tables cannot grow in place
    #[arg(short = 'I', value_name = "BYTES", allow_hyphen_values = true)]
    inode_size: Option<OsString>,
    /// Add a journal
    #[arg(short = 'j')]
    journal: bool,
    /// Journal options: size=MiB, fast_commit_size=KiB, location=BLOCK, device=DEVICE
    #[arg(short = 'J', value_name = "OPTIONS", allow_hyphen_values = true)]
    journal_options: Vec<OsString>,
    /// List the superblock
    #[arg(short)]
    list: bool,
    /// Volume label
    #[arg(short = 'L', value_name = "LABEL", allow_hyphen_values = true)]
    label: Option<OsString>,
    /// Percentage of the blocks reserved for root
    #[arg(short = 'm', value_name = "PER CENT", allow_hyphen_values = true)]
    reserved_ratio: Option<OsString>,
    /// Last mounted directory
    #[arg(short = 'M', value_name = "DIR", allow_hyphen_values = true)]
    last_mounted: Option<OsString>,
    /// Default mount options to set, or with ^ to clear, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS", allow_hyphen_values = true)]
    mount_options: Vec<OsString>,
    /// Features to set, or with ^ to clear, separated by commas
    #[arg(short = 'O', value_name = "FEATURES", allow_hyphen_values = true)]
    features: Vec<OsString>,
    /// Quotas to set, or with ^ to clear: usrquota, grpquota, prjquota
    #[arg(short = 'Q', value_name = "QUOTAS", allow_hyphen_values = true)]
    quota: Vec<OsString>,
    /// Number of blocks reserved for root
    #[arg(short = 'r', value_name = "BLOCKS", allow_hyphen_values = true)]
    reserved_blocks: Option<OsString>,
    /// The old way to ask for sparse_super
    #[arg(short = 's', value_name = "0|1", hide = true)]
    sparse_super: Option<OsString>,
    #[arg(
        short = 'T',
        value_name = "TIME",
        allow_hyphen_values = true,
        help = "Time of the last check: now, or YYYYMMDD[HH[MM[SS]]] in UTC"
    )]
    last_check: Option<OsString>,
    /// User who may use the reserved blocks
    #[arg(short = 'u', value_name = "USER", allow_hyphen_values = true)]
    reserved_uid: Option<OsString>,
    /// UUID of the volume, or random, time, clear
    #[arg(short = 'U', value_name = "UUID", allow_hyphen_values = true)]
    uuid: Option<OsString>,
    /// Print version
    #[arg(short = 'V')]
    version: bool,
    #[command(flatten)]
    waiting: Waiting,
    /// Save overwritten blocks in an undo file, for extant undo
    #[arg(short = 'z', value_name = "UNDO_FILE")]
    undo: Option<OsString>,
    /// Image
    #[arg(value_name = "IMAGE", required_unless_present = "version")]
    image: Option<OsString>,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        if self.version {
            err_line!("{}", session.version());
            // The twin's answer ends with 1.
            return if session.is_compat { Err(Failure::silent(1)) } else { Ok(()) };
        }
        let Some(image) = self.image.as_deref() else {
            return Err(usage("missing operand: image", session));
        };
        if session.is_compat {
            say!(session, "{}", session.version())?;
        }
        let since = time::now()?.duration_since(UNIX_EPOCH);
        let now = since.map_or(0, |since| since.as_secs());
        let mut request = self.request(now).map_err(|error| usage(error, session))?;
        if request.is_empty() && !self.list {
            return Err(usage("no option given (see --help)", session));
        }
        if !request.is_empty() {
            let name = || image.display().to_string();
            request.name_for_resize2fs = session.is_compat.then(name);
            request.last_check_text = request.last_check.map(|seconds| {
                let end = if session.is_compat { "\n" } else { "" };
                time::ctime(seconds.cast_signed()) + end
            });
            self.change(image, &request, now, session)?;
        }
        match self.list {
            true if session.is_compat => info::list_volume(image, session),
            true => info::list_superblock(image, session),
            false => Ok(()),
        }
    }

    fn request(&self, now: u64) -> Result<Request, TuneError> {
        let mut request = Request { force: self.force, ..Request::default() };
        request.journal.wanted = self.journal;
        let single = [
            ('c', &self.max_mounts),
            ('C', &self.mount_count),
            ('e', &self.errors),
            ('g', &self.reserved_gid),
            ('i', &self.interval),
            ('I', &self.inode_size),
            ('L', &self.label),
            ('m', &self.reserved_ratio),
            ('M', &self.last_mounted),
            ('r', &self.reserved_blocks),
            ('T', &self.last_check),
            ('u', &self.reserved_uid),
            ('U', &self.uuid),
        ];
        let lists = [
            ('E', &self.extended),
            ('J', &self.journal_options),
            ('o', &self.mount_options),
            ('O', &self.features),
            ('Q', &self.quota),
        ];
        if let Some(wanted) = &self.sparse_super {
            let feature = if wanted == "0" { "^sparse_super" } else { "sparse_super" };
            request.set('O', OsStr::new(feature), now)?;
        }
        let single = single.into_iter().flat_map(|(letter, value)| Some((letter, value.as_ref()?)));
        let lists =
            lists.into_iter().flat_map(|(letter, list)| list.iter().map(move |it| (letter, it)));
        for (letter, value) in single.chain(lists) {
            request.set(letter, value, now)?;
        }
        Ok(request)
    }

    fn change(
        &self,
        image: &OsStr,
        request: &Request,
        now: u64,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let url = DeviceUrl::parse(image, extant::schemes(), stat_host).map_err(Failure::new)?;
        let options = self.waiting.on(FileDeviceOptions::new());
        if url.is_whole() && block_devices::is_kernel_ext_mount(url.path()) {
            return self.change_mounted(&url, &options, request, now, session);
        }
        let opened = url.open(Access::ReadWrite, &options).map_err(Failure::new)?;
        let device = &opened.device;
        if !session.is_compat {
            journal_device::refuse_other_content(image, &**device)?;
        }
        let (journal, why) = journal_device::of(&**device, &options.write(true))?;
        let on = (journal.as_deref(), why.as_ref(), &opened.env);
        let path = undo::announced_path(self.undo.as_deref(), image, "tune2fs", session)?;
        let outcome = match path {
            None => apply(device, on, request, now, image, session),
            Some(path) => {
                let kept = Arc::new(undo::keep(&opened, path)?);
                let device: Arc<dyn Device> = kept.clone();
                let outcome = apply(&device, on, request, now, image, session);
                let finished = match &outcome {
                    Ok(()) => kept.finish(),
                    Err(_) => kept.finish_refused(),
                };
                outcome.and(finished.map_err(Failure::new))
            }
        };
        outcome.and(opened.finish().map_err(Failure::new))
    }

    /// Changes the superblock of a device that the kernel has mounted.
    fn change_mounted(
        &self,
        url: &DeviceUrl,
        options: &FileDeviceOptions,
        request: &Request,
        now: u64,
        session: &mut Session,
    ) -> Result<(), Failure> {
        if self.undo.is_some() {
            let why = "-z: not possible for a mounted device: its blocks are the kernel's";
            return Err(Failure::new(why));
        }
        let claimed = options.clone().claimed(true);
        let opened = url.open(Access::ReadWrite, &claimed).map_err(Failure::new)?;
        let mut terminal = Terminal::new(session);
        let outcome = tune::run_mounted(&opened.device, request, now, &mut terminal);
        let said = terminal.close();
        outcome.map_err(|error| refused(error, url.path(), session.is_compat))?;
        said.and(opened.finish().map_err(Failure::new))
    }
}

/// The failure of a request on an image.
fn refused(error: TuneError, image: impl AsRef<Path>, is_compat: bool) -> Failure {
    let is_usage = error.is_usage() && !is_compat;
    let failure = Failure::at(image, error);
    if is_usage { failure.with_code(Failure::USAGE) } else { failure }
}

/// A wrong command line. By the name tune2fs it ends with 1, as that does.
fn usage(what: impl Display, session: &Session) -> Failure {
    if session.is_compat { Failure::new(what) } else { Failure::usage(what) }
}

fn apply(
    device: &Arc<dyn Device>,
    (journal, why, env): (Option<&dyn Device>, Option<&JournalError>, &Env),
    request: &Request,
    now: u64,
    image: &OsStr,
    session: &mut Session,
) -> Result<(), Failure> {
    let is_compat = session.is_compat;
    let mut terminal = Terminal::new(session);
    let outcome = tune::run(device, journal, env, request, now, &mut terminal);
    let said = terminal.close();
    outcome.map_err(|error| {
        let missing = match &error {
            TuneError::Journal(error) => {
                let why = why.filter(|_| error.wants_device()).unwrap_or(error);
                journal_device::missing(Path::new(image), why)
            }
            _ => None,
        };
        missing.unwrap_or_else(|| refused(error, image, is_compat))
    })?;
    said
}
