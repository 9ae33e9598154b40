//! df and du of images next to those of coreutils on the kernel's mount, and quotas.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Fixture, extant, quiet, text};
use extant_testkit::{LoopMount, Scratch, TempImage, e2fsck_fn, skip, tool};

macro_rules! made {
    ($made:expr) => {
        match $made {
            Ok(made) => made,
            Err(why) => skip!("{why}"),
        }
    };
}

/// The numbers of the last line of df, without the name and the mount point.
fn figures(output: &std::process::Output, columns: usize) -> Vec<String> {
    quiet(output);
    let said = text(&output.stdout);
    let line = said.lines().last().expect("a line");
    let words = line.split_whitespace().skip(1).take(columns);
    words.map(str::to_owned).collect()
}

fn of_df(mount: &Path, words: &[&str]) -> std::process::Output {
    Command::new("df").args(words).arg(mount).env("LC_ALL", "C").output().expect("df runs")
}

#[test]
fn df_has_the_figures_of_a_mount() {
    let kinds: [&[&str]; 6] = [
        &["-t", "ext4"],
        &["-t", "ext4", "-b", "1024", "-m", "10"],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext3", "-b", "4096", "-m", "0"],
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"],
        &["-t", "ext4", "-O", "^has_journal,^flex_bg", "-b", "2048"],
    ];
    for (seed, kind) in (50..).zip(kinds) {
        let fixture = made!(Fixture::by_kernel(kind, seed, 1024));
        let image = fixture.image.path().display().to_string();
        let options: [&[&str]; 7] =
            [&[], &["-k"], &["-h"], &["-B", "1"], &["-BM"], &["-i"], &["-i", "-h"]];
        let ours = options.map(|words| {
            let words = ["df"].into_iter().chain(words.iter().copied()).chain([&*image]);
            figures(&extant(words), 4)
        });
        let mount = made!(LoopMount::new(&fixture.image.path(), "ro"));
        for (words, ours) in options.iter().zip(ours) {
            assert_eq!(ours, figures(&of_df(mount.path(), words), 4), "{kind:?} {words:?}");
        }
    }
}

/// Changes that are in the journal alone count.
#[test]
fn df_counts_what_a_dirty_journal_has() {
    let image = made!(TempImage::by_mke2fs(64 << 20, &["-t", "ext4"]));
    let dirty = made!(extant_testkit::left_dirty(&image.path(), "", |mount| {
        fs::write(mount.join("file"), vec![7; 3 << 20]).unwrap();
        fs::create_dir(mount.join("dir")).unwrap();
        fs::File::open(mount.join("file")).unwrap().sync_all().unwrap();
    }));
    let name = dirty.path().display().to_string();
    let ours = [figures(&extant(["df", &name]), 4), figures(&extant(["df", "-i", &name]), 4)];
    let mount = made!(LoopMount::new(&dirty.path(), ""));
    assert_eq!(ours[0], figures(&of_df(mount.path(), &[]), 4));
    assert_eq!(ours[1], figures(&of_df(mount.path(), &["-i"]), 4));
}

#[test]
fn df_of_several_images_names_each_and_has_json() {
    let scratch = Scratch::new();
    let (first, second) = (scratch.join("a.img"), scratch.join("long-name.img"));
    for image in [&first, &second] {
        quiet(&extant(["mkfs", "-q", image.to_str().unwrap(), "16M"]));
    }
    let names = [first.to_str().unwrap(), second.to_str().unwrap()];
    let said = extant(["df", "-BM", names[0], names[1]]);
    quiet(&said);
    let said = text(&said.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    let head: Vec<_> = lines[0].split_whitespace().collect();
    assert_eq!(head, ["Image", "1M-blocks", "Used", "Available", "Use%"]);
    for (line, name) in lines[1..].iter().zip(names) {
        assert_eq!(line.split_whitespace().next(), Some(name));
        assert_eq!(line.len(), lines[0].len());
    }
    let json = extant(["df", "--json", names[0]]);
    quiet(&json);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let number = |key: &str| json[0][key].as_u64().unwrap();
    assert_eq!(json[0]["image"], names[0]);
    assert_eq!(number("size"), number("used") + number("free"));
    assert_eq!(number("inodes"), number("inodes_used") + number("inodes_free"));

    // One that is not an image does not hide the others.
    let some = extant(["df", "/etc/passwd", names[0]]);
    assert_eq!(some.status.code(), Some(1));
    assert_eq!(text(&some.stdout).lines().count(), 2);
    let path = extant(["df", &format!("{}:/lost+found", names[0])]);
    assert_eq!(path.status.code(), Some(2), "{path:?}");
}

/// The lines of du, with the part of the paths before the tree taken off.
fn lines(output: &std::process::Output, before: &str) -> BTreeSet<String> {
    quiet(output);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut seen = BTreeSet::new();
    for line in said.split('\n').filter(|line| !line.is_empty()) {
        let Some((size, path)) = line.split_once('\t') else { continue };
        let path = path.strip_prefix(before).unwrap_or(path).trim_end_matches('/');
        assert!(seen.insert(format!("{size} {path}")), "{line} twice");
    }
    seen
}

#[test]
fn du_has_the_figures_of_a_mount() {
    let kinds: [(&[&str], usize); 4] = [
        (&["-t", "ext4", "-b", "4096", "-O", "inline_data,ea_inode"], 4096),
        (&["-t", "ext4", "-b", "1024"], 1024),
        (&["-t", "ext3", "-b", "1024"], 1024),
        (&["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"], 4096),
    ];
    for (seed, (kind, block)) in (60..).zip(kinds) {
        let fixture = made!(Fixture::by_kernel(kind, seed, block));
        let options: [&[&str]; 10] = [
            &[],
            &["-a"],
            &["-s"],
            &["-s", "-h"],
            &["-a", "-h"],
            &["-d", "1"],
            &["-d", "0", "-k"],
            &["-a", "-B", "1"],
            &["-c", "-BM"],
            &["-a", "-b"],
        ];
        let ours = options.map(|words| {
            let inside = fixture.inside("/");
            let words = ["du"].into_iter().chain(words.iter().copied()).chain([&*inside]);
            lines(&extant(words), fixture.inside("").as_str())
        });
        let mount = made!(LoopMount::new(&fixture.image.path(), "ro,noload"));
        for (words, ours) in options.iter().zip(ours) {
            let mut du = Command::new("du");
            let du = du.args(*words).arg(mount.path()).env("LC_ALL", "C").output().expect("du");
            // From 9.2 on coreutils' du counts no contents of directories.
            let is_apart = words.contains(&"-b");
            let theirs = lines(&du, mount.path().to_str().unwrap());
            let only_files = |all: BTreeSet<String>| -> BTreeSet<String> {
                let is_file = |line: &String| {
                    let path = line.split_once(' ').map_or("", |it| it.1);
                    !mount.path().join(path.trim_start_matches('/')).is_dir()
                };
                // A file of several names is counted where the walk comes first.
                let is_settled = |line: &String| !line.contains(" /links/");
                all.into_iter()
                    .filter(|line| is_settled(line) && (!is_apart || is_file(line)))
                    .collect()
            };
            let (ours, theirs) = (only_files(ours), only_files(theirs));
            let apart: Vec<_> = ours.symmetric_difference(&theirs).collect();
            assert!(apart.is_empty(), "{kind:?} {words:?}: {apart:?}");
        }
    }
}

#[test]
fn du_counts_a_file_with_several_names_once() {
    if tool("du").is_none() {
        skip!("no du here");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir_all(source.join("a")).unwrap();
    fs::create_dir_all(source.join("b")).unwrap();
    fs::write(source.join("a/file"), vec![1; 40_000]).unwrap();
    fs::hard_link(source.join("a/file"), source.join("a/same")).unwrap();
    fs::hard_link(source.join("a/file"), source.join("b/other")).unwrap();
    let image = scratch.join("disk.img").display().to_string();
    quiet(&extant(["build", "-q", "-o", &image, source.to_str().unwrap()]));
    let inside = |path: &str| format!("{image}:{path}");
    let said = |words: &[String]| {
        let output = extant(["du".to_owned()].iter().chain(words));
        quiet(&output);
        text(&output.stdout)
    };
    // Directories take 4 KiB; operands in this order, as by du.
    let (a, b) = (inside("/a"), inside("/b"));
    let total = said(&["-c".to_owned(), b.clone(), a.clone(), a.clone()]);
    assert_eq!(total, format!("44\t{b}\n4\t{a}\n48\ttotal\n"));
    let json = said(&["--json".to_owned(), "-s".to_owned(), a.clone()]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json[0]["path"].as_str(), json[0]["bytes"].as_u64()), (Some(&*a), Some(45056)));
    // A file is a line of its own.
    assert_eq!(said(&[inside("/a/file")]), format!("40\t{}\n", inside("/a/file")));
    let missing = extant(["du", &inside("/nothing"), &a]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(text(&missing.stdout), format!("44\t{a}\n"));
}

/// The records of a kind as debugfs lists them: the ID, and the other six columns.
fn listed(image: &Path, kind: &str) -> std::collections::BTreeMap<u32, [u64; 6]> {
    let said = extant_testkit::debugfs(image, &format!("list_quota {kind}")).unwrap();
    let rows = said.lines().filter_map(|line| {
        let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        let numbers = numbers.ok().filter(|it| it.len() == 7)?;
        Some((u32::try_from(numbers[0]).unwrap(), std::array::from_fn(|at| numbers[at + 1])))
    });
    rows.collect()
}

fn json_of(words: &[&str]) -> serde_json::Value {
    let output = extant(["quota", "--json"].iter().chain(words));
    quiet(&output);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// An image of mke2fs with quotas and files of some owners.
fn with_quotas(features: &str) -> Result<(Scratch, TempImage), String> {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir_all(source.join("etc")).unwrap();
    fs::write(source.join("etc/passwd"), "lisa:x:1000:100::/:/bin/sh\n").unwrap();
    fs::write(source.join("etc/group"), "staff:x:50:\n").unwrap();
    fs::write(source.join("large"), vec![5; 300_000]).unwrap();
    let words = ["-t", "ext4", "-O", features, "-d", source.to_str().unwrap()];
    let image = TempImage::by_mke2fs(64 << 20, &words)?;
    // mke2fs does not count the files that it fills a volume with.
    let e2fsck = tool("e2fsck").ok_or("no e2fsck here")?;
    e2fsck.run(["-fy".as_ref(), image.path().as_os_str()]);
    let inside = format!("{}:/large", image.path().display());
    quiet(&extant(["chown", "lisa:staff", &inside]));
    Ok((scratch, image))
}

#[test]
fn quotas_are_reported_as_debugfs_lists_them() {
    if tool("debugfs").is_none() {
        skip!("no debugfs here");
    }
    let (_scratch, image) = made!(with_quotas("quota,project"));
    let name = image.path().display().to_string();
    let json = json_of(&[&name]);
    let kinds: Vec<_> = json.as_array().unwrap().iter().map(|it| it["kind"].clone()).collect();
    assert_eq!(kinds, ["user", "group", "project"]);
    for report in json.as_array().unwrap() {
        assert_eq!(report["block_grace"], 7 * 24 * 60 * 60);
        let expected = listed(&image.path(), report["kind"].as_str().unwrap());
        let number = |record: &serde_json::Value, key: &str| record[key].as_u64().unwrap();
        let found: std::collections::BTreeMap<u32, [u64; 6]> = report["records"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| {
                let limits = |soft, hard| [number(it, soft), number(it, hard)];
                let [block_soft, block_hard] = limits("block_soft", "block_hard");
                let [inode_soft, inode_hard] = limits("inode_soft", "inode_hard");
                let row = [
                    number(it, "space"),
                    block_soft / 1024,
                    block_hard / 1024,
                    number(it, "inodes"),
                    inode_soft,
                    inode_hard,
                ];
                (u32::try_from(number(it, "id")).unwrap(), row)
            })
            .collect();
        assert_eq!(found, expected, "{}", report["kind"]);
    }
    let user = extant(["quota", "-u", &name]);
    quiet(&user);
    let said = text(&user.stdout);
    let used = listed(&image.path(), "user")[&1000][0].div_ceil(1024);
    let line = said.lines().find(|line| line.starts_with("#1000")).expect("a line");
    let row = format!("#1000     -- {used:>7}       0       0              1     0     0       ");
    assert_eq!(line, row);
    assert_eq!(said.lines().next(), Some(&*format!("*** Report for user quotas on device {name}")));
    assert_eq!(said.lines().nth(1), Some("Block grace time: 7days; Inode grace time: 7days"));
}

#[test]
fn limits_are_set_where_e2fsprogs_finds_them() {
    if tool("debugfs").is_none() {
        skip!("no debugfs here");
    }
    let (_scratch, image) = made!(with_quotas("quota,project"));
    let path = image.path();
    let name = path.display().to_string();
    let set = |words: &[&str]| extant([&["quota"], words, &[&*name]].concat());
    let before = listed(&path, "user");
    quiet(&set(&["--set", "user:lisa", "--block-soft", "100K", "--block-hard", "1G"]));
    quiet(&set(&["--set", "user:1000", "--inode-hard", "50"]));
    // An ID without a record, and several at once.
    let many: Vec<String> = (2000..2100).map(|id| format!("user:{id}")).collect();
    let mut words = vec!["--inode-soft", "7", "--set", "group:staff", "--set", "project:3"];
    words.extend(many.iter().flat_map(|it| ["--set", it]));
    quiet(&set(&words));
    e2fsck_fn(&path).unwrap();
    let users = listed(&path, "user");
    let [space, _, _, inodes, _, _] = before[&1000];
    assert_eq!(users[&1000], [space, 100, 1 << 20, inodes, 0, 50]);
    assert_eq!(users[&0], before[&0]);
    assert_eq!(users.len(), before.len() + 100);
    assert!((2000..2100).all(|id| users[&id] == [0, 0, 0, 0, 7, 0]));
    assert_eq!(listed(&path, "group")[&50][4], 7);
    assert_eq!(listed(&path, "project")[&3], [0, 0, 0, 0, 7, 0]);

    // Above the soft limit the grace time runs, and the report says so.
    let said = text(&set(&["-u"]).stdout);
    let line = said.lines().find(|line| line.starts_with("#1000")).expect("a line");
    assert!(line.starts_with("#1000     +-") && line.contains("7days"), "{line}");
    quiet(&set(&["--set", "user:1000", "--block-soft", "0", "--block-hard", "0"]));
    assert_eq!(listed(&path, "user")[&1000][1..3], [0, 0]);
    e2fsck_fn(&path).unwrap();
}

#[test]
fn quotas_that_cannot_be_set_are_refused() {
    let (_scratch, image) = made!(with_quotas("quota"));
    let plain = made!(TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-O", "^quota"]));
    let name = image.path().display().to_string();
    let plain = plain.path().display().to_string();
    let before = fs::read(image.path()).unwrap();
    for (words, code) in [
        (&["--set", "user:1"][..], 2),
        (&["--set", "user", "--inode-soft", "1"], 2),
        (&["--set", "lisa:1", "--inode-soft", "1"], 2),
        (&["--set", "user:4294967295", "--inode-soft", "1"], 2),
        (&["--set", "project:x", "--inode-soft", "1"], 1),
        (&["--set", "project:1", "--inode-soft", "1"], 1),
        (&["--set", "user:1", "--set", "user:unknown", "--inode-soft", "1"], 1),
        (&["--set", "user:1", "--inode-soft", "9", "--inode-hard", "8"], 1),
        (&["--inode-soft", "9"], 2),
        (&["--json", "--set", "user:1", "--inode-soft", "9"], 2),
        (&["--wait"], 2),
        (&["-P"], 1),
    ] {
        let refused = extant([&["quota"], words, &[&*name]].concat());
        assert_eq!(refused.status.code(), Some(code), "{words:?}: {refused:?}");
        assert!(!refused.stderr.is_empty() && refused.stdout.is_empty(), "{words:?}");
    }
    assert_eq!(json_of(&[&name]).as_array().unwrap().len(), 2);
    let after = json_of(&[&name]);
    assert!(!after.to_string().contains("\"id\":1,"), "{after}");
    assert_eq!(before.len(), fs::read(image.path()).unwrap().len());
    for words in [&["quota"][..], &["quota", "--set", "user:1", "--inode-soft", "1"]] {
        let refused = extant([words, &[&*plain]].concat());
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(text(&refused.stderr).contains("tune -O quota"), "{refused:?}");
    }
}
