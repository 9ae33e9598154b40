//! The plan of a round, drawn by its seed: this repeats. When what happens to which call depends on
//! the machine.

use std::time::Duration;

use extant_testkit::tree::Random;

use super::disk::Fault;
use super::programs::{WORKS, Work};

/// Something that happens while programs work.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The disk has these faults for so long.
    Faults(Vec<Fault>, Duration),
    /// The server is stopped for so long.
    Pause(Duration),
    /// Nothing for so long.
    Quiet(Duration),
}

/// How the server ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Unmount,
    /// SIGTERM.
    Terminate,
    Kill,
    /// SIGKILL, and the disk loses what was not flushed, some of it or all.
    PowerCut {
        loses_all: bool,
    },
}

impl End {
    pub(super) fn is_kill(self) -> bool {
        matches!(self, Self::Kill | Self::PowerCut { .. })
    }
}

pub(super) struct Plan {
    /// For `mount -o`.
    pub(super) options: &'static str,
    pub(super) works: Vec<&'static Work>,
    /// Time before the first step.
    pub(super) warm_up: Duration,
    pub(super) steps: Vec<Step>,
    /// Whether the last step's faults go on to the end.
    pub(super) fails_to_the_end: bool,
    pub(super) end: End,
    /// Seed of the works.
    pub(super) number: u64,
}

/// Volumes, as mke2fs makes them.
pub(super) const VOLUMES: [&[&str]; 6] = [
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024", "-J", "size=4"],
    &["-t", "ext4", "-O", "inline_data", "-I", "512"],
    &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
    &["-t", "ext4", "-O", "orphan_file,metadata_csum_seed", "-J", "size=8"],
    &["-t", "ext3"],
];

/// Options of the mount. Each keeps what was made durable.
const OPTIONS: [&str; 8] = [
    "rw",
    "memory=16M",
    "nodelalloc",
    "data=journal,nodelalloc",
    "data=writeback,journal_checksum",
    "commit=1,noio_uring",
    "nowriteback_cache",
    "memory=32M,max_batch_time=2000,threads=4",
];

impl Plan {
    /// A plan; for the time `more` in addition no request of the disk fails.
    pub(super) fn draw(random: &mut Random, works: &[&'static Work], more: Duration) -> Self {
        let mut of = |many: usize| random.below(many as u64) as usize;
        let options = OPTIONS[of(OPTIONS.len())];
        let mut left = works.to_vec();
        let mut chosen = Vec::new();
        for _ in 0..(1 + of(2)).min(left.len()) {
            chosen.push(left.swap_remove(of(left.len())));
        }
        let mut milliseconds =
            |least: u64, most: u64| Duration::from_millis(least + random.below(most - least));
        let warm_up = milliseconds(800, 3000);
        let (long, short) = (milliseconds(400, 2500), milliseconds(100, 1200));
        let mut steps = Vec::new();
        let mut left = more;
        while !left.is_zero() {
            let time = Duration::from_millis(400 + random.below(4000)).min(left);
            steps.push(match random.below(4) {
                0 => {
                    let milliseconds = 1 + random.below(20);
                    Step::Faults(vec![Fault::SlowFlushes { milliseconds }], time)
                }
                1 => Step::Faults(vec![Fault::ShortWrites { one_in: 1 + random.below(6) }], time),
                2 => Step::Pause(time.min(short)),
                _ => Step::Quiet(time),
            });
            left -= time;
        }
        if random.below(2) == 0 {
            let slow = Fault::SlowFlushes { milliseconds: 1 + random.below(80) };
            let cut = Fault::ShortWrites { one_in: 1 + random.below(6) };
            let faults = [vec![slow], vec![cut], vec![slow, cut]];
            steps.push(Step::Faults(faults[random.below(3) as usize].clone(), long));
        }
        if random.below(4) == 0 {
            steps.push(Step::Pause(short));
        }
        let fails = random.below(5) < 3;
        if fails {
            let one_in = [1, 3, 20, 200][random.below(4) as usize];
            let fault = match random.below(6) {
                0 => Fault::Reads { one_in },
                1 | 2 => Fault::Writes { one_in },
                3 => Fault::Flushes { one_in },
                4 => Fault::Full,
                _ => Fault::Gone,
            };
            steps.push(Step::Faults(vec![fault], long));
        }
        let ends = [
            End::Unmount,
            End::Terminate,
            End::Kill,
            End::PowerCut { loses_all: false },
            End::PowerCut { loses_all: false },
            End::PowerCut { loses_all: true },
        ];
        let end = ends[random.below(ends.len() as u64) as usize];
        let fails_to_the_end = fails && random.below(2) == 0;
        let number = random.number();
        Self { options, works: chosen, warm_up, steps, fails_to_the_end, end, number }
    }

    /// Bytes that the server may have in memory at most. They depend on options alone: what is
    /// asked for, and room for the program, its threads and their buffers.
    pub(super) fn memory_bound(&self) -> u64 {
        let asked = self.options.split(',').find_map(|word| word.strip_prefix("memory="));
        let asked = asked.and_then(|size| size.strip_suffix('M')?.parse().ok()).unwrap_or(64);
        (asked + 64) << 20
    }
}

/// Programs that are here, and why others are not.
pub(super) fn works() -> (Vec<&'static Work>, Vec<String>) {
    let is_here = |work: &&'static Work| work.missing().is_none();
    let missing = WORKS.iter().filter_map(Work::missing).collect();
    (WORKS.iter().filter(is_here).collect(), missing)
}
