//! Whole images: made, built, checked, resized.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use extant::source::Source;
use extant::{
    Access, CheckReport, Checker, Device, Formatter, Image, ImageBuilder, Repairs, Resizer,
    RunError, Size, Verdict,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::Failure;
use crate::findings::{FindingTuple, finding};
use crate::target::Target;

fn words(words: Vec<Vec<u8>>) -> impl Iterator<Item = OsString> {
    words.into_iter().map(OsString::from_vec)
}

/// Makes a file system: in a new file of `size` bytes, or on what the URL or file object is.
/// `options` are the words of mke2fs's command line.
#[pyfunction]
pub(crate) fn mkfs(
    py: Python<'_>,
    image: &Bound<'_, PyAny>,
    size: Option<u64>,
    options: Vec<Vec<u8>>,
) -> PyResult<()> {
    let target = Target::of(image, true)?;
    let made = py.detach(|| -> Result<(), Failure> {
        let formatter = Formatter::mke2fs_args(words(options))?;
        match (target, size) {
            (Target::Named(name), Some(size)) => {
                formatter.create_file(PathBuf::from(name), size)?;
            }
            (Target::Named(name), None) => {
                let opened = Image::open(name)?.device(Access::ReadWrite)?;
                formatter.format(&*opened.device)?;
                opened.device.flush()?;
                opened.finish()?;
            }
            (Target::Object(device), _) => {
                formatter.format(&*device)?;
                device.flush()?;
            }
        }
        Ok(())
    });
    Ok(made?)
}

/// Verdict, exit code, whether anything was changed, whether errors are left, findings, error.
type CheckTuple<'py> = (&'static str, u8, bool, bool, Vec<FindingTuple<'py>>, Option<String>);

/// Checks a volume. `repairs` is `no`, `preen` or `yes`. A volume that cannot be checked is an
/// outcome, and not an exception; an image that cannot be opened is one.
#[pyfunction]
pub(crate) fn check<'py>(
    py: Python<'py>,
    image: &Bound<'py, PyAny>,
    repairs: &str,
    force: bool,
    threads: usize,
) -> PyResult<CheckTuple<'py>> {
    let repairs = match repairs {
        "no" => Repairs::No,
        "preen" => Repairs::Preen,
        "yes" => Repairs::Yes,
        other => {
            let what = format!("invalid repairs '{other}' (expected no, preen or yes)");
            return Err(PyValueError::new_err(what));
        }
    };
    let writes = !matches!(repairs, Repairs::No);
    let target = Target::of(image, writes)?;
    let checker = Checker::new().repair(repairs).force(force).threads(threads);
    let outcome = py.detach(|| -> Result<_, Failure> {
        Ok(match target {
            Target::Object(device) => checker.check(device),
            Target::Named(name) => {
                let access = if writes { Access::ReadWrite } else { Access::ReadOnly };
                let opened = Image::open(name)?.device(access)?;
                let outcome = checker.check_image(&opened);
                opened.finish()?;
                outcome
            }
        })
    })?;
    let verdict = Verdict::of(&outcome).name();
    Ok(match outcome {
        Ok(report) => (
            verdict,
            report.exit_code(),
            report.is_modified(),
            report.errors_left,
            findings(py, &report),
            None,
        ),
        Err(error) => {
            (verdict, 8, false, true, findings_before(py, &error), Some(error.to_string()))
        }
    })
}

fn findings<'py>(py: Python<'py>, report: &CheckReport) -> Vec<FindingTuple<'py>> {
    report.findings.iter().map(|found| finding(py, found, report.counts(found))).collect()
}

fn findings_before<'py>(py: Python<'py>, error: &RunError) -> Vec<FindingTuple<'py>> {
    error.findings.iter().map(|found| finding(py, found, false)).collect()
}

/// Bytes, block size, blocks, free blocks, inodes, free inodes, files, directories, bytes of
/// contents, UUID, features, warnings.
type BuildTuple =
    ((u64, u32, u64, u64, u32, u32), (u64, u64, u64), String, Vec<String>, Vec<String>);

/// Builds an image. `size` is as `extant build --size` takes it.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the options of one call")]
pub(crate) fn build(
    py: Python<'_>,
    output: Vec<u8>,
    sources: Vec<Vec<u8>>,
    size: Option<String>,
    owner: Option<(u32, u32)>,
    excludes: Vec<Vec<u8>>,
    source_date_epoch: Option<i64>,
    threads: Option<usize>,
    options: Vec<Vec<u8>>,
) -> PyResult<BuildTuple> {
    let size = size
        .as_deref()
        .map_or(Ok(Size::Auto), str::parse::<Size>)
        .map_err(PyValueError::new_err)?;
    let report = py.detach(|| -> Result<_, Failure> {
        let mut builder = ImageBuilder::new(OsString::from_vec(output)).size(size);
        for source in &sources {
            builder = builder.source(Source::of(OsStr::from_bytes(source))?);
        }
        if let Some((uid, gid)) = owner {
            builder = builder.owner(uid, gid);
        }
        for pattern in &excludes {
            builder = builder.exclude(pattern);
        }
        if let Some(seconds) = source_date_epoch {
            builder = builder.source_date_epoch(seconds);
        }
        if let Some(threads) = threads {
            builder = builder.threads(threads);
        }
        Ok(builder.format(Formatter::mke2fs_args(words(options))?).build()?)
    })?;
    Ok((
        (
            report.bytes,
            report.block_size,
            report.blocks,
            report.free_blocks,
            report.inodes,
            report.free_inodes,
        ),
        (report.files, report.directories, report.content_bytes),
        report.uuid.to_string(),
        report.features,
        report.warnings,
    ))
}

/// Gives a volume another size in bytes, or that of its device; its size then.
#[pyfunction]
pub(crate) fn resize(
    py: Python<'_>,
    image: &Bound<'_, PyAny>,
    size: Option<u64>,
    force: bool,
) -> PyResult<u64> {
    on_device(py, image, true, move |device| {
        let wanted = size.unwrap_or_else(|| device.size());
        let resizer = Resizer::new(device).force(force);
        match wanted >= resizer.size()? {
            true => resizer.grow(wanted),
            false => resizer.shrink(wanted),
        }
    })
}

/// The smallest size in bytes that a volume can have.
#[pyfunction]
pub(crate) fn minimum_size(py: Python<'_>, image: &Bound<'_, PyAny>) -> PyResult<u64> {
    on_device(py, image, false, |device| Resizer::new(device).minimum())
}

/// Runs a call on the device of an image.
fn on_device<T: Send, E: Into<Failure>>(
    py: Python<'_>,
    image: &Bound<'_, PyAny>,
    write: bool,
    call: impl FnOnce(Arc<dyn Device>) -> Result<T, E> + Send,
) -> PyResult<T> {
    let target = Target::of(image, write)?;
    let outcome = py.detach(|| -> Result<T, Failure> {
        match target {
            Target::Object(device) => call(device).map_err(Into::into),
            Target::Named(name) => {
                let access = if write { Access::ReadWrite } else { Access::ReadOnly };
                let opened = Image::open(name)?.device(access)?;
                let found = call(opened.device.clone()).map_err(Into::into)?;
                opened.finish()?;
                Ok(found)
            }
        }
    });
    Ok(outcome?)
}
