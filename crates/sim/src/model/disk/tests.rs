use super::super::geometry::Places;
use super::super::preset::{DriveKind, Preset};
use super::*;
use extant_runtime::Random;

const MIB: u64 = 1 << 20;

fn figures(name: &str) -> (&'static Preset, Rotating) {
    let preset = Preset::named(name).expect("a preset");
    match &preset.kind {
        DriveKind::Rotating(figures) => (preset, figures.clone()),
        DriveKind::Flash(_) => panic!("{name} has no platters"),
    }
}

fn disk(name: &str) -> Disk {
    let (preset, figures) = figures(name);
    Disk::new(preset, &figures, preset.capacity)
}

/// Waits for a request as a caller does: asks again at the times that it gets.
fn finish(disk: &mut Disk, mut now: u64, ticket: Ticket) -> u64 {
    for _ in 0..1_000_000 {
        match disk.standing(now, ticket) {
            Standing::Done(at) => return now.max(at),
            Standing::Until(moment) => {
                assert!(moment > now, "time stands still at {now}");
                now = moment;
            }
        }
    }
    panic!("request {ticket} is never done");
}

/// One request after the other; when the last is done.
fn one_by_one(disk: &mut Disk, mut now: u64, commands: impl IntoIterator<Item = Command>) -> u64 {
    for command in commands {
        let ticket = disk.submit(now, command);
        now = finish(disk, now, ticket);
    }
    now
}

fn reads(range: Range<u64>, length: u64) -> impl Iterator<Item = Command> {
    range.step_by(length as usize).map(move |at| Command::Read(at..at + length))
}

fn random_places(seed: u64, count: usize, length: u64, capacity: u64) -> Vec<Range<u64>> {
    let mut random = Random::new(seed);
    let place = |_| {
        let at = random.draw() % (capacity / length) * length;
        at..at + length
    };
    (0..count).map(place).collect()
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[test]
fn longer_seeks_take_longer_and_their_mean_is_the_data_sheets() {
    for name in ["hdd7200", "hdd7200-2005"] {
        let (preset, figures) = figures(name);
        let places = Places::new(&figures, preset.capacity);
        let most = places.cylinders();
        let mut before = 0;
        for way in (0..most).step_by(97) {
            assert!(places.seek(way) >= before, "{name}: {way} cylinders");
            before = places.seek(way);
        }
        assert_eq!(places.seek(0), 0);
        assert_eq!(places.seek(1), figures.seek_track);
        let mut random = Random::new(1);
        let pair = |_| (random.draw() % most).abs_diff(random.draw() % most);
        let sum: u64 = (0..100_000).map(pair).map(|way| places.seek(way)).sum();
        let mean = sum as f64 / 1e5 / figures.seek_average as f64;
        assert!((0.99..1.01).contains(&mean), "{name}: {mean} of the average");
    }
}

#[test]
fn reading_on_is_as_fast_as_the_data_sheet_says_of_the_zone() {
    for name in ["hdd7200", "hdd7200-2005"] {
        let (preset, figures) = figures(name);
        let inner = preset.capacity / MIB * MIB - 256 * MIB;
        for (start, rate) in [(0, figures.outer), (inner, figures.inner)] {
            for length in [128 << 10, MIB / 2] {
                let mut disk = disk(name);
                let begin = one_by_one(&mut disk, 0, reads(start..start + length, length));
                let rest = start + length..start + 64 * MIB;
                let size = rest.end - rest.start;
                let end = one_by_one(&mut disk, begin, reads(rest, length));
                let found = size as f64 / seconds(end - begin) / rate as f64;
                assert!((0.98..1.01).contains(&found), "{name} at {start}: {found} of the rate");
            }
        }
    }
}

#[test]
fn the_manuals_own_examples_take_as_long_as_it_says() {
    // Deskstar 7K500 specification, tables 11 and 12: typical and at most.
    let (preset, _) = figures("hdd7200-2005");
    let last = preset.capacity / MIB * MIB - 16 * MIB;
    for (start, typical, most) in [(0, 0.29, 0.30), (last, 0.59, 0.61)] {
        let mut disk = disk("hdd7200-2005");
        // The arm comes from anywhere.
        let begin =
            one_by_one(&mut disk, 0, reads(preset.capacity / 3..preset.capacity / 3 + 1, 1));
        let end = one_by_one(&mut disk, begin, reads(start..start + 16 * MIB, 128 << 10));
        let found = seconds(end - begin);
        assert!((typical * 0.9..most).contains(&found), "16 MiB at {start}: {found} s");
    }
    let places = random_places(7, 4096, 512, preset.capacity);
    let mut disk = disk("hdd7200-2005");
    let found = seconds(one_by_one(&mut disk, 0, places.into_iter().map(Command::Read)));
    assert!((52.0..58.1).contains(&found), "4096 random reads: {found} s");
}

#[test]
fn random_reads_are_in_the_published_range_and_a_queue_makes_them_faster() {
    let (preset, figures) = figures("hdd7200");
    let places = random_places(3, 2000, 4096, preset.capacity);
    let mut alone = disk("hdd7200");
    let end = one_by_one(&mut alone, 0, places.iter().cloned().map(Command::Read));
    let rate = 2000.0 / seconds(end);
    // 7200 rpm and 8.5 ms: such drives are rated at 75 to 100.
    assert!((70.0..100.0).contains(&rate), "{rate} a second");

    let mut queued = disk("hdd7200");
    let mut now = 0;
    for some in places.chunks(figures.depth) {
        let tickets: Vec<Ticket> =
            some.iter().map(|range| queued.submit(now, Command::Read(range.clone()))).collect();
        now =
            tickets.into_iter().map(|ticket| finish(&mut queued, now, ticket)).max().expect("some");
    }
    let deep = 2000.0 / seconds(now);
    assert!(deep > 1.5 * rate, "{deep} a second in a queue, {rate} alone");
}

#[test]
fn a_write_is_done_in_the_cache_and_a_flush_waits_for_the_platter() {
    let (preset, figures) = figures("hdd7200");
    let places = random_places(5, 100, 4096, preset.capacity);
    let mut cached = disk("hdd7200");
    let end = one_by_one(&mut cached, 0, places.iter().cloned().map(Command::Write));
    assert!(seconds(end) < 0.1, "100 writes into the cache: {} s", seconds(end));
    let ticket = cached.submit(end, Command::Flush);
    let all = finish(&mut cached, end, ticket);
    assert!(cached.dirty.is_empty() && cached.dirty_bytes == 0);

    let mut flushed = disk("hdd7200");
    let each = places.iter().cloned().flat_map(|range| [Command::Write(range), Command::Flush]);
    let end = one_by_one(&mut flushed, 0, each);
    let rate = 100.0 / seconds(end);
    assert!((50.0..90.0).contains(&rate), "{rate} flushed writes a second");
    assert!(all < end, "the cache orders what it writes: {all} and {end}");
    // Nothing is left: another flush costs a command and no more.
    let ticket = flushed.submit(end, Command::Flush);
    assert_eq!(finish(&mut flushed, end, ticket) - end, preset.overhead);
    assert!(figures.write_cache > 0);
}

#[test]
fn writes_that_do_not_fit_wait_for_room() {
    let (preset, figures) = figures("hdd7200");
    let mut disk = disk("hdd7200");
    // Written one after the other, it comes to the rate of the platter.
    let whole = 16 * figures.write_cache;
    let end = one_by_one(
        &mut disk,
        0,
        (0..whole).step_by(512 << 10).map(|at| Command::Write(at..at + (512 << 10))),
    );
    assert!(disk.dirty_bytes <= figures.write_cache);
    let rate = (whole - figures.write_cache) as f64 / seconds(end) / figures.outer as f64;
    assert!((0.93..1.07).contains(&rate), "{rate} of the outer zone's rate");
    assert!(preset.interface > figures.outer);
}

#[test]
fn what_was_read_ahead_or_just_written_needs_no_arm() {
    let mut disk = disk("hdd7200");
    let begin = one_by_one(&mut disk, 0, reads(0..4096, 4096));
    let later = begin + 10_000_000;
    let end = one_by_one(&mut disk, later, reads(4096..8192, 4096));
    assert!(end - later < 1_000_000, "read ahead: {} ns", end - later);
    let far = 700 << 30;
    let end = one_by_one(&mut disk, end, [Command::Write(far..far + 4096)]);
    let again = one_by_one(&mut disk, end, [Command::Read(far..far + 4096)]);
    assert!(again - end < 1_000_000, "from the write cache: {} ns", again - end);
}

#[test]
fn the_same_requests_take_the_same_time() {
    let run = || {
        let (preset, _) = figures("hdd7200");
        let mut disk = disk("hdd7200");
        let mut random = Random::new(11);
        let mut now = 0;
        for range in random_places(13, 500, 64 << 10, preset.capacity) {
            let command = match random.below(4) {
                0 => Command::Flush,
                1 | 2 => Command::Write(range),
                _ => Command::Read(range),
            };
            let ticket = disk.submit(now, command);
            now = finish(&mut disk, now, ticket) + random.below(1_000_000) as u64;
        }
        now
    };
    assert_eq!(run(), run());
}

#[test]
fn the_far_end_of_the_largest_file_is_read_and_written() {
    const SIZE: u64 = i64::MAX as u64;
    for name in ["hdd7200", "hdd7200-2005"] {
        let (preset, figures) = figures(name);
        let mut disk = Disk::new(preset, &figures, SIZE);
        let mut now = 0;
        for start in [SIZE - 4096, 0, SIZE / 3, SIZE - (1 << 20), SIZE - 8192] {
            now = one_by_one(&mut disk, now, [Command::Read(start..start + 4096)]);
            let write = Command::Write(start..start + 4096);
            now = one_by_one(&mut disk, now, [write, Command::Flush]);
        }
        assert!(now < 10 * SECOND, "{name}: {now}");
    }
}

#[test]
fn a_batch_is_done_at_the_same_moments_however_it_is_asked_about() {
    let mut disk = disk("hdd7200");
    // More than the write cache takes.
    let places = random_places(5, 6_000, 4096, 1 << 38);
    let tickets: BTreeSet<Ticket> =
        places.into_iter().map(|place| disk.submit(0, Command::Write(place))).collect();
    let mut asked_together = disk.clone();

    let (mut now, mut singly) = (0, BTreeMap::new());
    let mut open: Vec<Ticket> = tickets.iter().copied().collect();
    while !open.is_empty() {
        let mut next = u64::MAX;
        open.retain(|ticket| match disk.standing(now, *ticket) {
            Standing::Done(at) => singly.insert(*ticket, at).is_some(),
            Standing::Until(moment) => {
                next = next.min(moment);
                true
            }
        });
        now = next;
    }
    let (mut now, mut left, mut together) = (0, tickets, BTreeMap::new());
    while !left.is_empty() {
        let (done, until) = asked_together.done_of(now, &left);
        left.retain(|ticket| done.iter().all(|(of, _)| of != ticket));
        together.extend(done);
        now = until;
    }
    assert_eq!(singly, together);
    assert!(singly.values().any(|at| *at > SECOND), "the arm was waited for");
}
