//! One round of a check: the five passes over one set of tables.

use crate::ahead::ReadAhead;
use crate::finding::{Finding, Pass, Severity};
use crate::judge::{Judge, Judgement, Notes};
use crate::pass1::{PolicyTable, Usage};
use crate::report::{Census, Jump, Options, Outcome, PassFigures, Report};
use crate::store::{CheckError, Store};
use crate::tables::{
    BlockTable, Budget, Carry, DirBlock, DirTable, EaInodes, InodeTable, Kind, SharedClusters,
    Stored, Window, Windows, XattrBlocks,
};
use extant_ondisk::group_desc::{GroupDesc, GroupFlags};
use extant_ondisk::superblock::{State, Superblock};
use extant_ondisk::{Geometry, GroupNo, InodeNo};
use extant_runtime::sync::Mutex;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What one round knows.
pub(crate) struct Check<'a> {
    pub(crate) store: &'a Store,
    pub(crate) geometry: &'a Geometry,
    pub(crate) superblock: Superblock,
    pub(crate) descs: Vec<GroupDesc>,
    pub(crate) judge: &'a dyn Judge,
    pub(crate) options: &'a Options,
    /// The groups whose facts this round keeps.
    pub(crate) window: Window,
    /// What the windows before counted.
    pub(crate) carry: Carry,
    /// What the look before this repair found claimed more than once.
    pub(crate) shared: &'a SharedClusters,
    /// What is on its way around the system's cache.
    pub(crate) ahead: ReadAhead,
    pub(crate) budget: Budget,
    pub(crate) blocks: BlockTable,
    pub(crate) inodes: InodeTable,
    pub(crate) dirs: DirTable,
    pub(crate) dir_blocks: Vec<DirBlock>,
    pub(crate) xattr_blocks: XattrBlocks,
    pub(crate) ea_inodes: EaInodes,
    pub(crate) policies: PolicyTable,
    pub(crate) usage: Usage,
    pub(crate) census: Census,
    /// Where files are not in one run, where that is asked for.
    pub(crate) jumps: Vec<Jump>,
    /// Directories whose blocks the repair changes so that pass 3A packs them anew.
    pub(crate) late: Mutex<crate::pass1::Late>,
    /// Inodes in which another one's record lies: emptied when a name leads to them, cleared without one.
    pub(crate) copies: Mutex<BTreeSet<InodeNo>>,
    /// lost+found, once pass 3 knows it.
    pub(crate) lost_found: std::sync::atomic::AtomicU32,
    /// Whether records of inodes lie in bad blocks.
    pub(crate) has_bad_inodes: bool,
    /// The bad blocks.
    pub(crate) bad: extant_layout::RunSet,
    /// The list of bad blocks has the block of its own inode: it is not believed.
    pub(crate) is_bad_list_broken: bool,
    /// Inodes up to the last one in use beyond the marks of some groups.
    pub(crate) past_marks: Mutex<std::collections::BTreeMap<GroupNo, u32>>,
    /// What the block bitmap of the group said from which blocks were taken last.
    pub(crate) stored_bitmap: Mutex<Option<(GroupNo, Stored)>>,
    /// Groups whose high-water mark could be lower.
    pub(crate) loose_marks: Mutex<Vec<(GroupNo, u32)>>,
    outcomes: Mutex<Vec<Outcome>>,
    restart: AtomicBool,
    repairs: AtomicU64,
    passes: Vec<PassFigures>,
    progress_done: AtomicU64,
}

impl<'a> Check<'a> {
    pub(crate) fn new(
        store: &'a Store,
        judge: &'a dyn Judge,
        options: &'a Options,
        window: Window,
        carry: Carry,
        shared: &'a SharedClusters,
    ) -> Result<Self, CheckError> {
        let geometry = store.geometry();
        // What a repair writes must not be read before; what several windows read is better kept; a limit of memory is for tables.
        let is_read_ahead = options.read_ahead > 0
            && options.memory.is_none()
            && window.is_whole()
            && store.is_read_once()
            && !judge.may_repair();
        let mut check = Self {
            store,
            geometry,
            superblock: store.superblock(),
            descs: store.descs(),
            judge,
            options,
            ahead: ReadAhead::new(store.device(), is_read_ahead),
            budget: Budget::new(options.memory),
            blocks: BlockTable::new(geometry, &extant_layout::RunSet::new(), &window),
            inodes: InodeTable::new(geometry, &window),
            window,
            carry,
            shared,
            dirs: DirTable::default(),
            dir_blocks: Vec::new(),
            xattr_blocks: XattrBlocks::default(),
            ea_inodes: EaInodes::default(),
            policies: PolicyTable::default(),
            usage: Usage::default(),
            census: Census::default(),
            jumps: Vec::new(),
            late: Mutex::default(),
            copies: Mutex::default(),
            lost_found: std::sync::atomic::AtomicU32::new(0),
            has_bad_inodes: false,
            bad: extant_layout::RunSet::new(),
            is_bad_list_broken: false,
            past_marks: Mutex::default(),
            stored_bitmap: Mutex::default(),
            loose_marks: Mutex::default(),
            outcomes: Mutex::default(),
            restart: AtomicBool::new(false),
            repairs: AtomicU64::new(0),
            passes: Vec::new(),
            progress_done: AtomicU64::new(0),
        };
        check.budget.take(check.descs.len() * size_of::<GroupDesc>());
        let system = check.system_blocks()?;
        check.blocks = BlockTable::new(geometry, &system, &check.window);
        check.bad = check.bad_blocks()?;
        check.has_bad_inodes = check.bad.count() > 0;
        if check.is_in_bad_block(InodeNo::BAD_BLOCKS) {
            (check.bad, check.has_bad_inodes) = (extant_layout::RunSet::new(), false);
            check.is_bad_list_broken = true;
        }
        Ok(check)
    }

    /// Whether this round repairs: then it is one thread and goes in ascending order.
    pub(crate) fn is_repair(&self) -> bool {
        self.judge.may_repair()
    }

    /// Whether a finding is to be repaired now.
    pub(crate) fn ask(&self, finding: Finding) -> Result<bool, CheckError> {
        let judgement = self.judge.judge(&finding);
        if !self.is_repair() {
            return Ok(false);
        }
        let repaired = judgement == Judgement::Repair && !finding.code.row().question.is_empty();
        if repaired && self.repairs.fetch_add(1, Relaxed) == 0 {
            self.mark_unclean()?;
        }
        self.outcomes.lock().push(Outcome { finding, repaired });
        if judgement == Judgement::Stop {
            return Err(CheckError::Stopped);
        }
        Ok(repaired)
    }

    /// Says something that needs no answer.
    pub(crate) fn tell(&self, finding: Finding) -> Result<(), CheckError> {
        self.ask(finding).map(|_| ())
    }

    /// A crash from here on leaves a volume that the next check looks at.
    fn mark_unclean(&self) -> Result<(), CheckError> {
        let is_clean = self.store.superblock().state.contains(State::CLEAN);
        if is_clean {
            self.store.update_superblock(|raw| {
                raw.s_state.set(raw.s_state.get() & !State::CLEAN.bits());
            })?;
            self.store.flush()?;
        }
        Ok(())
    }

    /// What was repaired changes what the tables should say: the round ends with this pass and another one starts.
    pub(crate) fn need_restart(&self) {
        self.restart.store(true, Relaxed);
    }

    pub(crate) fn must_restart(&self) -> bool {
        self.restart.load(Relaxed)
    }

    pub(crate) fn now(&self) -> u32 {
        // Seconds that i_dtime holds: 32 bits.
        (self.options.env.now().seconds & 0xffff_ffff) as u32
    }

    pub(crate) fn check_memory(&self) -> Result<(), CheckError> {
        if self.budget.is_exceeded() {
            return Err(CheckError::Memory { limit: self.budget.limit() });
        }
        Ok(())
    }

    /// Worker threads for `shares` of work that are each worth a start of one.
    fn threads(&self, shares: usize) -> usize {
        if self.is_repair() {
            return 1;
        }
        let allowed = match self.options.threads {
            0 => std::thread::available_parallelism().map_or(1, |count| count.get()),
            threads => threads,
        };
        allowed.min(shares.max(1))
    }

    /// Runs `work` once in each of the round's threads, of which there are no more than `shares` of work: to start one takes as long
    /// as to check some hundred inodes.
    pub(crate) fn in_parallel<T: Send>(
        &self,
        shares: usize,
        work: impl Fn() -> Result<T, CheckError> + Sync,
    ) -> Result<Vec<T>, CheckError> {
        let threads = self.threads(shares);
        if threads <= 1 {
            return Ok(vec![work()?]);
        }
        let work = &work;
        extant_runtime::sync::thread::scope(|scope| {
            let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut results = vec![work()];
            for worker in workers {
                results
                    .push(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            results.into_iter().collect()
        })
    }

    /// Does `work` for each number below `count`, in order in each of the round's threads.
    pub(crate) fn for_all(
        &self,
        count: usize,
        shares: usize,
        work: impl Fn(usize) -> Result<(), CheckError> + Sync,
    ) -> Result<(), CheckError> {
        // Numbers that a thread takes at once: few enough that all threads are busy to the end.
        let at_once = (count / 256).clamp(1, 256);
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        self.in_parallel(shares, || {
            loop {
                let start = next.fetch_add(at_once, Relaxed);
                if start >= count || failed.lock().is_some() {
                    return Ok(());
                }
                for at in start..count.min(start + at_once) {
                    if let Err(error) = work(at) {
                        failed.lock().get_or_insert(error);
                        return Ok(());
                    }
                }
            }
        })?;
        failed.into_inner().map_or(Ok(()), Err)
    }

    pub(crate) fn progress(&self, pass: Pass, more: u64, whole: u64) {
        if let Some(on_work) = &self.options.on_work {
            on_work(pass, more);
        }
        if let Some(progress) = &self.options.progress {
            let done = self.progress_done.fetch_add(more, Relaxed) + more;
            progress(pass, done.min(whole), whole);
        }
    }

    fn timed(
        &mut self,
        pass: Pass,
        run: impl FnOnce(&mut Self) -> Result<(), CheckError>,
    ) -> Result<(), CheckError> {
        let (start, before) = (self.options.env.elapsed(), self.store.traffic());
        self.progress_done.store(0, Relaxed);
        let result = run(self);
        let after = self.store.traffic();
        self.passes.push(PassFigures {
            pass,
            time: self.options.env.elapsed().saturating_sub(start),
            traffic: crate::store::Traffic {
                read: after.read - before.read,
                written: after.written - before.written,
            },
        });
        result?;
        self.check_memory()
    }

    /// All passes, or those up to one that needs a restart.
    pub(crate) fn run(&mut self) -> Result<(), CheckError> {
        self.timed(1, Self::pass1)?;
        if self.must_restart() {
            return Ok(());
        }
        self.fetch_first_bitmaps();
        self.timed(2, Self::pass2)?;
        if self.must_restart() {
            return Ok(());
        }
        self.timed(3, Self::pass3)?;
        self.timed(4, Self::pass4)?;
        if self.must_restart() {
            return Ok(());
        }
        self.timed(5, Self::pass5)?;
        if !self.window.is_last {
            return Ok(());
        }
        self.timed(6, Self::pass6)
    }

    /// What an inode is, in the window or not.
    pub(crate) fn kind_of(&self, ino: InodeNo) -> Result<Option<Kind>, CheckError> {
        if self.inodes.is_in_window(ino) {
            return Ok(self.inodes.state(ino).map(|state| state.kind()));
        }
        if !self.inodes.is_used(ino) {
            return Ok(None);
        }
        let record = self.record(ino)?;
        Ok(Some(Kind::of_mode(u16::from_le_bytes([record[0], record[1]]))))
    }

    /// What the next window is told.
    fn carry(&self) -> Carry {
        let mut carry = self.carry.clone();
        if let Some(twice) = self.blocks.twice() {
            carry.twice |= twice;
        }
        carry
    }

    /// The record of an inode that is known to exist.
    pub(crate) fn record(&self, ino: InodeNo) -> Result<Vec<u8>, CheckError> {
        Ok(self
            .store
            .read_inode(ino)?
            .unwrap_or_else(|| vec![0; usize::from(self.geometry.inode_size)]))
    }

    fn into_report(self, outcomes: Vec<Outcome>) -> Report {
        Report {
            outcomes,
            passes: self.passes,
            census: self.census,
            jumps: self.jumps,
            memory: self.budget.peak(),
            windows: 1,
            loose_marks: {
                let mut marks = self.loose_marks.into_inner();
                marks.sort_unstable();
                marks
            },
            claimed_twice: roaring::RoaringTreemap::new(),
            changed: self.store.is_changed(),
            errors_left: false,
            found_errors: false,
        }
    }
}

/// Looks at everything and changes nothing. What is found is in the order of passes and places, whatever the threads and the
/// memory.
///
/// # Errors
/// The device failed, or what must be kept of the whole volume takes more memory than allowed.
pub fn look(store: &Store, options: &Options) -> Result<Report, CheckError> {
    look_within(store, options, &mut Windows::plan(store, options))
}

/// Looks through windows, and through smaller ones where they turn out to be too large.
fn look_within(
    store: &Store,
    options: &Options,
    windows: &mut Windows,
) -> Result<Report, CheckError> {
    loop {
        match look_through(store, options, windows) {
            Err(CheckError::Memory { .. }) if windows.shrink() => {}
            other => return other,
        }
    }
}

fn look_through(store: &Store, options: &Options, windows: &Windows) -> Result<Report, CheckError> {
    let mut found: Vec<Finding> = Vec::new();
    let mut whole: Option<Report> = None;
    let mut carry = Carry::default();
    for at in 0..windows.count() {
        let notes = Notes::default();
        let none = SharedClusters::default();
        let mut check = Check::new(store, &notes, options, windows.get(at), carry, &none)?;
        check.run()?;
        carry = check.carry();
        let report = check.into_report(Vec::new());
        found = match at {
            0 => notes.into_sorted(),
            _ => united(found, notes.into_sorted()),
        };
        whole = Some(match whole {
            None => report,
            Some(before) => report.after(before),
        });
    }
    store.note_look();
    let mut report = whole.unwrap_or_default();
    report.claimed_twice = carry.twice;
    report.windows = windows.count();
    report.outcomes =
        found.into_iter().map(|finding| Outcome { finding, repaired: false }).collect();
    report.errors_left =
        report.outcomes.iter().any(|outcome| outcome.finding.code.row().severity > Severity::Note);
    report.found_errors = report.outcomes.iter().any(|it| it.finding.code.is_correction());
    Ok(report)
}

/// Findings of two windows, both sorted: what both found, each tells of the same.
fn united(left: Vec<Finding>, right: Vec<Finding>) -> Vec<Finding> {
    let mut all = Vec::with_capacity(left.len().max(right.len()));
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(one), Some(other)) = (left.peek(), right.peek()) {
        match one.order().cmp(&other.order()) {
            Ordering::Less => all.extend(left.next()),
            Ordering::Greater => all.extend(right.next()),
            Ordering::Equal => {
                all.extend(left.next());
                right.next();
            }
        }
    }
    all.extend(left.chain(right));
    all
}

/// Establishes the high-water marks of a sound volume as far down as its inodes allow (document 004). No finding: a mark that
/// stands too high costs time and nothing else.
fn lower_marks(store: &Store, marks: &[(GroupNo, u32)]) -> Result<(), CheckError> {
    let per_group = store.geometry().inodes_per_group;
    let mut used = marks.iter().map(|(_, used)| *used);
    store.update_descs(marks.iter().map(|(group, _)| *group), |_, desc| {
        let used = used.next().unwrap_or(per_group);
        desc.itable_unused = per_group.saturating_sub(used);
        if used == 0 {
            desc.flags |= GroupFlags::INODE_UNINIT;
        }
    })?;
    if !marks.is_empty() {
        store.flush()?;
    }
    Ok(())
}

/// Restarts in one run at most, beside the rounds: each clears an inode or a feature.
const MAX_RESTARTS: u32 = 100;

/// Repairs once what can be repaired in each window; how much that was. After a repair that makes the tables wrong, the window is
/// begun again.
fn repair_round(
    store: &mut Store,
    options: &Options,
    judge: &dyn Judge,
    windows: &mut Windows,
    shared: &SharedClusters,
    outcomes: &mut Vec<Outcome>,
    restarts: &mut u32,
) -> Result<u64, CheckError> {
    let (mut at, mut all, mut carry) = (0, 0, Carry::default());
    while at < windows.count() {
        let mut check = Check::new(store, judge, options, windows.get(at), carry.clone(), shared)?;
        let result = check.run();
        let (repaired, restart) = (check.repairs.load(Relaxed), check.must_restart());
        outcomes.append(&mut check.outcomes.lock());
        let told = check.carry();
        drop(check);
        all += repaired;
        match result {
            Err(CheckError::Stopped) => {
                store.flush()?;
                return Err(CheckError::Stopped);
            }
            Err(CheckError::Memory { .. }) if windows.shrink() => {
                (at, carry) = (0, Carry::default());
                continue;
            }
            other => other?,
        }
        store.flush()?;
        store.reload()?;
        let is_other = !windows.fit(store.geometry());
        if (is_other || restart && repaired > 0) && *restarts < MAX_RESTARTS {
            *restarts += 1;
            if is_other {
                *windows = Windows::plan(store, options);
                (at, carry) = (0, Carry::default());
            }
            continue;
        }
        (at, carry) = (at + 1, told);
    }
    Ok(all)
}

/// Looks, and repairs what `judge` accepts, until a look finds nothing more, nothing more is accepted, or the rounds are used
/// up. While repairs are under way the volume is marked as not clean; in the end it is clean if nothing is left. Times of
/// checks and mount counts are the caller's to set.
///
/// # Errors
/// As [`look`], and [`CheckError::Stopped`] when the judge ended the run.
pub fn repair(
    store: &mut Store,
    options: &Options,
    judge: &dyn Judge,
) -> Result<Report, CheckError> {
    let mut windows = Windows::plan(store, options);
    let mut report = look_within(store, options, &mut windows)?;
    let found_errors = report.found_errors;
    if !judge.may_repair() {
        return Ok(report);
    }
    let mut outcomes: Vec<Outcome> = Vec::new();
    let (mut rounds, mut restarts, mut unseen) = (0, 0, 0); // unseen: repairs since the last look
    let mut forced =
        options.optimize_directories || options.unshare_blocks || options.bmap_to_extent;
    while (forced || !report.outcomes.is_empty()) && rounds < options.rounds {
        forced = false;
        let shared = SharedClusters::read(store, std::mem::take(&mut report.claimed_twice))?;
        let repaired = repair_round(
            store,
            options,
            judge,
            &mut windows,
            &shared,
            &mut outcomes,
            &mut restarts,
        )?;
        unseen += repaired;
        rounds += 1;
        if unseen == 0 {
            break;
        }
        unseen = 0;
        let before = std::mem::take(&mut report.outcomes);
        report = look_within(store, options, &mut windows)?;
        if before == report.outcomes {
            break; // nothing that was done helped
        }
    }
    report.outcomes = outcomes;
    report.found_errors = found_errors;
    report.changed = store.is_changed();
    if !report.errors_left {
        lower_marks(store, &report.loose_marks)?;
    }
    if report.changed {
        let is_clean = store.superblock().state.contains(State::CLEAN);
        if !report.errors_left && !is_clean {
            store.update_superblock(|raw| {
                raw.s_state.set(raw.s_state.get() | State::CLEAN.bits());
            })?;
        }
        store.flush()?;
    }
    Ok(report)
}
