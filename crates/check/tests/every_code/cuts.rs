//! Power lost half way through a repair: whatever is left, the next run ends clean, and keeps what
//! an uncut repair keeps.

use std::collections::BTreeSet;
use std::sync::Arc;

use extant_check::{AutoPolicy, Code, Store};
use extant_device::Device;
use extant_offline::OfflineVolume;
use extant_ondisk::inode::Inode;
use extant_ondisk::quota::{
    QUOTA_BLOCK_SIZE, QuotaBlock, QuotaKind, QuotaRecord, RECORDS_PER_LEAF, build_quota_file, slots,
};
use extant_ondisk::{IncompatFeatures, InodeNo};
use extant_sim::{Cut, Recorder, Sweep};
use extant_testkit::{Scratch, TempImage, copied, e2fsck_fn, skip, tool};

use super::common::Walker;
use super::damages;
use super::damages::{Requested, incompat};
use super::hand::{Base, COMB, COMB_OF_POINTERS, DEEP, Hand, MMP, QUOTA, device, fsck, put16};

/// Repairs that write in several places: directories packed again, maps cleared, bitmaps moved,
/// files cloned.
const LONG_REPAIRS: &[Code] = &[
    Code::RootMissing,
    Code::MultiplyClaimed,
    Code::UnconnectedDirectory,
    Code::HtreeRootChecksum,
    Code::GroupTablePlace,
    Code::TooManyIllegalBlocks,
];

/// Cuts that are tried of one repair, where not all are.
const FEW_CUTS: usize = 8;

fn can_make() -> bool {
    tool("mke2fs").is_some() && tool("e2fsck").is_some()
}

/// Writes what a device holds to an image of its own.
fn to_file(left: &dyn Device, scratch: &Scratch, like: &TempImage) -> std::path::PathBuf {
    let mut bytes = vec![0; 1 << 20];
    let copy = scratch.join("image");
    std::fs::copy(like.path(), &copy).expect("scratch space takes a copy");
    let target = device(&copy);
    for at in (0..left.size()).step_by(bytes.len()) {
        left.read_at(at, &mut bytes).expect("reads");
        target.write_at(at, &bytes).expect("writes");
    }
    copy
}

#[test]
fn a_repair_that_was_cut_off_is_finished_by_the_next() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    for damage in damages().filter(|damage| LONG_REPAIRS.contains(&damage.code)) {
        let image = damage.base.make();
        (damage.spoil)(&mut Hand::on(&image.path()));
        let recorder = Arc::new(Recorder::new(device(&image.path())));
        fsck(recorder.clone(), &AutoPolicy::Yes, damage.options).expect("the repair ends");
        let (mut count, mut last) = (0, None);
        for cut in recorder.cuts(Sweep::seeded(7)) {
            count += 1;
            if count % 5 != 0 {
                continue;
            }
            let left: Arc<dyn Device> = Arc::new(cut.image);
            let done = fsck(left.clone(), &AutoPolicy::Yes, damage.options);
            assert!(done.is_ok(), "{:?}, cut {count}: {done:?}", damage.code);
            let again = fsck(left.clone(), &AutoPolicy::No, damage.options).expect("a look ends");
            assert!(again.is_empty(), "{:?}, cut {count}: {again:?}", damage.code);
            last = Some(left);
        }
        assert!(count > 3, "{:?}: {count} cuts", damage.code);
        // One of them is left to e2fsck.
        let Some(left) = last else { continue };
        let scratch = Scratch::new();
        let copy = to_file(&*left, &scratch, &image);
        e2fsck_fn(&copy).unwrap_or_else(|said| panic!("{:?}: {said}", damage.code));
    }
}

/// The contents of a volume: names, and file contents by size and hash.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) names: BTreeSet<String>,
    pub(crate) contents: BTreeSet<String>,
}

impl Tree {
    pub(crate) fn of(device: Arc<dyn Device>) -> Self {
        let Ok(store) = Store::open(device) else { return Self::default() };
        let mut tree = Self::default();
        for line in Walker::tree(&store).lines() {
            if let Some((_, content)) = line.split_once("\tf\t") {
                tree.contents.insert(content.to_owned());
            }
            tree.names.insert(line.to_owned());
        }
        tree
    }

    /// Parts of the original that the other lacks.
    fn lost_by(&self, other: &Self, original: &Self) -> Vec<String> {
        let names = self.names.intersection(&original.names);
        let contents = self.contents.intersection(&original.contents);
        names
            .filter(|name| !other.names.contains(*name))
            .chain(contents.filter(|content| !other.contents.contains(*content)))
            .cloned()
            .collect()
    }
}

/// Cuts the repair of a damaged image, `few` times or everywhere, and repairs what is left: what
/// that lost.
fn losses(
    damaged: &TempImage,
    original: &Tree,
    options: Requested,
    few: Option<usize>,
) -> Vec<String> {
    let recorder = Arc::new(Recorder::new(device(&damaged.path())));
    if let Err(error) = fsck(recorder.clone(), &AutoPolicy::Yes, options) {
        return vec![format!("the uncut repair: {error}")];
    }
    let uncut = Tree::of(recorder.clone());
    let cuts: Vec<Cut> = recorder.cuts(Sweep::seeded(11)).collect();
    let step = few.map_or(1, |few| cuts.len().div_ceil(few).max(1));
    let mut flaws = Vec::new();
    for cut in cuts.into_iter().step_by(step) {
        let text = cut.to_string();
        let left: Arc<dyn Device> = Arc::new(cut.image);
        if let Err(error) = fsck(left.clone(), &AutoPolicy::Yes, options) {
            flaws.push(format!("{text}: {error}"));
            continue;
        }
        let lost = uncut.lost_by(&Tree::of(left.clone()), original);
        if let Some(one) = lost.first() {
            flaws.push(format!("{text}: {} lost, {one:.40}", lost.len()));
        }
        // Where there is no room for lost+found it is left out.
        match fsck(left, &AutoPolicy::No, Requested::Nothing) {
            Ok(found) if found.iter().all(|it| it.finding.code == Code::LostFoundMissing) => {}
            found => flaws.push(format!("{text}: the next check finds {found:?}")),
        }
    }
    flaws
}

#[test]
fn a_repair_cut_anywhere_keeps_what_an_uncut_one_keeps() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let few = std::env::var_os("EXTANT_SLOW").is_none().then_some(FEW_CUTS);
    let only = std::env::var("EXTANT_CODE").ok();
    let mut made: Vec<(&Base, TempImage, Tree)> = Vec::new();
    let mut wrong = Vec::new();
    // A check that was cut off leaves its mark on a volume with multiple-mount protection: the user
    // clears it.
    for damage in damages().filter(|damage| damage.base.name != MMP.name) {
        if only.as_ref().is_some_and(|only| *only != format!("{:?}", damage.code)) {
            continue;
        }
        let known = made.iter().position(|(base, ..)| base.name == damage.base.name);
        let at = known.unwrap_or_else(|| {
            let image = damage.base.make();
            let tree = Tree::of(device(&image.path()));
            made.push((&damage.base, image, tree));
            made.len() - 1
        });
        let (_, healthy, original) = &made[at];
        let image = copied(&healthy.path()).expect("a copy");
        (damage.spoil)(&mut Hand::on(&image.path()));
        let flaws = losses(&image, original, damage.options, few);
        if !flaws.is_empty() {
            let count = flaws.len();
            wrong.push(format!("==== {:?}: {count} cuts\n{}", damage.code, flaws[0]));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Directories, trees of extents and quota files of many blocks: between any two writes.
#[test]
fn structures_of_many_blocks_survive_the_cut_of_their_repair() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    type Spoil = fn(&mut Hand);
    // A leaf that says another level than it has is read, and the tree is rewritten.
    let other_level: Spoil = |hand| hand.block(leaf_of(hand, "comb", 1), |leaf| put16(leaf, 6, 7));
    let with_extents: Spoil = |hand| {
        hand.superblock(|raw| incompat(raw, IncompatFeatures::EXTENTS, true));
    };
    let cases: [(&str, Base, Spoil, Requested); 3] = [
        ("a directory is packed", DEEP, |_| {}, Requested::Optimize),
        ("a tree of extents is rewritten", COMB, other_level, Requested::Nothing),
        (
            "a tree of indirect blocks is written as extents",
            COMB_OF_POINTERS,
            with_extents,
            Requested::Extents,
        ),
    ];
    let mut wrong = Vec::new();
    for (what, base, spoil, options) in cases {
        let image = base.make();
        let original = Tree::of(device(&image.path()));
        spoil(&mut Hand::on(&image.path()));
        let flaws = losses(&image, &original, options, Some(60));
        wrong.extend(flaws.first().map(|flaw| format!("{what}: {} cuts, {flaw}", flaws.len())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A leaf of a file's tree of extents of two levels.
fn leaf_of(hand: &Hand, path: &str, number: usize) -> u64 {
    let inode = hand.decoded(hand.find(path));
    let at = 12 + 12 * number + 4;
    u64::from(u32::from_le_bytes(inode.i_block[at..at + 4].try_into().expect("four bytes")))
}

/// The quota file is the only copy of users' limits.
#[test]
fn limits_of_users_survive_the_cut_of_a_repair() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = QUOTA.make();
    // The record of the user who owns the files is missing: all others move.
    let hand = Hand::on(&image.path());
    let limited: Vec<QuotaRecord> = (1..RECORDS_PER_LEAF as u32)
        .map(|id| QuotaRecord { id, block_hard: 1 << 30, ..Default::default() })
        .collect();
    let file = build_quota_file(QuotaKind::User, &limited).expect("a few records");
    let places = hand.blocks(InodeNo::USER_QUOTA);
    for (place, bytes) in places.iter().zip(file.chunks(QUOTA_BLOCK_SIZE)) {
        hand.block(*place, |block| block.copy_from_slice(bytes));
    }
    drop(hand);
    let recorder = Arc::new(Recorder::new(device(&image.path())));
    fsck(recorder.clone(), &AutoPolicy::Yes, Requested::Nothing).expect("the repair ends");
    for cut in recorder.cuts(Sweep::seeded(3)) {
        let text = cut.to_string();
        let left: Arc<dyn Device> = Arc::new(cut.image);
        fsck(left.clone(), &AutoPolicy::Yes, Requested::Nothing).expect("the repair ends");
        let mut found = 0;
        let volume = OfflineVolume::open(left).expect("a sound volume");
        let record = volume.read_inode(InodeNo::USER_QUOTA).expect("reads");
        let inode = Inode::decode(&record, InodeNo::USER_QUOTA, volume.geometry()).expect("sound");
        let map = volume.read_map(InodeNo::USER_QUOTA, &inode).expect("it has a map");
        for (_, block) in map.blocks() {
            let bytes = volume.read(block).expect("reads");
            let bytes: &QuotaBlock = bytes.as_slice().try_into().expect("blocks of 1 KiB");
            let records = slots(bytes).filter_map(|(_, raw)| QuotaRecord::decode(&raw));
            found += records.filter(|record| record.block_hard == 1 << 30).count();
        }
        assert!(found >= limited.len(), "{text}: {found} limits of {}", limited.len());
    }
}
