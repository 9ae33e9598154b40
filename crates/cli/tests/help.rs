//! Help texts: what every command prints for `--help`, in the catalogue of texts, and the examples,
//! which run.
//!
//! `EXTANT_BLESS=1 cargo test --workspace --test help` writes them; without the variable the test
//! compares. The messages in the catalogue come from `messages` of xtask's tests.
#![cfg(all(feature = "lab", feature = "mount"))]

use std::path::Path;
use std::process::{Command, Stdio};

use extant_testkit::{CataloguePart, Scratch, is_root, skip, tool};

fn help(words: &[String]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
    let output = command.args(words).arg("--help").output().expect("the program runs");
    assert!(output.status.success(), "{words:?} --help: {}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The commands that a help text lists: indented names between usage and options, of the program in
/// groups, of a command below `Commands:`.
fn subcommands(words: &[String], help: &str) -> Vec<String> {
    let heading = if words.is_empty() { "Usage:" } else { "Commands:" };
    let lines = help.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("Options:"));
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn add(words: &[String], page: &mut String) {
    let text = help(words);
    let rule = "=".repeat(8);
    let title = [&["extant".to_owned()], words].concat().join(" ");
    *page += &format!("\n{rule} {title}\n");
    // Trailing blanks are clap's.
    page.extend(text.lines().map(|line| format!("{}\n", line.trim_end())));
    for name in subcommands(words, &text) {
        add(&[words, &[name]].concat(), page);
    }
}

#[test]
fn the_catalogue_has_every_help_text() {
    let command = "cargo test --workspace --test help";
    let mut page = format!("Help texts of the program.\nWritten by `EXTANT_BLESS=1 {command}`.\n");
    add(&[], &mut page);
    CataloguePart::Help.check(&page, command);
}

/// Makes the files that examples name.
const SETUP: &str = "
mkdir -p rootfs/{etc,home,mnt,usr/bin,var/log} base
echo host > rootfs/etc/hostname
echo root:x:0:0::/:/bin/sh > rootfs/etc/passwd
echo welcome > rootfs/etc/motd
echo line > rootfs/var/log/boot.log
echo file > base/file
tar -C base -cf base.tar .
echo note > notes.txt
mkdir mnt
extant build -q --size 32M -o disk.img rootfs
";

/// Work before and after the examples of some commands.
const AROUND: [(&str, &str, &str); 12] = [
    ("sh", "echo 'mkdir /new' > commands", ""),
    ("quota", "extant tune -O quota disk.img", ""),
    ("diff", "cp disk.img old.img; cp -r rootfs/etc etc-copy", ""),
    ("install-links", "mkdir bin", ""),
    ("fsck", "cp disk.img old.img", ""),
    ("commit", "extant mkdir 'overlay:disk.img?upper=changes:/new'", ""),
    ("undo", "extant tune -z tune.undo -L other disk.img", ""),
    ("mount", "", "extant umount mnt"),
    ("umount", "extant mount disk.img mnt", ""),
    ("shutdown", "extant mount disk.img mnt", "extant umount mnt"),
    ("freeze", "extant mount disk.img mnt", "extant thaw mnt; extant umount mnt"),
    ("thaw", "extant mount disk.img mnt; extant freeze mnt", "extant umount mnt"),
];

/// Commands whose examples take minutes or need what a test has not: results of experiments, Debian
/// packages, a client. They only parse (a test of `help.rs` in the sources).
const PARSED: [&str; 9] = [
    "serve nbd",
    "lab run",
    "lab quick",
    "lab large",
    "lab report",
    "lab summary",
    "lab compare",
    "lab vm prepare",
    "lab vm run",
];

/// The lines of examples at the end of a help text.
fn examples(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines.map(|line| line.trim().to_owned()).collect()
}

/// Runs an example in a directory of its own; what went wrong.
fn run(name: &str, example: &str, bin: &Path) -> Result<(), String> {
    let scratch = Scratch::new();
    let around = AROUND.iter().find(|it| it.0 == name);
    let (before, after) = around.map_or(("", ""), |it| (it.1, it.2));
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["-k", "5", "120", "bash", "-euo", "pipefail", "-c"])
        .arg(format!("{SETUP}\n{before}\n{example}\n{after}"))
        .current_dir(scratch.path())
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{}\n{}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

/// The commands that have no commands of their own, with their help.
fn leaves(words: &[String]) -> Vec<(String, String)> {
    let text = help(words);
    let names = subcommands(words, &text);
    if names.is_empty() {
        return vec![(words.join(" "), text)];
    }
    names.into_iter().flat_map(|name| leaves(&[words, &[name]].concat())).collect()
}

#[test]
fn every_example_of_a_help_text_runs() {
    let bin = Scratch::new();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), bin.join("extant")).expect("a link");
    let can_mount = Path::new("/dev/fuse").exists() && (is_root() || tool("fusermount3").is_some());
    let needs_mount = ["mount", "umount", "shutdown", "freeze", "thaw"];
    let (mut ran, mut failed) = (0, Vec::new());
    for (name, help) in leaves(&[]) {
        let examples = examples(&help);
        assert!(!examples.is_empty(), "{name} has no example");
        let is_skipped = needs_mount.contains(&name.as_str()) && !can_mount;
        if is_skipped || PARSED.contains(&name.as_str()) {
            continue;
        }
        for example in examples {
            ran += 1;
            if let Err(why) = run(&name, &example, bin.path()) {
                failed.push(format!("{example}: {why}"));
            }
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    assert!(ran > 40, "{ran} examples ran");
    if !can_mount {
        skip!("examples that mount: neither /dev/fuse nor fusermount3");
    }
}

#[test]
fn help_is_asked_for_in_each_usual_way() {
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
        let output = command.args(words).output().expect("the program runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
    };
    let of = |words: &[&str]| {
        Some((Some(0), help(&words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())))
    };
    for words in [&["-h"][..], &["help"]] {
        assert_eq!(Some(run(words)), of(&[]), "{words:?}");
    }
    for words in [&["rm", "-h"][..], &["help", "rm"]] {
        assert_eq!(Some(run(words)), of(&["rm"]), "{words:?}");
    }
    for words in [&["mkfs", "-h"][..], &["help", "mkfs"]] {
        assert_eq!(Some(run(words)), of(&["mkfs"]), "{words:?}");
    }
    assert_eq!(Some(run(&["help", "lab", "run"])), of(&["lab", "run"]));
    let (code, _) = run(&["help", "nothing"]);
    assert_eq!(code, Some(2));
}

#[test]
fn an_example_that_fails_is_found() {
    let bin = Scratch::new();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), bin.join("extant")).expect("a link");
    assert_eq!(run("ls", "extant ls disk.img:/etc", bin.path()), Ok(()));
    assert!(run("ls", "extant ls disk.img:/nothing", bin.path()).is_err());
}
