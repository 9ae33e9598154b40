//! A profile as text: the configuration that a run begins with, which reads as the same profile
//! again.

use std::fmt;

use super::{FileSet, Fill, Operation, Profile, ReadOrder, Sizes, Start, Stats, ThreadGroup};

impl Fill {
    /// The name in profiles.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zero => "zero",
            Self::Random => "random",
            Self::Pattern => "pattern",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "time = {}", self.time.as_secs_f64())?;
        writeln!(f, "directio = {}", u8::from(self.direct_io))?;
        writeln!(f, "alignio = {}", u8::from(self.align_io))?;
        if let Some(callout) = &self.callout {
            writeln!(f, "callout = {callout}")?;
        }
        writeln!(f, "fill = {}", self.fill.name())?;
        if let Some(seed) = self.seed {
            writeln!(f, "seed = {seed}")?;
        }
        for set in &self.filesystems {
            file_set(f, set)?;
        }
        for group in &self.thread_groups {
            thread_group(f, group, "")?;
        }
        Ok(())
    }
}

fn file_set(f: &mut fmt::Formatter<'_>, set: &FileSet) -> fmt::Result {
    writeln!(f, "[filesystem]\n  location = {}", set.location.display())?;
    match set.start {
        Start::Files(count) => writeln!(f, "  num_files = {count}")?,
        Start::Bytes(bytes) => writeln!(f, "  init_size = {bytes}")?,
        Start::Utilization(share) => writeln!(f, "  init_util = {share}")?,
    }
    writeln!(f, "  num_dirs = {}", set.dirs)?;
    match &set.sizes {
        Sizes::Uniform { min, max } => {
            writeln!(f, "  min_filesize = {min}\n  max_filesize = {max}")?;
        }
        Sizes::Weighted(sizes) => {
            for (size, weight) in sizes {
                writeln!(f, "  size_weight {size} {weight}")?;
            }
        }
    }
    writeln!(f, "  create_blocksize = {}", set.create_block)?;
    writeln!(f, "  reuse = {}", u8::from(set.reuse))?;
    if let Some(ageing) = &set.ageing {
        writeln!(f, "  agefs = 1\n  desired_util = {}", ageing.utilization)?;
        thread_group(f, &ageing.group, "  ")?;
    }
    writeln!(f, "[end]")
}

fn thread_group(f: &mut fmt::Formatter<'_>, group: &ThreadGroup, indent: &str) -> fmt::Result {
    writeln!(f, "{indent}[threadgroup]\n{indent}  num_threads = {}", group.threads)?;
    let mut setting = |key: &str, value: u64| match value {
        0 => Ok(()),
        value => writeln!(f, "{indent}  {key} = {value}"),
    };
    setting("op_delay", u64::try_from(group.delay.as_millis()).unwrap_or(u64::MAX))?;
    setting("read_size", group.read.size)?;
    setting("read_blocksize", group.read.block)?;
    match group.read.order {
        ReadOrder::Sequential => {}
        ReadOrder::Random => setting("read_random", 1)?,
        ReadOrder::Strided(skip) => {
            setting("read_skip", 1)?;
            setting("read_skipsize", skip)?;
        }
    }
    setting("write_size", group.write.size)?;
    setting("write_blocksize", group.write.block)?;
    setting("write_random", group.write.is_random.into())?;
    setting("fsync_file", group.write.fsync.into())?;
    for (operation, weight) in Operation::ALL.into_iter().zip(group.weights) {
        setting(&format!("{}_weight", operation.name()), weight.into())?;
    }
    if let Some(number) = group.bound {
        writeln!(f, "{indent}  bindfs = {number}")?;
    }
    if let Some(timed) = &group.stats {
        stats(f, timed, indent)?;
    }
    writeln!(f, "{indent}[end]")
}

fn stats(f: &mut fmt::Formatter<'_>, stats: &Stats, indent: &str) -> fmt::Result {
    writeln!(f, "{indent}  [stats]\n{indent}    enable_stats = 1")?;
    writeln!(f, "{indent}    enable_range = {}", u8::from(!stats.ranges.is_empty()))?;
    for call in &stats.ignored {
        writeln!(f, "{indent}    ignore = {}", call.name())?;
    }
    for (from, to) in &stats.ranges {
        writeln!(f, "{indent}    msec_range {from} {to}")?;
    }
    writeln!(f, "{indent}  [end]")
}
