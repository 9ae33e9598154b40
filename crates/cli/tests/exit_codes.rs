//! The exit codes of docs/src/reference/exit-codes.md: each case of a check next to e2fsck and with
//! its JSON document; wrong command lines.

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{EXTANT, extant, text};
use extant_testkit::{Scratch, TempImage, debugfs, skipped, tool};
use serde_json::{Value, json};

const ARGS: [&str; 4] = ["-t", "ext4", "-b", "1024"];

fn path_of(path: &Path) -> &str {
    path.to_str().expect("scratch paths are UTF-8")
}

/// Runs commands of debugfs that write.
fn spoil(image: &Path, commands: &[&str]) {
    for command in commands {
        let output = tool("debugfs").expect("asked for").run(["-w", "-R", command, path_of(image)]);
        assert!(output.status.success(), "{command}: {output:?}");
    }
}

/// A volume with the files a (inode 12, empty) and b (13), and damages.
fn volume(commands: &[&str]) -> TempImage {
    let image = TempImage::by_mke2fs(16 << 20, &ARGS).expect("mke2fs makes it");
    let content = concat!("write ", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml b");
    spoil(&image.path(), &["write /dev/null a", content]);
    let file = std::fs::File::options().write(true).open(image.path()).expect("it opens");
    for command in commands {
        match *command {
            "cut" => file.set_len(12 << 20).expect("it becomes shorter"),
            command => spoil(&image.path(), &[command]),
        }
    }
    image
}

fn is_ready() -> bool {
    ["mke2fs", "debugfs", "e2fsck"].into_iter().all(|name| tool(name).is_some())
}

/// A wrong link count is safe to repair; a file without a name is not.
const WRONG_COUNT: &str = "sif a links_count 5";
const NAMELESS: &str = "unlink b";

/// Damages, options, and the exit code, which is e2fsck's too.
const CASES: [(&[&str], &[&str], i32); 11] = [
    (&[], &["-n"], 0),
    (&[], &["-fy"], 0),
    (&[WRONG_COUNT], &["-fn"], 4),
    (&[WRONG_COUNT], &["-fp"], 1),
    (&[WRONG_COUNT], &["-fy"], 1),
    // Repaired in part.
    (&[WRONG_COUNT, NAMELESS], &["-fp"], 4),
    (&[WRONG_COUNT, NAMELESS], &["-fy"], 1),
    (&["cut"], &["-fp"], 4),
    (&["cut"], &["-fy"], 8),
    (&[], &["-n", "-p"], 8),
    (&[], &["-f"], 8), // no terminal
];

#[test]
fn a_check_ends_as_with_e2fsck_and_its_document_says_why() {
    if !is_ready() {
        return skipped("e2fsprogs are needed");
    }
    let e2fsck = tool("e2fsck").expect("asked for");
    for (damages, options, code) in CASES {
        let case = format!("{damages:?} {options:?}");
        let run = |program: &mut Command| {
            let image = volume(damages);
            program.args(options).arg(image.path()).stdin(Stdio::null());
            program.output().expect("it starts")
        };
        let theirs = run(&mut e2fsck.command());
        assert_eq!(theirs.status.code(), Some(code), "{case}: {theirs:?}");
        let ours = run(Command::new(EXTANT).arg("fsck"));
        assert_eq!(ours.status.code(), Some(code), "{case}: {ours:?}");

        let with_json = run(Command::new(EXTANT).args(["fsck", "--json"]));
        let Ok(document) = serde_json::from_slice::<Value>(&with_json.stdout) else {
            let is_refused = matches!(options, ["-n", "-p"] | ["-f"]);
            assert!(is_refused, "{case}: {with_json:?}");
            continue;
        };
        assert_eq!(with_json.status.code(), Some(code), "{case}: {with_json:?}");
        assert_eq!(document["exit_code"], code, "{case}: {document:#}");
        let findings = document["findings"].as_array().expect("a list");
        let any =
            |is_done: bool| findings.iter().any(|it| it["counts"] == true && it["done"] == is_done);
        assert_eq!((any(true), any(false)), (code == 1, code == 4), "{case}: {document:#}");
        let is_modified = findings.iter().any(|it| it["done"] == true);
        assert_eq!(document["modified"], is_modified, "{case}: {document:#}");
    }
}

/// The repairs that preening made before it stopped are told.
#[test]
fn a_check_that_stopped_says_what_it_has_changed() {
    if !is_ready() {
        return skipped("e2fsprogs are needed");
    }
    let image = volume(&[WRONG_COUNT, NAMELESS]);
    let output = extant(["fsck", "-fp", "--json", path_of(&image.path())]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((&document["finished"], &document["modified"]), (&false.into(), &true.into()));
    let findings = document["findings"].as_array().expect("a list");
    let told: Vec<_> =
        findings.iter().map(|it| (&it["code"], &it["done"], &it["counts"])).collect();
    let (repaired, left) = (json!("LinkCountWrong"), json!("UnattachedInode"));
    let (yes, no) = (json!(true), json!(false));
    assert_eq!(told, [(&repaired, &yes, &no), (&left, &no, &yes)], "{document:#}");
}

/// Runs a check at a terminal, with all answers typed.
fn at_terminal(image: &Path, answers: &str) -> (Option<i32>, String) {
    let command = format!("{EXTANT} fsck -f -C 9 {} 9>/dev/null", path_of(image));
    let mut script = tool("script")
        .expect("asked for")
        .command()
        .args(["-qec", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut typed = script.stdin.take().expect("a pipe");
    typed.write_all(answers.as_bytes()).expect("it is read");
    let output = script.wait_with_output().expect("it ends");
    drop(typed);
    (output.status.code(), text(&output.stdout))
}

/// Repairs are followed by another round; it does not repeat a question that was answered with no.
/// Errors are left then, whatever was corrected.
#[test]
fn a_question_answered_with_no_is_not_asked_again() {
    if !is_ready() || tool("script").is_none() {
        return skipped("e2fsprogs and script are needed");
    }
    let free = volume(&[]);
    let free = debugfs(&free.path(), "ffb 1").expect("a block");
    let free = free.split_whitespace().last().expect("a number").to_owned();
    let image = volume(&[WRONG_COUNT, &format!("setb {free} 3")]);
    let (code, said) = at_terminal(&image.path(), "ynnnnnnn");
    assert_eq!(code, Some(4), "{said}");
    let number = |text: &str| said.matches(text).count();
    assert_eq!(number("Inode 12 ref count is 5, should be 1."), 1, "{said}");
    assert_eq!(number("Block bitmap differences of group 0"), 1, "{said}");
    assert_eq!(number("Free blocks count wrong for group #0"), 0, "{said}");
}

#[test]
fn a_command_line_that_is_wrong_has_its_code() {
    let scratch = Scratch::new();
    let Ok(image) = TempImage::by_mke2fs(4 << 20, &ARGS) else { return skipped("mke2fs") };
    let image = image.path();
    let image = path_of(&image);
    let tune: [&[&str]; 13] = [
        &["-U", "xyz"],
        &["-O", "bogus"],
        &["-Q", "bogus"],
        &["-E", "bogus"],
        &["-o", "bogus"],
        &["-c", "x"],
        &["-m", "90"],
        &["-I", "3"],
        &["-J", "bogus"],
        &["-J", "size=x"],
        &["-T", "x"],
        &["-E", "clear_mmp"],
        &[],
    ];
    let by_link = scratch.join("tune2fs");
    std::os::unix::fs::symlink(EXTANT, &by_link).expect("a link");
    for words in tune {
        let output = extant(["tune"].iter().chain(words).chain([&image]));
        assert_eq!(output.status.code(), Some(2), "tune {words:?}: {output:?}");
        let output = Command::new(&by_link).args(words).arg(image).output().expect("it starts");
        assert_eq!(output.status.code(), Some(1), "tune2fs {words:?}: {output:?}");
    }
    let inside = format!("{image}:/a");
    let others: [(&[&str], i32); 12] = [
        (&["mkfs", "-b", "3", image], 1),
        (&["fsck", "-Z", image], 16),
        (&["fsck", "-E", "bogus", image], 16),
        (&["fsck"], 16),
        (&["fsck", "--json", image], 16),
        (&["truncate", "-s", "zz", &inside], 2),
        (&["chmod", "zz", &inside], 2),
        (&["touch", "-d", "bogus", &inside], 2),
        (&["ls"], 2),
        (&["export", "-Z", image], 2),
        (&["undo", image], 2),
        (&["bogus"], 2),
    ];
    for (words, code) in others {
        let output = extant(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
    }
    // A change that this volume does not admit is another failure.
    assert_eq!(extant(["tune", "-O", "has_journal", "-j", image]).status.code(), Some(1));
}

/// A disk with an MBR: its first and third partition hold volumes.
fn disk(scratch: &Scratch) -> PathBuf {
    const MIB: usize = 1 << 20;
    let mut bytes = vec![0; 40 * MIB];
    for (number, start) in [(1, 1), (2, 11), (3, 21)] {
        let entry = &mut bytes[446 + (number - 1) * 16..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&((start * MIB / 512) as u32).to_le_bytes());
        entry[12..16].copy_from_slice(&((8 * MIB / 512) as u32).to_le_bytes());
        if number != 2 {
            let volume = TempImage::by_mke2fs(8 << 20, &ARGS).expect("mke2fs makes it");
            let volume = std::fs::read(volume.path()).expect("readable");
            bytes[start * MIB..][..volume.len()].copy_from_slice(&volume);
        }
    }
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    let disk = scratch.join("disk");
    std::fs::write(&disk, bytes).expect("room");
    disk
}

#[test]
fn a_whole_disk_is_refused_with_the_names_of_its_volumes() {
    let Some(e2fsck) = tool("e2fsck").filter(|_| tool("mke2fs").is_some()) else {
        return skipped("e2fsprogs are needed");
    };
    let scratch = Scratch::new();
    let disk = disk(&scratch);
    let before = std::fs::read(&disk).expect("readable");
    let name = path_of(&disk);
    for how in ["-fn", "-fp", "-fy"] {
        assert_eq!(e2fsck.run([how, name]).status.code(), Some(8), "{how}");
        let output = extant(["fsck", how, name]);
        let expected = format!(
            "extant fsck: {name}: not an ext2, ext3 or ext4 file system: contains a DOS partition \
             table: name a partition with an ext file system: {name}#p1, {name}#p3\n"
        );
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(8), expected), "{how}");
        assert!(std::fs::read(&disk).expect("readable") == before, "{how} wrote");
    }
    let output = extant(["fsck", "-n", "--json", name]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((&document["finished"], &document["exit_code"]), (&false.into(), &8.into()));
    assert!(document["error"].as_str().is_some_and(|why| why.contains("#p1")), "{document}");
    // The number of the partition comes before the options of the whole.
    let output = extant(["ls", &format!("overlay:{name}?upper={name}.changes")]);
    let expected = format!("overlay:{name}#p1?upper={name}.changes, overlay:{name}#p3?upper=");
    assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
    let first = format!("overlay:{name}#p1?upper={name}.changes");
    assert_eq!(extant(["ls", &first]).status.code(), Some(0));
    assert_eq!(extant(["fsck", "-fn", &format!("{name}#p3")]).status.code(), Some(0));
}

/// A check reads at many places: a stream must be saved first.
#[test]
fn a_pipe_is_refused_with_what_to_do() {
    let scratch = Scratch::new();
    let fifo = scratch.join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    if !made.is_ok_and(|status| status.success()) {
        return skipped("mkfifo");
    }
    for (name, words) in [(path_of(&fifo), "-n"), (path_of(&fifo), "-y"), ("/dev/stdin", "-n")] {
        let output = Command::new(EXTANT)
            .args(["fsck", words, name])
            .stdin(std::io::pipe().expect("a pipe").0)
            .output()
            .expect("it starts");
        let expected = format!(
            "extant fsck: {name}: not a regular file or block device: save the image to a file \
             first\n"
        );
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(8), expected));
    }
}
