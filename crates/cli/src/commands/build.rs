//! `extant build`: an image from directories, archives and OCI layouts.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use extant::rooms::device::FileDevice;
use extant::rooms::image::build::{BuildOptions, Progress, Report, build};
use extant::rooms::image::mkfs::{
    Options,
    probe::{is_ext, probe},
};
use extant::rooms::image::source::{Excludes, ReadOptions, Source, read_sources};
use extant::rooms::storage::{DeviceUrl, stat_host};

use super::format::Format;
use super::owner_args::OwnerArgs;
use crate::failure::{At, Failure};
use crate::progress::Progress as Bar;
use crate::say;
use crate::session::Session;
use crate::time;
use crate::waiting::Waiting;

/// Build an image from directories, tar archives and OCI layouts
///
/// Later sources are laid over earlier ones. The same sources and options give the same bytes. Root
/// is not needed. Without --size the image is as small as its files and its journal allow.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output image
    #[arg(short, value_name = "IMAGE")]
    output: PathBuf,
    /// Size of the volume: bytes, or with a unit K, M, G, T; auto for an exact fit, which leaves no
    /// room for changes; auto+SIZE or auto+N% for the fit with at least so much available to every
    /// user of a mount (N% of the fit), and an inode for each 16 KiB of it; device for the whole
    /// block device
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    size: String,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    owners: OwnerArgs,
    /// SELinux labels: each file gets that of the specification that setfiles would use, in place
    /// of that of its source. FILE.homedirs, FILE.local, FILE.subs and FILE.subs_dist are read too
    #[arg(long, value_name = "FILE")]
    file_contexts: Option<PathBuf>,
    /// Owners, modes and capabilities from Android's fs_config: lines of PATH UID GID MODE
    /// [capabilities=MASK] [selabel=LABEL]
    #[arg(long, value_name = "FILE")]
    fs_config: Option<PathBuf>,
    /// Owners, modes, types and device numbers of the files of directories as under fakeroot, from
    /// a database that fakeroot -s has saved; files that it does not have belong to root
    #[arg(long, value_name = "FILE")]
    fakeroot: Option<PathBuf>,
    /// Owners, modes, types and device numbers of the files of directories as in the containers of
    /// ordinary users, from the attribute user.containers.override_stat, which is left out
    #[arg(long, conflicts_with = "fakeroot")]
    override_stat: bool,
    /// Directory where the volume will be mounted: the paths of --file-contexts and --fs-config
    /// begin with it
    #[arg(long, value_name = "DIRECTORY")]
    mount_point: Option<OsString>,
    /// Leave out files that the pattern matches, with all below them, as tar --exclude does with
    /// names from ./ on: it matches the whole path or what follows any slash, and * matches slashes
    /// too; one that begins with / begins at the root. May be repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Read such patterns from FILE (- is standard input), one on each line; may be repeated
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Image of this platform, if an OCI layout has several
    #[arg(long, value_name = "OS/ARCHITECTURE[/VARIANT]")]
    platform: Option<String>,
    /// UUID of the volume; without it, made from the content
    #[arg(short = 'U', long, value_name = "UUID")]
    uuid: Option<String>,
    /// Seed of the directory hashes; without it, made from the content
    #[arg(long, value_name = "UUID")]
    hash_seed: Option<String>,
    /// Number of threads; the image does not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Force: accept unusual parameters, such as blocks of more than 4 KiB, and replace a file that
    /// is not a file system
    #[arg(short = 'F')]
    force: bool,
    /// Print errors only
    #[arg(short)]
    quiet: bool,
    #[command(flatten)]
    waiting: Waiting,
    /// Print a report as JSON
    #[arg(long)]
    json: bool,
    /// Directory, tar archive (plain, gzip, zstd, xz; - is standard input), OCI layout, or archive
    /// of images
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let epoch = time::epoch()?;
        let options = self.options(epoch)?;
        self.check_output()?;
        self.check_size()?;
        if let Some(label) = options.format.label.as_deref().filter(|label| label.len() > 16) {
            let label = String::from_utf8_lossy(label);
            return Err(Failure::usage(format!("-L {label}: longer than 16 bytes")));
        }
        let sources = self.sources.iter().map(|source| Source::of(source));
        let sources: Vec<Source> = sources.collect::<Result<_, _>>().map_err(Failure::new)?;
        let is_directory = |source: &Source| matches!(source, Source::Directory(_));
        if self.fakeroot.is_some() && !sources.iter().any(is_directory) {
            return Err(Failure::usage("--fakeroot: no source is a directory"));
        }
        if self.override_stat && !sources.iter().any(is_directory) {
            return Err(Failure::usage("--override-stat: no source is a directory"));
        }
        let platform = self.platform.as_deref().map(str::parse).transpose();
        let reading = ReadOptions {
            schemes: extant::schemes().clone(),
            owners: self.owners.parse()?,
            latest: epoch,
            output: Some(self.output.clone()),
            spool: spool(&self.output),
            platform: platform.map_err(Failure::usage)?,
            excludes: self.excludes()?,
            file_contexts: self.file_contexts.clone(),
            fs_config: self.fs_config.clone(),
            mount_point: self.mount_point()?,
            fakeroot: self.fakeroot.clone(),
            override_stat: self.override_stat,
            ..ReadOptions::default()
        };
        let tree = {
            let _progress = self.progress("reading", None);
            read_sources(&sources, &reading).map_err(Failure::new)?
        };
        let bar = self.progress("writing", None);
        let report =
            build(&options, &tree, &|at: Progress| bar.at(at.done)).map_err(Failure::new)?;
        drop(bar);
        for warning in &report.warnings {
            session.warn(format_args!("warning: {warning}"))?;
        }
        if self.json {
            return session.out.json(&Shown::of(&report));
        }
        if self.quiet { Ok(()) } else { tell(&self.output, &report, session) }
    }

    /// `--size device` of an output that has no size of its own.
    fn check_size(&self) -> Result<(), Failure> {
        let found = std::fs::metadata(&self.output).map(|found| found.file_type());
        let is_device = found.is_ok_and(|kind| kind.is_block_device()) || is_part(&self.output);
        match self.size == "device" && !is_device {
            true => Err(Failure::at(
                &self.output,
                "not a block device or a partition: --size device requires one (use --size SIZE)",
            )),
            false => Ok(()),
        }
    }

    fn options(&self, epoch: Option<i64>) -> Result<BuildOptions, Failure> {
        let mut words = self.format.words();
        if let Some(uuid) = &self.uuid {
            words.extend(["-U".into(), uuid.into()]);
        }
        if let Some(seed) = &self.hash_seed {
            words.extend(["-E".into(), format!("hash_seed={seed}").into()]);
        }
        if self.force {
            words.push("-F".into());
        }
        words.extend(["--".into(), self.output.clone().into()]);
        let mut format = Options::parse(words).map_err(Failure::usage)?;
        format.wait = self.waiting.wait;
        Ok(BuildOptions {
            output: self.output.clone(),
            schemes: extant::schemes().clone(),
            size: self
                .size
                .parse()
                .map_err(|why| Failure::usage(format_args!("--size {}: {why}", self.size)))?,
            format,
            device: None,
            epoch,
            threads: self.threads.map(usize::from),
        })
    }

    /// An image that is there is replaced when the new one is whole. Any other file was hardly
    /// meant.
    fn check_output(&self) -> Result<(), Failure> {
        if self.output.as_os_str() == "-" {
            return Err(Failure::usage(
                "-o -: cannot write an image to standard output (use ./- for a file)",
            ));
        }
        let there = std::fs::metadata(&self.output);
        if self.force || !there.is_ok_and(|file| file.is_file() && file.len() > 0) {
            return Ok(());
        }
        let device = FileDevice::open(&self.output).map_err(Failure::new)?;
        if is_ext(&device).map_err(Failure::new)? {
            return Ok(());
        }
        let found = probe(&device, 0).map_err(Failure::new)?;
        let found = found.unwrap_or_else(|| "unknown data".to_owned());
        Err(Failure::at(&self.output, format_args!("contains {found}: use -F to overwrite")))
    }

    fn mount_point(&self) -> Result<Vec<u8>, Failure> {
        let Some(path) = &self.mount_point else { return Ok(Vec::new()) };
        if self.file_contexts.is_none() && self.fs_config.is_none() {
            let why = "--mount-point: neither --file-contexts nor --fs-config is given";
            return Err(Failure::usage(why));
        }
        let is_absolute = path.as_encoded_bytes().starts_with(b"/");
        let is_plain = Path::new(path).components().all(|part| {
            matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_))
        });
        if !is_absolute || !is_plain {
            let path = path.display();
            return Err(Failure::usage(format_args!("--mount-point {path}: not an absolute path")));
        }
        Ok(path.as_encoded_bytes().to_vec())
    }

    fn excludes(&self) -> Result<Excludes, Failure> {
        let mut excludes = Excludes::new(self.exclude.iter().map(|it| it.as_encoded_bytes()));
        for file in &self.exclude_from {
            let is_stdin = file.as_os_str() == "-";
            if is_stdin && self.sources.iter().any(|source| source == "-") {
                let why = "--exclude-from -: standard input is a source already";
                return Err(Failure::usage(why));
            }
            let mut text = Vec::new();
            match is_stdin {
                true => std::io::stdin().lock().read_to_end(&mut text).map(drop),
                false => std::fs::read(file).map(|read| text = read),
            }
            .at(file)?;
            text.split(|&byte| byte == b'\n').for_each(|line| excludes.add(line));
        }
        Ok(excludes)
    }

    fn progress(&self, what: &'static str, total: Option<u64>) -> Bar {
        if self.quiet || self.json { Bar::none() } else { Bar::of_bytes(what, total) }
    }
}

/// Unpacked archives are stored next to the image; the directory of a device file is not on a disk.
fn spool(output: &Path) -> PathBuf {
    let is_special = |metadata: std::fs::Metadata| !metadata.is_file();
    if is_part(output) || std::fs::metadata(output).is_ok_and(is_special) {
        return std::env::temp_dir();
    }
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// Whether the name is of a part of a device, or of what layers show.
fn is_part(output: &Path) -> bool {
    DeviceUrl::parse(output.as_os_str(), extant::schemes(), stat_host)
        .is_ok_and(|url| url.is_part())
}

fn tell(output: &Path, report: &Report, session: &mut Session) -> Result<(), Failure> {
    say!(
        session,
        "{}: {} blocks of {} bytes ({} free), {} inodes ({} free), {} files and {} directories with {} bytes",
        output.display(),
        report.blocks,
        report.block_size,
        report.free_blocks,
        report.inodes,
        report.free_inodes,
        report.files,
        report.directories,
        report.content_bytes
    )
}

/// The report as `--json` shows it.
#[derive(serde::Serialize)]
struct Shown<'a> {
    bytes: u64,
    block_size: u32,
    blocks: u64,
    free_blocks: u64,
    inodes: u32,
    free_inodes: u32,
    journal_blocks: Option<u32>,
    files: u64,
    directories: u64,
    content_bytes: u64,
    uuid: String,
    features: &'a [String],
    warnings: &'a [String],
}

impl<'a> Shown<'a> {
    fn of(report: &'a Report) -> Self {
        Self {
            bytes: report.bytes,
            block_size: report.block_size,
            blocks: report.blocks,
            free_blocks: report.free_blocks,
            inodes: report.inodes,
            free_inodes: report.free_inodes,
            journal_blocks: report.journal_blocks,
            files: report.files,
            directories: report.directories,
            content_bytes: report.content_bytes,
            uuid: report.uuid.to_string(),
            features: &report.features,
            warnings: &report.warnings,
        }
    }
}
