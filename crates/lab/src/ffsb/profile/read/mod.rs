//! Text in, [`Profile`] out. Lines become nested sections; sections become values, with the line of
//! whatever is wrong.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use extant::{ByteSize, SizeGrammar};

use super::{
    Ageing, Call, FileSet, Fill, Operation, Profile, ReadOrder, Reading, Sizes, Start, Stats,
    ThreadGroup, Writing,
};

mod error;
mod lines;

pub use error::{Flaw, ProfileError};
use lines::{Section, SectionKind};

const GLOBAL_KEYS: &[&str] = &[
    "time",
    "directio",
    "alignio",
    "bufferio",
    "bufferedio",
    "verbose",
    "callout",
    "num_filesystems",
    "num_threadgroups",
    "fill",
    "seed",
];

const FILESYSTEM_KEYS: &[&str] = &[
    "location",
    "clone",
    "num_files",
    "num_dirs",
    "min_filesize",
    "max_filesize",
    "size_weight",
    "init_size",
    "init_util",
    "create_blocksize",
    "reuse",
    "agefs",
    "desired_util",
    "age_blocksize",
];

const GROUP_KEYS: &[&str] = &[
    "num_threads",
    "bindfs",
    "op_delay",
    "read_size",
    "read_blocksize",
    "read_random",
    "read_skip",
    "read_skipsize",
    "write_size",
    "write_blocksize",
    "write_random",
    "fsync_file",
    "meta_weight",
];

const STATS_KEYS: &[&str] = &["enable_stats", "enable_range", "ignore", "msec_range"];

/// The keys of which a file set follows one.
const START_KEYS: [&str; 3] = ["num_files", "init_size", "init_util"];

/// Bytes per write of a file set, unless the profile gives it.
const DEFAULT_BLOCK: u64 = 4096;

/// The most bytes of one call: every thread has memory for them.
const MAX_BLOCK: u64 = 1 << 30;

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let root = lines::sections(text)?;
        root.check_keys(|key| GLOBAL_KEYS.contains(&key))?;
        let mut warnings = Vec::new();
        let filesystems = file_sets(&root, &mut warnings)?;
        if filesystems.is_empty() {
            return Err(Flaw::NoSection("filesystem").at(1));
        }
        let groups = root.children(SectionKind::ThreadGroup);
        let thread_groups = groups
            .map(|section| thread_group(section, &filesystems))
            .collect::<Result<Vec<_>, _>>()?;
        let time = root.number("time")?;
        if time.is_none() {
            warnings.push("no time is given: the files are made, and nothing is measured".into());
        }
        if thread_groups.is_empty() && time.unwrap_or(0) > 0 {
            return Err(Flaw::NoSection("threadgroup").at(1));
        }
        for (key, count) in
            [("num_filesystems", filesystems.len()), ("num_threadgroups", thread_groups.len())]
        {
            if let Some(said) = root.number(key)?.filter(|said| *said as usize != count) {
                warnings.push(format!("{key} is {said}, but {count} are described"));
            }
        }
        for key in ["bufferio", "bufferedio", "verbose"] {
            if root.flag(key)? {
                warnings.push(format!("{key} has no effect, as in FFSB"));
            }
        }
        let direct_io = root.flag("directio")?;
        Ok(Self {
            time: Duration::from_secs(u64::from(time.unwrap_or(0))),
            direct_io,
            align_io: root.flag("alignio")? || direct_io,
            callout: root.text("callout").map(|(_, text)| text.to_owned()),
            fill: root.parsed("fill", "zero, random or pattern", fill)?.unwrap_or_default(),
            seed: root.parsed("seed", "a whole number", |text| text.parse().ok())?,
            filesystems,
            thread_groups,
            warnings,
        })
    }
}

fn fill(text: &str) -> Option<Fill> {
    [Fill::Zero, Fill::Random, Fill::Pattern].into_iter().find(|fill| fill.name() == text)
}

/// All `[filesystem]` sections. A section takes missing settings from the one that it clones; in
/// the older form, which numbers the sections, from the one before it.
fn file_sets(root: &Section, warnings: &mut Vec<String>) -> Result<Vec<FileSet>, ProfileError> {
    let mut whole: Vec<Section> = Vec::new();
    let mut sets = Vec::new();
    for own in root.children(SectionKind::FileSystem) {
        own.check_keys(|key| FILESYSTEM_KEYS.contains(&key))?;
        let base = match own.text("clone") {
            Some((line, location)) => {
                let is_meant =
                    |set: &&Section| set.text("location").is_some_and(|(_, text)| text == location);
                let found = whole.iter().find(is_meant);
                Some(found.ok_or_else(|| Flaw::NoSuchLocation(location.into()).at(line))?)
            }
            None if own.is_numbered => whole.last(),
            None => None,
        };
        let section = base.map_or_else(|| own.clone(), |base| inherited(own, base));
        sets.push(file_set(&section, warnings)?);
        whole.push(section);
    }
    Ok(sets)
}

/// The section's own settings, and the base's where it has none.
fn inherited(own: &Section, base: &Section) -> Section {
    let mut whole = own.clone();
    let starts_itself = START_KEYS.iter().any(|key| own.text(key).is_some());
    for item in &base.items {
        let is_own = own.items.iter().any(|other| other.key == item.key)
            || (starts_itself && START_KEYS.contains(&item.key.as_str()))
            || matches!(item.key.as_str(), "location" | "clone");
        if !is_own {
            whole.items.push(item.clone());
        }
    }
    if own.sections.is_empty() {
        whole.sections.clone_from(&base.sections);
    }
    whole
}

fn file_set(section: &Section, warnings: &mut Vec<String>) -> Result<FileSet, ProfileError> {
    let (_, location) =
        section.text("location").ok_or(Flaw::Missing("location").at(section.line))?;
    let reuse = section.flag("reuse")?;
    let ageing = ageing(section, warnings)?;
    if reuse && ageing.is_some() {
        return Err(Flaw::Conflict("reuse", "agefs").at(section.line));
    }
    Ok(FileSet {
        location: PathBuf::from(location),
        start: start(section)?,
        dirs: section.number("num_dirs")?.unwrap_or(0),
        sizes: sizes(section, warnings)?,
        create_block: section.block("create_blocksize")?.unwrap_or(DEFAULT_BLOCK),
        reuse,
        ageing,
    })
}

fn start(section: &Section) -> Result<Start, ProfileError> {
    let files = section.number("num_files")?.unwrap_or(0);
    let bytes = section.size("init_size")?.filter(|bytes| *bytes > 0);
    let used = section.share("init_util")?.filter(|used| *used > 0.0);
    let conflict = |one, other| Err(Flaw::Conflict(one, other).at(section.line));
    match (files, bytes, used) {
        (_, Some(_), Some(_)) => conflict("init_size", "init_util"),
        (1.., Some(_), _) => conflict("num_files", "init_size"),
        (1.., _, Some(_)) => conflict("num_files", "init_util"),
        (_, Some(bytes), _) => Ok(Start::Bytes(bytes)),
        (_, _, Some(used)) => Ok(Start::Utilization(used)),
        (files, None, None) => Ok(Start::Files(files)),
    }
}

fn sizes(section: &Section, warnings: &mut Vec<String>) -> Result<Sizes, ProfileError> {
    let min = section.size("min_filesize")?;
    let max = section.size("max_filesize")?;
    let mut weighted = Vec::new();
    for item in section.list("size_weight") {
        let expected = "a size and a weight";
        let [bytes, weight] = item.words() else { return Err(item.wrong(expected)) };
        let parsed = size(bytes).zip(weight.parse::<u32>().ok());
        weighted.push(parsed.ok_or_else(|| item.wrong(expected))?);
    }
    if !weighted.is_empty() {
        if weighted.iter().all(|(_, weight)| *weight == 0) {
            let flaw = Flaw::Needs { needed: "a weight above zero", by: "size_weight" };
            return Err(flaw.at(section.line));
        }
        section.warn_of(&["min_filesize", "max_filesize"], "next to size_weight", warnings);
        return Ok(Sizes::Weighted(weighted));
    }
    let min = min.unwrap_or(0);
    let max = max.unwrap_or(min);
    if max < min {
        return Err(Flaw::Conflict("min_filesize", "a smaller max_filesize").at(section.line));
    }
    Ok(Sizes::Uniform { min, max })
}

fn ageing(section: &Section, warnings: &mut Vec<String>) -> Result<Option<Ageing>, ProfileError> {
    let mut groups = section.children(SectionKind::ThreadGroup);
    let raw = groups.next();
    if let Some(second) = groups.next() {
        return Err(Flaw::Section("threadgroup".into()).at(second.line));
    }
    // All of it is read, whether it is used or not.
    let group = raw.map(|raw| thread_group(raw, &[])).transpose()?;
    let utilization = section.share("desired_util")?;
    section.size("age_blocksize")?;
    if !section.flag("agefs")? {
        if let Some(raw) = raw {
            warn(warnings, raw.line, "without agefs the group does nothing");
        }
        section.warn_of(&["desired_util", "age_blocksize"], "without agefs", warnings);
        return Ok(None);
    }
    let needs = |needed| Flaw::Needs { needed, by: "agefs" }.at(section.line);
    let (raw, group) = raw.zip(group).ok_or_else(|| needs("a nested [threadgroup]"))?;
    if group.stats.is_some() {
        warn(warnings, raw.line, "calls of an ageing group are not timed");
    }
    let drawn = Operation::ALL.into_iter().zip(group.weights).filter(|(_, weight)| *weight > 0);
    if let Some((operation, _)) = drawn.into_iter().find(|(operation, _)| !operation.ages()) {
        return Err(Flaw::CannotAge(operation.name()).at(raw.line));
    }
    let utilization = utilization.ok_or_else(|| needs("desired_util"))?;
    section.warn_of(&["age_blocksize"], "as the first files are empty", warnings);
    Ok(Some(Ageing { group, utilization }))
}

/// Reports each useless setting of the profile once.
fn warn(warnings: &mut Vec<String>, line: usize, what: &str) {
    let warning = format!("line {line}: {what}");
    // A section that others follow is read for each of them.
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}

fn thread_group(section: &Section, sets: &[FileSet]) -> Result<ThreadGroup, ProfileError> {
    let weight_of = |key: &str| key.strip_suffix("_weight").is_some_and(is_operation);
    section.check_keys(|key| GROUP_KEYS.contains(&key) || weight_of(key))?;
    let mut weights = [0; Operation::ALL.len()];
    for (weight, operation) in weights.iter_mut().zip(Operation::ALL) {
        *weight = section.number(&format!("{}_weight", operation.name()))?.unwrap_or(0);
        if operation == Operation::Meta {
            *weight = section.number("meta_weight")?.unwrap_or(*weight);
        }
    }
    let threads = section.number("num_threads")?.filter(|threads| *threads > 0);
    let group = ThreadGroup {
        threads: threads.ok_or(Flaw::Missing("num_threads").at(section.line))?,
        bound: section.text("bindfs").map(|(line, text)| bound(text, sets, line)).transpose()?,
        delay: Duration::from_millis(u64::from(section.number("op_delay")?.unwrap_or(0))),
        read: Reading {
            size: section.size("read_size")?.unwrap_or(0),
            block: section.block("read_blocksize")?.unwrap_or(0),
            order: read_order(section)?,
        },
        write: Writing {
            size: section.size("write_size")?.unwrap_or(0),
            block: section.block("write_blocksize")?.unwrap_or(0),
            is_random: section.flag("write_random")?,
            fsync: section.flag("fsync_file")?,
        },
        weights,
        stats: stats(section)?,
    };
    check_sizes(&group).map_err(|flaw| flaw.at(section.line))?;
    Ok(group)
}

fn is_operation(name: &str) -> bool {
    Operation::ALL.iter().any(|operation| operation.name() == name)
}

fn bound(text: &str, sets: &[FileSet], line: usize) -> Result<usize, ProfileError> {
    let by_place = sets.iter().position(|set| set.location.as_os_str() == text);
    let by_number = || text.parse().ok().filter(|number| *number < sets.len());
    by_place.or_else(by_number).ok_or_else(|| Flaw::NoSuchFileSystem(text.into()).at(line))
}

fn read_order(section: &Section) -> Result<ReadOrder, ProfileError> {
    let skip = section.size("read_skipsize")?.unwrap_or(0);
    match (section.flag("read_random")?, section.flag("read_skip")?) {
        (true, true) => Err(Flaw::Conflict("read_random", "read_skip").at(section.line)),
        (true, false) => Ok(ReadOrder::Random),
        (false, true) if skip == 0 => {
            Err(Flaw::Needs { needed: "read_skipsize", by: "read_skip" }.at(section.line))
        }
        (false, true) => Ok(ReadOrder::Strided(skip)),
        (false, false) => Ok(ReadOrder::Sequential),
    }
}

/// Whether there is a size for every operation that is drawn.
fn check_sizes(group: &ThreadGroup) -> Result<(), Flaw> {
    if group.total_weight() == 0 {
        return Err(Flaw::Needs { needed: "a weight above zero", by: "[threadgroup]" });
    }
    for (operation, weight) in Operation::ALL.into_iter().zip(group.weights) {
        let by = operation.name();
        let needed = match () {
            () if weight == 0 => continue,
            () if operation.reads() && group.read.block == 0 => "read_blocksize",
            () if operation == Operation::Read && group.read.size == 0 => "read_size",
            () if operation.writes() && group.write.block == 0 => "write_blocksize",
            () if operation.writes_a_part() && group.write.size == 0 => "write_size",
            () => continue,
        };
        return Err(Flaw::Needs { needed, by });
    }
    Ok(())
}

fn stats(group: &Section) -> Result<Option<Stats>, ProfileError> {
    let mut stats = Stats::default();
    let mut is_enabled = false;
    for section in group.children(SectionKind::Stats) {
        section.check_keys(|key| STATS_KEYS.contains(&key))?;
        is_enabled |= section.flag("enable_stats")?;
        for item in section.list("ignore") {
            let call = Call::ALL.into_iter().find(|call| item.words() == [call.name()]);
            stats.ignored.push(call.ok_or_else(|| item.wrong("a system call's name"))?);
        }
        let mut ranges = Vec::new();
        for item in section.list("msec_range") {
            let expected = "two numbers of milliseconds, the smaller first";
            let [from, to] = item.words() else { return Err(item.wrong(expected)) };
            let range = real(from).zip(real(to)).filter(|(from, to)| from <= to);
            ranges.push(range.ok_or_else(|| item.wrong(expected))?);
        }
        if section.flag("enable_range")? {
            stats.ranges = ranges;
        }
    }
    Ok(is_enabled.then_some(stats))
}

impl Section {
    /// The section's own line of what is wrong with a value.
    fn parsed<T>(
        &self,
        key: &str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ProfileError> {
        let Some((line, text)) = self.text(key) else { return Ok(None) };
        // All blanks of a line are ignored.
        let dense: String = text.split_whitespace().collect();
        let wrong = || Flaw::Value { key: key.into(), value: text.into(), expected }.at(line);
        parse(&dense).map(Some).ok_or_else(wrong)
    }

    fn flag(&self, key: &str) -> Result<bool, ProfileError> {
        let flag = self.parsed(key, "0 or 1", |text| match text {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        })?;
        Ok(flag.unwrap_or(false))
    }

    fn number(&self, key: &str) -> Result<Option<u32>, ProfileError> {
        self.parsed(key, "a whole number below 2^32", |text| text.parse().ok())
    }

    fn size(&self, key: &str) -> Result<Option<u64>, ProfileError> {
        self.parsed(key, "a size (with k, m or g)", size)
    }

    fn block(&self, key: &str) -> Result<Option<u64>, ProfileError> {
        let block = |text: &str| size(text).filter(|size| (1..=MAX_BLOCK).contains(size));
        self.parsed(key, "a size from 1 to 1g", block)
    }

    /// Warns about given keys without an effect.
    fn warn_of(&self, keys: &[&str], why: &str, warnings: &mut Vec<String>) {
        for key in keys {
            if let Some((line, _)) = self.text(key) {
                warn(warnings, line, &format!("{key} has no effect {why}"));
            }
        }
    }

    fn share(&self, key: &str) -> Result<Option<f64>, ProfileError> {
        let share = |text: &str| real(text).filter(|share| (0.0..=1.0).contains(share));
        self.parsed(key, "a number from 0 to 1", share)
    }
}

fn real(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

/// Bytes, or a number with a unit.
fn size(text: &str) -> Option<u64> {
    ByteSize::parse(text, SizeGrammar::Ffsb).ok().map(|size| size.0)
}

#[cfg(test)]
pub(super) mod tests;
