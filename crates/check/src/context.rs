//! One round of a check: the tables that the passes fill, and what every pass needs.

use crate::finding::{Finding, Pass};
use crate::prefetch::CheckPrefetch;
use crate::recorder::Recorder;
use crate::report::{
    CheckOptions, Discontinuity, HandledFinding, PassReport, PassStatistics, Recount,
    VolumeStatistics,
};
use crate::store::{CheckError, Store};
use crate::tables::{
    BlockTable, Budget, Carry, Deferred, DirBlock, DirTable, EaInodes, InodeTable, Kind,
    PolicyTable, SharedClusters, Stored, Usage, Window, XattrBlocks,
};
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::superblock::Superblock;
use extant_ondisk::{Geometry, GroupNo, InodeNo};
use extant_runtime::sync::Mutex;
use roaring::RoaringBitmap;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Where the scan before a repair found something in the passes that read most of the volume;
/// `None` for a pass whose findings depend on the order of the work ([`crate::Code::is_local`]).
/// The repair checks everything else first, with several threads, and then these in order, with
/// one. A finding elsewhere would come in an order that depends on threads: it ends the round,
/// which begins again with one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct FoundPlaces {
    /// Inodes of pass 1.
    pub(crate) inodes: Option<RoaringBitmap>,
    /// Directories of pass 2.
    pub(crate) directories: Option<RoaringBitmap>,
}

/// The state of one round.
pub(crate) struct Check<'a> {
    pub(crate) store: &'a Store,
    pub(crate) geometry: &'a Geometry,
    pub(crate) superblock: Superblock,
    pub(crate) descs: Vec<GroupDesc>,
    pub(crate) recorder: &'a Recorder<'a>,
    pub(crate) options: &'a CheckOptions,
    /// The groups whose data this round keeps.
    pub(crate) window: Window,
    /// Counts of the earlier windows.
    pub(crate) carry: Carry,
    /// Clusters that the scan before this repair found claimed more than once.
    pub(crate) shared: &'a SharedClusters,
    /// Reads under way that bypass the system's cache.
    pub(crate) ahead: CheckPrefetch,
    pub(crate) budget: Budget,
    pub(crate) blocks: BlockTable,
    pub(crate) inodes: InodeTable,
    pub(crate) dirs: DirTable,
    pub(crate) dir_blocks: Vec<DirBlock>,
    pub(crate) xattr_blocks: XattrBlocks,
    pub(crate) ea_inodes: EaInodes,
    pub(crate) policies: PolicyTable,
    pub(crate) usage: Usage,
    pub(crate) statistics: VolumeStatistics,
    /// Changes of that by repairs since it was counted.
    pub(crate) recount: Mutex<Recount>,
    /// Places where files are not contiguous, if the options ask for them.
    pub(crate) discontinuities: Vec<Discontinuity>,
    /// Directories whose blocks the repair changes, for pass 3A to pack again.
    pub(crate) deferred: Mutex<Deferred>,
    /// Inodes in which another one's record lies: emptied when a name leads to them, cleared
    /// without one.
    pub(crate) copies: Mutex<BTreeSet<InodeNo>>,
    /// lost+found, once pass 3 knows it.
    pub(crate) lost_found: std::sync::atomic::AtomicU32,
    /// Whether records of inodes lie in bad blocks.
    pub(crate) has_bad_inodes: bool,
    /// The bad blocks.
    pub(crate) bad: extant_layout::RunSet,
    /// The list of bad blocks contains the block of its own inode: the list is ignored.
    pub(crate) is_bad_list_broken: bool,
    /// Inodes up to the last one in use beyond the marks of some groups.
    pub(crate) past_marks: Mutex<std::collections::BTreeMap<GroupNo, u32>>,
    /// Stored block bitmap of the group from which blocks were last allocated.
    pub(crate) stored_bitmap: Mutex<Option<(GroupNo, Stored)>>,
    /// Groups whose high-water mark could be lower.
    pub(crate) reducible_marks: Mutex<Vec<(GroupNo, u32)>>,
    restart: AtomicBool,
    /// Findings before this round.
    findings_before: usize,
    /// Where the scan before this repair found something.
    found_places: FoundPlaces,
    /// Whether a part of the volume is checked in which the scan found nothing: with several
    /// threads, although this is a repair.
    is_in_sound_part: AtomicBool,
    /// Whether such a part has a finding.
    is_unexpected: AtomicBool,
    pub(crate) repairs: AtomicU64,
    passes: Vec<PassStatistics>,
    progress_done: AtomicU64,
}

impl<'a> Check<'a> {
    pub(crate) fn new(
        store: &'a Store,
        recorder: &'a Recorder<'a>,
        options: &'a CheckOptions,
        window: Window,
        carry: Carry,
        shared: &'a SharedClusters,
    ) -> Result<Self, CheckError> {
        let geometry = store.geometry();
        // A repair must not read blocks before it writes them; blocks that several windows read are
        // better kept in the cache; the memory limit is for tables.
        let is_read_ahead = options.read_ahead > 0
            && options.memory.is_none()
            && window.is_whole()
            && store.is_read_once()
            && !recorder.may_repair();
        let mut check = Self {
            store,
            geometry,
            superblock: store.superblock(),
            descs: store.descs(),
            recorder,
            options,
            ahead: CheckPrefetch::new(store.device(), is_read_ahead),
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
            statistics: VolumeStatistics::default(),
            recount: Mutex::default(),
            discontinuities: Vec::new(),
            deferred: Mutex::default(),
            copies: Mutex::default(),
            lost_found: std::sync::atomic::AtomicU32::new(0),
            has_bad_inodes: false,
            bad: extant_layout::RunSet::new(),
            is_bad_list_broken: false,
            past_marks: Mutex::default(),
            stored_bitmap: Mutex::default(),
            reducible_marks: Mutex::default(),
            restart: AtomicBool::new(false),
            findings_before: recorder.count(),
            found_places: FoundPlaces::default(),
            is_in_sound_part: AtomicBool::new(false),
            is_unexpected: AtomicBool::new(false),
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

    /// Whether this round repairs: then it has one thread and visits inodes in ascending order, but
    /// for what [`FoundPlaces`] allows.
    pub(crate) fn is_repair(&self) -> bool {
        self.recorder.may_repair()
    }

    /// Whether a finding is to be repaired now.
    pub(crate) fn should_fix(&self, finding: Finding) -> Result<bool, CheckError> {
        if self.is_in_sound_part.load(Relaxed) {
            self.is_unexpected.store(true, Relaxed);
            return Err(CheckError::Stopped);
        }
        let repaired = self.recorder.should_fix(finding)?;
        if repaired && self.repairs.fetch_add(1, Relaxed) == 0 {
            self.store.mark_unclean()?;
        }
        Ok(repaired)
    }

    pub(crate) fn set_found_places(&mut self, found: FoundPlaces) {
        self.found_places = found;
    }

    /// Whether a pass that the scan found sound found something, so that the round is to be begun
    /// again without any.
    pub(crate) fn is_unexpected(&self) -> bool {
        self.is_unexpected.load(Relaxed)
    }

    /// Where the scan before this repair found something in a pass; `None` where all of the pass
    /// needs one thread.
    pub(crate) fn places_of(
        &self,
        of_pass: impl FnOnce(&FoundPlaces) -> &Option<RoaringBitmap>,
    ) -> Option<&RoaringBitmap> {
        let places = of_pass(&self.found_places).as_ref()?;
        let is_other = |it: &HandledFinding| !it.finding.code.is_local();
        (self.is_repair() && !self.recorder.any_since(self.findings_before, is_other))
            .then_some(places)
    }

    /// Does a part of a pass; `is_sound` where the scan found nothing in it.
    pub(crate) fn in_part<T>(
        &self,
        is_sound: bool,
        work: impl FnOnce() -> Result<T, CheckError>,
    ) -> Result<T, CheckError> {
        self.is_in_sound_part.store(is_sound, Relaxed);
        let result = work();
        self.is_in_sound_part.store(false, Relaxed);
        result
    }

    /// The inodes that pass 1 leaves for one thread, while the others are checked.
    pub(crate) fn inodes_put_off(&self) -> Option<&RoaringBitmap> {
        let is_sound = self.is_in_sound_part.load(Relaxed);
        self.found_places.inodes.as_ref().filter(|places| is_sound && !places.is_empty())
    }

    /// Reports a finding that needs no decision.
    pub(crate) fn report(&self, finding: Finding) -> Result<(), CheckError> {
        self.should_fix(finding).map(|_| ())
    }

    /// A repair changed what the tables should contain: the round ends with this pass, and another
    /// one starts.
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
        if self.is_repair() && !self.is_in_sound_part.load(Relaxed) {
            return 1;
        }
        let allowed = match self.options.threads {
            0 => std::thread::available_parallelism().map_or(1, |count| count.get()),
            threads => threads,
        };
        allowed.min(shares.max(1))
    }

    /// Runs `work` once in each of the round's threads, of which there are no more than `shares` of
    /// work: to start one takes as long as to check some hundred inodes.
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
        self.passes.push(PassStatistics {
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
        if self.is_repair() {
            self.find_lost_directories()?;
            if self.must_restart() {
                return Ok(());
            }
        }
        self.fetch_first_bitmaps();
        self.timed(2, Self::pass2)?;
        if self.must_restart() {
            return Ok(());
        }
        self.timed(3, Self::pass3)?;
        if self.must_restart() {
            return Ok(());
        }
        self.timed(4, Self::pass4)?;
        if self.must_restart() {
            return Ok(());
        }
        if self.options.carve {
            self.carve()?;
            if self.must_restart() {
                return Ok(());
            }
        }
        self.timed(5, Self::pass5)?;
        if !self.window.is_last {
            return Ok(());
        }
        self.timed(6, Self::pass6)
    }

    /// The kind of an inode, within the window or not.
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

    /// Data for the next window.
    pub(crate) fn carry(&self) -> Carry {
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

    pub(crate) fn into_report(self) -> PassReport {
        PassReport {
            findings: Vec::new(),
            passes: self.passes,
            statistics: self.recount.into_inner().applied_to(self.statistics),
            discontinuities: self.discontinuities,
            memory: self.budget.peak(),
            windows: 1,
            rounds: 0,
            reducible_marks: {
                let mut marks = self.reducible_marks.into_inner();
                marks.sort_unstable();
                marks
            },
            claimed_twice: roaring::RoaringTreemap::new(),
            unclaimed: roaring::RoaringTreemap::new(),
            changed: self.store.is_changed(),
            errors_left: false,
            found_errors: false,
        }
    }
}
