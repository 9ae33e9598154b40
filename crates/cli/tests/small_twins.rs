//! Small commands of e2fsprogs by our links and by theirs: the same exit code and output.

use extant_testkit::{Scratch, skip, tool};
use std::path::Path;
use std::process::{Command, Output};

fn ours(scratch: &Scratch, name: &str, words: &[&str]) -> Output {
    let link = scratch.join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &link).unwrap();
    }
    Command::new(link).args(words).output().unwrap()
}

fn make(scratch: &Scratch, image: &Path, features: &str) {
    let path = image.to_str().unwrap();
    let words = ["-q", "-t", "ext4", "-O", features, "-L", "first", path, "16M"];
    let made = ours(scratch, "mke2fs", &words);
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn e2label_shows_and_changes_the_label_as_theirs_does() {
    let Some(e2label) = tool("e2label") else { skip!("e2label is not installed") };
    let scratch = Scratch::new();
    let (a, b) = (scratch.join("ours.img"), scratch.join("theirs.img"));
    make(&scratch, &a, "extent");
    std::fs::copy(&a, &b).unwrap();
    let rows: [&[&str]; 8] = [
        &[],
        &["second"],
        &[],
        &["a label of more than 16 bytes"],
        &[],
        &[""],
        &[],
        &["two", "labels"],
    ];
    for words in rows {
        let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
        let ours = ours(&scratch, "e2label", &[&[a], words].concat());
        let theirs = e2label.run([&[b], words].concat());
        assert_eq!(ours.status.code(), theirs.status.code(), "{words:?}: {ours:?}");
        assert_eq!(ours.stdout, theirs.stdout, "{words:?}");
    }
    let none = ours(&scratch, "e2label", &[scratch.join("none").to_str().unwrap()]);
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    // Theirs takes it for an option.
    let a = a.to_str().unwrap();
    let set = ours(&scratch, "e2label", &["--", a, "-x"]);
    assert_eq!(set.status.code(), Some(0), "{set:?}");
    assert_eq!(ours(&scratch, "e2label", &[a]).stdout, b"-x\n");
}

#[test]
fn e2mmpstatus_tells_what_theirs_tells() {
    let Some(e2mmpstatus) = tool("e2mmpstatus") else { skip!("e2mmpstatus is not installed") };
    let scratch = Scratch::new();
    let (with, without) = (scratch.join("with.img"), scratch.join("without.img"));
    make(&scratch, &with, "mmp");
    make(&scratch, &without, "^mmp");
    let (with, without) = (with.to_str().unwrap(), without.to_str().unwrap());
    let none = scratch.join("none");
    let rows: [&[&str]; 4] = [&[with], &["-i", with], &[without], &[none.to_str().unwrap()]];
    for words in rows {
        let ours = ours(&scratch, "e2mmpstatus", words);
        let theirs = e2mmpstatus.run(words);
        assert_eq!(ours.status.code(), theirs.status.code(), "{words:?}: {ours:?}");
        if ours.status.code() != Some(0) {
            assert!(!ours.stderr.is_empty(), "{words:?}");
            continue;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&ours.stdout), text(&theirs.stdout), "{words:?}");
    }
}

#[test]
fn e2freefrag_prints_what_theirs_prints() {
    let Some(e2freefrag) = tool("e2freefrag") else { skip!("e2freefrag is not installed") };
    let scratch = Scratch::new();
    let kinds: [&[&str]; 5] = [
        &["-b", "1024"],
        &["-b", "2048", "-O", "^sparse_super,^resize_inode"],
        &["-b", "4096"],
        &["-b", "1024", "-O", "bigalloc", "-C", "8192"],
        &["-b", "1024", "-t", "ext2", "-g", "2048"],
    ];
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let top = |report: &str| report.lines().take(4).map(str::to_owned).collect::<Vec<_>>();
    let compare = |words: &[&str]| {
        let ours = ours(&scratch, "e2freefrag", words);
        let theirs = e2freefrag.run(words);
        assert_eq!(ours.status.code(), theirs.status.code(), "{words:?}: {ours:?}");
        let (ours_printed, printed) = (text(&ours.stdout), text(&theirs.stdout));
        // Theirs passes over most free extents of a volume with clusters.
        match words.iter().any(|word| word.ends_with("clusters.img")) {
            true => assert_eq!(top(&ours_printed), top(&printed), "{words:?}"),
            false => assert_eq!(ours_printed, printed, "{words:?}"),
        }
        assert_eq!(ours.stderr.is_empty(), theirs.stderr.is_empty(), "{words:?}: {ours:?}");
    };
    for (at, kind) in kinds.iter().enumerate() {
        let has_clusters = kind.contains(&"bigalloc");
        let suffix = if has_clusters { "-clusters" } else { "" };
        let image = scratch.join(format!("{at}{suffix}.img"));
        let path = image.to_str().unwrap();
        let made =
            ours(&scratch, "mke2fs", &[&["-q", "-t", "ext4"], *kind, &[path, "40M"]].concat());
        assert!(made.status.success(), "{made:?}");
        // Files of several sizes, every other one removed.
        let file = scratch.join("file");
        for round in 0..24_usize {
            std::fs::write(&file, vec![7; 1000 + (1_usize << (round % 12)) * 100]).unwrap();
            let target = format!("{path}:/{round}");
            let copied = ours(&scratch, "extant", &["cp", file.to_str().unwrap(), &target]);
            assert!(copied.status.success(), "{copied:?}");
        }
        for round in (0..24).step_by(2) {
            let removed = ours(&scratch, "extant", &["rm", &format!("{path}:/{round}")]);
            assert!(removed.status.success(), "{removed:?}");
        }
        for chunk in ["0", "1", "4", "0x40", "1024", "3", "-4", "x"] {
            compare(&["-c", chunk, path]);
        }
        compare(&[path]);
        compare(&[path, "other"]);
        if has_clusters {
            // All that is free is in the histogram.
            let report = text(&ours(&scratch, "e2freefrag", &[path]).stdout);
            let (head, rows) = report.split_once("Percent\n").unwrap();
            let blocks = rows.lines().map(|row| row.split_whitespace().nth(4).unwrap());
            let sum: u64 = blocks.map(|blocks| blocks.parse::<u64>().unwrap()).sum();
            assert!(head.contains(&format!("Free blocks: {sum} (")), "{report}");
        }
    }
    let none = scratch.join("none");
    compare(&[none.to_str().unwrap()]);
    let image = scratch.join("0.img");
    let path = image.to_str().unwrap();
    for words in [&["-h"][..], &["-h", path], &[], &["-c"], &["-z", path], &["/dev/null"]] {
        compare(words);
    }
}

#[test]
fn links_are_made_of_all_names_and_replace_nothing_else() {
    let scratch = Scratch::new();
    let dir = scratch.join("bin");
    std::fs::create_dir(&dir).unwrap();
    let install = |words: &[&str]| {
        ours(&scratch, "extant", &[&["install-links"], words, &[dir.to_str().unwrap()]].concat())
    };
    let made = install(&[]);
    assert!(made.status.success() && made.stderr.is_empty(), "{made:?}");
    // An unknown name lists all that are known.
    let unknown = ours(&scratch, "mkfs.xfs", &["disk.img"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    let known = said.split("(expected extant, ").nth(1).and_then(|it| it.split(')').next());
    let mut known: Vec<_> = known.expect("a list").split(", ").map(str::to_owned).collect();
    if !cfg!(feature = "mount") {
        known.retain(|name| !name.contains("mount"));
    }
    let names = || {
        let names = std::fs::read_dir(&dir).unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<_> = names.map(|it| it.into_string().unwrap()).collect();
        names.sort();
        names
    };
    known.sort();
    assert_eq!(names(), known);
    let program = std::fs::canonicalize(env!("CARGO_BIN_EXE_extant")).unwrap();
    for name in names() {
        assert_eq!(std::fs::canonicalize(dir.join(&name)).unwrap(), program, "{name}");
    }
    let version = Command::new(dir.join("dumpe2fs")).arg("-V").output().unwrap();
    assert!(String::from_utf8_lossy(&version.stderr).starts_with("dumpe2fs "), "{version:?}");
    // Again, and over what is not ours.
    assert!(install(&[]).status.success());
    for name in ["mke2fs", "e2fsck", "lsattr"] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    std::fs::write(dir.join("mke2fs"), "theirs").unwrap();
    std::os::unix::fs::symlink("/bin/true", dir.join("e2fsck")).unwrap();
    let refused = install(&[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("/mke2fs: ") && lines[1].contains("/e2fsck: "));
    assert_eq!(std::fs::read(dir.join("mke2fs")).unwrap(), b"theirs");
    assert!(!dir.join("lsattr").exists(), "a refused name means that no link is made");
    assert!(install(&["--force"]).status.success());
    assert_eq!(names(), known);
    // A directory is kept in any case.
    std::fs::remove_file(dir.join("mke2fs")).unwrap();
    std::fs::create_dir(dir.join("mke2fs")).unwrap();
    assert_eq!(install(&["--force"]).status.code(), Some(1));
    assert!(dir.join("mke2fs").is_dir());
    let none = ours(&scratch, "extant", &["install-links", scratch.join("none").to_str().unwrap()]);
    assert_eq!(none.status.code(), Some(1), "{none:?}");
}
