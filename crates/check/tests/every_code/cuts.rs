//! Power lost half way through a repair: whatever is left, the next run ends clean, and keeps what an uncut repair keeps.

use std::collections::BTreeSet;
use std::sync::Arc;

use extant_check::{Answers, Code, Store};
use extant_device::{Cut, Device, Recorder, Sweep};
use extant_testkit::{Scratch, TempImage, copied, e2fsck_fn, skip, tool};

use super::common::Walker;
use super::damages;
use super::damages::Wish;
use super::hand::{Base, Hand, MMP, device, fsck};

/// Repairs that write in several places: directories made anew, maps cleared, bitmaps moved, files cloned.
const LONG_REPAIRS: &[Code] = &[
    Code::RootMissing,
    Code::MultiplyClaimed,
    Code::UnconnectedDirectory,
    Code::HtreeRootChecksum,
    Code::GroupTablePlace,
    Code::TooManyIllegalBlocks,
];

/// Cuts that are tried of one repair, where not all are.
const FEW_CUTS: usize = 6;

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
        fsck(recorder.clone(), &Answers::Yes, damage.wish).expect("the repair ends");
        let (mut count, mut last) = (0, None);
        for cut in recorder.cuts(Sweep::seeded(7)) {
            count += 1;
            if count % 5 != 0 {
                continue;
            }
            let left: Arc<dyn Device> = Arc::new(cut.image);
            let done = fsck(left.clone(), &Answers::Yes, damage.wish);
            assert!(done.is_ok(), "{:?}, cut {count}: {done:?}", damage.code);
            let again = fsck(left.clone(), &Answers::No, damage.wish).expect("a look ends");
            assert!(again.is_empty(), "{:?}, cut {count}: {again:?}", damage.code);
            last = Some(left);
        }
        assert!(count > 3, "{:?}: {count} cuts", damage.code);
        // One of them is e2fsck's to judge.
        let Some(left) = last else { continue };
        let scratch = Scratch::new();
        let copy = to_file(&*left, &scratch, &image);
        e2fsck_fn(&copy).unwrap_or_else(|said| panic!("{:?}: {said}", damage.code));
    }
}

/// What a volume holds: names, and contents by size and hash.
#[derive(Default)]
struct Tree {
    names: BTreeSet<String>,
    contents: BTreeSet<String>,
}

impl Tree {
    fn of(device: Arc<dyn Device>) -> Self {
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

    /// What of the original this has and the other has not.
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

/// Cuts the repair of a damaged image, `few` times or everywhere, and repairs what is left: what that lost.
fn losses(damaged: &TempImage, original: &Tree, wish: Wish, few: Option<usize>) -> Vec<String> {
    let recorder = Arc::new(Recorder::new(device(&damaged.path())));
    if let Err(error) = fsck(recorder.clone(), &Answers::Yes, wish) {
        return vec![format!("the uncut repair: {error}")];
    }
    let uncut = Tree::of(recorder.clone());
    let cuts: Vec<Cut> = recorder.cuts(Sweep::seeded(11)).collect();
    let step = few.map_or(1, |few| cuts.len().div_ceil(few).max(1));
    let mut flaws = Vec::new();
    for cut in cuts.into_iter().step_by(step) {
        let text = cut.to_string();
        let left: Arc<dyn Device> = Arc::new(cut.image);
        if let Err(error) = fsck(left.clone(), &Answers::Yes, wish) {
            flaws.push(format!("{text}: {error}"));
            continue;
        }
        let lost = uncut.lost_by(&Tree::of(left), original);
        if let Some(one) = lost.first() {
            flaws.push(format!("{text}: {} lost, {one}", lost.len()));
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
    // A check that was cut off leaves its mark on a volume with multiple-mount protection: the user clears it.
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
        let flaws = losses(&image, original, damage.wish, few);
        if !flaws.is_empty() {
            let count = flaws.len();
            wrong.push(format!("==== {:?}: {count} cuts\n{}", damage.code, flaws[0]));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
