//! Deleted files, versions of inodes, the times of all files, and damaged volumes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use extant::rescue::{
    self, Content, InodeVersion, MapFile, RescueError, SalvageReport, Salvager, TimelineEntry,
};
use extant::rooms::ondisk::inode::Inode;
use extant::rooms::storage::{DeviceUrl, stat_host};
use extant::{Access, Device, Follow, HandledFinding, Image, Opened, Reader, VolumeRead};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::Failure;
use crate::findings::{FindingTuple, finding};
use crate::fs::FileSystem;
use crate::target::Target;

/// Bytes that one call reads at most.
const LONGEST_READ: usize = 16 << 20;

/// Mode, owner, group, size, links, generation, times of reading, of the contents' and of the
/// inode's change in nanoseconds.
type AttributesTuple = (u16, u32, u32, u64, u16, u32, i128, i128, i128);

fn attributes(inode: &Inode) -> AttributesTuple {
    let nanoseconds = |time: extant::Timestamp| {
        i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
    };
    (
        inode.mode,
        inode.uid,
        inode.gid,
        inode.size,
        inode.links,
        inode.generation,
        nanoseconds(inode.atime),
        nanoseconds(inode.mtime),
        nanoseconds(inode.ctime),
    )
}

/// Opens an operand for reading.
fn opened(target: Target) -> Result<Opened, Failure> {
    Ok(match target {
        Target::Named(name) => Image::open(name)?.device(Access::ReadOnly)?,
        Target::Object(device) => Opened::real(device),
    })
}

fn device_of(target: Target) -> Result<Arc<dyn Device>, Failure> {
    Ok(opened(target)?.device)
}

fn bytes<'py>(py: Python<'py>, bytes: Option<&Vec<u8>>) -> Option<Bound<'py, PyBytes>> {
    bytes.map(|bytes| PyBytes::new(py, bytes))
}

/// Path, inode, state, whether that is certain, lost ranges, time of the deletion, attributes.
type DeletedTuple<'py> = (
    Option<Bound<'py, PyBytes>>,
    u32,
    &'static str,
    bool,
    Vec<(u64, u64)>,
    Option<i64>,
    Option<AttributesTuple>,
);

/// The deleted files of a volume.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct DeletedFiles {
    found: Arc<rescue::DeletedFiles>,
}

#[pymethods]
impl DeletedFiles {
    /// Looks for the deleted files of the volume on an image.
    #[staticmethod]
    fn find(py: Python<'_>, image: &Bound<'_, PyAny>) -> PyResult<Self> {
        let target = Target::of(image, false)?;
        let found = py.detach(|| -> Result<_, Failure> {
            Ok(rescue::DeletedFiles::find(device_of(target)?)?)
        });
        Ok(Self { found: Arc::new(found?) })
    }

    /// The files, by their paths.
    fn files<'py>(&self, py: Python<'py>) -> Vec<DeletedTuple<'py>> {
        let tuple = |file: &rescue::DeletedFile| {
            let (state, lost) = match (&file.content, &file.attributes) {
                (Content::Whole, _) => ("whole", Vec::new()),
                (Content::Partly(lost), _) => ("partly", pairs(lost)),
                (Content::Gone, None) => ("name only", Vec::new()),
                (Content::Gone, Some(_)) => ("inode only", Vec::new()),
            };
            (
                bytes(py, file.path.as_ref()),
                file.inode.0,
                state,
                file.is_certain,
                lost,
                file.deleted,
                file.attributes.as_ref().map(attributes),
            )
        };
        self.found.files().iter().map(tuple).collect()
    }

    /// At most `size` bytes of the contents of a file at `offset`; lost bytes are zeros.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        size: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let found = &*self.found;
        let file = found.files().get(index).ok_or_else(|| PyIndexError::new_err(index))?;
        let bytes = py.detach(|| -> Result<_, Failure> {
            let mut bytes = vec![0; size.min(LONGEST_READ)];
            let count = found.read(file, offset, &mut bytes)?;
            bytes.truncate(count);
            if let Content::Partly(lost) = &file.content {
                let end = offset + count as u64;
                for lost in lost.iter().filter(|it| it.start < end && it.end > offset) {
                    let from = lost.start.max(offset) - offset;
                    let to = lost.end.min(end) - offset;
                    bytes[from as usize..to as usize].fill(0);
                }
            }
            Ok(bytes)
        });
        Ok(PyBytes::new(py, &bytes?))
    }

    /// The target of a symbolic link.
    fn readlink<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyBytes>> {
        let found = &*self.found;
        let file = found.files().get(index).ok_or_else(|| PyIndexError::new_err(index))?;
        let target = py.detach(|| found.read_link(file)).map_err(Failure::from)?;
        Ok(PyBytes::new(py, &target))
    }
}

fn pairs(ranges: &[std::ops::Range<u64>]) -> Vec<(u64, u64)> {
    ranges.iter().map(|range| (range.start, range.end)).collect()
}

/// Transaction, time of its commit, whether it is the inode in place, attributes.
type VersionTuple = (Option<u32>, Option<i64>, bool, AttributesTuple);

/// The inode of a path, and its versions in the log, the oldest first.
#[pyfunction]
pub(crate) fn history(
    py: Python<'_>,
    image: &Bound<'_, PyAny>,
    path: &[u8],
) -> PyResult<(u32, Vec<VersionTuple>)> {
    let target = Target::of(image, false)?;
    let found = py.detach(|| -> Result<_, Failure> {
        let device = device_of(target)?;
        let number = Reader::open(device.clone())?.resolve(path, Follow::No)?.number;
        Ok((number.0, rescue::history(device, number)?))
    });
    let (number, versions) = found?;
    let tuple = |it: &InodeVersion| (it.tid, it.committed, it.is_present, attributes(&it.inode));
    Ok((number, versions.iter().map(tuple).collect()))
}

/// Path, inode, attributes, target of a symbolic link, whether it was deleted.
type TimelineTuple<'py> =
    (Option<Bound<'py, PyBytes>>, u32, Option<AttributesTuple>, Option<Bound<'py, PyBytes>>, bool);

/// The names of a volume, then its deleted files.
#[pyfunction]
pub(crate) fn timeline<'py>(
    py: Python<'py>,
    image: &Bound<'py, PyAny>,
) -> PyResult<Vec<TimelineTuple<'py>>> {
    let target = Target::of(image, false)?;
    let found = py.detach(|| -> Result<_, Failure> {
        Ok(rescue::timeline(&rescue::DeletedFiles::find(device_of(target)?)?)?)
    });
    let tuple = |it: &TimelineEntry| {
        let (path, target) = (bytes(py, it.path.as_ref()), bytes(py, it.target.as_ref()));
        (path, it.inode.0, it.attributes.as_ref().map(attributes), target, it.is_deleted)
    };
    Ok(found?.iter().map(tuple).collect())
}

/// Path, inode, type, size, missing ranges, codes of the damage.
type DamagedTuple<'py> = (Bound<'py, PyBytes>, u32, u16, u64, Vec<(u64, u64)>, Vec<&'static str>);

/// Path of the directory, name, inode.
type LostTuple<'py> = (Option<Bound<'py, PyBytes>>, Bound<'py, PyBytes>, Option<u32>);

/// Whether something is missing, unreadable ranges of the device, codes of the damage of the
/// journal, files, lost names, findings.
type SalvageTuple<'py> = (
    bool,
    Vec<(u64, u64)>,
    Vec<&'static str>,
    Vec<DamagedTuple<'py>>,
    Vec<LostTuple<'py>>,
    Vec<FindingTuple<'py>>,
);

/// A damaged volume, repaired in memory.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Salvage {
    salvage: rescue::Salvage,
}

#[pymethods]
impl Salvage {
    /// Opens a damaged volume. `map` is the text of a map file of ddrescue.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        image: &Bound<'_, PyAny>,
        map: Option<&str>,
        threads: usize,
    ) -> PyResult<Self> {
        let invalid = |what: String| PyValueError::new_err(format!("map: {what}"));
        let map = map.map(MapFile::parse).transpose();
        let map = map.map_err(|error| invalid(error.to_string()))?;
        let target = Target::of(image, false)?;
        if let (Target::Named(name), Some(_)) = (&target, &map)
            && has_layers(name)
        {
            let what = "the image must be the copied file, or a partition in it";
            return Err(invalid(what.to_owned()));
        }
        let salvage = py.detach(|| -> Result<_, Failure> {
            let opened = opened(target)?;
            let mut salvager = Salvager::new().threads(threads);
            if let Some(map) = map {
                let end = opened.start.saturating_add(opened.device.size());
                salvager = salvager.unread(map.unread(opened.start..end));
            }
            Ok(salvager.open(opened.device)?)
        });
        Ok(Self { salvage: salvage? })
    }

    /// The repaired volume.
    fn file_system(&self) -> PyResult<FileSystem> {
        Ok(FileSystem::new(self.salvage.file_system().map_err(Failure::from)?))
    }

    /// The report on the files of these paths; without any, on all of the volume.
    fn report<'py>(&self, py: Python<'py>, paths: Vec<Vec<u8>>) -> PyResult<SalvageTuple<'py>> {
        let report = py.detach(|| -> Result<SalvageReport, Failure> {
            let resolve = |path: &Vec<u8>| {
                let found = self.salvage.reader().resolve(path, Follow::Yes);
                Ok(found.map_err(RescueError::from)?.number)
            };
            let starts = paths.iter().map(resolve).collect::<Result<Vec<_>, Failure>>()?;
            Ok(self.salvage.report(&starts)?)
        })?;
        let files = report.files.iter().map(|file| {
            let codes = file.codes.iter().map(|code| code.row().name).collect();
            let missing = pairs(&file.missing);
            (
                PyBytes::new(py, &file.path),
                file.inode.0,
                file.file_type.mode(),
                file.size,
                missing,
                codes,
            )
        });
        let lost = report.lost.iter().map(|lost| {
            let (dir, name) = (bytes(py, lost.dir.as_ref()), PyBytes::new(py, &lost.name));
            (dir, name, lost.inode.map(|inode| inode.0))
        });
        let shown = |found: &HandledFinding| finding(py, found, false);
        let findings = report.findings.iter().map(shown).collect();
        let unreadable = pairs(&report.unreadable);
        let journal = report.journal.iter().map(|code| code.row().name).collect();
        Ok((report.is_partly, unreadable, journal, files.collect(), lost.collect(), findings))
    }
}

/// Whether a name has layers, so that its bytes are not those of the file.
fn has_layers(name: &OsString) -> bool {
    let url = DeviceUrl::parse(OsStr::from_bytes(name.as_bytes()), extant::schemes(), stat_host);
    url.is_ok_and(|url| !url.layers.is_empty())
}
