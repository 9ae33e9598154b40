//! A profile in a simulated runtime with a clock of its own: its threads are logical ones that take
//! turns, one write after the other, the thread whose last write ended first comes first.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;

use super::operate::{buffer, draw_size};
use super::profile::{FileSet, Operation, Profile, Start};
use super::trial::{Counts, Group, Measured, TrialResult};
use super::{RunError, failed};
use crate::clock::Clock;
use crate::files::{Access, Files, Intent, OpenFile};

/// A logical thread in the middle of a file.
struct Writer {
    file: Box<dyn OpenFile>,
    path: PathBuf,
    at: u64,
    size: u64,
}

/// Runs a profile whose threads make files and do nothing else; others are refused.
///
/// # Errors
/// The profile does more, or a call failed.
pub fn run_in_turns(
    profile: &Profile,
    files: &dyn Files,
    clock: &Clock,
) -> Result<TrialResult, RunError> {
    let ([set], [group]) = (&profile.filesystems[..], &profile.thread_groups[..]) else {
        return Err(RunError::NotInTurns("several file systems or groups of threads"));
    };
    let creates = group
        .weights
        .iter()
        .zip(Operation::ALL)
        .all(|(weight, operation)| *weight == 0 || matches!(operation, Operation::Create));
    if !creates || group.write.fsync || !group.delay.is_zero() || set.dirs > 0 {
        return Err(RunError::NotInTurns("operations other than create, directories, or delays"));
    }
    if !matches!(set.start, Start::Files(0)) || set.ageing.is_some() || profile.callout.is_some() {
        return Err(RunError::NotInTurns("files that are there before, ageing, or a callout"));
    }
    let mut random = profile.seed.map_or_else(Rng::new, Rng::with_seed);
    let data = set.location.join("data");
    files.create_dir(&data).map_err(failed("make", &data))?;
    let bytes = buffer(group.write.block, profile, &mut random);
    let (start, before) = (clock.now(), clock.cpu());
    let mut turns = Turns { files, set, data, made: 0, random };
    let mut sum = Group::new(None);
    let mut writers: VecDeque<Option<Writer>> = (0..group.threads).map(|_| None).collect();
    let is_over = |clock: &Clock| clock.now().saturating_sub(start) >= profile.time;
    while let Some(writer) = writers.pop_front() {
        let mut writer = match writer {
            Some(writer) => writer,
            None if is_over(clock) => continue,
            None => turns.begin()?,
        };
        let length = group.write.block.min(writer.size - writer.at);
        let written = writer.file.write_at(&bytes[..length as usize], writer.at);
        written.map_err(failed("write", &writer.path))?;
        writer.at += length;
        if writer.at < writer.size {
            writers.push_back(Some(writer));
            continue;
        }
        sum.count(
            Operation::Create,
            Counts {
                operations: 1,
                transactions: writer.size.div_ceil(group.write.block),
                read_bytes: 0,
                written_bytes: writer.size,
            },
        );
        drop(writer);
        writers.push_back(None);
    }
    files.sync(&set.location).map_err(failed("sync", &set.location))?;
    let elapsed_seconds = clock.since(start);
    let measured = Measured { elapsed_seconds, cpu: clock.cpu().since(before), groups: vec![sum] };
    Ok(TrialResult { setup_seconds: Duration::ZERO.as_secs_f64(), measured: Some(measured) })
}

struct Turns<'p> {
    files: &'p dyn Files,
    set: &'p FileSet,
    data: PathBuf,
    made: u64,
    random: Rng,
}

impl Turns<'_> {
    fn begin(&mut self) -> Result<Writer, RunError> {
        let path = self.data.join(format!("datafile{}", self.made));
        self.made += 1;
        let size = draw_size(&self.set.sizes, &mut self.random);
        let access = Access { intent: Intent::Create, direct: false };
        let file = self.files.open(Path::new(&path), access).map_err(failed("make", &path))?;
        Ok(Writer { file, path, at: 0, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Mounted;

    fn profile(location: &Path, group: &str) -> Profile {
        let text = format!(
            "num_filesystems=1\nnum_threadgroups=1\ntime=1\nseed=1\n\
             [filesystem0]\nlocation={}\nnum_files=0\nnum_dirs=0\nmin_filesize=10k\nmax_filesize=10k\n[end0]\n\
             [threadgroup0]\nnum_threads=3\nwrite_size=4k\nwrite_blocksize=4k\n{group}\n[end0]\n",
            location.display()
        );
        text.parse().expect("a profile")
    }

    #[test]
    fn threads_take_turns_until_the_time_is_over_and_finish_their_files() {
        let dir = tempfile::tempdir().expect("a place for the test");
        let mut profile = profile(dir.path(), "create_weight=1");
        profile.time = Duration::from_millis(50);
        let outcome = run_in_turns(&profile, &Mounted, &Clock::default()).expect("it runs");
        let measured = outcome.measured.expect("measured");
        let counts = measured.groups[0].operations["create"];
        assert!(counts.operations > 0, "{counts:?}");
        assert_eq!(counts.written_bytes, counts.operations * 10 * 1024);
        assert_eq!(counts.transactions, counts.operations * 3);
        let files = std::fs::read_dir(dir.path().join("data")).expect("a directory");
        let sizes: Vec<u64> = files
            .map(|file| file.and_then(|file| file.metadata()).expect("a file").len())
            .collect();
        assert_eq!(sizes, vec![10 * 1024; counts.operations as usize]);
    }

    #[test]
    fn a_profile_that_does_more_is_refused() {
        let dir = tempfile::tempdir().expect("a place for the test");
        for group in [
            "create_weight=1\nread_weight=1\nread_size=4k\nread_blocksize=4k",
            "create_fsync_weight=1",
        ] {
            let profile = profile(dir.path(), group);
            let error = run_in_turns(&profile, &Mounted, &Clock::default()).expect_err("refused");
            assert!(error.to_string().contains("makes files and does nothing else"), "{error}");
        }
    }
}
