//! Questions that come after a repair was declined.

use extant_check::{Code, Decision, Finding, RepairPolicy};
use extant_ondisk::{BlockNo, IncompatFeatures, InodeNo};
use extant_testkit::{e2fsck_fn, skip, tool};

use super::damages;
use super::damages::Requested;
use super::hand::{Hand, LOGGED, device, fsck, scan};

/// Asked second, and compared here.
pub(crate) const SECOND_QUESTIONS: &[Code] = &[Code::MultiplyClaimedDelete, Code::JournalDataLeft];

/// Declines one repair and accepts all others.
struct Declines(Code);

impl RepairPolicy for Declines {
    fn decide(&self, finding: &Finding) -> Decision {
        if finding.code == self.0 { Decision::Skip } else { Decision::Fix }
    }

    fn may_repair(&self) -> bool {
        true
    }
}

#[test]
fn a_declined_repair_leads_to_the_next_question() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let first = [Code::MultiplyClaimed, Code::JournalHasData];
    for (first, second) in first.into_iter().zip(SECOND_QUESTIONS) {
        let damage = damages().find(|damage| damage.code == first).expect("it has an image");
        let image = damage.base.make();
        (damage.spoil)(&mut Hand::on(&image.path()));
        let done =
            fsck(device(&image.path()), &Declines(first), Requested::Nothing).expect("it ends");
        let is_done = done.iter().any(|it| it.finding.code == *second && it.repaired);
        assert!(is_done, "{second:?}: {done:?}");
        e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{second:?}: {said}"));
        assert_eq!(scan(&image.path(), Requested::Nothing), Ok(Vec::new()), "{second:?}");
    }
}

/// A log that is discarded must not continue a new transaction with its old contents.
#[test]
fn a_log_that_is_given_up_keeps_its_numbers() {
    if tool("mke2fs").is_none() || tool("debugfs").is_none() {
        skip!("mke2fs and debugfs are not installed");
    }
    const MAGIC: u32 = 0xc03b_3998;
    const SEQUENCE: usize = 0x18;
    let image = LOGGED.make();
    let number = |bytes: &[u8], at: usize| {
        u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    let mut hand = Hand::on(&image.path());
    hand.superblock(|raw| damages::incompat(raw, IncompatFeatures::RECOVER, false));
    let blocks = hand.blocks(InodeNo::JOURNAL);
    let read = |hand: &Hand, block: u64| hand.volume.read(BlockNo(block)).expect("reads");
    let logged = blocks[1..].iter().map(|block| read(&hand, *block));
    let numbers = logged.filter(|bytes| number(bytes, 0) == MAGIC).map(|bytes| number(&bytes, 8));
    let (first, last) = (number(&read(&hand, blocks[0]), SEQUENCE), numbers.max());
    assert!(last > Some(first), "{last:?} after {first}");
    drop(hand);
    fsck(device(&image.path()), &Declines(Code::JournalHasData), Requested::Nothing)
        .expect("it ends");
    let hand = Hand::on(&image.path());
    let next = number(&read(&hand, blocks[0]), SEQUENCE);
    assert!(Some(next) > last, "{next} after {last:?}");
    e2fsck_fn(&image.path()).expect("nothing to find");
}
