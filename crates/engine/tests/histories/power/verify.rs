//! The states that a recovered volume may have.

use crate::common;
use crate::devices::Devices;
use crate::engine::{Engine, check_flags};
use crate::random::model_of;
use crate::volumes::Kind;
use extant_device::{Device, MemoryDevice};
use extant_engine::{Volume, VolumeOptions};
use extant_ondisk::bitmap::BitmapKind;
use extant_ondisk::{GroupNo, InodeNo};
use extant_reader::{Error, VolumeRead};
use extant_runtime::env::Env;
use extant_sim::{FaultyDevice, Recorder};
use extant_testkit::history::flags::JOURNAL_DATA;
use extant_testkit::history::{
    Call, Expected, Fallocate, File, FileId, History, Model, Step, advance,
};
use extant_testkit::{Entry, TreeSnapshot, differences};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// The mark of an opened volume.
pub(crate) const OPENED: u64 = u64::MAX;
/// The contents of free blocks before the history.
const STALE: &[u8; 8] = b"STALE!!\0";
/// Content is compared in pieces that a device writes whole.
const SECTOR: u64 = 512;

/// The changes that a returned call made durable.
#[derive(Clone, Copy, Debug)]
struct Sure {
    /// The tree is not older than after this step.
    least: usize,
    /// Nor does the content of this file, with any tree.
    content: Option<(FileId, usize)>,
}

/// A history that ran, and what it made sure when.
pub(crate) struct Recorded {
    pub(crate) kind: Kind,
    history: History,
    /// The marks, in order.
    pub(crate) marks: Vec<u64>,
    /// The tree before the first step and after each.
    states: Vec<Model>,
    outlines: Vec<(TreeSnapshot, BTreeMap<Vec<u8>, FileId>)>,
    sure: HashMap<usize, Sure>,
    /// Written data may be on the volume later than the calls that follow.
    delalloc: bool,
    /// Delayed data may be lost, which is reported to callers that wait for them.
    loses_delayed: bool,
    /// Ranges that calls were to change when the device failed: they may have got anywhere.
    broken_off: Vec<(FileId, Range<u64>)>,
}

/// Which failures a history expects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failures<'d> {
    None,
    /// Calls may fail because the device does, and then have done nothing.
    OfTheDevice(&'d FaultyDevice),
}

impl Failures<'_> {
    fn may_come(self) -> bool {
        matches!(self, Self::OfTheDevice(_))
    }

    fn have_come(self) -> bool {
        matches!(self, Self::OfTheDevice(device) if device.faults_met() > 0)
    }
}

/// The range of a file that a call changes.
fn changed_range(step: &Step) -> Option<(FileId, Range<u64>)> {
    match step.call {
        Call::Write { file, offset, len, .. } => Some((file, offset..offset + len)),
        Call::Truncate { file, size } => Some((file, size..u64::MAX)),
        Call::Fallocate { file, offset, .. } => Some((file, offset..u64::MAX)),
        _ => None,
    }
}

/// The effects of a call on the tree, in words.
fn words_of(call: &Call, before: &Model) -> Vec<String> {
    let word = format!("{call:?}").split(' ').next().unwrap_or("").to_owned();
    let first = |debug: &dyn std::fmt::Debug| {
        let debug = format!("{debug:?}");
        let end = debug.find(|at: char| !at.is_alphanumeric()).unwrap_or(debug.len());
        debug[..end].to_owned()
    };
    let named = |dir: &FileId, name: &Vec<u8>| {
        let id = before.file(*dir)?.entries.get(name)?;
        before.file(*id)
    };
    let mut words = match call {
        Call::MakeNode { node, .. } => vec![format!("{word} {}", first(node))],
        Call::Fallocate { how, .. } => vec![format!("{word} {}", first(how))],
        Call::SetAcl { default, .. } => {
            vec![format!("{word} {}", if *default { "default" } else { "access" })]
        }
        Call::Truncate { file, size } => {
            let is_down = before.file(*file).is_some_and(|file| *size < file.size);
            vec![format!("{word} {}", if is_down { "down" } else { "up" })]
        }
        Call::Rename { how, dir, name, .. } => {
            let how = first(how);
            let is_dir = named(dir, name).is_some_and(|file| file.is_dir());
            let of_dir = is_dir.then(|| format!("{word} {how} of a directory"));
            of_dir.into_iter().chain([format!("{word} {how}")]).collect()
        }
        _ => vec![word.clone()],
    };
    match call {
        Call::Rename { to_dir, to_name, .. } if named(to_dir, to_name).is_some() => {
            words.push("rename over another".into());
        }
        Call::Link { file, .. } if before.file(*file).is_some_and(|it| it.names.is_empty()) => {
            words.push("link of a nameless file".into());
        }
        Call::Unlink { dir, name } if named(dir, name).is_some_and(|file| file.held > 0) => {
            words.push("unlink of a held file".into());
        }
        Call::SetFlags { flags, .. } if flags & JOURNAL_DATA != 0 => {
            words.push("chattr +j".into());
        }
        _ => {}
    }
    words
}

/// Whether what a step gives depends on the contents of a file or where it ends.
fn looks_at(step: &Step) -> bool {
    matches!(
        step.call,
        Call::Read { .. }
            | Call::SeekData { .. }
            | Call::SeekHole { .. }
            | Call::Extents { .. }
            | Call::Stat { .. }
            | Call::Lookup { .. }
            | Call::StatFs
            | Call::Freeze
            | Call::Fallocate { .. }
    )
}

/// Whether all lines of differences between two trees tell of contents or where they end.
fn is_about_contents(differences: &str) -> bool {
    differences.lines().all(|line| line.contains(": size: ") || line.contains(": content: "))
}

fn is_sync(step: &Step) -> bool {
    matches!(step.call, Call::Sync | Call::Freeze | Call::Fsync { .. } | Call::Fdatasync { .. })
}

/// The result of a recovered volume's verification.
pub(crate) type Verdict = Result<usize, String>;

/// Fills the free blocks of a volume with a pattern.
fn fill_free_blocks(devices: &Devices) -> Result<(), Error> {
    let volume = devices.open()?;
    let geometry = volume.geometry();
    let block_size = geometry.block_size as usize;
    let stale = STALE.repeat(block_size / STALE.len());
    for group in (0..geometry.groups_count).map(GroupNo) {
        let bitmap = volume.bitmap(group, BitmapKind::Block)?;
        let start = geometry.group_start(group);
        for at in 0..u64::from(geometry.group_blocks(group)) {
            let cluster = (at / u64::from(geometry.blocks_per_cluster)) as usize;
            if bitmap[cluster / 8] & 1 << (cluster % 8) == 0 {
                devices.volume.write_at((start.0 + at) * block_size as u64, &stale)?;
            }
        }
    }
    Ok(())
}

impl Recorded {
    /// Runs a history on a copy of `base`, whose free blocks are filled before, through a recorder;
    /// then the power goes.
    pub(crate) fn run(
        kind: Kind,
        base: &MemoryDevice,
        options: VolumeOptions,
        history: History,
        seed: u64,
    ) -> Result<(Self, Arc<Recorder>), String> {
        let base = Arc::new(base.fork());
        fill_free_blocks(&Devices::of(kind, base.clone())).map_err(|error| error.to_string())?;
        let recorder = Arc::new(Recorder::new(base));
        let env = Env::stepped(seed);
        let mut engine = Engine::open(Devices::recorded(kind, &recorder), &env, options)
            .map_err(|error| error.to_string())?;
        recorder.mark(OPENED);
        let recorded =
            Self::replay(kind, &mut engine, history, Failures::None, |mark| recorder.mark(mark))?;
        Ok((recorded, recorder))
    }

    /// Runs a history on an open volume; each step begins with a mark, and ends with one if it made
    /// something sure.
    pub(crate) fn replay(
        kind: Kind,
        engine: &mut Engine,
        history: History,
        failures: Failures<'_>,
        mut mark: impl FnMut(u64),
    ) -> Result<Self, String> {
        let mut model = model_of(kind);
        let mut recorded = Self {
            kind,
            states: vec![model.clone()],
            outlines: Vec::new(),
            sure: HashMap::new(),
            marks: Vec::new(),
            broken_off: Vec::new(),
            delalloc: engine.delalloc(),
            loses_delayed: engine.delalloc() && failures.may_come(),
            history,
        };
        let mut latched = None;
        for at in 0..recorded.history.steps.len() {
            let step = recorded.history.steps[at].clone();
            let mut note = |recorded: &mut Self, number| {
                recorded.marks.push(number);
                mark(number);
            };
            // Steps are counted as they come: a shortened history has gaps in its numbers.
            note(&mut recorded, at as u64 * 2);
            let is_passed_over = model.expect(&step) == Expected::PassedOver;
            let outcome = advance(&mut model, engine, &step);
            let failed = failures.may_come() && engine.take_device_error();
            recorded.states.push(model.clone());
            if failed {
                recorded.broken_off.extend(changed_range(&step));
                if recorded.loses_delayed && is_sync(&step) {
                    recorded.tell_lost(at, &step);
                }
                if is_sync(&step) && engine.volume().is_read_only() {
                    latched = Some(step);
                }
                continue;
            }
            let is_unknown = |file| recorded.broken_off.iter().any(|(broken, _)| *broken == file);
            match outcome {
                // The leftovers of an interrupted call are read too.
                Err(_) if matches!(step.call, Call::Read { file, .. } if is_unknown(file)) => {}
                // Delayed data that were lost have taken the end of their file along.
                Err(wrong)
                    if recorded.loses_delayed
                        && failures.have_come()
                        && looks_at(&step)
                        && (step.call != Call::Freeze || is_about_contents(&wrong.what)) => {}
                outcome => outcome.map_err(|mismatch| mismatch.to_string())?,
            }
            if is_passed_over {
                continue;
            }
            if let Some(sure) = recorded.made_sure(at + 1, &step) {
                if let Some(before) = &latched
                    && matches!(step.call, Call::Sync | Call::Freeze)
                {
                    return Err(format!("{step:?} was acknowledged after {before:?} had failed"));
                }
                recorded.sure.insert(at, sure);
                note(&mut recorded, at as u64 * 2 + 1);
            }
        }
        let mut outlines: Vec<_> = recorded.states.iter().map(Model::outline).collect();
        for (tree, files) in &mut outlines {
            recorded.forget_sizes(tree, files);
        }
        recorded.outlines = outlines;
        Ok(recorded)
    }

    /// Whether the end of a file is verified with its contents: its data are delayed, or a call on
    /// them was interrupted.
    fn size_is_open(&self, id: FileId) -> bool {
        self.delalloc || self.is_broken_off(id)
    }

    fn forget_sizes(&self, tree: &mut TreeSnapshot, files: &BTreeMap<Vec<u8>, FileId>) {
        for (path, _) in files.iter().filter(|(_, id)| self.size_is_open(**id)) {
            if let Some(entry) = tree.entries.get_mut(path)
                && entry.kind == extant_testkit::Kind::File
            {
                entry.size = 0;
            }
        }
    }

    /// A caller that waited for the data got the error that they are lost: data that were written
    /// and not durable before may be anything.
    fn tell_lost(&mut self, at: usize, step: &Step) {
        let of = match step.call {
            Call::Fsync { file } | Call::Fdatasync { file } => Some(file),
            _ => None,
        };
        let changes = self.history.steps[..at].iter().enumerate().filter_map(|(number, step)| {
            let (file, range) = changed_range(step)?;
            let is_sure = self.sure.iter().any(|(later, sure)| {
                *later > number && sure.content.is_none_or(|(synced, _)| synced == file)
            });
            (!is_sure && of.is_none_or(|of| of == file)).then_some((file, range))
        });
        let changes: Vec<_> = changes.collect();
        self.broken_off.extend(changes);
    }

    /// Whether a mark says that a sync, a freeze or a reopening has returned, so that everything is
    /// sure.
    pub(crate) fn is_sync(&self, mark: u64) -> bool {
        let is_end = mark != OPENED && mark % 2 == 1;
        is_end && self.sure.get(&((mark / 2) as usize)).is_some_and(|sure| sure.content.is_none())
    }

    /// The calls that were carried out, by what they do.
    pub(crate) fn calls(&self) -> BTreeSet<String> {
        let steps = self.history.steps.iter().zip(&self.states);
        let done = steps.filter(|(step, before)| before.expect(step) == Expected::Success);
        done.flat_map(|(step, before)| words_of(&step.call, before)).collect()
    }

    /// The changes that a step that returned at state `now` made durable.
    fn made_sure(&self, now: usize, step: &Step) -> Option<Sure> {
        match &step.call {
            Call::Sync | Call::Freeze | Call::Reopen => Some(Sure { least: now, content: None }),
            Call::Fsync { file } => {
                let changed = self.states[now].file(*file)?.changed;
                let before = self.history.steps.iter().take_while(|step| step.number <= changed);
                Some(Sure { least: before.count(), content: Some((*file, now)) })
            }
            Call::Fdatasync { file } => {
                self.states[now].file(*file)?;
                Some(Sure { least: 0, content: Some((*file, now)) })
            }
            _ => None,
        }
    }

    /// Verifies a volume without a journal that was repaired after a failure: files that a sync
    /// made durable, and that no call has touched since, are there; contents that were durable and
    /// that nothing has changed are somewhere.
    pub(crate) fn judge_kept(&self, volume: &impl VolumeRead) -> Result<(), String> {
        let found = common::snapshot(volume).map_err(|error| format!("the tree: {error}"))?;
        let mut lost = BTreeSet::new();
        for sure in self.sure.values() {
            let (state, of) = match sure.content {
                Some((file, state)) => (state, Some(file)),
                None => (sure.least, None),
            };
            let mut expected = self.states[state].snapshot(&found);
            for (path, id) in &self.outlines[state].1 {
                let entry = expected.entries.remove(path).expect("both are of one state");
                // The model's root does not know of lost+found.
                let is_root = *id == FileId::ROOT;
                if is_root || of.is_some_and(|of| of != *id) || self.is_broken_off(*id) {
                    continue;
                }
                let is_there = if of.is_none() && self.is_untouched(path, *id, state) {
                    found.entries.get(path) == Some(&entry)
                } else if self.keeps_content(*id, state) {
                    let is_it = |it: &Entry| (it.size, &it.content) == (entry.size, &entry.content);
                    found.entries.values().any(is_it)
                } else {
                    continue;
                };
                if !is_there {
                    let path = path.escape_ascii();
                    lost.insert(format!("{path} ({id:?}), sure at step {state}: {entry:?}"));
                }
            }
        }
        if lost.is_empty() { Ok(()) } else { Err(Vec::from_iter(lost).join("\n")) }
    }

    fn is_broken_off(&self, id: FileId) -> bool {
        self.broken_off.iter().any(|(broken, _)| *broken == id)
    }

    /// Whether nothing has touched a file and the names that lead to it since a state.
    fn is_untouched(&self, path: &Vec<u8>, id: FileId, state: usize) -> bool {
        let changed = |model: &Model| model.file(id).map(|file| file.changed);
        let before = changed(&self.states[state]);
        let is_same = |(model, outline): (&Model, &(_, BTreeMap<Vec<u8>, FileId>))| {
            changed(model) == before && outline.1.get(path) == Some(&id)
        };
        self.states.iter().zip(&self.outlines).skip(state).all(is_same)
    }

    /// Whether a regular file has had a name and the same content ever since a state.
    fn keeps_content(&self, id: FileId, state: usize) -> bool {
        let Some(before) = self.states[state].file(id) else { return false };
        let is_same = |file: &File| {
            !file.names.is_empty() && (file.size, &file.content) == (before.size, &before.content)
        };
        before.kind == extant_testkit::Kind::File
            && self.states[state..].iter().all(|model| model.file(id).is_some_and(is_same))
    }

    /// Verifies a volume that was recovered from a cut with these marks. The number of the state
    /// that it shows.
    pub(crate) fn verify(&self, marks: &[u64], volume: &impl VolumeRead) -> Verdict {
        let begun = marks.iter().filter(|mark| **mark != OPENED && **mark % 2 == 0).max();
        let last = begun.map_or(0, |mark| (*mark / 2) as usize + 1);
        let (mut least, mut written, mut sure) = (0, 0, BTreeMap::new());
        for mark in marks.iter().filter(|mark| **mark != OPENED && **mark % 2 == 1) {
            let made = self.sure[&((*mark / 2) as usize)];
            least = least.max(made.least);
            match made.content {
                Some((file, state)) => drop(sure.insert(file, state)),
                None => written = written.max(made.least),
            }
        }
        self.judge_between((least, written, last), &sure, volume)
    }

    /// As [`Self::verify`] with the states that are possible, and the one whose data are all
    /// written.
    fn judge_between(
        &self,
        (least, written, last): (usize, usize, usize),
        sure: &BTreeMap<FileId, usize>,
        volume: &impl VolumeRead,
    ) -> Verdict {
        let tree = common::snapshot(volume).map_err(|error| format!("the tree: {error}"))?;
        let found = tree.without("lost+found").map(|entry| {
            entry.content = None;
            entry.mtime = (0, 0);
        });
        let mut nearest: Option<(usize, Vec<String>)> = None;
        let mut wrong_content = Vec::new();
        for state in (least..=last).rev() {
            let (tree, files) = &self.outlines[state];
            let mut found = found.clone();
            self.forget_sizes(&mut found, files);
            let lines = differences(tree, &found);
            if !lines.is_empty() && !self.is_half_written(state, last, &lines, &found) {
                if nearest.as_ref().is_none_or(|(_, fewest)| lines.len() < fewest.len()) {
                    nearest = Some((state, lines));
                }
                continue;
            }
            let is_right = check_flags(volume, &self.states[state], &self.outlines[state].1)
                .and_then(|()| self.check_contents(state, (written, last), sure, volume));
            match is_right {
                Ok(()) => return Ok(state),
                Err(what) => wrong_content.push(format!("as after step {state}: {what}")),
            }
        }
        let nearest = nearest.map(|(state, lines)| {
            format!("nearest is the tree after step {state}, but\n  {}", lines.join("\n  "))
        });
        Err(format!(
            "no tree of steps {least} to {last}: {}\n{}",
            wrong_content.join("\n"),
            nearest.unwrap_or_default()
        ))
    }

    /// A long write or a change of a long file takes several transactions: of the next step on a
    /// file's data only the size may be in between.
    fn is_half_written(
        &self,
        state: usize,
        last: usize,
        lines: &[String],
        found: &TreeSnapshot,
    ) -> bool {
        let Some(step) = self.history.steps.get(state).filter(|_| state < last) else {
            return false;
        };
        let (Call::Write { file, .. } | Call::Fallocate { file, .. } | Call::Truncate { file, .. }) =
            &step.call
        else {
            return false;
        };
        let size = |state: usize| self.states[state].file(*file).map_or(0, |file| file.size);
        let range = size(state).min(size(state + 1))..=size(state).max(size(state + 1));
        let paths = self.outlines[state].1.iter().filter(|(_, id)| **id == *file);
        let paths: Vec<&Vec<u8>> = paths.map(|(path, _)| path).collect();
        let is_between = |path: &&Vec<u8>| {
            found.entries.get(*path).is_some_and(|entry| range.contains(&entry.size))
        };
        paths.iter().all(is_between)
            && lines.len() == paths.len()
            && lines.iter().all(|line| line.contains(": size: expected"))
    }

    /// Whether a state is that after a write.
    fn is_write(&self, state: usize) -> bool {
        let step = state.checked_sub(1).and_then(|at| self.history.steps.get(at));
        step.is_some_and(|step| matches!(step.call, Call::Write { .. }))
    }

    /// The last state up to `state` that another call than a write has left a file in: it has no
    /// delayed data then.
    fn settled(&self, id: FileId, state: usize) -> usize {
        let mut steps = self.history.steps[..state.min(self.history.steps.len())].iter();
        let is_cut = |step: &Step| {
            !matches!(step.call, Call::Write { .. })
                && changed_range(step).is_some_and(|(file, _)| file == id)
        };
        steps.rposition(is_cut).map_or(0, |at| at + 1)
    }

    /// A file ends where it did at one of the states, or where the data of a write ended that were
    /// written before those of another.
    fn check_size(
        &self,
        id: FileId,
        state: usize,
        states: Range<usize>,
        size: u64,
    ) -> Result<(), String> {
        let of = |state: usize| self.states.get(state)?.file(id).map(|file| file.size);
        // A file that was made later begins empty.
        let first = of(states.start).unwrap_or(0);
        let least = match self.loses_delayed {
            // Its former end was reported as lost.
            true if self.broken_off.iter().any(|(broken, _)| *broken == id) => 0,
            true => states.clone().filter_map(of).fold(first, u64::min),
            false => first.min(of(state + 1).unwrap_or(first)),
        };
        // The progress of an interrupted call is unknown.
        let broken_off = self.broken_off.iter().filter(|(broken, _)| *broken == id);
        let most = states.clone().filter_map(of).chain(broken_off.map(|(_, range)| range.end));
        let most = most.max().unwrap_or(0);
        if size < least || size > most {
            return Err(format!("its size is {size}, not in {least}..={most} ({states:?})"));
        }
        Ok(())
    }

    fn check_contents(
        &self,
        state: usize,
        (written, last): (usize, usize),
        sure: &BTreeMap<FileId, usize>,
        volume: &impl VolumeRead,
    ) -> Result<(), String> {
        for (path, id) in &self.outlines[state].1 {
            if self.states[state]
                .file(*id)
                .is_none_or(|file| file.kind != extant_testkit::Kind::File)
            {
                continue;
            }
            let inode = volume
                .resolve(path, extant_reader::Follow::No)
                .map_err(|error| format!("{}: {error}", path.escape_ascii()))?;
            let sure = sure.get(id).map_or(written, |sure| written.max(*sure));
            let first = match (self.loses_delayed, self.delalloc) {
                (true, _) => sure,
                (_, true) => sure.max(self.settled(*id, state)),
                // A write removes privileges before it writes: the step under way may have done
                // that.
                _ if state == last && self.is_write(state) => sure.max(state - 1),
                _ => sure.max(state),
            };
            if self.size_is_open(*id) {
                self.check_size(*id, state, first..last + 1, inode.size)
                    .map_err(|what| format!("{} ({id:?}): {what}", path.escape_ascii()))?;
            }
            self.check_content(*id, state, first, last, volume, inode.number)
                .map_err(|what| format!("{} ({id:?}): {what}", path.escape_ascii()))?;
        }
        Ok(())
    }

    /// Each sector of a file is what it was at one of the states `first..=last`.
    fn check_content(
        &self,
        id: FileId,
        state: usize,
        first: usize,
        last: usize,
        volume: &impl VolumeRead,
        number: InodeNo,
    ) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let size = volume.inode(number).map_err(text)?.size;
        let mut sectors = BTreeSet::new();
        for range in volume.data_segments(number).map_err(text)? {
            let range = range.map_err(text)?;
            sectors.extend(range.start / SECTOR..range.end.div_ceil(SECTOR));
        }
        let allowed: Vec<_> =
            (first..=last).filter_map(|state| self.states[state].file(id)).collect();
        if let Some(nearest) = allowed.first().or(self.states[state].file(id).as_ref()) {
            for range in nearest.content.ranges() {
                sectors.extend(range.start / SECTOR..range.end.min(size).div_ceil(SECTOR));
            }
        }
        let moved = self.history.steps[state.min(self.history.steps.len())..last].iter().any(
            |step| matches!(&step.call, Call::Fallocate { file, how: Fallocate::Collapse | Fallocate::Insert, .. } if *file == id),
        );
        for sector in sectors.into_iter().filter(|sector| sector * SECTOR < size) {
            let at = sector * SECTOR;
            let mut found = vec![0; SECTOR.min(size - at) as usize];
            volume.read(number, at, &mut found).map_err(text)?;
            if found.windows(STALE.len()).any(|bytes| bytes == STALE) {
                return Err(format!("stale data at byte {at}"));
            }
            let mut expected = vec![0; found.len()];
            let mut known = vec![false; found.len()];
            let is_one = allowed.iter().any(|file| {
                file.content.fill(at, &mut expected);
                let same = expected.iter().zip(&found).map(|(expected, found)| expected == found);
                known.iter_mut().zip(same).for_each(|(known, same)| *known |= same);
                expected == found
            });
            // Of several writes into a sector any may be lost.
            let is_one = is_one || self.loses_delayed && known.iter().all(|known| *known);
            let is_broken_off = self
                .broken_off
                .iter()
                .any(|(file, range)| *file == id && range.start < at + SECTOR && at < range.end);
            // Data that were written after a range was moved lie elsewhere in the tree before.
            if !is_one && !moved && !is_broken_off {
                return Err(format!(
                    "bytes {at} to {} (of {size}) are of no step {first} to {last}",
                    at + found.len() as u64
                ));
            }
        }
        Ok(())
    }
}

/// Opens what a cut left for changes, which recovers it.
pub(crate) fn recover(devices: &Devices) -> Result<Volume, Error> {
    let live = devices.options(VolumeOptions::default());
    Volume::open(devices.volume.clone(), &Env::stepped(1), &live)
}
