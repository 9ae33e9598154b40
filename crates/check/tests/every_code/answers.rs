//! Questions that come after a repair was declined.

use extant_check::{Code, Finding, Judge, Judgement};
use extant_testkit::{e2fsck_fn, skip, tool};

use super::damages;
use super::damages::Wish;
use super::hand::{Hand, device, fsck, look};

/// Asked second, and judged here.
pub(crate) const SECOND_QUESTIONS: &[Code] = &[Code::MultiplyClaimedDelete, Code::JournalDataLeft];

/// Declines one repair and accepts all others.
struct Declines(Code);

impl Judge for Declines {
    fn judge(&self, finding: &Finding) -> Judgement {
        if finding.code == self.0 { Judgement::Leave } else { Judgement::Repair }
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
        let done = fsck(device(&image.path()), &Declines(first), Wish::Nothing).expect("it ends");
        let is_done = done.iter().any(|it| it.finding.code == *second && it.repaired);
        assert!(is_done, "{second:?}: {done:?}");
        e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{second:?}: {said}"));
        assert_eq!(look(&image.path(), Wish::Nothing), Ok(Vec::new()), "{second:?}");
    }
}
