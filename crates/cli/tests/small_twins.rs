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
