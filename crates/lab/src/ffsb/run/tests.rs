use super::super::profile::PUBLISHED;
use super::*;
use crate::files::Mounted;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Threads of [`every_operation`].
const THREADS: u64 = 4;

/// A profile whose every operation is drawn, on files that are large enough for each.
fn every_operation(location: &str) -> String {
    let weights: String = super::super::profile::Operation::ALL
        .into_iter()
        .map(|operation| format!("{}_weight = 3\n", operation.name()))
        .collect();
    format!(
        "time = 1\nseed = 11\nfill = pattern\n\
         [filesystem]\nlocation = {location}\nnum_files = 40\nnum_dirs = 3\n\
         min_filesize = 16k\nmax_filesize = 40k\n[end]\n\
         [threadgroup]\nnum_threads = {THREADS}\nread_size = 8k\nread_blocksize = 4k\nread_random = 1\n\
         write_size = 6k\nwrite_blocksize = 4k\n{weights}\
         [stats]\nenable_stats = 1\nenable_range = 1\nmsec_range 0 1\nmsec_range 1 100000\n[end]\n\
         [end]\n"
    )
}

/// The counts agree with each other, for all operations.
fn assert_consistent(outcome: &TrialResult) {
    let measured = outcome.measured.as_ref().expect("it was measured");
    assert!(measured.elapsed_seconds >= 1.0);
    let [group] = &measured.groups[..] else { panic!("one group") };
    let done = &group.operations;
    assert_eq!(done.len(), 15, "{done:?}");
    let count = |name: &str| done[name];
    for name in ["delete", "metaop", "createdir", "stat", "open_close"] {
        let counts = count(name);
        assert_eq!(counts.transactions, counts.operations, "{name}");
        assert_eq!((counts.read_bytes, counts.written_bytes), (0, 0), "{name}");
    }
    assert_eq!(count("read").transactions, 2 * count("read").operations);
    assert_eq!(count("read").read_bytes, 8192 * count("read").operations);
    for name in ["write", "append", "write_fsync", "append_fsync"] {
        // 4 KiB and a tail.
        assert_eq!(count(name).transactions, 2 * count(name).operations, "{name}");
        assert_eq!(count(name).written_bytes, 6144 * count(name).operations, "{name}");
    }
    let calls = group.calls.as_ref().expect("they were timed");
    let times = |name: &str| calls[name].count;
    assert_eq!(times("unlink"), count("delete").operations);
    assert_eq!(times("rename"), count("metaop").operations);
    // Each thread may be at one that the end of the run cuts off.
    let metaops = count("metaop").operations..=count("metaop").operations + THREADS;
    let made = times("mkdir") - count("createdir").operations;
    assert!(made.is_multiple_of(2) && metaops.contains(&(made / 2)), "{made} of {metaops:?}");
    assert_eq!(times("create"), count("create").operations + count("create_fsync").operations);
    for times in calls.values() {
        assert!(times.min <= times.max && times.total <= times.max * times.count as f64 + 1e-9);
        assert_eq!(times.in_ranges.iter().sum::<u64>(), times.count);
    }
}

fn names_below(files: &dyn Files, dir: &Path, found: &mut BTreeMap<PathBuf, u64>) {
    for (name, is_dir) in files.list(dir).expect("it is there") {
        let path = dir.join(name);
        if is_dir {
            names_below(files, &path, found);
        } else {
            found.insert(path.clone(), files.size(&path).expect("it is there"));
        }
    }
}

#[test]
fn every_operation_runs_on_what_is_mounted() {
    let scratch = tempfile::tempdir().expect("scratch space");
    let location = scratch.path().to_str().expect("UTF-8");
    let profile: Profile = every_operation(location).parse().expect("it is good");
    let outcome = run(&profile, &Mounted).expect("it runs");
    assert_consistent(&outcome);
    // The remaining files are those that were made and not removed.
    let group = &outcome.measured.expect("it was measured").groups[0];
    let mut found = BTreeMap::new();
    names_below(&Mounted, &scratch.path().join("data"), &mut found);
    let count = |name: &str| group.operations[name].operations;
    let left = 40 + count("create") + count("create_fsync") - count("delete");
    assert_eq!(found.len() as u64, left);
    let metas = Mounted.list(&scratch.path().join("meta")).expect("it is there").len() as u64;
    let metaops = count("metaop")..=count("metaop") + 2 * THREADS;
    assert!(metaops.contains(&metas), "{metas} of {metaops:?}");
}

#[test]
fn every_operation_runs_on_a_volume_in_process() {
    // More than a fast machine fills in a second.
    let device = extant::MemoryDevice::new(2 << 30);
    extant::format(&device, ["-t", "ext4"]).expect("it is formatted");
    let fs = extant::FileSystem::on_device(Arc::new(device)).expect("it opens");
    let profile: Profile = every_operation("/").parse().expect("it is good");
    assert_consistent(&run(&profile, &fs).expect("it runs"));
    fs.close().expect("it ends well");
}

#[test]
fn a_file_set_is_made_as_described_and_used_again() {
    let scratch = tempfile::tempdir().expect("scratch space");
    let location = scratch.path().display();
    let text = format!(
        "time=0\nseed=1\n[filesystem]\nlocation={location}\nnum_files=30\nnum_dirs=2\nreuse=1\n\
         size_weight 1k 1\nsize_weight 2k 3\n[end]\n"
    );
    let profile: Profile = text.parse().expect("it is good");
    let made = || {
        assert!(run(&profile, &Mounted).expect("it runs").measured.is_none());
        let mut found = BTreeMap::new();
        names_below(&Mounted, scratch.path(), &mut found);
        found
    };
    let first = made();
    assert_eq!(first.len(), 30);
    assert!(first.values().all(|size| [1024, 2048].contains(size)));
    let mark = first.keys().next().expect("there are files");
    std::fs::write(mark, [7; 1024]).expect("it is there");
    let is_marked = || std::fs::read(mark).expect("it is there") == [7; 1024];
    made();
    assert!(is_marked(), "the files are used again");
    // One of another size, and they are all made again.
    std::fs::write(first.keys().last().expect("there are files"), [7; 5]).expect("it is there");
    assert_eq!(made().len(), 30);
    assert!(!is_marked());
}

#[test]
fn a_volume_is_aged_until_so_much_is_in_use() {
    let device = extant::MemoryDevice::new(512 << 20);
    extant::format(&device, ["-t", "ext4"]).expect("it is formatted");
    let fs = extant::FileSystem::on_device(Arc::new(device)).expect("it opens");
    let text = "time=0\nseed=5\n[filesystem]\nlocation=/\nmin_filesize=64k\nmax_filesize=1m\n\
                agefs=1\ndesired_util=0.2\n\
                [threadgroup]\nnum_threads=2\nwrite_size=64k\nwrite_blocksize=16k\n\
                create_weight=10\nappend_weight=10\ndelete_weight=1\n[end]\n[end]\n";
    let profile: Profile = text.parse().expect("it is good");
    run(&profile, &fs).expect("it runs");
    // One thread saw 0.2; the other may have deleted a file of at most 1 MiB since, and both end.
    let used = fs.space(Path::new("/")).expect("it answers").utilization();
    assert!(used >= 0.19, "{used}");
    let mut found = BTreeMap::new();
    names_below(&fs, Path::new("/data"), &mut found);
    let is_fill =
        |path: &PathBuf| path.to_str().is_some_and(|path| path.starts_with("/data/fillfile"));
    assert!(found.len() > 5 && found.keys().all(is_fill), "{found:?}");
    fs.close().expect("it ends well");
}

#[test]
fn a_run_that_cannot_go_on_says_why() {
    let scratch = tempfile::tempdir().expect("scratch space");
    let location = scratch.path().to_str().expect("UTF-8");
    let error = |text: &str| {
        let profile: Profile = text.parse().expect("it is good");
        run(&profile, &Mounted).expect_err("it cannot").to_string()
    };
    let nowhere = error(&PUBLISHED.replace("/mnt/test/", "/no/such/place"));
    assert!(nowhere.contains("/no/such/place"), "{nowhere}");
    let set = format!(
        "time=60\n[filesystem]\nlocation={location}\nnum_files=2\nmin_filesize=1k\n[end]\n"
    );
    let empties = "[threadgroup]\nnum_threads=3\ndelete_weight=1\n[end]\n";
    let empty = error(&format!("{set}{empties}"));
    assert!(empty.starts_with("delete: no file is left"), "{empty}");
    let large =
        "[threadgroup]\nnum_threads=1\nread_weight=1\nread_size=4k\nread_blocksize=4k\n[end]\n";
    let small = error(&format!("{set}{large}"));
    assert!(small.contains("read needs 4096 bytes") && small.contains("has 1024"), "{small}");
    let callout = error(&format!("callout=exit 3\n{set}{empties}"));
    assert!(callout.contains("\"exit 3\"") && callout.contains('3'), "{callout}");
}
