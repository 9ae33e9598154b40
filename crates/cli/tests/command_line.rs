//! The binary as a script meets it: names, exit codes, messages, pipes.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use extant_testkit::{Scratch, skip, tool};

const EXTANT: &str = env!("CARGO_BIN_EXE_extant");

fn extant(words: &[&str]) -> Output {
    Command::new(EXTANT).args(words).output().expect("the binary was built")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    let resize = extant(&["resize", "."]);
    assert_eq!(resize.status.code(), Some(1));
    let said = text(&resize.stderr);
    assert!(said.contains("not an extant mount point"), "{said}");
    // 1 would tell a script that errors were corrected.
    assert_eq!(extant(&["fsck", "-p", "disk.img"]).status.code(), Some(8));
}

#[test]
fn an_unknown_word_is_a_usage_error_on_standard_error() {
    for words in [&["frobnicate"][..], &["ls"], &["ls", "--frobnicate", "disk.img"]] {
        let output = extant(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output.stdout.is_empty(), "{words:?}");
        assert!(text(&output.stderr).contains("Usage:"), "{words:?}");
    }
}

#[test]
fn help_and_version_are_answers() {
    for words in [&["--help"][..], &["ls", "--help"], &["mkfs", "--help"], &["--version"]] {
        let output = extant(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(!output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn a_link_of_a_twins_name_speaks_in_that_name() {
    let scratch = Scratch::new();
    let link = scratch.join("tune2fs");
    symlink(EXTANT, &link).unwrap();
    let output = Command::new(&link).args(["-l", "disk.img"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("tune2fs: "), "{}", text(&output.stderr));
}

#[test]
fn a_link_of_an_unknown_name_names_those_that_are_known() {
    let scratch = Scratch::new();
    let link = scratch.join("mkfs.ext5");
    symlink(EXTANT, &link).unwrap();
    let output = Command::new(&link).args(["disk.img"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("mkfs.ext5: unknown program name (expected extant, mke2fs, "), "{said}");
}

#[test]
fn the_systems_errors_have_no_numbers() {
    let output = extant(&["ls", "no-such.img"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.ends_with(": No such file or directory\n"), "{said}");
}

#[test]
fn an_image_of_something_else_is_named_with_what_to_do() {
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    let name = image.to_str().unwrap();
    let mut bytes = vec![0; 1 << 20];
    for (at, magic, expected) in [
        (
            512,
            &b"EFI PART"[..],
            format!("a GPT partition table: name a partition, such as {name}#p1"),
        ),
        (0, &b"LUKS\xba\xbe"[..], format!("a LUKS container: use crypt:{name}")),
        (0, &b"\x1f\x8b\x08"[..], "gzip data".to_owned()),
    ] {
        bytes.fill(0);
        bytes[at..at + magic.len()].copy_from_slice(magic);
        std::fs::write(&image, &bytes).unwrap();
        for (command, words) in [
            ("ls", vec![name]),
            ("info", vec![name]),
            ("rm", vec!["--image", name, "/file"]),
            ("undelete", vec![name]),
            ("timeline", vec![name]),
            ("recover", vec![name]),
            ("resize", vec![name]),
            ("tune", vec!["-L", "label", name]),
            ("clone", vec![name, "copy.img"]),
            ("mount", vec![name, scratch.path().to_str().unwrap()]),
        ] {
            let output = extant(&[&[command][..], &words].concat());
            let why = "not an ext2, ext3 or ext4 file system";
            let expected = format!("extant {command}: {name}: {why}: contains {expected}\n");
            assert_eq!(text(&output.stderr), expected);
            assert_eq!(output.status.code(), Some(1));
        }
    }
}

#[test]
fn a_reader_that_goes_away_ends_us_without_a_word() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(EXTANT).args(["completions", "bash"]).stdout(writer).output();
    let output = output.unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(141));
}

#[test]
fn every_command_has_a_manual_page() {
    let scratch = Scratch::new();
    let dir = scratch.join("man");
    let made = extant(&["man", dir.to_str().expect("scratch paths are UTF-8")]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let page = std::fs::read_to_string(dir.join("extant.1")).unwrap();
    for command in ["mkfs", "build", "ls", "export", "completions"] {
        assert!(page.contains(&format!("extant\\-{command}(1)")), "{command}");
        let page = std::fs::read_to_string(dir.join(format!("extant-{command}.1"))).unwrap();
        assert!(page.contains(&format!("extant {command}")), "{command}");
    }
    let Some(man) = tool("man") else { skip!("man is not installed") };
    let shown = man.command().args(["--warnings", "-l"]).arg(dir.join("extant-ls.1")).output();
    let shown = shown.unwrap();
    assert!(shown.status.success() && shown.stderr.is_empty(), "{}", text(&shown.stderr));
    let words = text(&shown.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("SYNOPSIS extant ls"), "{words}");
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = extant(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        assert!(text(&output.stdout).contains("export"), "{shell}");
    }
    let Some(bash) = tool("bash") else { skip!("bash is not installed") };
    let script = text(&extant(&["completions", "bash"]).stdout);
    let ask =
        "COMP_WORDS=(extant ex); COMP_CWORD=1; _extant extant ex extant; echo ${COMPREPLY[@]}";
    let asked = bash.command().args(["-c", &format!("{script}\n{ask}")]).output().unwrap();
    assert_eq!(text(&asked.stdout), "export\n", "{}", text(&asked.stderr));
}
