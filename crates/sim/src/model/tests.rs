use std::sync::Arc;
use std::time::Duration;

use super::*;
use extant_runtime::Random;
use extant_runtime::env::Next;

const MIB: u64 = 1 << 20;

fn drive(name: &str, size: u64) -> (tempfile::TempDir, ModelDevice) {
    let dir = tempfile::tempdir().expect("a place for the test");
    let device = reopened(&dir, name, Some(size), &ModelOptions::default());
    (dir, device)
}

/// The drive of an image that is there, or of a new one.
fn reopened(
    dir: &tempfile::TempDir,
    name: &str,
    size: Option<u64>,
    options: &ModelOptions,
) -> ModelDevice {
    let path = dir.path().join("image");
    if let Some(size) = size {
        FileDevice::create_new(&path, size).expect("an image");
    }
    let words = ModelDevice::open_pattern_file(&path, true).expect("words");
    let file = extant_device::FileDeviceOptions::new().write(true).open(&path);
    let preset = Preset::named(name).expect("a preset");
    ModelDevice::new(preset, Arc::new(file.expect("an image")), words, options).expect("a drive")
}

fn elapsed(device: &ModelDevice) -> Duration {
    device.env.elapsed()
}

/// A second of requests of 4 KiB, `at_once` in a batch: how many come to an end.
fn rate(name: &str, at_once: usize, write: bool) -> f64 {
    let (_dir, device) = drive(name, 64 * MIB);
    let mut random = Random::new(1);
    let mut buffers = vec![[7_u8; 4096]; at_once];
    let mut count = 0;
    while elapsed(&device) < Duration::from_millis(200) {
        let place = |random: &mut Random| random.draw() % (16 << 10) * 4096;
        let requests = buffers.iter_mut().map(|buffer| match write {
            true => Request::write(place(&mut random), &*buffer),
            false => Request::read(place(&mut random), buffer),
        });
        let mut batch: Vec<_> = requests.collect();
        device.submit(&mut batch).expect("requests");
        count += at_once;
    }
    count as f64 / elapsed(&device).as_secs_f64()
}

#[test]
fn flash_does_as_many_requests_as_its_data_sheet_says() {
    for (name, alone, many, alone_writing) in
        [("ssd-sata", 10_000.0, 98_000.0, 42_000.0), ("nvme", 19_000.0, 600_000.0, 60_000.0)]
    {
        let found = rate(name, 1, false) / alone;
        assert!((0.9..1.02).contains(&found), "{name}: {found} of the reads one by one");
        // Processors take their time for each request too.
        let found = rate(name, 32, false) / many;
        assert!((0.25..1.02).contains(&found), "{name}: {found} of the reads in a queue");
        let found = rate(name, 1, true) / alone_writing;
        assert!((0.7..1.02).contains(&found), "{name}: {found} of the writes one by one");
    }
}

#[test]
fn flash_reads_and_writes_at_its_data_sheets_rate() {
    for (name, read, write) in [("ssd-sata", 550e6, 520e6), ("nvme", 3500e6, 3300e6)] {
        let (_dir, device) = drive(name, 64 * MIB);
        let mut buffer = vec![1_u8; 32 << 20];
        let passed = |work: &mut dyn FnMut()| {
            let start = elapsed(&device);
            work();
            (elapsed(&device) - start).as_secs_f64()
        };
        let writing = passed(&mut || device.write_at(0, &vec![1; 32 << 20]).expect("written"));
        let reading = passed(&mut || device.read_at(0, &mut buffer).expect("read"));
        let size = buffer.len() as f64;
        // Copying takes its part.
        assert!((0.6..1.01).contains(&(size / reading / read)), "{name} reads {}", size / reading);
        assert!(
            (0.6..1.01).contains(&(size / writing / write)),
            "{name} writes {}",
            size / writing
        );
    }
}

#[test]
fn a_batch_is_faster_than_its_requests_one_by_one() {
    let (_dir, device) = drive("hdd7200", 64 << 30);
    let mut random = Random::new(3);
    let places: Vec<u64> = (0..64).map(|_| random.draw() % (16 << 20) * 4096).collect();
    let mut buffers = vec![[0_u8; 4096]; 64];
    let mut batch: Vec<_> = places
        .iter()
        .zip(&mut buffers)
        .map(|(place, buffer)| Request::read(*place, buffer))
        .collect();
    device.submit(&mut batch).expect("read");
    let together = elapsed(&device);
    for place in places {
        device.read_at(place ^ (1 << 35), &mut [0; 4096]).expect("read");
    }
    let alone = elapsed(&device) - together;
    assert!(together * 3 < alone * 2, "{together:?} together, {alone:?} one by one");
}

#[test]
fn bytes_asked_for_ahead_come_while_the_caller_works() {
    let (_dir, device) = drive("hdd7200", 64 << 30);
    let mut buffer = vec![0; 256 << 10];
    let start = elapsed(&device);
    device.read_at(10 << 30, &mut buffer).expect("read");
    let waited = elapsed(&device) - start;
    device.will_need((20 << 30)..(20 << 30) + (256 << 10));
    device.env.spend(Duration::from_millis(100));
    let start = elapsed(&device);
    device.read_at(20 << 30, &mut buffer).expect("read");
    let ahead = elapsed(&device) - start;
    assert!(
        ahead < Duration::from_micros(100) && waited > Duration::from_millis(3),
        "{ahead:?}, {waited:?}"
    );
    // A part of what was fetched, twice: the second time the drive is asked.
    device.will_need((30 << 30)..(30 << 30) + (256 << 10));
    device.read_at(30 << 30, &mut buffer[..4096]).expect("read");
    device.read_at(30 << 30, &mut buffer).expect("read");
}

/// How many requests the drive and its device remember.
fn remembered(device: &ModelDevice) -> (usize, usize) {
    let drive = device.drive.lock();
    match &drive.state {
        State::Rotating(disk) => (disk.remembered(), drive.shared.len()),
        State::Flash(_) => (0, 0),
    }
}

#[test]
fn all_who_wait_for_what_is_fetched_ahead_are_told() {
    const START: u64 = 20 << 30;
    let (_dir, device) = drive("hdd7200", 64 << 30);
    let device = Arc::new(device);
    let env = device.env().clone();
    device.will_need(START..START + MIB);
    let begins: Vec<(u64, usize)> = vec![
        (0, 64 << 10),
        (64 << 10, 64 << 10),
        // Up to the end of what is fetched.
        (128 << 10, 384 << 10),
        (0, 1 << 20),
        (1 << 19, 4096),
    ];
    let workers: Vec<_> = begins
        .into_iter()
        .map(|(begin, length)| {
            let device = device.clone();
            env.spawn("reader", move || {
                device.read_at(START + begin, &mut vec![1; length]).expect("read");
                Next::Done
            })
        })
        .collect();
    env.sleep_until(Duration::from_secs(1));
    assert!(workers.iter().all(extant_runtime::env::Worker::is_done), "one was not told");
    drop(workers);
    // Two requests of a batch wait for one piece.
    device.will_need(START + 8 * MIB..START + 8 * MIB + 8192);
    let (mut one, mut two) = ([1; 4096], [1; 4096]);
    let place = START + 8 * MIB;
    let mut batch = [Request::read(place, &mut one), Request::read(place + 4096, &mut two)];
    device.submit(&mut batch).expect("read");
    // Changes before the data arrived, and more data than the limit.
    device.will_need(START + 16 * MIB..START + 17 * MIB);
    device.write_at(START + 16 * MIB, &[3; 8192]).expect("written");
    device.will_need(START + 32 * MIB..START + 160 * MIB);
    env.sleep_until(device.env.elapsed() + Duration::from_secs(10));
    device.read_at(0, &mut [0; 512]).expect("read");
    let (done, shared) = remembered(&device);
    assert!(done <= (MOST_FETCHED / MOST_AT_ONCE) as usize, "{done} requests are remembered");
    assert_eq!(shared, 0, "no thread waits any more");
}

#[test]
fn workers_take_turns_by_virtual_time() {
    let run = |seed| {
        let dir = tempfile::tempdir().expect("a place for the test");
        let options = ModelOptions { seed, ..ModelOptions::default() };
        let device = Arc::new(reopened(&dir, "hdd7200", Some(64 << 30), &options));
        let env = device.env().clone();
        let done = Arc::new(Mutex::new(Vec::new()));
        let workers: Vec<_> = (0..8_u64)
            .map(|number| {
                let (device, done) = (device.clone(), done.clone());
                env.spawn("writer", move || {
                    for step in 0..5_u64 {
                        let place = (number * 7 + step) << 30;
                        device.read_at(place, &mut [0; 4096]).expect("read");
                        done.lock().push((number, device.now()));
                    }
                    Next::Done
                })
            })
            .collect();
        env.sleep_until(Duration::from_secs(60));
        assert!(workers.iter().all(extant_runtime::env::Worker::is_done));
        drop(workers);
        done.lock().clone()
    };
    let first = run(1);
    assert_eq!(first.len(), 40);
    assert!(first.is_sorted_by_key(|(_, moment)| *moment), "{first:?}");
    assert_eq!(first, run(1));
}

#[test]
fn a_word_takes_no_room_and_the_rest_goes_to_the_image() {
    let dir = tempfile::tempdir().expect("a place for the test");
    let options = ModelOptions { memory: 64 << 10, ..ModelOptions::default() };
    let device = reopened(&dir, "nvme", Some(64 * MIB), &options);
    device.write_at(0, &vec![b'x'; 32 << 20]).expect("written");
    assert_eq!(device.held(), 0);
    let mixed: Vec<u8> = (0..MIB).map(|at| (at / 3) as u8).collect();
    device.write_at(40 * MIB, &mixed).expect("written");
    assert!(device.held() <= 64 << 10, "{} bytes in memory", device.held());
    let short = vec![0xff; 4096];
    device.write_at(50 * MIB, &short).expect("written");
    let check = |device: &dyn Device| {
        let mut found = vec![0; 64 << 20];
        device.read_at(0, &mut found).expect("read");
        assert!(found[..32 << 20].iter().all(|byte| *byte == b'x'));
        assert!(found[40 << 20..41 << 20] == mixed && found[50 << 20..][..4096] == short);
        assert!(found[32 << 20..40 << 20].iter().all(|byte| *byte == 0));
    };
    check(&device);
    drop(device);
    // Other programs see everything but long runs of words.
    let image = dir.path().join("image");
    let plain = std::fs::read(&image).expect("the image");
    assert!(plain[40 << 20..41 << 20] == mixed && plain[50 << 20..][..4096] == short);
    assert!(plain[..32 << 20].iter().all(|byte| *byte == 0));
    let device = reopened(&dir, "nvme", None, &options);
    check(&device);
    device.write_at(0, &mixed).expect("written");
    device.write_zeroes(MIB..32 * MIB).expect("written");
    drop(device);
    assert!(!dir.path().join("image.words").exists());
    let plain = std::fs::read(&image).expect("the image");
    assert!(plain[..1 << 20] == mixed && plain[1 << 20..40 << 20].iter().all(|byte| *byte == 0));
}

/// The state that a kill of the command leaves now.
fn killed(dir: &tempfile::TempDir) -> tempfile::TempDir {
    let left = tempfile::tempdir().expect("a place for the test");
    for name in ["image.words", "image"] {
        std::fs::copy(dir.path().join(name), left.path().join(name)).expect("a copy");
    }
    left
}

#[test]
fn a_command_that_is_killed_leaves_what_was_there_and_what_reached_the_image() {
    let dir = tempfile::tempdir().expect("a place for the test");
    let options = ModelOptions { memory: 64 << 10, ..ModelOptions::default() };
    let device = reopened(&dir, "nvme", Some(64 * MIB), &options);
    device.write_at(0, &vec![b'x'; 16 << 20]).expect("written");
    drop(device);
    let device = reopened(&dir, "nvme", None, &options);
    let mixed: Vec<u8> = (0..MIB).map(|at| (at / 3) as u8).collect();
    device.write_at(4 * MIB, &mixed).expect("written");
    // A long run stays in memory.
    device.write_at(8 * MIB, &vec![b'y'; 2 << 20]).expect("written");
    let check = |device: &dyn Device, later: u8| {
        let mut found = vec![0; 20 << 20];
        device.read_at(0, &mut found).expect("read");
        let is = |part: Range<usize>, byte: u8| {
            found[part.start << 20..part.end << 20].iter().all(|found| *found == byte)
        };
        assert!(is(0..4, b'x') && found[4 << 20..5 << 20] == mixed && is(5..8, b'x'));
        assert!(is(8..10, later) && is(10..16, b'x') && is(16..20, 0));
    };
    for _ in 0..2 {
        let left = killed(&dir);
        let device = reopened(&left, "hdd7200", None, &options);
        check(&device, b'x');
        // It continues from there, and later changes hold.
        device.write_at(8 * MIB, &vec![b'z'; 2 << 20]).expect("written");
        drop(device);
        check(&reopened(&left, "nvme", None, &options), b'z');
        check(&device_read_only(&left), b'z');
    }
    drop(device);
    check(&reopened(&dir, "nvme", None, &options), b'y');
}

fn device_read_only(dir: &tempfile::TempDir) -> ModelDevice {
    let path = dir.path().join("image");
    let words = ModelDevice::open_pattern_file(&path, false).expect("words");
    let file = Arc::new(FileDevice::open(&path).expect("an image"));
    let preset = Preset::named("nvme").expect("a preset");
    ModelDevice::new(preset, file, words, &ModelOptions::default()).expect("a drive")
}

#[test]
fn short_runs_of_words_do_not_fill_the_memory() {
    let dir = tempfile::tempdir().expect("a place for the test");
    let options = ModelOptions { memory: 64 << 10, ..ModelOptions::default() };
    let device = reopened(&dir, "nvme", Some(64 * MIB), &options);
    let mut expected = Vec::new();
    for block in 0..4096_u64 {
        let word = [block % 251 + 1, block >> 8];
        expected
            .extend(word.iter().flat_map(|half| (*half as u32).to_le_bytes()).cycle().take(4096));
        device.write_at(block * 4096, &expected[expected.len() - 4096..]).expect("written");
        // As many as take the place of 16 blocks.
        assert!(device.runs() <= 16 * 64 + 64, "{} runs after {block} blocks", device.runs());
    }
    let check = |device: &dyn Device| {
        let mut found = vec![1; (16 << 20) + 8192];
        device.read_at(0, &mut found).expect("read");
        assert!(found[..16 << 20] == expected && found[16 << 20..].iter().all(|byte| *byte == 0));
    };
    check(&device);
    drop(device);
    let plain = std::fs::read(dir.path().join("image")).expect("the image");
    assert!(plain[..16 << 20] == expected);
    assert!(!dir.path().join("image.words").exists());
}

#[test]
fn a_file_of_words_that_another_command_removes_is_not_used() {
    let dir = tempfile::tempdir().expect("a place for the test");
    let path = dir.path().join("image");
    let image = Arc::new(FileDevice::create_new(&path, 8 * MIB).expect("an image"));
    let made = ModelDevice::open_pattern_file(&path, true).expect("words");
    let found = ModelDevice::open_pattern_file(&path, true).expect("words");
    drop(made);
    assert!(!dir.path().join("image.words").exists(), "made for nothing");
    let preset = Preset::named("nvme").expect("a preset");
    let drive = ModelDevice::new(preset, image, found, &ModelOptions::default());
    let error = drive.expect_err("removed").to_string();
    assert!(error.contains("try again"), "{error}");
}

#[test]
fn words_of_another_state_of_the_image_are_refused() {
    let dir = tempfile::tempdir().expect("a place for the test");
    let device = reopened(&dir, "nvme", Some(8 * MIB), &ModelOptions::default());
    device.write_at(0, &vec![b'x'; 4 << 20]).expect("written");
    drop(device);
    let image = dir.path().join("image");
    // A command that opened it for writing and did not write has changed nothing.
    for _ in 0..3 {
        drop(reopened(&dir, "nvme", None, &ModelOptions::default()));
    }
    let file = std::fs::File::options().write(true).open(&image).expect("the image");
    let right = file.metadata().and_then(|found| found.modified()).expect("a time");
    // A copy whose files are all of the same time, and an older state of the image.
    for wrong in [right + Duration::from_secs(1), right - Duration::from_secs(1)] {
        file.set_modified(wrong).expect("a time");
        let words = std::fs::File::options().write(true).open(dir.path().join("image.words"));
        words.and_then(|words| words.set_modified(wrong)).expect("a time");
        let error = ModelDevice::open_pattern_file(&image, false).expect_err("stale");
        assert!(
            error.to_string().contains("image modified after this file was written"),
            "{error}"
        );
    }
    file.set_modified(right).expect("a time");
    ModelDevice::open_pattern_file(&image, false).expect("it is as it was");
}
