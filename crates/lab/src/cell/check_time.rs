//! Document 004: a volume is filled in steps; at each, checks that establish, use and remove the
//! inode tables' high-water marks.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use super::error::{CellError, Trying};
use super::protocol::Cell;
use super::recorder::Recorder;
use super::tool::{needs, run as run_tool};
use super::volume::{MountedVolume, TargetVolume, check, simulated_times, volume_size};
use crate::experiment::CheckTime;
use crate::files::{Access, Intent};

/// Volumes of every target can be that small: mkfs.xfs makes none below 300 MB.
const LEAST_VOLUME: u64 = 320 << 20;
/// The feature that keeps the marks.
const MARKS: &str = "uninit_bg";

/// Inodes that a new volume uses itself, and more.
const OWN_INODES: u64 = 16;
/// Steps at which e2fsck is run on the image of a simulated drive, too.
pub(crate) const REAL_STEPS: [f64; 3] = [0.0, 40.0, 98.0];

/// The purposes for which a volume is checked.
const USES: [&str; 3] = ["establish", "use", "remove"];

pub(super) fn run(
    cell: &Cell,
    work: &CheckTime,
    recorder: &mut Recorder<'_>,
) -> Result<(), CellError> {
    let place = TargetVolume::new(cell)?;
    if place.is_dir() {
        return Err(CellError::new("a directory cannot be checked"));
    }
    let scaled = (work.volume.0 as f64 * cell.settings.counts) as u64;
    let size = volume_size(scaled, LEAST_VOLUME);
    let ratio = work.bytes_per_inode.to_string();
    let no_marks = format!("^metadata_csum,^{MARKS}");
    let words: &[&str] = match cell.target.system.is_ext() {
        true => &["-i", &ratio, "-O", &no_marks],
        false => &[],
    };
    let inodes = size / work.bytes_per_inode;
    if cell.target.system.drive().is_some() {
        return on_drive(cell, work, &place, (size, inodes, words), recorder);
    }
    recorder.announce("mkfs");
    place.format_with(size, words)?;

    let mut made = 0;
    for percent in &work.steps {
        let wanted = (inodes as f64 * percent / 100.0) as u64;
        if wanted > made {
            recorder.announce(&format!("filling to {percent}%"));
            let mounted = place.mount()?;
            fill(&mounted, made..wanted, work.files_per_directory)?;
            made = wanted;
            mounted.close()?;
        }
        match cell.target.system.is_ext() {
            true => check_marks(cell, &place, *percent, recorder)?,
            false => {
                for (name, mut checker) in place.checkers() {
                    if let Err(error) = needs(checker.get_program()) {
                        recorder.skip(name, error);
                        continue;
                    }
                    place.drop_caches();
                    let name = format!("{name} use");
                    let (_, seconds) =
                        recorder.timed_at(&name, *percent, || check(&mut checker))?;
                    recorder.record_at(&name, "check_seconds", seconds, Some(*percent));
                }
            }
        }
    }
    Ok(())
}

/// Empty files, a fixed number per directory.
fn fill(
    mounted: &MountedVolume,
    files: std::ops::Range<u64>,
    a_directory: u64,
) -> Result<(), CellError> {
    let first = files.start;
    for number in files {
        let dir = mounted.root.join(format!("d{}", number / a_directory));
        if number % a_directory == 0 || number == first {
            match mounted.files.create_dir(&dir) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(CellError(format!("{}: {error}", dir.display())));
                }
                _ => {}
            }
            if number % a_directory == 0 {
                continue; // the directory has taken an inode itself
            }
        }
        let path = dir.join(format!("f{number}"));
        mounted
            .files
            .open(&path, Access { intent: Intent::Create, direct: false })
            .trying(path.display())?;
    }
    Ok(())
}

/// On a simulated drive: each step is a new volume that is written full, in place of files made one
/// by one; then our checker three times, by the drive's clock. For steps in [`REAL_STEPS`], e2fsck
/// checks the same image, by this machine's.
fn on_drive(
    cell: &Cell,
    work: &CheckTime,
    place: &TargetVolume<'_>,
    (size, inodes, words): (u64, u64, &[&str]),
    recorder: &mut Recorder<'_>,
) -> Result<(), CellError> {
    let ours = Checker {
        name: "extant fsck",
        check: &cell.program,
        check_words: &["fsck"],
        tune: &cell.program,
        tune_words: &["tune"],
    };
    let e2fsck = Checker {
        name: "e2fsck on this machine",
        check: Path::new("e2fsck"),
        check_words: &[],
        tune: &cell.program,
        tune_words: &["tune"],
    };
    for percent in &work.steps {
        recorder.announce(&format!("filling to {percent}%"));
        place.make_image(size)?;
        let opened = extant::open_device(place.image(), true, extant::Direct::Off);
        let opened = opened.trying("filling")?;
        // The volume's own inodes are in use from the start.
        let wanted = ((inodes as f64 * percent / 100.0) as u64).saturating_sub(OWN_INODES);
        let own = place.words_of_drive();
        let words = own.iter().map(String::as_str).chain(words.iter().copied());
        let words = words.chain(cell.target.mkfs_words());
        extant::format_filled(&*opened.device, words, wanted, work.files_per_directory)
            .trying("filling")?;
        opened.finish().trying("filling")?;
        for which in USES {
            ours.switch_for(which, place.image().as_os_str())?;
            let phase = format!("{} {which}", ours.name);
            recorder.announce(&phase);
            let mut command = ours.command(place.image());
            let said = checked(command.arg("--json"))?;
            let (seconds, passes) = simulated_times(&said)?;
            recorder.record_at(&phase, "check_seconds", seconds, Some(*percent));
            for (pass, seconds) in passes {
                recorder.record_at(&phase, &format!("pass{pass}_seconds"), seconds, Some(*percent));
            }
        }
        if !REAL_STEPS.contains(percent) {
            continue;
        }
        if let Err(error) = e2fsck.is_there() {
            recorder.skip(e2fsck.name, error);
            continue;
        }
        for which in USES {
            // By ours on the drive, which keeps zeroed tables as holes: tune2fs would write them
            // out, tens of gigabytes.
            ours.switch_for(which, place.image().as_os_str())?;
            place.drop_caches();
            // It may need more memory or time than available: our results stay.
            if let Err(error) = e2fsck.measure(which, place.file(), *percent, recorder) {
                recorder.skip(&format!("{} {which}, {percent}%", e2fsck.name), error);
            }
        }
    }
    Ok(())
}

/// Each checker of ext volumes, three times; afterwards the volume has no marks, as before.
fn check_marks(
    cell: &Cell,
    place: &TargetVolume<'_>,
    percent: f64,
    recorder: &mut Recorder<'_>,
) -> Result<(), CellError> {
    let ours = cell.program.as_path();
    let checkers = [
        Checker {
            name: "e2fsck",
            check: Path::new("e2fsck"),
            check_words: &[],
            tune: Path::new("tune2fs"),
            tune_words: &[],
        },
        Checker {
            name: "extant fsck",
            check: ours,
            check_words: &["fsck"],
            tune: ours,
            tune_words: &["tune"],
        },
    ];
    for checker in checkers {
        if let Err(error) = checker.is_there() {
            recorder.skip(checker.name, error);
            continue;
        }
        for which in USES {
            checker.switch_for(which, place.image().as_os_str())?;
            place.drop_caches();
            checker.measure(which, place.image(), percent, recorder)?;
        }
    }
    Ok(())
}

/// Runs a check. 1: the remains of switching the feature were corrected.
fn checked(command: &mut Command) -> Result<String, CellError> {
    let output = super::tool::finish(command)?;
    match output.status.code() {
        Some(0 | 1) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        _ => Err(super::tool::complaint(command, &output)),
    }
}

/// A checker, and the options that switch its features.
struct Checker<'c> {
    name: &'static str,
    check: &'c Path,
    check_words: &'static [&'static str],
    tune: &'c Path,
    tune_words: &'static [&'static str],
}

impl Checker<'_> {
    fn is_there(&self) -> Result<(), CellError> {
        needs(self.check).and_then(|()| needs(self.tune))
    }

    /// Switches the feature as a use needs it.
    fn switch_for(&self, which: &str, image: &OsStr) -> Result<(), CellError> {
        let feature = match which {
            "establish" => MARKS.to_owned(),
            "remove" => format!("^{MARKS}"),
            _ => return Ok(()),
        };
        let words = self.tune_words.iter().copied().chain(["-f", "-O", &feature]);
        run_tool(self.tune, words.map(AsRef::as_ref).chain([image])).map(drop)
    }

    fn command(&self, image: &Path) -> Command {
        let mut command = Command::new(self.check);
        command.args(self.check_words).args(["-fy", "-tt"]).arg(image);
        command
    }

    /// Checks, by the clock of this machine.
    fn measure(
        &self,
        which: &str,
        image: &Path,
        percent: f64,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), CellError> {
        let phase = format!("{} {which}", self.name);
        let mut command = self.command(image);
        let (said, seconds) = recorder.timed_at(&phase, percent, || checked(&mut command))?;
        recorder.record_at(&phase, "check_seconds", seconds, Some(percent));
        for (pass, seconds) in passes(&said) {
            recorder.record_at(&phase, &format!("pass{pass}_seconds"), seconds, Some(percent));
        }
        Ok(())
    }
}

/// `Pass 1: Memory used: 260k/0k (118k/143k), time:  0.01/ 0.00/ 0.00`, or
/// `Pass 1: time:  0.01, I/O read: 1MB`: the pass and its elapsed seconds.
fn passes(said: &str) -> impl Iterator<Item = (u32, f64)> {
    said.lines().filter_map(|line| {
        let (pass, rest) = line.strip_prefix("Pass ")?.split_once(':')?;
        let (_, times) = rest.split_once("time:")?;
        let elapsed = times.split(['/', ',']).next()?.trim();
        Some((pass.parse().ok()?, elapsed.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_read_from_the_checkers_lines() {
        let said = "Pass 1: Checking inodes, blocks, and sizes\n\
                    Pass 1: Memory used: 260k/0k (118k/143k), time:  0.01/ 0.00/ 0.00\n\
                    Pass 1: I/O read: 1MB, write: 0MB, rate: 90.00MB/s\n\
                    Pass 5: Memory used: 276k/0k (119k/158k), time:  2.50/ 0.00/ 0.00\n\
                    Pass 6: time:  0.25, I/O read: 1MB, write: 0MB, rate: 14.26MB/s\n";
        assert_eq!(passes(said).collect::<Vec<_>>(), [(1, 0.01), (5, 2.5), (6, 0.25)]);
    }
}
