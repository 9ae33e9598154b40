//! One round of a check: the five passes over one set of tables.

use crate::finding::{Finding, Pass, Severity};
use crate::judge::{Judge, Judgement, Notes};
use crate::pass1::{PolicyTable, Usage};
use crate::report::{Census, Jump, Options, Outcome, PassFigures, Report};
use crate::store::{CheckError, Store};
use crate::tables::{BlockTable, Budget, DirBlock, DirTable, EaInodes, InodeTable, XattrBlocks};
use extant_device::sync::Mutex;
use extant_ondisk::group_desc::{GroupDesc, GroupFlags};
use extant_ondisk::superblock::{State, Superblock};
use extant_ondisk::{Geometry, GroupNo, InodeNo};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What one round knows.
pub(crate) struct Check<'a> {
    pub(crate) store: &'a Store,
    pub(crate) geometry: &'a Geometry,
    pub(crate) superblock: Superblock,
    pub(crate) descs: Vec<GroupDesc>,
    pub(crate) judge: &'a dyn Judge,
    pub(crate) options: &'a Options,
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
    /// lost+found, once pass 3 knows it.
    pub(crate) lost_found: std::sync::atomic::AtomicU32,
    /// Whether records of inodes lie in bad blocks.
    pub(crate) has_bad_inodes: bool,
    /// The bad blocks.
    pub(crate) bad: extant_layout::RunSet,
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
    ) -> Result<Self, CheckError> {
        let geometry = store.geometry();
        let mut check = Self {
            store,
            geometry,
            superblock: store.superblock(),
            descs: store.descs(),
            judge,
            options,
            budget: Budget::new(options.memory),
            blocks: BlockTable::new(geometry, &extant_layout::RunSet::new()),
            inodes: InodeTable::new(geometry),
            dirs: DirTable::default(),
            dir_blocks: Vec::new(),
            xattr_blocks: XattrBlocks::default(),
            ea_inodes: EaInodes::default(),
            policies: PolicyTable::default(),
            usage: Usage::default(),
            census: Census::default(),
            jumps: Vec::new(),
            late: Mutex::default(),
            lost_found: std::sync::atomic::AtomicU32::new(0),
            has_bad_inodes: false,
            bad: extant_layout::RunSet::new(),
            loose_marks: Mutex::default(),
            outcomes: Mutex::default(),
            restart: AtomicBool::new(false),
            repairs: AtomicU64::new(0),
            passes: Vec::new(),
            progress_done: AtomicU64::new(0),
        };
        let system = check.system_blocks()?;
        check.blocks = BlockTable::new(geometry, &system);
        check.bad = check.bad_blocks()?;
        check.has_bad_inodes = check.bad.count() > 0;
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

    /// Worker threads for this round.
    pub(crate) fn threads(&self) -> usize {
        if self.is_repair() {
            return 1;
        }
        match self.options.threads {
            0 => std::thread::available_parallelism().map_or(1, |count| count.get()),
            threads => threads,
        }
    }

    /// Runs `work` once in each of the round's threads.
    pub(crate) fn in_parallel<T: Send>(
        &self,
        work: impl Fn() -> Result<T, CheckError> + Sync,
    ) -> Result<Vec<T>, CheckError> {
        let threads = self.threads();
        if threads <= 1 {
            return Ok(vec![work()?]);
        }
        let work = &work;
        extant_device::sync::thread::scope(|scope| {
            let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut results = vec![work()];
            for worker in workers {
                results
                    .push(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            results.into_iter().collect()
        })
    }

    pub(crate) fn progress(&self, pass: Pass, more: u64, whole: u64) {
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
        self.timed(6, Self::pass6)
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
            loose_marks: {
                let mut marks = self.loose_marks.into_inner();
                marks.sort_unstable();
                marks
            },
            changed: self.store.is_changed(),
            errors_left: false,
            found_errors: false,
        }
    }
}

/// Looks at everything and changes nothing. What is found is in the order of passes and places, whatever the threads.
///
/// # Errors
/// The device failed, or the tables need more memory than allowed.
pub fn look(store: &Store, options: &Options) -> Result<Report, CheckError> {
    let notes = Notes::default();
    let mut check = Check::new(store, &notes, options)?;
    check.run()?;
    let mut report = check.into_report(Vec::new());
    report.outcomes = notes
        .into_sorted()
        .into_iter()
        .map(|finding| Outcome { finding, repaired: false })
        .collect();
    report.errors_left =
        report.outcomes.iter().any(|outcome| outcome.finding.code.row().severity > Severity::Note);
    report.found_errors = report.outcomes.iter().any(|it| it.finding.code.is_correction());
    Ok(report)
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
    let mut report = look(store, options)?;
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
        let mut check = Check::new(store, judge, options)?;
        let result = check.run();
        let (repaired, restart) = (check.repairs.load(Relaxed), check.must_restart());
        outcomes.append(&mut check.outcomes.lock());
        drop(check);
        if let Err(CheckError::Stopped) = result {
            store.flush()?;
            return Err(CheckError::Stopped);
        }
        result?;
        store.flush()?;
        store.reload()?;
        unseen += repaired;
        if restart && repaired > 0 && restarts < MAX_RESTARTS {
            restarts += 1;
            continue;
        }
        rounds += 1;
        if unseen == 0 {
            break;
        }
        unseen = 0;
        let before = std::mem::take(&mut report.outcomes);
        report = look(store, options)?;
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
