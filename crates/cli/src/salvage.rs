//! `--salvage`: damaged images read as their repair would leave them, and the report of what they
//! lack.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use extant::rescue::{DamagedFile, LostName, MapFile, Salvage, SalvageReport, Salvager};
use extant::rooms::check::Code;
use extant::rooms::check::pass0::SuperblockChoice;
use extant::rooms::check::run::find_journal;
use extant::rooms::device::{ByteSize, FileDeviceOptions};
use extant::rooms::reader::Journal;
use extant::rooms::storage::{DeviceUrl, Files, Opened};
use serde::Serialize;

use crate::failure::{At as _, Failure};
use crate::file_type::type_name;
use crate::finding_json::JsonFinding;
use crate::image_path::ImagePath;
use crate::output::JsonName;
use crate::output_file::FileId;

/// Options for damaged images.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SalvageArgs {
    /// Read a damaged image as its repair would leave it: the repair is made in memory, and nothing
    /// is written to the image
    #[arg(long)]
    pub(crate) salvage: bool,
    /// With --salvage: write a report of the damage as JSON
    #[arg(long, value_name = "FILE", requires = "salvage")]
    salvage_report: Option<PathBuf>,
    /// With --salvage: map file of GNU ddrescue; what it has not read is missing
    #[arg(long, value_name = "FILE", requires = "salvage")]
    map: Option<PathBuf>,
    /// With --salvage: limit the memory of the repairs to this size, such as 500M (default: 2G)
    #[arg(long, value_name = "SIZE", requires = "salvage")]
    salvage_memory: Option<ByteSize>,
}

/// A salvage whose files are open.
#[derive(Debug)]
pub(crate) struct Salvaging {
    map: Option<MapFile>,
    report: Option<(PathBuf, File)>,
    memory: Option<ByteSize>,
}

impl SalvageArgs {
    /// The words of these options for another process.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        if self.salvage {
            words.push("--salvage".into());
        }
        for (name, path) in [("--salvage-report", &self.salvage_report), ("--map", &self.map)] {
            if let Some(path) = path {
                words.extend([name.into(), path.clone().into_os_string()]);
            }
        }
        if let Some(ByteSize(bytes)) = self.salvage_memory {
            words.extend(["--salvage-memory".into(), bytes.to_string().into()]);
        }
        words
    }

    /// Opens the files of the options, while paths can be opened. `None` without `--salvage`.
    /// `is_held`: the image is open for changes already, in a shell.
    pub(crate) fn prepare(
        &self,
        operands: &[ImagePath],
        is_held: bool,
    ) -> Result<Option<Salvaging>, Failure> {
        if !self.salvage {
            return Ok(None);
        }
        if is_held {
            return Err(Failure::usage("--salvage: the image is open already"));
        }
        let map = match &self.map {
            Some(path) => Some(read_map(path, operands)?),
            None => None,
        };
        let report = match &self.salvage_report {
            Some(path) => {
                operands.iter().try_for_each(|inside| inside.refuse_as_output(path))?;
                if self.map.as_deref().is_some_and(|map| is_same_file(map, path)) {
                    return Err(Failure::at(path, "not overwriting the map file being read"));
                }
                Some((path.clone(), File::create(path).at(path)?))
            }
            None => None,
        };
        Ok(Some(Salvaging { map, report, memory: self.salvage_memory }))
    }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| path.metadata().ok().map(|found| FileId::of(&found));
    id(one).is_some_and(|one| id(other) == Some(one))
}

fn read_map(path: &Path, operands: &[ImagePath]) -> Result<MapFile, Failure> {
    let mut images = operands.iter().map(|inside| &inside.image);
    let first = images.next();
    if images.any(|image| Some(image) != first) {
        return Err(Failure::usage("--map: only valid for one image"));
    }
    if first.is_some_and(|image| !image.layers.is_empty()) {
        let why = "--map: the image must be the copied file, or a partition in it";
        return Err(Failure::usage(why));
    }
    let text = std::fs::read_to_string(path).at(path)?;
    MapFile::parse(&text).at(path)
}

/// The journal of an image that is to be salvaged, while paths can be opened: its own device is
/// only read.
pub(crate) fn journal(url: &DeviceUrl, files: &Files) -> Journal {
    let Some(Ok(device)) = url.without_superblock().plain_device(files) else {
        return Journal::Replay;
    };
    let wanted = SuperblockChoice { superblock: url.superblock, block_size: None };
    // Whether the volume needs it is seen later.
    let found = find_journal(&*device, &wanted, &FileDeviceOptions::new()).ok().flatten();
    found.map_or(Journal::Replay, |found| Journal::ReplayExternal(found.device))
}

impl Salvaging {
    /// Opens an image on its device.
    pub(crate) fn open(
        &self,
        inside: &ImagePath,
        opened: &Opened,
        journal: Journal,
    ) -> Result<Salvage, Failure> {
        let (device, mut salvager) = (opened.device.clone(), Salvager::new());
        if let Some(map) = &self.map {
            let end = opened.start.saturating_add(device.size());
            salvager = salvager.unread(map.unread(opened.start..end));
        }
        if let Some(ByteSize(bytes)) = self.memory {
            salvager = salvager.memory(bytes);
        }
        if let Some(block) = inside.image.superblock {
            salvager = salvager.superblock(block);
        }
        if let Journal::ReplayExternal(journal) = journal {
            salvager = salvager.external_journal(journal);
        }
        salvager.open(device).at(&inside.name)
    }

    /// Writes the report, if a file is given for it.
    pub(crate) fn write<'a>(
        &mut self,
        images: impl Iterator<Item = (&'a str, &'a SalvageReport)>,
    ) -> Result<(), Failure> {
        let Some((path, file)) = &mut self.report else { return Ok(()) };
        let reports: Vec<_> = images.map(|(name, report)| JsonReport::of(name, report)).collect();
        let written = serde_json::to_writer_pretty(&mut *file, &reports).map_err(io::Error::from);
        written.and_then(|()| file.write_all(b"\n")).at(path)
    }
}

/// The message about a file.
pub(crate) fn describe(file: &DamagedFile) -> String {
    let damage = || format!("may be damaged ({})", names(&file.codes));
    match &file.missing[..] {
        [] => damage(),
        missing => {
            let shown: Vec<_> =
                missing.iter().map(|it| format!("{}-{}", it.start, it.end - 1)).collect();
            let missing = format!("missing bytes: {}", shown.join(", "));
            match file.codes.is_empty() {
                true => missing,
                false => format!("{missing}; {}", damage()),
            }
        }
    }
}

/// The message about a journal that was not replayed whole.
pub(crate) fn describe_journal(codes: &[Code]) -> String {
    let codes = names(codes);
    format!("the journal was not replayed whole ({codes}): any file may have older contents")
}

fn names(codes: &[Code]) -> String {
    codes.iter().map(|code| code.row().name).collect::<Vec<_>>().join(", ")
}

/// An image in the report.
#[derive(Serialize)]
struct JsonReport<'a> {
    image: &'a str,
    is_partly: bool,
    unreadable: Vec<(u64, u64)>,
    journal: Vec<&'static str>,
    files: Vec<JsonFile>,
    lost: Vec<JsonLost>,
    findings: Vec<JsonFinding>,
}

#[derive(Serialize)]
struct JsonFile {
    path: JsonName,
    inode: u32,
    #[serde(rename = "type")]
    file_type: &'static str,
    size: u64,
    missing: Vec<(u64, u64)>,
    codes: Vec<&'static str>,
}

#[derive(Serialize)]
struct JsonLost {
    directory: Option<JsonName>,
    name: JsonName,
    inode: Option<u32>,
}

fn pairs(ranges: &[Range<u64>]) -> Vec<(u64, u64)> {
    ranges.iter().map(|it| (it.start, it.end)).collect()
}

impl<'a> JsonReport<'a> {
    fn of(image: &'a str, report: &SalvageReport) -> Self {
        Self {
            image,
            is_partly: report.is_partly,
            unreadable: pairs(&report.unreadable),
            journal: report.journal.iter().map(|code| code.row().name).collect(),
            files: report.files.iter().map(JsonFile::of).collect(),
            lost: report.lost.iter().map(JsonLost::of).collect(),
            findings: report.findings.iter().map(|it| JsonFinding::of(it, None)).collect(),
        }
    }
}

impl JsonFile {
    fn of(file: &DamagedFile) -> Self {
        Self {
            path: JsonName::from(&file.path[..]),
            inode: file.inode.0,
            file_type: type_name(file.file_type),
            size: file.size,
            missing: pairs(&file.missing),
            codes: file.codes.iter().map(|code| code.row().name).collect(),
        }
    }
}

impl JsonLost {
    fn of(lost: &LostName) -> Self {
        Self {
            directory: lost.dir.as_deref().map(JsonName::from),
            name: JsonName::from(&lost.name[..]),
            inode: lost.inode.map(|inode| inode.0),
        }
    }
}
