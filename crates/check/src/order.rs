//! Extents of one tree that do not follow each other: which of them are kept as they are, cut,
//! moved, or left out, so that the least is lost. An entry that says a wrong place or length costs
//! itself at most.

use extant_ondisk::FileBlock;
use extant_ondisk::extent::Extent;

/// The fix for an extent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ExtentFix {
    /// It stays as it is.
    Keep,
    /// It has fewer blocks than it says: what others of the tree or the end of the volume leave to
    /// it.
    Cut(u32),
    /// It belongs to another logical block.
    Move(u64),
    /// It is left out.
    Drop,
}

/// An extent as its tree has it, and where the volume ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) extent: Extent,
    /// It ends off the volume, or past the largest file.
    pub(crate) is_clipped: bool,
}

impl Candidate {
    fn first(&self) -> u64 {
        self.extent.block.0
    }

    fn end(&self) -> u64 {
        self.extent.end().0
    }
}

/// Receives extents one by one: whether they are out of order.
#[derive(Debug, Default)]
pub(crate) struct OrderCheck {
    next: u64,
    /// Something is out of order.
    pub(crate) is_disordered: bool,
}

impl OrderCheck {
    pub(crate) fn see(&mut self, candidate: &Candidate) {
        self.is_disordered |= candidate.is_clipped || candidate.first() < self.next;
        self.next = candidate.end();
    }

    /// Whether the extents end past a number of blocks.
    pub(crate) fn is_beyond(&self, blocks: u64) -> bool {
        self.next > blocks
    }
}

/// Physical blocks of all extents, to find those that two of them claim.
pub(crate) struct PhysicalRanges(Vec<(u64, u64)>);

impl PhysicalRanges {
    pub(crate) fn of(candidates: &[Candidate]) -> Self {
        let mut places: Vec<_> = candidates
            .iter()
            .map(|it| (it.extent.start.0, it.extent.start.0 + u64::from(it.extent.len)))
            .collect();
        places.sort_unstable();
        Self(places)
    }

    /// Whether the blocks of an extent, but for its first ones, hold the start of another one.
    fn are_run_into(&self, extent: &Extent, first: u64) -> bool {
        let start = extent.start.0 + first.max(1);
        let after = self.0.partition_point(|(from, _)| *from < start);
        self.0.get(after).is_some_and(|(from, _)| *from < extent.start.0 + u64::from(extent.len))
    }

    /// Whether another extent starts at a block.
    pub(crate) fn is_start(&self, block: u64) -> bool {
        self.0.binary_search_by_key(&block, |(from, _)| *from).is_ok()
    }
}

/// Decides about the extents of a file, of which `blocks` fit into its size; `blocks` is `None` if
/// the size says nothing. `paid` is the number of blocks charged to the file, if it is known.
pub(crate) fn arrange(candidates: &[Candidate], blocks: u64, paid: Option<u64>) -> Vec<ExtentFix> {
    let mut extent_fixes = vec![ExtentFix::Drop; candidates.len()];
    let mut kept = rising_chain(candidates, blocks);
    let places = PhysicalRanges::of(candidates);
    let mut at = 0;
    while let Some(&index) = kept.get(at) {
        let one = &candidates[index];
        extent_fixes[index] = ExtentFix::Keep;
        let next = kept.get(at + 1).map(|next| &candidates[*next]);
        let limit = next.map(Candidate::first);
        if one.is_clipped {
            let of_size = Some(blocks).filter(|blocks| *blocks > one.first());
            let end = [limit, of_size].into_iter().flatten().min();
            extent_fixes[index] = end.map_or(ExtentFix::Drop, |end| cut(one, end));
        } else if let (Some(next), Some(limit)) = (next, limit)
            && one.end() > limit
        {
            let hides_two =
                kept.get(at + 2).is_some_and(|other| one.end() > candidates[*other].first());
            let is_too_long = hides_two
                || places.are_run_into(&one.extent, limit - one.first())
                || blocks > 0 && one.end() > blocks && next.end() <= blocks;
            if is_too_long {
                extent_fixes[index] = cut(one, limit);
            } else {
                // The later one says a wrong place.
                kept.remove(at + 1);
                continue;
            }
        }
        at += 1;
    }
    put_back(candidates, blocks, &mut extent_fixes);
    if let Some(paid) = paid {
        cut_to_paid(candidates, paid, &mut extent_fixes);
    }
    extent_fixes
}

/// If one extent is cut and all others stay, the number of charged blocks gives its former length:
/// a hole may have followed it.
fn cut_to_paid(candidates: &[Candidate], paid: u64, extent_fixes: &mut [ExtentFix]) {
    let mut others = 0;
    let mut only = None;
    for (candidate, fix) in candidates.iter().zip(extent_fixes) {
        match fix {
            ExtentFix::Keep | ExtentFix::Move(_) => others += u64::from(candidate.extent.len),
            ExtentFix::Cut(len) if only.is_none() => only = Some(len),
            ExtentFix::Cut(_) | ExtentFix::Drop => return,
        }
    }
    if let Some(len) = only
        && let Some(left) = paid.checked_sub(others).and_then(|left| u32::try_from(left).ok())
        && (1..*len).contains(&left)
    {
        *len = left;
    }
}

fn cut(candidate: &Candidate, end: u64) -> ExtentFix {
    match u32::try_from(end.saturating_sub(candidate.first())) {
        Ok(0) | Err(_) => ExtentFix::Drop,
        Ok(len) if len >= candidate.extent.len && !candidate.is_clipped => ExtentFix::Keep,
        Ok(len) => ExtentFix::Cut(len.min(candidate.extent.len)),
    }
}

/// The extents that fill the room between their neighbours belong there, whatever place they say.
fn put_back(candidates: &[Candidate], blocks: u64, extent_fixes: &mut [ExtentFix]) {
    for at in 0..candidates.len() {
        if extent_fixes[at] != ExtentFix::Drop || candidates[at].is_clipped {
            continue;
        }
        let before = at.checked_sub(1).map_or(Some(0), |before| match extent_fixes[before] {
            ExtentFix::Keep => Some(candidates[before].end()),
            ExtentFix::Move(to) => Some(to + u64::from(candidates[before].extent.len)),
            ExtentFix::Cut(_) | ExtentFix::Drop => None,
        });
        let after = match (extent_fixes.get(at + 1), candidates.get(at + 1)) {
            (Some(ExtentFix::Keep | ExtentFix::Cut(_)), Some(after)) => Some(after.first()),
            (None, None) if blocks > 0 => Some(blocks),
            _ => None,
        };
        if let (Some(before), Some(after)) = (before, after)
            && before + u64::from(candidates[at].extent.len) == after
        {
            extent_fixes[at] = ExtentFix::Move(before);
        }
    }
}

/// The largest set of extents whose logical blocks ascend, by their numbers. An extent past the end
/// of the file counts less than others; the first of equal sets is taken.
fn rising_chain(candidates: &[Candidate], blocks: u64) -> Vec<usize> {
    const INSIDE: u64 = 2;
    const PAST_END: u64 = 1;
    let mut firsts: Vec<u64> = candidates.iter().map(Candidate::first).collect();
    firsts.sort_unstable();
    firsts.dedup();
    // The best chain that ends below each place: a tree of maxima of prefixes.
    let mut best: Vec<Option<(u64, usize)>> = vec![None; firsts.len() + 1];
    let mut before: Vec<Option<usize>> = vec![None; candidates.len()];
    let mut longest: Option<(u64, usize)> = None;
    for (index, candidate) in candidates.iter().enumerate() {
        let rank = firsts.partition_point(|first| *first < candidate.first());
        let mut found: Option<(u64, usize)> = None;
        let mut at = rank;
        while at > 0 {
            found = better(found, best[at]);
            at &= at - 1;
        }
        before[index] = found.map(|(_, last)| last);
        let is_past_end = blocks > 0 && candidate.first() >= blocks;
        let weight =
            found.map_or(0, |(weight, _)| weight) + if is_past_end { PAST_END } else { INSIDE };
        let chain = Some((weight, index));
        longest = better(longest, chain);
        let mut at = rank + 1;
        while at < best.len() {
            best[at] = better(best[at], chain);
            at += at & at.wrapping_neg();
        }
    }
    let mut chain = Vec::new();
    let mut at = longest.map(|(_, last)| last);
    while let Some(index) = at {
        chain.push(index);
        at = before[index];
    }
    chain.reverse();
    chain
}

/// The heavier of two chains; of equals the one that ends first.
fn better(one: Option<(u64, usize)>, other: Option<(u64, usize)>) -> Option<(u64, usize)> {
    match (one, other) {
        (Some(one), Some(other)) => {
            let is_other = other.0 > one.0 || other.0 == one.0 && other.1 < one.1;
            Some(if is_other { other } else { one })
        }
        (one, other) => one.or(other),
    }
}

/// Decides about the extents of a directory, whose blocks follow each other without holes: each
/// keeps its blocks as far as they are the directory's own, which `own` decides for an extent's
/// blocks from a given one on; no extent is dropped because of its logical block.
pub(crate) fn arrange_directory<E>(
    candidates: &[Candidate],
    blocks: u64,
    mut own: impl FnMut(&Extent, u64, &PhysicalRanges) -> Result<u64, E>,
) -> Result<Vec<ExtentFix>, E> {
    let mut extent_fixes = vec![ExtentFix::Drop; candidates.len()];
    let chain = rising_chain(candidates, blocks);
    let places = PhysicalRanges::of(candidates);
    let (mut next, mut in_chain) = (0, chain.iter().copied().peekable());
    for (index, one) in candidates.iter().enumerate() {
        let stands = in_chain.next_if_eq(&index).is_some();
        let first = if stands { one.first().max(next) } else { next };
        let follower = in_chain.peek().map(|next| candidates[*next].first());
        let limit = follower.filter(|limit| *limit > first).unwrap_or(u64::MAX);
        let limit = if blocks > first { limit.min(blocks) } else { limit.min(first) };
        let sure = limit.saturating_sub(first).min(u64::from(one.extent.len));
        let len = if sure < u64::from(one.extent.len) {
            own(&one.extent, sure, &places)?
        } else {
            u64::from(one.extent.len)
        };
        extent_fixes[index] = match u32::try_from(len) {
            Ok(0) | Err(_) => ExtentFix::Drop,
            // An extent to be cut and moved is cut first: the next round moves it.
            Ok(len) if len < one.extent.len || one.is_clipped => ExtentFix::Cut(len),
            Ok(_) if first != one.first() => ExtentFix::Move(first),
            Ok(_) => ExtentFix::Keep,
        };
        if len > 0 {
            next = first + len;
        }
    }
    Ok(extent_fixes)
}

/// Extents as the verdicts leave them.
pub(crate) fn apply(candidates: &[Candidate], extent_fixes: &[ExtentFix]) -> Vec<Extent> {
    let mut extents = Vec::with_capacity(candidates.len());
    for (candidate, fix) in candidates.iter().zip(extent_fixes) {
        let mut extent = candidate.extent;
        match fix {
            ExtentFix::Keep => {}
            ExtentFix::Cut(len) => extent.len = *len,
            ExtentFix::Move(to) => extent.block = FileBlock(*to),
            ExtentFix::Drop => continue,
        }
        extents.push(extent);
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_ondisk::BlockNo;

    /// Extents of logical block and length, on blocks far from each other.
    fn candidates(extents: &[(u64, u32)]) -> Vec<Candidate> {
        let of = |(at, (block, len)): (usize, &(u64, u32))| Candidate {
            extent: Extent {
                block: FileBlock(*block),
                len: *len,
                start: BlockNo(1000 + 1000 * at as u64),
                is_unwritten: false,
            },
            is_clipped: false,
        };
        extents.iter().enumerate().map(of).collect()
    }

    #[test]
    fn one_wrong_entry_costs_itself_at_most() {
        use ExtentFix::{Cut, Drop, Keep, Move};
        for (extents, blocks, expected) in [
            (vec![(0, 1), (2, 1), (255, 1), (6, 1), (8, 1)], 9, vec![Keep, Keep, Drop, Keep, Keep]),
            (vec![(0, 2), (255, 2), (4, 2)], 6, vec![Keep, Move(2), Keep]),
            (vec![(0, 2), (2, 2), (0, 2)], 6, vec![Keep, Keep, Move(4)]),
            (vec![(0, 1), (2, 255), (4, 1), (6, 1)], 7, vec![Keep, Cut(2), Keep, Keep]),
            (vec![(0, 1), (2, 1), (4, 9), (6, 1)], 7, vec![Keep, Keep, Cut(2), Keep]),
            (vec![(0, 10), (5, 10), (30, 1)], 31, vec![Keep, Drop, Keep]),
            (vec![(255, 1), (2, 1)], 3, vec![Drop, Keep]),
        ] {
            assert_eq!(arrange(&candidates(&extents), blocks, None), expected, "{extents:?}");
        }
    }

    #[test]
    fn what_is_paid_for_says_how_long_a_cut_extent_was() {
        let extents = candidates(&[(0, 99), (4, 1), (6, 1)]);
        for (paid, len) in [(3, 1), (5, 3), (2, 4), (90, 4)] {
            assert_eq!(arrange(&extents, 7, Some(paid))[0], ExtentFix::Cut(len), "{paid}");
        }
    }

    #[test]
    fn a_directory_keeps_all_of_its_own() {
        use ExtentFix::{Cut, Keep, Move};
        let own = |_: &Extent, sure: u64, _: &PhysicalRanges| Ok::<_, ()>(sure);
        for (extents, blocks, expected) in [
            (vec![(0, 1), (255, 1), (2, 1)], 3, vec![Keep, Move(1), Keep]),
            (vec![(0, 1), (0, 1), (2, 1)], 3, vec![Keep, Move(1), Keep]),
            (vec![(0, 1), (1, 11_009)], 2, vec![Keep, Cut(1)]),
            (vec![(0, 99), (1, 1), (2, 1)], 3, vec![Cut(1), Keep, Keep]),
        ] {
            let extent_fixes = arrange_directory(&candidates(&extents), blocks, own);
            assert_eq!(extent_fixes, Ok(expected), "{extents:?}");
        }
    }
}
