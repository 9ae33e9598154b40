//! Reduction of failing histories.

use super::History;

/// Leaves out steps, in smaller and smaller pieces, while the rest still fails; tries at most
/// `tries` histories.
pub fn shrink(
    history: &History,
    mut tries: u32,
    mut fails: impl FnMut(&History) -> bool,
) -> History {
    let mut best = history.clone();
    let mut piece = best.steps.len().div_ceil(2);
    while piece > 0 && tries > 0 {
        let (mut at, mut found) = (0, false);
        while at < best.steps.len() && tries > 0 {
            let mut steps = best.steps.clone();
            steps.drain(at..(at + piece).min(steps.len()));
            let candidate = History { steps };
            tries -= 1;
            if fails(&candidate) {
                (best, found) = (candidate, true);
            } else {
                at += piece;
            }
        }
        if piece == 1 && !found {
            break;
        }
        piece = if piece == 1 { 1 } else { piece.div_ceil(2) };
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Call, Step};

    #[test]
    fn what_is_needed_is_kept() {
        let steps = (1..=100).map(|number| Step { number, call: Call::Sync }).collect();
        let needed = [17, 18, 93];
        let fails = |history: &History| {
            needed.iter().all(|number| history.steps.iter().any(|step| step.number == *number))
        };
        let least = shrink(&History { steps }, 1000, fails);
        assert_eq!(least.steps.iter().map(|step| step.number).collect::<Vec<_>>(), needed);
    }
}
