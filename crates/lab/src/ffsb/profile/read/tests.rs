use super::*;

fn read(text: &str) -> Result<Profile, ProfileError> {
    text.parse()
}

fn flaw(text: &str) -> (usize, Flaw) {
    let error = read(text).expect_err("it is refused");
    (error.line, error.flaw)
}

/// Document 003's profile, as printed there.
pub(in crate::ffsb) const PUBLISHED: &str =
    include_str!("../../../../profiles/large-file-create.ffsb");

#[test]
fn the_published_profile_is_read_as_it_stands() {
    let profile = read(PUBLISHED).expect("it is good");
    assert_eq!(profile.warnings, Vec::<String>::new());
    assert_eq!(profile.time, Duration::from_secs(600));
    assert!(!profile.direct_io && !profile.align_io && profile.callout.is_none());
    let [set] = &profile.filesystems[..] else { panic!("one file system") };
    assert_eq!(set.location, PathBuf::from("/mnt/test/"));
    assert_eq!((set.start, set.dirs), (Start::Files(0), 0));
    assert_eq!(set.sizes, Sizes::Uniform { min: 1 << 30, max: 1 << 30 });
    let [group] = &profile.thread_groups[..] else { panic!("one group") };
    assert_eq!((group.threads, group.write.size, group.write.block), (128, 65536, 65536));
    let drawn = Operation::ALL.into_iter().zip(group.weights).filter(|(_, weight)| *weight > 0);
    assert_eq!(drawn.collect::<Vec<_>>(), [(Operation::Create, 1)]);
}

/// Every key once, in the newer form.
const EVERY_KEY: &str = "\
time = 30            # seconds
alignio = 1
directio = 1
bufferio = 0
verbose = 0
callout = sync; echo a  b
fill = random
seed = 42

[threadgroup]        # before the file systems: the newer form lets it
  num_threads = 2
  bindfs = /b
  op_delay = 1500
  read_size = 1M
  read_blocksize = 4 kb
  read_skip = 1
  read_skipsize = 8K
  write_size = 2 Gb
  write_blocksize = 64k
  write_random = 1
  fsync_file = 1
  read_weight = 1
  readall_weight = 2
  write_weight = 3
  create_weight = 4
  append_weight = 5
  delete_weight = 6
  metaop_weight = 7
  createdir_weight = 8
  stat_weight = 9
  writeall_weight = 10
  writeall_fsync_weight = 11
  open_close_weight = 12
  write_fsync_weight = 13
  create_fsync_weight = 14
  append_fsync_weight = 15
  [stats]
    enable_stats = 1
    enable_range = 1
    ignore = close
    ignore = stat
    msec_range 0.0 0.5
    msec_range 0.5 1000
  [end]
[end]

[filesystem]
  location = /a
  num_files = 10
  num_dirs = 3
  size_weight 4k 33
  size_weight 1m 1
  create_blocksize = 8k
  agefs = 1
  desired_util = 0.25
  age_blocksize = 16k
  [threadgroup]
    num_threads = 4
    write_size = 1k
    write_blocksize = 1k
    create_weight = 10
    append_weight = 10
    delete_weight = 1
  [end]
[end]

[filesystem]
  location = /b
  clone = /a
  num_files = 20
[end]
";

#[test]
fn every_key_is_read() {
    let profile = read(EVERY_KEY).expect("it is good");
    let age_block = "age_blocksize has no effect as the first files are empty";
    assert!(
        matches!(&profile.warnings[..], [only] if only.ends_with(age_block)),
        "{:?}",
        profile.warnings
    );
    assert_eq!(profile.time, Duration::from_secs(30));
    assert!(profile.direct_io && profile.align_io);
    assert_eq!(profile.callout.as_deref(), Some("sync; echo a  b"));
    assert_eq!((profile.fill, profile.seed), (Fill::Random, Some(42)));

    let [group] = &profile.thread_groups[..] else { panic!("one group") };
    assert_eq!((group.threads, group.bound), (2, Some(1)));
    assert_eq!(group.delay, Duration::from_millis(1500));
    let read = Reading { size: 1 << 20, block: 4096, order: ReadOrder::Strided(8192) };
    assert_eq!(group.read, read);
    let write = Writing { size: 2 << 30, block: 65536, is_random: true, fsync: true };
    assert_eq!(group.write, write);
    assert_eq!(group.weights, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    let stats =
        Stats { ranges: vec![(0.0, 0.5), (0.5, 1000.0)], ignored: vec![Call::Close, Call::Stat] };
    assert_eq!(group.stats, Some(stats));

    let [first, second] = &profile.filesystems[..] else { panic!("two file systems") };
    assert_eq!(first.sizes, Sizes::Weighted(vec![(4096, 33), (1 << 20, 1)]));
    assert_eq!((first.start, first.dirs, first.create_block), (Start::Files(10), 3, 8192));
    let ageing = first.ageing.as_ref().expect("it is aged");
    assert_eq!((ageing.utilization, ageing.group.threads), (0.25, 4));
    // A clone has all settings except its location and its own ones.
    assert_eq!(second.start, Start::Files(20));
    let like_first =
        FileSet { location: first.location.clone(), start: first.start, ..second.clone() };
    assert_eq!(&like_first, first);
}

/// A profile with a section of each kind; settings are inserted after these lines.
const LEAST: &str = "\
time=1
[filesystem]
location=/a
[end]
[threadgroup]
num_threads=1
write_blocksize=4k
create_weight=1
[stats]
[end]
[end]
";
const GLOBAL: &str = "time=1\n";
const FILESYSTEM: &str = "location=/a\n";
const GROUP: &str = "create_weight=1\n";
const STATS: &str = "[stats]\n";

/// Every key of the format except text keys: its section, a valid value, and an invalid one.
const KEYS: [(&str, &str, &str, &str); 40] = [
    (GLOBAL, "time", "600", "10m"),
    (GLOBAL, "directio", "1", "2"),
    (GLOBAL, "alignio", "1", "on"),
    (GLOBAL, "bufferio", "1", "-1"),
    (GLOBAL, "bufferedio", "1", "yes"),
    (GLOBAL, "verbose", "0", "01"),
    (GLOBAL, "num_filesystems", "1", "one"),
    (GLOBAL, "num_threadgroups", "1", "1.0"),
    (GLOBAL, "fill", "pattern", "ones"),
    (GLOBAL, "seed", "18446744073709551615", "18446744073709551616"),
    (FILESYSTEM, "num_files", "5", "5k"),
    (FILESYSTEM, "num_dirs", "5", "-5"),
    (FILESYSTEM, "min_filesize", "0", "1.5k"),
    (FILESYSTEM, "max_filesize", "4 Kb", "4kib"),
    (FILESYSTEM, "size_weight", "4k 33", "4k"),
    (FILESYSTEM, "init_size", "1G", "1t"),
    (FILESYSTEM, "init_util", "0.5", "50%"),
    (FILESYSTEM, "create_blocksize", "4096", "0"),
    (FILESYSTEM, "reuse", "1", "11"),
    (FILESYSTEM, "agefs", "0", "x"),
    (FILESYSTEM, "desired_util", ".25", "25"),
    (FILESYSTEM, "age_blocksize", "64k", "64p"),
    (GROUP, "num_threads", "128", "1e2"),
    (GROUP, "bindfs", "0", "1"),
    (GROUP, "op_delay", "1500", "1s"),
    (GROUP, "read_size", "5g", "5x"),
    (GROUP, "read_blocksize", "64K", "2g"),
    (GROUP, "read_random", "1", "true"),
    (GROUP, "read_skip", "0", "no"),
    (GROUP, "read_skipsize", "1m", "1mm"),
    (GROUP, "write_size", "8gb", "8gg"),
    (GROUP, "write_blocksize", "1m", ""),
    (GROUP, "write_random", "1", "9"),
    (GROUP, "fsync_file", "1", "a"),
    (GROUP, "meta_weight", "3", "3.5"),
    (GROUP, "metaop_weight", "3", "4294967296"),
    (STATS, "enable_stats", "1", "one"),
    (STATS, "enable_range", "1", "2"),
    (STATS, "ignore", "lseek", "spin"),
    (STATS, "msec_range", "0.5 1", "1 0.5"),
];

/// Each value is checked, and the keys of the tables are those of the format.
#[test]
fn every_key_takes_what_it_should_and_nothing_else() {
    for (place, key, good, bad) in KEYS {
        let line = 2 + LEAST[..LEAST.find(place).expect("it is there")].lines().count();
        let text = |value: &str| LEAST.replacen(place, &format!("{place}{key} = {value}\n"), 1);
        let found = read(&text(good));
        assert!(found.is_ok(), "{key} = {good}: {found:?}");
        let error = read(&text(bad)).expect_err(bad);
        assert_eq!(error.line, line, "{key} = {bad}: {error}");
    }
    let of = |place: &str, texts: &[&'static str]| {
        let found = KEYS.iter().filter(|(at, ..)| *at == place).map(|(_, key, ..)| *key);
        let mut all: Vec<&str> = found.chain(texts.iter().copied()).collect();
        all.sort_unstable();
        all
    };
    let sorted = |keys: &[&'static str]| {
        let mut all = keys.to_vec();
        all.sort_unstable();
        all
    };
    assert_eq!(of(GLOBAL, &["callout"]), sorted(GLOBAL_KEYS));
    assert_eq!(of(FILESYSTEM, &["location", "clone"]), sorted(FILESYSTEM_KEYS));
    assert_eq!(of(STATS, &[]), sorted(STATS_KEYS));
    let mut group = of(GROUP, &[]);
    group.retain(|key| *key != "metaop_weight");
    assert_eq!(group, sorted(GROUP_KEYS));
    for operation in Operation::ALL {
        let key = format!("{}_weight", operation.name());
        let error = read(&LEAST.replacen(GROUP, &format!("{GROUP}{key}=x\n"), 1));
        assert_eq!(error.expect_err("no number").line, 9, "{key}");
    }
}

/// A useless setting of a profile is reported, and checked all the same.
#[test]
fn settings_without_effect_are_named() {
    let with_set = |lines: &str| read(&LEAST.replace(FILESYSTEM, &format!("{FILESYSTEM}{lines}")));
    let warnings = |lines: &str| with_set(lines).expect(lines).warnings;
    assert_eq!(
        warnings("size_weight 4k 1\nmin_filesize=8k\nmax_filesize=1m\n"),
        [
            "line 5: min_filesize has no effect next to size_weight",
            "line 6: max_filesize has no effect next to size_weight"
        ]
    );
    let unused = "[threadgroup]\nnum_threads=1\ndelete_weight=1\n[end]\n";
    assert_eq!(
        warnings(&format!("desired_util=0.5\n{unused}")),
        [
            "line 5: without agefs the group does nothing",
            "line 4: desired_util has no effect without agefs"
        ]
    );
    let wrong = unused.replace("delete_weight", "delete_wait");
    let error = with_set(&wrong).expect_err("no such key");
    assert_eq!((error.line, error.flaw), (6, Flaw::Key("delete_wait".into())));
}

/// The configuration that a run prints first is complete: it is the same profile.
#[test]
fn a_profile_that_is_shown_reads_as_itself() {
    let random = EVERY_KEY.replace("read_skip = 1", "read_random = 1");
    let by_size = PUBLISHED.replace("num_files=0", "init_size=3g\ncreate_blocksize=1m");
    let by_share = PUBLISHED.replace("num_files=0", "init_util=0.125\nreuse=1");
    for text in [PUBLISHED, EVERY_KEY, LEAST, &random, &by_size, &by_share] {
        let profile = read(text).expect("it is good");
        let shown = profile.to_string();
        let again = read(&shown).unwrap_or_else(|error| panic!("{error} in\n{shown}"));
        assert_eq!(again, Profile { warnings: Vec::new(), ..profile }, "{shown}");
    }
}

#[test]
fn numbered_sections_follow_the_one_before() {
    let profile = read(
        "time=0\n[filesystem0]\nlocation=/a\nnum_files=5\nmin_filesize=1k\n[end0]\n\
         [filesystem1]\nlocation=/b\ninit_util=0.5\n[end1]\n[filesystem]\nlocation=/c\n[end]\n",
    )
    .expect("it is good");
    let [first, second, third] = &profile.filesystems[..] else { panic!("three file systems") };
    assert_eq!(second.sizes, first.sizes);
    assert_eq!(second.start, Start::Utilization(0.5));
    assert_eq!(third.sizes, Sizes::Uniform { min: 0, max: 0 });
}

#[test]
fn counts_that_do_not_agree_are_warned_of() {
    let profile =
        read(&PUBLISHED.replace("num_threadgroups=1", "num_threadgroups=2")).expect("good");
    assert_eq!(profile.warnings, ["num_threadgroups is 2, but 1 are described"]);
}

#[test]
fn the_last_of_repeated_keys_counts() {
    let profile = read(&PUBLISHED.replace("time=600", "time=600\ntime=3")).expect("it is good");
    assert_eq!(profile.time, Duration::from_secs(3));
}

/// The published profile with one line in place of another.
fn with(line: &str, other: &str) -> String {
    assert!(PUBLISHED.contains(line), "{line}");
    PUBLISHED.replace(line, other)
}

#[test]
fn a_flaw_is_reported_with_its_line() {
    let value = |key: &str, value: &str, expected| Flaw::Value {
        key: key.into(),
        value: value.into(),
        expected,
    };
    let needs = |needed, by| Flaw::Needs { needed, by };
    let number = "a whole number below 2^32";
    let bytes = "a size (with k, m or g)";
    for (line, other, place, expected) in [
        ("time=600", "time 600", 4, Flaw::Line("time 600".into())),
        ("time=600", "time=ten", 4, value("time", "ten", number)),
        ("time=600", "time=-1", 4, value("time", "-1", number)),
        ("time=600", "time=4294967296", 4, value("time", "4294967296", number)),
        ("time=600", "tyme=600", 4, Flaw::Key("tyme".into())),
        ("directio=0", "directio=yes", 3, value("directio", "yes", "0 or 1")),
        ("time=600", "fill=ones", 4, value("fill", "ones", "zero, random or pattern")),
        ("[filesystem0]", "[filesystems]", 6, Flaw::Section("filesystems".into())),
        ("[filesystem0]", "[filesystem0", 6, Flaw::Line("[filesystem0".into())),
        ("[filesystem0]", "[stats]", 6, Flaw::Section("stats".into())),
        ("time=600", "[end]", 4, Flaw::End),
        ("location=/mnt/test/", "", 6, Flaw::Missing("location")),
        ("location=/mnt/test/", "location=/a\nclone=/b", 8, Flaw::NoSuchLocation("/b".into())),
        ("num_dirs=0", "size_weight=4k", 9, value("size_weight", "4k", "a size and a weight")),
        ("num_dirs=0", "size_weight 4k 0", 6, needs("a weight above zero", "size_weight")),
        ("num_dirs=0", "init_util=1.5", 9, value("init_util", "1.5", "a number from 0 to 1")),
        ("num_dirs=0", "init_util=nan", 9, value("init_util", "nan", "a number from 0 to 1")),
        ("num_files=0", "num_files=1\ninit_size=1g", 6, Flaw::Conflict("num_files", "init_size")),
        (
            "num_dirs=0",
            "create_blocksize=0",
            9,
            value("create_blocksize", "0", "a size from 1 to 1g"),
        ),
        ("max_filesize=1073741824", "max_filesize=1tb", 10, value("max_filesize", "1tb", bytes)),
        (
            "max_filesize=1073741824",
            "max_filesize=17179869184g",
            10,
            value("max_filesize", "17179869184g", bytes),
        ),
        (
            "max_filesize=1073741824",
            "max_filesize=1",
            6,
            Flaw::Conflict("min_filesize", "a smaller max_filesize"),
        ),
        ("num_dirs=0", "agefs=1", 6, needs("a nested [threadgroup]", "agefs")),
        ("num_threads=128", "num_threads=0", 14, Flaw::Missing("num_threads")),
        ("num_threads=128", "num_threads=1\nbindfs=1", 16, Flaw::NoSuchFileSystem("1".into())),
        ("num_threads=128", "num_threads=1\nread_weight=1", 14, needs("read_blocksize", "read")),
        ("num_threads=128", "num_threads=1\ncopy_weight=1", 16, Flaw::Key("copy_weight".into())),
        (
            "num_threads=128",
            "num_threads=1\nread_random=1\nread_skip=1",
            14,
            Flaw::Conflict("read_random", "read_skip"),
        ),
        ("num_threads=128", "num_threads=1\nread_skip=1", 14, needs("read_skipsize", "read_skip")),
        ("write_blocksize=65536", "", 14, needs("write_blocksize", "create")),
        (
            "create_weight=1",
            "append_fsync_weight=0",
            14,
            needs("a weight above zero", "[threadgroup]"),
        ),
        ("create_weight=1\n[end0]", "create_weight=1\n", 14, Flaw::Open),
    ] {
        assert_eq!(flaw(&with(line, other)), (place, expected), "{other}");
    }
    assert_eq!(flaw("time=1"), (1, Flaw::NoSection("filesystem")));
    let only_files = "time=1\n[filesystem]\nlocation=/a\n[end]";
    assert_eq!(flaw(only_files), (1, Flaw::NoSection("threadgroup")));
    let reads_of_an_ageing_group = EVERY_KEY
        .replace("    delete_weight = 1\n", "    readall_weight = 1\n    read_blocksize = 4k\n");
    assert_eq!(flaw(&reads_of_an_ageing_group).1, Flaw::CannotAge("readall"));
    let aged_and_reused = EVERY_KEY.replace("  agefs = 1\n", "  agefs = 1\n  reuse = 1\n");
    assert_eq!(flaw(&aged_and_reused).1, Flaw::Conflict("reuse", "agefs"));
}

#[test]
fn any_bytes_are_read_or_refused() {
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..2000 {
        let mut text: Vec<u8> = EVERY_KEY.bytes().collect();
        for _ in 0..1 + random.usize(..4) {
            let at = random.usize(..text.len());
            match random.u8(..3) {
                0 => text[at] = random.u8(..),
                1 => drop(text.drain(at..(at + random.usize(..30)).min(text.len()))),
                _ => text.truncate(at.max(1)),
            }
        }
        // Reading ends, whatever the profile contains.
        let _ = read(&String::from_utf8_lossy(&text));
    }
}
