//! The verdict of a run: which system is first by each measure, by what factor, and how certain that
//! is.

use super::own::difference_text;
use super::standing::Standing;
use super::table::{number, with_interval};
use crate::experiment::{Experiment, Work};
use crate::results::{Of, Results};
use crate::stats::{Difference, Summary};

/// Checkers by this machine's clock, and the kernel's file systems whose volumes they check.
const CHECKS: [(&str, &str); 4] =
    [("extant fsck", "ext4"), ("e2fsck", "ext4"), ("xfs_repair", "xfs"), ("btrfs check", "btrfs")];
/// Our checker, and the one that it is compared with.
const CHECKERS: [&str; 2] = ["extant fsck", "e2fsck"];
/// Servers over FUSE, which the kernel sends no syncfs: their seconds of it are none.
const OVER_FUSE: [&str; 3] = ["extant", "fuse2fs", "zfs-fuse"];
const SYNC: &str = "sync";
/// What our file systems are compared with.
const KERNEL: &str = "ext4";

/// Factors below this one are told in words.
const CLOSE: f64 = 1.01;

/// Where one of two is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Direction {
    Ahead,
    Behind,
    Level,
}

/// What the interval of a difference says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Certainty {
    /// It leaves zero out.
    Certain,
    /// Zero is in it.
    Open,
    /// There is none.
    SingleRuns,
}

impl Certainty {
    /// As the page names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Open => "open",
            Self::SingleRuns => "single runs",
        }
    }

    /// Its class of style.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Open => "open",
            Self::SingleRuns => "once",
        }
    }
}

/// One system next to another.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    pub(super) subject: String,
    pub(super) peer: String,
    pub(super) direction: Direction,
    pub(super) certainty: Certainty,
    /// The worse mean by the better one, or the other way round where more is better; `None` by
    /// zero.
    times: Option<f64>,
    /// Of the subject from its peer.
    difference: Option<Difference>,
}

impl Comparison {
    fn between(one: &Contender, other: &Contender, more_is_better: bool) -> Self {
        let (ours, theirs) = (one.summary.mean, other.summary.mean);
        let direction = match ours.total_cmp(&theirs) {
            std::cmp::Ordering::Equal => Direction::Level,
            order if order.is_gt() == more_is_better => Direction::Ahead,
            _ => Direction::Behind,
        };
        let (most, least) = (ours.max(theirs), ours.min(theirs));
        let difference = Difference::between(&other.summary, &one.summary);
        let is_single = one.summary.count < 2 || other.summary.count < 2;
        Self {
            subject: one.name.clone(),
            peer: other.name.clone(),
            direction,
            certainty: match difference {
                _ if is_single => Certainty::SingleRuns,
                Some(difference) if difference.is_significant() => Certainty::Certain,
                _ => Certainty::Open,
            },
            times: (least > 0.0).then(|| most / least),
            difference,
        }
    }

    /// How far apart they are, in words.
    pub(super) fn text(&self) -> String {
        let times = match self.times {
            Some(times) if times < CLOSE => "less than 1% ".to_owned(),
            Some(times) if times >= 100.0 => format!("{times:.0} times "),
            Some(times) => format!("{times:.2} times "),
            None => String::new(),
        };
        match self.direction {
            Direction::Ahead => format!("{times}ahead of {}", self.peer),
            Direction::Behind => format!("{times}behind {}", self.peer),
            Direction::Level => format!("level with {}", self.peer),
        }
    }

    /// The difference with its interval.
    pub(super) fn interval(&self) -> String {
        self.difference.map_or_else(|| "–".to_owned(), difference_text)
    }

    /// Its class of style.
    pub(super) fn class(&self) -> &'static str {
        match self.direction {
            Direction::Ahead => "ahead",
            Direction::Behind => "behind",
            Direction::Level => "level",
        }
    }
}

/// A system with its figure.
#[derive(Clone, Debug)]
struct Contender {
    name: String,
    summary: Summary,
}

/// The verdict by one measure.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    /// The measure, with its unit.
    pub(super) measure: String,
    /// The first of all.
    pub(super) first: String,
    /// Its mean with the interval.
    pub(super) figure: String,
    /// The first next to the second; `None` where there is no second.
    pub(super) lead: Option<Comparison>,
    /// Ours next to the kernel's ext4 and next to the first.
    pub(super) ours: Vec<Comparison>,
}

impl Verdict {
    /// `None` without contenders.
    fn of(
        measure: &str,
        mut all: Vec<Contender>,
        ours: &[&str],
        peer: &str,
        more_is_better: bool,
    ) -> Option<Self> {
        let given = all.clone();
        all.sort_by(|one, other| {
            let order = one.summary.mean.total_cmp(&other.summary.mean);
            if more_is_better { order.reverse() } else { order }
        });
        let first = all.first()?;
        let is_other = |name: &str| !ours.contains(&name);
        let mut comparisons = Vec::new();
        for one in given.iter().filter(|one| ours.contains(&one.name.as_str())) {
            let peers = given.iter().find(|it| it.name == peer);
            // Of the first against the second the lead speaks.
            let leader = Some(first).filter(|first| is_other(&first.name) && first.name != peer);
            for other in peers.into_iter().chain(leader) {
                comparisons.push(Comparison::between(one, other, more_is_better));
            }
        }
        Some(Self {
            measure: measure.to_owned(),
            first: first.name.clone(),
            figure: with_interval(&first.summary),
            lead: all.get(1).map(|second| Comparison::between(first, second, more_is_better)),
            ours: comparisons,
        })
    }

    /// Those of ours that the lead does not tell.
    pub(super) fn others(&self) -> Vec<&Comparison> {
        let is_lead = |it: &Comparison| {
            self.lead.as_ref().is_some_and(|lead| {
                let pair = [&lead.subject, &lead.peer];
                pair.contains(&&it.subject) && pair.contains(&&it.peer) && it.subject == self.first
            })
        };
        self.ours.iter().filter(|it| !is_lead(it)).collect()
    }

    /// It in a sentence.
    pub(super) fn sentence(&self) -> String {
        let Self { measure, first, figure, .. } = self;
        match &self.lead {
            None => format!("{measure}: {first} alone was measured, {figure}."),
            Some(lead) if lead.direction == Direction::Level => {
                format!("{measure}: {first} and {} are level with {figure}.", lead.peer)
            }
            Some(lead) => format!(
                "{measure}: {first} is first with {figure}, {} ({}; {}).",
                lead.text(),
                lead.interval(),
                lead.certainty.name()
            ),
        }
    }
}

/// The verdicts by all measures among systems on one clock.
#[derive(Clone, Debug)]
pub(super) struct Verdicts {
    /// Whose clock it is, where it is not this machine's.
    pub(super) clock: Option<String>,
    /// Which target stands for each system, where its name does not say so.
    pub(super) targets: Vec<(String, String)>,
    /// All targets that stand for a system.
    compared: Vec<String>,
    pub(super) all: Vec<Verdict>,
    /// The measure that speaks for the experiment.
    main: &'static str,
}

/// The verdicts of an experiment: on this machine, then on each simulated drive.
pub(super) fn of(results: &Results, experiment: &Experiment) -> Vec<Verdicts> {
    let standing = Standing { results, experiment };
    let systems = standing.systems();
    let mut found = vec![standing.verdicts(None, &systems)];
    for drive in results.drives(experiment) {
        let targets = results.targets(experiment).into_iter();
        let is_on_it = |text: &String| text.split(':').next() == Some(drive.name());
        // Their options distinguish them, as the drive is the same.
        let options = |text: &str| {
            let options = text[drive.name().len()..].trim_start_matches(':');
            if options.is_empty() { text.to_owned() } else { options.to_owned() }
        };
        let on_it: Vec<(String, String)> =
            targets.filter(is_on_it).map(|text| (options(&text), text)).collect();
        found.push(standing.verdicts(Some(drive.name().to_owned()), &on_it));
    }
    found.retain(|verdicts| !verdicts.all.is_empty());
    found
}

impl Standing<'_> {
    fn verdicts(&self, clock: Option<String>, systems: &[(String, String)]) -> Verdicts {
        let mut all = Vec::new();
        for headline in self.headlines() {
            let contender = |(name, target): &(String, String)| {
                Some(Contender { name: name.clone(), summary: self.summary(target, headline)? })
            };
            let takes_part = |(name, _): &&(String, String)| {
                headline.1 != SYNC || !OVER_FUSE.contains(&name.as_str())
            };
            let contenders = systems.iter().filter(takes_part).filter_map(contender).collect();
            let ours = ["engine", "extant"];
            all.extend(Verdict::of(headline.0, contenders, &ours, KERNEL, headline.4));
        }
        match &clock {
            None => all.extend(self.checks(systems)),
            Some(_) => all.extend(self.checks_on_drive(systems)),
        }
        let is_other = |(name, target): &&(String, String)| clock.is_none() && name != target;
        let targets = systems.iter().filter(is_other).cloned().collect();
        let compared = systems.iter().map(|(_, target)| target.clone()).collect();
        Verdicts { clock, targets, compared, all, main: self.main_measure() }
    }

    fn main_measure(&self) -> &'static str {
        match self.experiment.work() {
            Work::CopyRemove(_) => "cp, s",
            Work::LowMemory(_) => "write many files, s",
            Work::HardLinks(_) => "extract links, s",
            Work::SequentialWrite(_) => "throughput, MB/s",
            // The first.
            Work::CheckTime(_) => "",
        }
    }

    /// The checkers of the kernel's volumes, each of the same files; of an ext volume both.
    fn checks(&self, systems: &[(String, String)]) -> Vec<Verdict> {
        let name = &self.experiment.name;
        let target = |system: &str| systems.iter().find(|(name, _)| name == system);
        let mut found = Vec::new();
        for (measure, suffix, at) in self.check_measures(systems) {
            let contender = |(checker, system): &(&str, &str)| {
                let (_, target) = target(system)?;
                let phase = format!("{checker}{suffix}");
                let of = Of { experiment: name, target, phase: &phase, metric: "check_seconds" };
                let summary = self.results.summary_at(&of, at)?;
                Some(Contender { name: (*checker).to_owned(), summary })
            };
            let contenders: Vec<Contender> = CHECKS.iter().filter_map(contender).collect();
            let [ours, peer] = CHECKERS;
            found.extend(Verdict::of(&measure, contenders, &[ours], peer, false));
        }
        found
    }

    /// Our checker by the drive's clock: there is no other one.
    fn checks_on_drive(&self, systems: &[(String, String)]) -> Vec<Verdict> {
        let mut found = Vec::new();
        for (measure, suffix, at) in self.check_measures(systems) {
            let contender = |(name, target): &(String, String)| {
                let phase = format!("{}{suffix}", CHECKERS[0]);
                let of = Of {
                    experiment: &self.experiment.name,
                    target,
                    phase: &phase,
                    metric: "check_seconds",
                };
                let name = format!("{} of {name}", CHECKERS[0]);
                Some(Contender { name, summary: self.results.summary_at(&of, at)? })
            };
            let contenders = systems.iter().filter_map(contender).collect();
            found.extend(Verdict::of(&measure, contenders, &[], "", false));
        }
        found
    }

    /// Measures of checks: name, suffix of the phase, per cent of inodes in use.
    fn check_measures(&self, systems: &[(String, String)]) -> Vec<(String, String, Option<f64>)> {
        match self.experiment.work() {
            Work::SequentialWrite(_) => vec![("check, s".to_owned(), String::new(), None)],
            Work::CheckTime(_) => {
                let mut places: Vec<f64> = Vec::new();
                for (_, target) in systems {
                    let phase = format!("{} use", CHECKERS[0]);
                    let experiment = &self.experiment.name;
                    let of = Of { experiment, target, phase: &phase, metric: "check_seconds" };
                    places.extend(self.results.by_place(&of).iter().map(|(at, _)| *at));
                }
                places.sort_by(|one, other| other.total_cmp(one));
                let ends = [places.first(), places.last()].into_iter().flatten();
                let mut all = Vec::new();
                for at in ends {
                    for (use_of_marks, words) in [
                        ("use", "by the marks of unused inodes"),
                        ("establish", "that sets the marks"),
                        ("remove", "that clears them"),
                    ] {
                        let measure = format!(
                            "check {words}, {}% in use, s",
                            number(*at).trim_end_matches(".00")
                        );
                        all.push((measure, format!(" {use_of_marks}"), Some(*at)));
                    }
                }
                all
            }
            _ => Vec::new(),
        }
    }
}

impl Verdicts {
    /// The targets that are compared.
    pub(super) fn all_targets(&self) -> impl Iterator<Item = &str> {
        self.compared.iter().map(String::as_str)
    }

    /// The verdict that speaks for the experiment.
    pub(super) fn main(&self) -> Option<&Verdict> {
        self.all.iter().find(|one| one.measure == self.main).or(self.all.first())
    }

    /// Which are first, and by how many measures.
    pub(super) fn firsts(&self) -> String {
        let mut firsts: Vec<(&str, usize, usize)> = Vec::new();
        for verdict in &self.all {
            let Some(lead) = &verdict.lead else { continue };
            // Of those that are level none is first.
            let first = match lead.direction {
                Direction::Level => "none (level)",
                _ => &*verdict.first,
            };
            let is_certain = usize::from(lead.certainty == Certainty::Certain);
            match firsts.iter_mut().find(|(name, ..)| *name == first) {
                Some((_, count, certain)) => {
                    (*count, *certain) = (*count + 1, *certain + is_certain)
                }
                None => firsts.push((first, 1, is_certain)),
            }
        }
        firsts.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
        let compared: usize = firsts.iter().map(|(_, count, _)| count).sum();
        if compared == 0 {
            return "One target was measured: there is no second to compare it with.".to_owned();
        }
        let has_intervals = self.has_intervals();
        if self.clock.is_some() {
            let runs = if has_intervals { "" } else { "; single runs, without intervals" };
            let targets = self.compared.len();
            return format!("{targets} targets with other options next to each other{runs}.");
        }
        let one = |(name, count, certain): &(&str, usize, usize)| match has_intervals {
            true => format!("{name} in {count} ({})", certain_of(*certain)),
            false => format!("{name} in {count}"),
        };
        let each: Vec<String> = firsts.iter().map(one).collect();
        let once = if has_intervals { "" } else { "; single runs, without intervals" };
        let measures = if compared == 1 { "measure" } else { "measures" };
        format!("First in {compared} {measures}: {}{once}.", each.join(", "))
    }

    fn has_intervals(&self) -> bool {
        let leads = self.all.iter().filter_map(|verdict| verdict.lead.as_ref());
        leads.into_iter().any(|lead| lead.certainty != Certainty::SingleRuns)
    }

    /// A sentence for each of ours: where it stands next to the kernel's, or to the other checker.
    pub(super) fn of_ours(&self) -> Vec<String> {
        let mut said = Vec::new();
        for (ours, peer) in [("engine", KERNEL), ("extant", KERNEL), (CHECKERS[0], CHECKERS[1])] {
            let all = self.all.iter().flat_map(|verdict| &verdict.ours);
            let all: Vec<&Comparison> =
                all.filter(|it| it.subject == ours && it.peer == peer).collect();
            let count = |direction, certainty: Option<Certainty>| {
                let fits = |it: &&&Comparison| {
                    it.direction == direction
                        && certainty.is_none_or(|wanted| it.certainty == wanted)
                };
                all.iter().filter(fits).count()
            };
            let mut parts = Vec::new();
            for (direction, word) in [
                (Direction::Ahead, "ahead"),
                (Direction::Behind, "behind"),
                (Direction::Level, "level"),
            ] {
                let (found, certain) =
                    (count(direction, None), count(direction, Some(Certainty::Certain)));
                match (direction, self.has_intervals()) {
                    _ if found == 0 => {}
                    (Direction::Level, _) | (_, false) => parts.push(format!("{word} in {found}")),
                    _ => parts.push(format!("{word} in {found} ({})", certain_of(certain))),
                }
            }
            let whose = if peer == KERNEL { "the kernel's ext4" } else { peer };
            if !parts.is_empty() {
                let measures = if all.len() == 1 { "measure" } else { "measures" };
                said.push(format!(
                    "{ours} next to {whose} in {} {measures}: {}.",
                    all.len(),
                    parts.join(", ")
                ));
            }
        }
        said
    }
}

/// Of so many the interval leaves zero out.
fn certain_of(count: usize) -> String {
    match count {
        0 => "none certain".to_owned(),
        _ => format!("{count} certain"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(name: &str, values: &[f64]) -> Contender {
        Contender { name: name.to_owned(), summary: Summary::of(values).expect("numbers") }
    }

    fn verdict(all: &[(&str, &[f64])], more_is_better: bool) -> Verdict {
        let all = all.iter().map(|(name, values)| contender(name, values)).collect();
        Verdict::of("rm, s", all, &["engine", "extant"], KERNEL, more_is_better)
            .expect("contenders")
    }

    #[test]
    fn the_least_is_first_or_the_most_where_more_is_better() {
        let all: [(&str, &[f64]); 3] = [
            ("engine", &[2.0, 2.02, 1.98]),
            ("ext4", &[1.0, 1.01, 0.99]),
            ("xfs", &[4.0, 4.04, 3.96]),
        ];
        let found = verdict(&all, false);
        let lead = found.lead.as_ref().expect("a second");
        assert_eq!((&*found.first, &*lead.peer), ("ext4", "engine"));
        assert_eq!(lead.text(), "2.00 times ahead of engine");
        assert_eq!(lead.certainty, Certainty::Certain);
        assert_eq!(found.ours.len(), 1, "ext4 is the first and the kernel's");
        assert_eq!(found.ours[0].text(), "2.00 times behind ext4");
        assert_eq!(found.ours[0].direction, Direction::Behind);
        assert_eq!(
            found.sentence().split(" (").next(),
            Some("rm, s: ext4 is first with 1.00 ± 0.0248, 2.00 times ahead of engine")
        );

        let found = verdict(&all, true);
        assert_eq!(found.first, "xfs");
        let texts: Vec<String> = found.ours.iter().map(Comparison::text).collect();
        assert_eq!(texts, ["2.00 times ahead of ext4", "2.00 times behind xfs"]);
    }

    #[test]
    fn what_the_interval_does_not_say_is_open() {
        let found = verdict(&[("engine", &[1.0, 3.0]), ("ext4", &[2.5, 2.6])], false);
        assert_eq!(found.lead.map(|lead| lead.certainty), Some(Certainty::Open));
        let found = verdict(&[("engine", &[1.0]), ("ext4", &[2.5, 2.6])], false);
        assert_eq!(found.lead.map(|lead| lead.certainty), Some(Certainty::SingleRuns));
        let found = verdict(&[("engine", &[1.0, 1.0]), ("ext4", &[1.0, 1.0])], false);
        let lead = found.lead.expect("a second");
        assert_eq!((lead.direction, lead.certainty), (Direction::Level, Certainty::Open));
        assert_eq!(lead.text(), "level with ext4");
        let found = verdict(&[("engine", &[0.0, 0.0]), ("ext4", &[1.0, 1.0])], false);
        assert_eq!(found.lead.expect("a second").text(), "ahead of ext4", "no factor by zero");
        assert!(verdict(&[("engine", &[1.0])], false).lead.is_none());
    }

    #[test]
    fn measures_are_counted_by_their_first() {
        let measures = vec![
            verdict(&[("engine", &[1.0, 1.01]), ("ext4", &[2.0, 2.01])], false),
            verdict(&[("engine", &[1.0, 3.0]), ("ext4", &[2.5, 2.6])], false),
            verdict(&[("engine", &[2.0, 2.01]), ("ext4", &[1.0, 1.01])], false),
        ];
        let verdicts = Verdicts {
            clock: None,
            targets: Vec::new(),
            compared: Vec::new(),
            all: measures,
            main: "rm, s",
        };
        assert_eq!(
            verdicts.firsts(),
            "First in 3 measures: engine in 2 (1 certain), ext4 in 1 (1 certain)."
        );
        assert_eq!(
            verdicts.of_ours(),
            [
                "engine next to the kernel's ext4 in 3 measures: ahead in 2 (1 certain), behind in 1 (1 certain)."
            ]
        );
    }
}
