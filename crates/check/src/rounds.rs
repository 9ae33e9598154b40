//! Rounds of a check: scans window by window, and repairs until nothing is left to do.

use crate::context::{Check, FoundPlaces};
use crate::evidence;
use crate::finding::{Code, Finding, Severity, Subject};
use crate::lost_directories::has_directory_blocks;
use crate::misplaced;
use crate::policy::AutoPolicy;
use crate::recorder::Recorder;
use crate::report::{CheckOptions, HandledFinding, PassReport};
use crate::store::{CheckError, Store};
use crate::tables::{Carry, SharedClusters, Windows};
use extant_device::OverlayDevice;
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::superblock::State;
use extant_ondisk::{GroupNo, InodeNo, RoCompatFeatures};
use roaring::{RoaringBitmap, RoaringTreemap};
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Scans the whole volume and changes nothing. Findings are in the order of passes and locations,
/// independent of threads and memory.
///
/// # Errors
/// The device failed, or what must be kept of the whole volume takes more memory than allowed.
pub fn scan(store: &Store, options: &CheckOptions) -> Result<PassReport, CheckError> {
    scan_within(store, options, &mut Windows::plan(store, options))
}

/// Scans window by window, and with smaller windows if they turn out to be too large.
fn scan_within(
    store: &Store,
    options: &CheckOptions,
    windows: &mut Windows,
) -> Result<PassReport, CheckError> {
    loop {
        match scan_windows(store, options, windows) {
            Err(CheckError::Memory { .. }) if windows.shrink() => {}
            other => return other,
        }
    }
}

fn scan_windows(
    store: &Store,
    options: &CheckOptions,
    windows: &Windows,
) -> Result<PassReport, CheckError> {
    let mut found: Vec<Finding> = Vec::new();
    let mut whole: Option<PassReport> = None;
    let (mut carry, mut unclaimed) = (Carry::default(), RoaringTreemap::new());
    for at in 0..windows.count() {
        let found_here = Recorder::new(&AutoPolicy::No);
        let none = SharedClusters::default();
        let mut check = Check::new(store, &found_here, options, windows.get(at), carry, &none)?;
        check.run()?;
        carry = check.carry();
        if found_here.any(|it| it.finding.code == Code::BlockBitmapWrong) {
            check.note_unclaimed(&mut unclaimed)?;
        }
        let report = check.into_report();
        found = match at {
            0 => found_here.into_sorted(),
            _ => united(found, found_here.into_sorted()),
        };
        whole = Some(match whole {
            None => report,
            Some(before) => report.after(before),
        });
    }
    store.note_scan();
    let mut report = whole.unwrap_or_default();
    report.claimed_twice = carry.twice;
    report.unclaimed = unclaimed;
    report.windows = windows.count();
    report.findings =
        found.into_iter().map(|finding| HandledFinding { finding, repaired: false }).collect();
    report.errors_left =
        report.findings.iter().any(|outcome| outcome.finding.code.row().severity > Severity::Note);
    report.found_errors = report.findings.iter().any(|it| it.finding.code.is_correction());
    Ok(report)
}

/// Merges the findings of two windows, both sorted: findings of both are kept once.
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

/// Lowers the high-water marks of a sound volume as far as its inodes allow (document 004). It is
/// not a finding: too high a mark only costs time.
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

/// Maximum number of restarts in one run, in addition to the rounds: each clears an inode or a
/// feature.
const MAX_RESTARTS: u32 = 100;

/// The result of a round of repairs.
struct Round {
    /// Number of repairs.
    repaired: u64,
    /// The report that a scan would give now, where all that was found is repaired and the tables
    /// of the round describe the volume ([`Code::is_local`]).
    report: Option<PassReport>,
    /// The last window was begun again: what is found in it is all that the repairs before it left.
    was_restarted: bool,
}

/// Repairs once what can be repaired in each window. After a repair that makes the tables wrong,
/// the window is begun again.
fn repair_round(
    store: &mut Store,
    options: &CheckOptions,
    recorder: &Recorder<'_>,
    windows: &mut Windows,
    shared: &SharedClusters,
    mut found: FoundPlaces,
    restarts: &mut u32,
) -> Result<Round, CheckError> {
    let (mut at, mut all, mut carry) = (0, 0, Carry::default());
    let (mut report, mut was_restarted) = (None, false);
    while at < windows.count() {
        recorder.begin_round();
        let before = recorder.count();
        let mut check =
            Check::new(store, recorder, options, windows.get(at), carry.clone(), shared)?;
        check.set_found_places(found.clone());
        let result = check.run();
        let is_unexpected = check.is_unexpected();
        let (repaired, restart) = (check.repairs.load(Relaxed), check.must_restart());
        let next = check.carry();
        // Usage of quotas is counted in pass 1 and does not follow the repairs.
        let is_unsure =
            check.recount.lock().is_unsure || check.geometry.has_ro_compat(RoCompatFeatures::QUOTA);
        let is_settled = windows.count() == 1 && !restart && !is_unsure && !options.carve;
        report = (is_settled && recorder.all_is_repaired_since(before, Code::is_local))
            .then(|| check.into_report());
        all += repaired;
        match result {
            Err(CheckError::Stopped) if !is_unexpected => {
                store.flush()?;
                return Err(CheckError::Stopped);
            }
            Err(CheckError::Memory { .. }) if windows.shrink() => {
                (at, carry) = (0, Carry::default());
                continue;
            }
            Err(CheckError::Stopped) => {}
            other => other?,
        }
        store.flush()?;
        store.reload()?;
        if is_unexpected {
            found = FoundPlaces::default();
            continue;
        }
        let is_other = !windows.fit(store.geometry());
        if (is_other || restart && repaired > 0) && *restarts < MAX_RESTARTS {
            *restarts += 1;
            was_restarted = true;
            if is_other {
                *windows = Windows::plan(store, options);
                (at, carry) = (0, Carry::default());
            }
            continue;
        }
        (at, carry) = (at + 1, next);
    }
    Ok(Round { repaired: all, report, was_restarted })
}

/// Where a scan found something, for a repair that the options do not ask for (`forced`).
fn found_places(report: &PassReport, forced: bool, windows: usize) -> FoundPlaces {
    if forced || windows != 1 {
        return FoundPlaces::default();
    }
    let places = |pass, place: fn(&Subject) -> Option<InodeNo>| {
        let findings = report.findings.iter().map(|it| &it.finding);
        let of_pass = findings
            .filter(|it| it.code.row().pass == pass && !it.code.is_found_after_all_inodes());
        let of_finding = |it: &Finding| place(&it.subject).filter(|_| it.code.is_local());
        of_pass.map(|it| of_finding(it).map(|place| place.0)).collect::<Option<RoaringBitmap>>()
    };
    FoundPlaces { inodes: places(1, |it| it.inode), directories: places(2, |it| it.dir) }
}

/// Scans, and repairs what the policy accepts, until a scan finds nothing more, nothing more is
/// accepted, or the rounds are used up. During the repairs the volume is marked as not clean; at
/// the end it is clean if nothing is left. The caller sets times of checks and mount counts.
///
/// # Errors
/// As [`scan`], and [`CheckError::Stopped`] when the policy ended the run.
pub fn repair(
    store: &mut Store,
    options: &CheckOptions,
    recorder: &Recorder<'_>,
) -> Result<PassReport, CheckError> {
    let mut windows = Windows::plan(store, options);
    let mut report = scan_within(store, options, &mut windows)?;
    let found_errors = report.found_errors;
    let before = recorder.count();
    if evidence::is_wanted(&report) {
        let moved = misplaced::restore(store, options, recorder, &report)?;
        if moved + evidence::restore(store, options, recorder, Some(&report))? > 0 {
            report = scan_within(store, options, &mut windows)?;
        }
    }
    if !recorder.may_repair() {
        report_lost_directories(store, options, &report, recorder)?;
        return Ok(report);
    }
    store.set_unclaimed(std::mem::take(&mut report.unclaimed));
    let (mut rounds, mut restarts, mut unseen) = (0, 0, 0); // unseen: repairs since the last scan
    let mut forced =
        options.optimize_directories || options.unshare_blocks || options.bmap_to_extent;
    while (forced || !report.findings.is_empty()) && rounds < options.rounds {
        let found = found_places(&report, forced, windows.count());
        let may_settle = !forced && report.findings.iter().all(|it| it.finding.code.is_local());
        forced = false;
        let shared = SharedClusters::read(store, std::mem::take(&mut report.claimed_twice))?;
        let round =
            repair_round(store, options, recorder, &mut windows, &shared, found, &mut restarts)?;
        unseen += round.repaired;
        rounds += 1;
        if unseen == 0 {
            break;
        }
        unseen = 0;
        if let Some(settled) = round.report.filter(|_| may_settle || round.was_restarted) {
            report = settled;
            assert_settled(store, options, &report);
            break;
        }
        let last = std::mem::take(&mut report.findings);
        report = scan_within(store, options, &mut windows)?;
        if last == report.findings {
            break; // nothing that was done helped
        }
    }
    report.findings = recorder.since(before);
    report.rounds = rounds + restarts;
    report.found_errors = found_errors;
    report.changed = store.is_changed();
    if !report.errors_left {
        lower_marks(store, &report.reducible_marks)?;
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

/// Where assertions are enabled, scans what a round has settled, and asserts that nothing is left.
fn assert_settled(store: &Store, options: &CheckOptions, settled: &PassReport) {
    if !cfg!(debug_assertions) {
        return;
    }
    if let Ok(seen) = scan(store, options) {
        let left: Vec<_> = seen.findings.iter().map(|it| it.finding.to_string()).collect();
        assert!(left.is_empty(), "a repair left {left:?}");
        assert_eq!(seen.statistics, settled.statistics, "statistics after a repair");
        assert_eq!(seen.reducible_marks, settled.reducible_marks, "marks after a repair");
    }
}

/// Bytes of changes that are kept in memory.
const MOST_BYTES: u64 = 1 << 30;

/// Reports the directories that `-y` would restore from their blocks, and the names from older
/// copies, where nothing may be written.
/// `scanned` is the report of a scan. Nothing is reported where the repair takes more memory than
/// allowed, or fails.
///
/// # Errors
/// The device failed, or the policy ended the run.
fn report_lost_directories(
    store: &Store,
    options: &CheckOptions,
    scanned: &PassReport,
    recorder: &Recorder<'_>,
) -> Result<(), CheckError> {
    let has_blocks = || {
        Ok::<_, CheckError>(
            scanned.windows <= 1 && has_directory_blocks(store, &scanned.unclaimed)?,
        )
    };
    if store.older_names().is_empty() && !has_blocks()? {
        return Ok(());
    }
    let most = options.memory.unwrap_or(MOST_BYTES);
    let overlay = OverlayDevice::new(store.device().clone()).with_limit(most);
    let mut changed = store.on(Arc::new(overlay))?;
    let options = CheckOptions { progress: None, on_work: None, ..options.clone() };
    let found = Recorder::new(&AutoPolicy::Yes);
    if let Err(error) = repair(&mut changed, &options, &found) {
        tracing::warn!(%error, "lost directories are not reported");
    }
    for outcome in found.into_findings() {
        let is_shown = match outcome.finding.code {
            Code::DirectoryInodeLost | Code::DirectoryBlocksLost | Code::OlderName => {
                outcome.repaired
            }
            code => code == Code::EncryptedDirectoryLost,
        };
        if is_shown {
            recorder.should_fix(outcome.finding)?;
        }
    }
    Ok(())
}
