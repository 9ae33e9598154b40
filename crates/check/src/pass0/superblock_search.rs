//! Finding a superblock and descriptors to work with: the primary ones, or the backups.
//!
//! A backup lies at the start of its group. The start of a group depends on the superblock's
//! values, so all block sizes are tried with the usual group sizes, then with the values of a
//! corrupt primary, and last the start of the device is searched: a backup contains its group
//! number, and is valid only at the start of that group.

use crate::finding::{Code, Finding};
use extant_device::{Device, DeviceError, data_runs};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{
    BlockNo, Flaw, FormatError, Geometry, GroupNo, IncompatFeatures, Location, RoCompatFeatures,
};
use zerocopy::{FromZeros, IntoBytes};

const SMALLEST_BLOCK: u32 = 1024;
const LARGEST_BLOCK: u32 = 65536;
/// How much of the device is searched for backups at unusual places, in bytes.
const SEARCHED: u64 = 256 << 20;

/// Which superblock to take.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SuperblockChoice {
    /// The block of the superblock (`-b`); the primary one, else a backup.
    pub superblock: Option<u64>,
    /// The block size (`-B`); else all are tried.
    pub block_size: Option<u32>,
}

/// A superblock that can be computed with.
#[derive(Clone, Debug)]
pub(super) struct SuperblockCandidate {
    pub(super) raw: RawSuperblock,
    pub(super) geometry: Geometry,
    /// The group whose copy it is.
    pub(super) group: GroupNo,
    /// The flaw of the primary one, if this is another.
    pub(super) primary_flaw: Option<FormatError>,
    /// Of the primary one: only checksum does not match.
    pub(super) is_checksum_wrong: bool,
    /// Of the primary one: the field that was computed from the rest.
    pub(super) counted: Option<Finding>,
}

impl SuperblockCandidate {
    /// A superblock without a flaw, so far as is known.
    pub(super) fn new(raw: RawSuperblock, geometry: Geometry, group: GroupNo) -> Self {
        Self { raw, geometry, group, primary_flaw: None, is_checksum_wrong: false, counted: None }
    }

    /// A backup that is taken for a flaw of the primary superblock.
    pub(super) fn of_backup((raw, geometry, group): Backup, flaw: FormatError) -> Self {
        Self { primary_flaw: Some(flaw), ..Self::new(raw, geometry, group) }
    }

    /// Whether it is the primary superblock, just as it is stored.
    pub(super) fn is_sound_primary(&self) -> bool {
        self.group.0 == 0
            && self.primary_flaw.is_none()
            && !self.is_checksum_wrong
            && self.counted.is_none()
    }
}

/// Why nothing was found.
#[derive(Debug)]
pub(super) enum NotFound {
    Device(DeviceError),
    /// The primary superblock's error: no copy was better.
    Format(FormatError),
}

impl From<DeviceError> for NotFound {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// Features that only programs of their authors can check, and unknown ones.
pub(super) fn beyond(raw: &RawSuperblock) -> Vec<String> {
    let features = raw.features();
    let mut beyond = features;
    beyond.compat =
        features.compat.unknown() | features.compat & extant_ondisk::CompatFeatures::LAZY_BG;
    beyond.incompat = features.incompat.difference(IncompatFeatures::READABLE);
    beyond.ro_compat = features.ro_compat.unknown()
        | features.ro_compat
            & (RoCompatFeatures::HAS_SNAPSHOT
                | RoCompatFeatures::REPLICA
                | RoCompatFeatures::BTREE_DIR);
    beyond.names()
}

fn read(device: &dyn Device, offset: u64) -> Result<Option<RawSuperblock>, DeviceError> {
    let mut raw = RawSuperblock::new_zeroed();
    let fits =
        offset.checked_add(raw.as_bytes().len() as u64).is_some_and(|end| end <= device.size());
    if !fits {
        return Ok(None);
    }
    device.read_at(offset, raw.as_mut_bytes())?;
    Ok(Some(raw))
}

/// A backup that verifies, and lies where it says.
fn backup(
    device: &dyn Device,
    offset: u64,
    block_size: u32,
) -> Result<Option<(RawSuperblock, Geometry, GroupNo)>, DeviceError> {
    let Some(raw) = read(device, offset)? else { return Ok(None) };
    if raw.s_magic.get() != SUPERBLOCK_MAGIC {
        return Ok(None);
    }
    let stored = u32::from(raw.s_block_group_nr.get());
    if raw.verify(GroupNo(stored)).is_err() {
        return Ok(None);
    }
    let Ok(geometry) = Geometry::new(&raw) else { return Ok(None) };
    if geometry.block_size != block_size {
        return Ok(None);
    }
    let Some(group) = geometry.group_of(BlockNo(offset >> geometry.block_bits())) else {
        return Ok(None);
    };
    // Old makers left the number at 0; the field has 16 bits.
    let is_named = stored == 0 || stored == group.0 & 0xffff;
    let is_there = geometry.byte_of(geometry.group_start(group)) == offset;
    Ok((is_named && is_there && group.0 > 0).then_some((raw, geometry, group)))
}

fn block_sizes(wanted: Option<u32>) -> Vec<u32> {
    match wanted {
        Some(size) => vec![size],
        None => (SMALLEST_BLOCK.trailing_zeros()..=LARGEST_BLOCK.trailing_zeros())
            .map(|bits| 1 << bits)
            .collect(),
    }
}

/// Finds a superblock.
pub(super) fn find(
    device: &dyn Device,
    wanted: SuperblockChoice,
) -> Result<SuperblockCandidate, NotFound> {
    if let Some(block) = wanted.superblock {
        return named(device, block, wanted.block_size);
    }
    let nothing =
        || Flaw::truncated(0, SUPERBLOCK_OFFSET as usize).at(Location::Superblock(GroupNo(0)));
    let Some(raw) = read(device, SUPERBLOCK_OFFSET)? else {
        return Err(NotFound::Format(nothing()));
    };
    let flaw = match primary(&raw, wanted.block_size) {
        Ok(found) if found.counted.is_none() && group_sizes(&raw).is_none() => return Ok(found),
        Ok(found) => {
            let backup = any_backup(device, &raw, wanted.block_size)?;
            match backup.and_then(|backup| known_better(&raw, &found.raw, &backup)) {
                Some(flaw) => flaw,
                None => return Ok(found),
            }
        }
        Err(flaw) => flaw,
    };
    // Healthy, but beyond this code: its backups are, too.
    if raw.s_magic.get() == SUPERBLOCK_MAGIC
        && raw.verify(GroupNo(0)).is_ok()
        && !flaw.is_corruption()
    {
        return Err(NotFound::Format(flaw));
    }
    if let Some(backup) = any_backup(device, &raw, wanted.block_size)? {
        return Ok(SuperblockCandidate::of_backup(backup, flaw));
    }
    // Without a backup the primary one is taken if it is valid except for its checksum.
    if matches!(flaw, FormatError::Corrupt { flaw: Flaw::Checksum { .. }, .. })
        && let Ok(geometry) = Geometry::new(&raw)
    {
        let found = SuperblockCandidate::of_backup((raw, geometry, GroupNo(0)), flaw);
        return Ok(SuperblockCandidate { is_checksum_wrong: true, ..found });
    }
    Err(NotFound::Format(flaw))
}

/// The blocks and the clusters of a group, where they differ though clusters are blocks: one of the
/// two is wrong.
fn group_sizes(raw: &RawSuperblock) -> Option<(u32, u32)> {
    let has_clusters = raw.features().ro_compat.contains(RoCompatFeatures::BIGALLOC);
    let sizes = (raw.s_blocks_per_group.get(), raw.s_clusters_per_group.get());
    (!has_clusters && sizes.0 != sizes.1).then_some(sizes)
}

/// A superblock that `Geometry` refuses is valid with as many blocks in a group as it has clusters.
fn with_group_size(raw: &RawSuperblock) -> Option<SuperblockCandidate> {
    let (blocks, clusters) = group_sizes(raw)?;
    let mut fixed = *raw;
    fixed.s_blocks_per_group.set(clusters);
    fixed.seal();
    let finding = Finding::new(Code::BlocksPerGroupWrong).found(u64::from(blocks));
    let found = SuperblockCandidate::new(fixed, Geometry::new(&fixed).ok()?, GroupNo(0));
    Some(SuperblockCandidate { counted: Some(finding.expected(u64::from(clusters))), ..found })
}

/// Takes from a backup the fields of the primary superblock that it knows better than computed
/// values: the inode count may be wrong, or the fields that it was compared with (the inodes per
/// group, all blocks); the blocks per group; the first group whose descriptors lie in the groups.
fn known_better(
    raw: &RawSuperblock,
    fixed: &RawSuperblock,
    (backup, geometry, _): &Backup,
) -> Option<FormatError> {
    let is_other = [fixed.s_inodes_per_group, backup.s_inodes_per_group]
        .iter()
        .any(|known| *known != raw.s_inodes_per_group);
    let is_resized = backup.s_blocks_per_group != raw.s_blocks_per_group;
    // The backup has the same count of inodes: it is not that one which does not fit the blocks.
    let is_cut = fixed.s_inodes_count != raw.s_inodes_count
        && backup.s_inodes_count == raw.s_inodes_count
        && geometry.blocks_count != Superblock::decode(raw).blocks_count;
    let is_moved = fixed.s_first_meta_bg != raw.s_first_meta_bg
        && geometry.first_meta_bg <= geometry.desc_blocks();
    let is_flex = fixed.s_log_groups_per_flex != raw.s_log_groups_per_flex
        && raw.features().incompat.contains(IncompatFeatures::FLEX_BG);
    let flaw = if is_flex {
        Flaw::bad_value("s_log_groups_per_flex", raw.s_log_groups_per_flex)
    } else if is_resized {
        Flaw::bad_value("s_blocks_per_group", raw.s_blocks_per_group.get())
    } else if is_other {
        Flaw::bad_value("s_inodes_per_group", raw.s_inodes_per_group.get())
    } else if is_cut {
        Flaw::bad_value("s_blocks_count_lo", raw.s_blocks_count_lo.get())
    } else if is_moved {
        Flaw::bad_value("s_first_meta_bg", raw.s_first_meta_bg.get())
    } else {
        return None;
    };
    Some(flaw.at(Location::Superblock(GroupNo(0))))
}

/// A backup of a superblock that says more blocks than the device has; `None` where no backup fits
/// the device either: then it is the device that is too small.
pub(super) fn fitting(
    device: &dyn Device,
    found: &SuperblockCandidate,
    block_size: Option<u32>,
) -> Result<Option<SuperblockCandidate>, DeviceError> {
    let Some(backup) = any_backup(device, &found.raw, block_size)? else { return Ok(None) };
    let flaw = Flaw::bad_value(
        "s_blocks_count_lo (the device is smaller)",
        found.raw.s_blocks_count_lo.get(),
    );
    let flaw = flaw.at(Location::Superblock(GroupNo(0)));
    let fits = backup.1.blocks_count <= device.size() >> backup.1.block_bits();
    Ok(fits.then(|| SuperblockCandidate::of_backup(backup, flaw)))
}

/// Fields that no reader computes with, and that no maker writes otherwise.
fn odd_field(raw: &RawSuperblock) -> Option<Flaw> {
    const DESC_SIZES: std::ops::RangeInclusive<u16> = 32..=1024;
    let features = raw.features();
    let (first, size) = (raw.s_first_data_block.get(), raw.s_desc_size.get());
    // Blocks of 1 KiB leave one to the boot sector; clusters of more than 1 KiB begin with it.
    let is_bigalloc = features.ro_compat.contains(RoCompatFeatures::BIGALLOC);
    let has_boot_block =
        raw.s_log_block_size.get() == 0 && (!is_bigalloc || raw.s_log_cluster_size.get() == 0);
    if first != u32::from(has_boot_block) {
        return Some(Flaw::bad_value("s_first_data_block", first));
    }
    let is_size = size == 0 || size.is_power_of_two() && DESC_SIZES.contains(&size);
    (raw.s_rev_level.get() > 0 && !is_size).then(|| Flaw::bad_value("s_desc_size", size))
}

/// A superblock of revision 0 with features: no code that knows features writes one.
fn with_revision(
    raw: &RawSuperblock,
    block_size: Option<u32>,
) -> Option<Result<SuperblockCandidate, FormatError>> {
    const OLD_INODE_SIZE: u16 = 128;
    let words = [raw.s_feature_compat, raw.s_feature_incompat, raw.s_feature_ro_compat];
    if raw.s_rev_level.get() != 0 || words.iter().all(|word| word.get() == 0) {
        return None;
    }
    let mut fixed = *raw;
    fixed.s_rev_level.set(1);
    if fixed.s_inode_size.get() == 0 {
        fixed.s_inode_size.set(OLD_INODE_SIZE);
    }
    if fixed.s_first_ino.get() == 0 {
        fixed.s_first_ino.set(extant_ondisk::InodeNo::FIRST_ORDINARY.0);
    }
    fixed.seal();
    let mut found = match primary(&fixed, block_size) {
        Ok(found) => found,
        Err(error @ FormatError::Unsupported(_)) => return Some(Err(error)),
        Err(_) => return None,
    };
    let inode_size = fixed.s_inode_size.get();
    // Inodes of another size are not at the offset where a reader of the first revision expects
    // them.
    let finding = if inode_size == OLD_INODE_SIZE {
        Finding::new(Code::FeaturesOfRevisionZero)
    } else {
        Finding::new(Code::InodeSizeOfRevisionZero).found(u64::from(inode_size))
    };
    found.counted.get_or_insert(finding);
    Some(Ok(found))
}

/// An impossible number of groups in a flex group: readers refuse it even without the feature. Only
/// mkfs and allocators use it, so it gets the default of mkfs.
fn with_flex_groups(
    raw: &RawSuperblock,
    block_size: Option<u32>,
) -> Option<Result<SuperblockCandidate, FormatError>> {
    const DEFAULT: u8 = 4;
    const MOST: u8 = 31;
    let log = raw.s_log_groups_per_flex;
    if log <= MOST {
        return None;
    }
    let has_flex = raw.features().incompat.contains(IncompatFeatures::FLEX_BG);
    let right = if has_flex { DEFAULT } else { 0 };
    let mut fixed = *raw;
    fixed.s_log_groups_per_flex = right;
    fixed.seal();
    let finding = Finding::new(Code::FlexGroupsTooLarge).found(u64::from(log));
    Some(primary(&fixed, block_size).map(|mut found| {
        found.counted.get_or_insert(finding.expected(u64::from(right)));
        found
    }))
}

fn primary(
    raw: &RawSuperblock,
    block_size: Option<u32>,
) -> Result<SuperblockCandidate, FormatError> {
    raw.verify(GroupNo(0))?;
    if let Some(found) = with_revision(raw, block_size) {
        return found;
    }
    if let Some(flaw) = odd_field(raw) {
        return Err(flaw.at(Location::Superblock(GroupNo(0))));
    }
    if let Some(found) = with_flex_groups(raw, block_size) {
        return found;
    }
    let mut found = match Geometry::new(raw) {
        Ok(geometry) => SuperblockCandidate::new(*raw, geometry, GroupNo(0)),
        Err(error) => {
            return with_group_size(raw).map_or_else(|| with_inodes_counted(raw, error), Ok);
        }
    };
    if let Some(size) = block_size.filter(|size| *size != found.geometry.block_size) {
        let flaw = Flaw::bad_value("s_log_block_size (differs from -B)", size);
        return Err(flaw.at(Location::Superblock(GroupNo(0))));
    }
    let geometry = &found.geometry;
    if geometry.has_incompat(IncompatFeatures::META_BG)
        && geometry.first_meta_bg > geometry.desc_blocks()
    {
        // mkfs starts with the first; without a backup nothing else is known.
        let finding =
            Finding::new(Code::FirstMetaBgTooLarge).found(u64::from(geometry.first_meta_bg));
        found.counted = Some(finding.expected(0));
        found.raw.s_first_meta_bg.set(0);
        found.raw.seal();
        found.geometry = Geometry::new(&found.raw)?;
    }
    // s_block_group_nr of the primary superblock is 0 whatever it says.
    found.raw.s_block_group_nr.set(0);
    if raw.s_block_group_nr.get() != 0 {
        found.raw.seal();
    }
    Ok(found)
}

/// The inode count follows from the groups and the inodes per group: a wrong count alone is no
/// reason to reject the rest. If the inodes per group are impossible, they are computed from the
/// count.
fn with_inodes_counted(
    raw: &RawSuperblock,
    error: FormatError,
) -> Result<SuperblockCandidate, FormatError> {
    let is_beyond_limits = match &error {
        FormatError::Corrupt { flaw: Flaw::BadValue { field: "s_inodes_count", .. }, .. } => false,
        FormatError::Corrupt {
            flaw:
                Flaw::AboveLimit { field: "s_inodes_per_group", .. }
                | Flaw::BelowLimit { field: "s_inodes_per_group", .. },
            ..
        } => true,
        _ => return Err(error),
    };
    let blocks = Superblock::decode(raw).blocks_count;
    let groups = blocks
        .checked_sub(u64::from(raw.s_first_data_block.get()))
        .map(|blocks| blocks.div_ceil(u64::from(raw.s_blocks_per_group.get()).max(1)));
    let Some(groups) = groups.and_then(|groups| u32::try_from(groups).ok()) else {
        return Err(error);
    };
    let (count, per_group) = (raw.s_inodes_count.get(), raw.s_inodes_per_group.get());
    let mut fixed = *raw;
    let finding = match count.checked_div(groups) {
        Some(each)
            if each * groups == count
                && can_have_inodes(raw, groups, each)
                && (is_beyond_limits || !can_have_inodes(raw, groups, per_group)) =>
        {
            fixed.s_inodes_per_group.set(each);
            let finding = Finding::new(Code::InodesPerGroupWrong);
            finding.found(u64::from(per_group)).expected(u64::from(each))
        }
        _ => {
            let Some(right) = groups.checked_mul(per_group) else { return Err(error) };
            fixed.s_inodes_count.set(right);
            let finding = Finding::new(Code::InodesCountWrong);
            finding.found(u64::from(count)).expected(u64::from(right))
        }
    };
    fixed.seal();
    let Ok(geometry) = Geometry::new(&fixed) else { return Err(error) };
    let found = SuperblockCandidate::new(fixed, geometry, GroupNo(0));
    Ok(SuperblockCandidate { counted: Some(finding), ..found })
}

/// Whether groups of that many inodes can be those of the volume: their bitmaps are whole bytes,
/// and no more inodes are free than exist.
fn can_have_inodes(raw: &RawSuperblock, groups: u32, each: u32) -> bool {
    let all = u64::from(groups) * u64::from(each);
    each > 0 && each.is_multiple_of(8) && all >= u64::from(raw.s_free_inodes_count.get())
}

/// The superblock in the block that the user names.
fn named(
    device: &dyn Device,
    block: u64,
    block_size: Option<u32>,
) -> Result<SuperblockCandidate, NotFound> {
    let mut first = None;
    for size in block_sizes(block_size) {
        let Some(offset) = block.checked_mul(u64::from(size)) else { continue };
        // Block 0, or 1 with blocks of 1 KiB, is the primary one.
        if offset == 0 || offset == SUPERBLOCK_OFFSET {
            let found = read(device, SUPERBLOCK_OFFSET)?.map(|raw| primary(&raw, Some(size)));
            match found {
                Some(Ok(found)) => return Ok(found),
                Some(Err(flaw)) => first = first.or(Some(flaw)),
                None => {}
            }
            continue;
        }
        if let Some((raw, geometry, group)) = backup(device, offset, size)? {
            let found = SuperblockCandidate::new(raw, geometry, group);
            return Ok(SuperblockCandidate { primary_flaw: primary_flaw(device)?, ..found });
        }
        if let Some(raw) = read(device, offset)? {
            let place = Location::Superblock(GroupNo(u32::from(raw.s_block_group_nr.get())));
            let flaw = raw.verify(GroupNo(0)).and_then(|()| Geometry::new(&raw).map(|_| ()));
            let flaw = flaw.err().unwrap_or_else(|| Flaw::Rule("not a backup").at(place));
            first = first.or(Some(flaw));
        }
    }
    let nothing =
        Flaw::Rule("no superblock at the given block").at(Location::Superblock(GroupNo(0)));
    Err(NotFound::Format(first.unwrap_or(nothing)))
}

fn primary_flaw(device: &dyn Device) -> Result<Option<FormatError>, DeviceError> {
    let raw = read(device, SUPERBLOCK_OFFSET)?;
    Ok(raw.and_then(|raw| primary(&raw, None).err()))
}

pub(super) type Backup = (RawSuperblock, Geometry, GroupNo);

/// The first backups at the usual locations; if there are none, the one that a search finds.
pub(super) fn backups(
    device: &dyn Device,
    broken: &RawSuperblock,
    block_size: Option<u32>,
) -> Result<Vec<Backup>, DeviceError> {
    /// More copies do not make one of them more likely.
    const ENOUGH: usize = 3;
    let mut found = Vec::new();
    for (size, block) in backup_places(broken, block_size) {
        let Some(offset) = block.checked_mul(u64::from(size)) else { continue };
        found.extend(backup(device, offset, size)?);
        if found.len() >= ENOUGH {
            break;
        }
    }
    if found.is_empty() {
        found.extend(search(device, block_size)?);
    }
    Ok(found)
}

/// A backup without the features that bar this code from the primary superblock: bits that no maker
/// set.
pub(super) fn without_features(
    device: &dyn Device,
    block_size: Option<u32>,
) -> Result<Option<SuperblockCandidate>, DeviceError> {
    let Some(broken) = read(device, SUPERBLOCK_OFFSET)? else { return Ok(None) };
    let known = backups(device, &broken, block_size)?.into_iter().find(|(raw, geometry, _)| {
        beyond(raw).is_empty() && geometry.blocks_count <= device.size() >> geometry.block_bits()
    });
    let finding = Finding::new(Code::FeaturesUnknown).detail(beyond(&broken).join(" "));
    let primary_flaw =
        impossible_features(&broken).map(|it| it.at(Location::Superblock(GroupNo(0))));
    Ok(known.map(|(raw, geometry, group)| SuperblockCandidate {
        counted: primary_flaw.is_none().then(|| finding.group(group)),
        primary_flaw,
        ..SuperblockCandidate::new(raw, geometry, group)
    }))
}

/// A feature word with every bit set: some of them contradict each other, so that no program, newer
/// than this or not, wrote it.
fn impossible_features(raw: &RawSuperblock) -> Option<Flaw> {
    let words = [
        ("s_feature_compat", raw.s_feature_compat.get()),
        ("s_feature_incompat", raw.s_feature_incompat.get()),
        ("s_feature_ro_compat", raw.s_feature_ro_compat.get()),
    ];
    let found = words.into_iter().find(|(_, word)| *word == u32::MAX);
    found.map(|(field, word)| Flaw::bad_value(field, word))
}

fn any_backup(
    device: &dyn Device,
    broken: &RawSuperblock,
    block_size: Option<u32>,
) -> Result<Option<Backup>, DeviceError> {
    for (size, block) in backup_places(broken, block_size) {
        let Some(offset) = block.checked_mul(u64::from(size)) else { continue };
        if let Some(found) = backup(device, offset, size)? {
            return Ok(Some(found));
        }
    }
    search(device, block_size)
}

/// Where backups lie on volumes with groups of the usual size, and of the size that the broken
/// superblock says.
fn backup_places(broken: &RawSuperblock, block_size: Option<u32>) -> Vec<(u32, u64)> {
    /// Groups with backups under sparse_super, as far as anything is likely to be lost.
    const GROUPS: [u64; 16] = [1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343, 625, 729, 2187, 2401];
    let mut places = Vec::new();
    for size in block_sizes(block_size) {
        let first = u64::from(size == SMALLEST_BLOCK);
        let said = u64::from(broken.s_blocks_per_group.get());
        for per_group in [u64::from(size) * 8, said] {
            // A group has at least a block more than its superblock.
            if per_group > 1 {
                places.extend(GROUPS.iter().map(|group| (size, first + group * per_group)));
            }
        }
    }
    places.dedup();
    places
}

/// Searches the start of the device.
fn search(device: &dyn Device, block_size: Option<u32>) -> Result<Option<Backup>, DeviceError> {
    const WINDOW: u64 = 1 << 20;
    const STEP: u64 = SMALLEST_BLOCK as u64;
    const MAGIC_AT: usize = 0x38;
    let end = device.size().min(SEARCHED);
    let mut bytes = Vec::new();
    for run in data_runs(device, 0..end) {
        let run = run?;
        let mut at = run.start - run.start % STEP;
        while at < run.end {
            let len = WINDOW.min(run.end - at);
            // At most a window.
            bytes.resize(len as usize, 0);
            device.read_at(at, &mut bytes)?;
            for (index, start) in bytes.chunks(STEP as usize).enumerate() {
                let magic = SUPERBLOCK_MAGIC.to_le_bytes();
                if start.get(MAGIC_AT..MAGIC_AT + 2) != Some(&magic[..]) {
                    continue;
                }
                for size in block_sizes(block_size) {
                    if let Some(found) = backup(device, at + index as u64 * STEP, size)? {
                        return Ok(Some(found));
                    }
                }
            }
            at += len;
        }
    }
    Ok(None)
}
