//! Command lines with a likely mistake: refused with what to write, and nothing is changed.

use std::process::{Command, Output};

use extant_testkit::{Scratch, mke2fs, skip, tool};

fn extant(scratch: &Scratch, words: &str) -> Output {
    let extant = env!("CARGO_BIN_EXE_extant");
    let words = words.split(' ');
    Command::new(extant).args(words).current_dir(&**scratch).output().expect("the binary was built")
}

/// A scratch directory with the image `m.img` and the file `file`.
fn scratch() -> Result<Scratch, String> {
    let scratch = Scratch::new();
    let image = scratch.join("m.img");
    mke2fs(["-q", image.to_str().ok_or("scratch paths are UTF-8")?, "8M"])?;
    std::fs::write(scratch.join("file"), "text").map_err(|error| error.to_string())?;
    Ok(scratch)
}

/// Each command line ends with its exit code after its only line, and leaves all files as they are.
fn refused(scratch: &Scratch, cases: &[(&str, i32, &str)]) {
    let files = || {
        let mut names: Vec<_> = std::fs::read_dir(&**scratch)
            .expect("readable")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        names.sort();
        let image = std::fs::read(scratch.join("m.img")).expect("the image");
        (names, image)
    };
    let before = files();
    for (words, code, expected) in cases {
        let output = extant(scratch, words);
        let command = words.split(' ').next().unwrap_or_default();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said, format!("extant {command}: {expected}\n"), "{words}");
        assert_eq!(output.status.code(), Some(*code), "{words}");
        assert!(files() == before, "{words}: something has changed");
    }
}

macro_rules! scratch {
    () => {
        match scratch() {
            Ok(scratch) => scratch,
            Err(why) => skip!("{why}"),
        }
    };
}

#[test]
fn a_change_needs_a_path_in_the_image() {
    let why = "m.img: missing path in the image: write m.img:/ for its root directory";
    let commands = [
        "chmod 755 m.img",
        "chown 1 m.img",
        "rm m.img",
        "rm -r m.img",
        "rmdir m.img",
        "mkdir m.img",
        "mv m.img m.img:/x",
        "mv m.img:/lost+found m.img",
        "ln m.img m.img:/x",
        "ln m.img:/lost+found m.img",
        "ln -s target m.img",
        "touch m.img",
        "setfattr -n user.a -v 1 m.img",
        "truncate -s 1 m.img",
        "mknod m.img p",
        "mkdir --image m.img",
    ];
    refused(&scratch!(), &commands.map(|words| (words, 2, why)));
}

#[test]
fn a_path_in_an_image_begins_with_a_slash() {
    let why = "m.img:a/b: path in an image does not begin with a slash: write m.img:/a/b";
    let commands = [
        "ls m.img:a/b",
        "cat m.img:a/b",
        "find m.img:a/b",
        "chmod 755 m.img:a/b",
        "mkdir m.img:a/b",
        "cp m.img:a/b other",
        "cp file m.img:a/b",
        "cp m.img:/lost+found m.img:a/b",
        "cp m.img:a/b m.img:/x",
    ];
    refused(&scratch!(), &commands.map(|words| (words, 2, why)));
}

#[test]
fn a_missing_image_is_named() {
    refused(
        &scratch!(),
        &[
            ("cp file no.img:/y", 2, "no.img:/y: no file or block device no.img"),
            ("cp no.img:/y file", 2, "no.img:/y: no file or block device no.img"),
            ("cp no.img:/y m.img:/", 2, "no.img:/y: no file or block device no.img"),
            ("cp m.img:/x no.img:/y", 2, "no.img:/y: no file or block device no.img"),
            ("touch no.img:/y", 2, "no.img:/y: no file or block device no.img"),
        ],
    );
}

/// A target of this machine whose name has a colon is written with `./`.
#[test]
fn a_name_with_a_colon_can_be_written() {
    let scratch = scratch!();
    let output = extant(&scratch, "cp -r m.img:/lost+found ./m.img:copy");
    assert!(output.status.success(), "{output:?}");
    assert!(scratch.join("m.img:copy").is_dir());
}

#[test]
fn sizes_that_do_not_fit_are_told_in_the_units_of_the_option() {
    let scratch = scratch!();
    refused(
        &scratch,
        &[
            (
                "mkfs -b 4096 -J size=1 new.img 64M",
                1,
                "the total requested journal size is 1 MiB (256 blocks); it must be between \
                 4 MiB (1024 blocks) and 40000 MiB (10240000 blocks)",
            ),
            (
                "build -o new.img --size device file",
                1,
                "new.img: not a block device or a partition: --size device requires one (use \
                 --size SIZE)",
            ),
        ],
    );
    let Some(sfdisk) = tool("sfdisk") else { skip!("no sfdisk here") };
    let disk = scratch.join("disk.img");
    std::fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let table = scratch.join("table");
    std::fs::write(&table, "label: gpt\nsize=20M, type=L\n").unwrap();
    let mut command = sfdisk.command();
    command.arg("-q").arg(&disk).stdin(std::fs::File::open(&table).unwrap());
    assert!(command.status().is_ok_and(|status| status.success()));
    std::fs::create_dir(scratch.join("tree")).unwrap();
    refused(
        &scratch,
        &[(
            "build -o disk.img#p1 --size 30M tree",
            1,
            "disk.img#p1: the requested size is 31457280 bytes, but the device has 20971520: use \
             --size device",
        )],
    );
}

/// A mistyped name of a disk is not the name of a new file.
#[test]
fn a_part_of_a_missing_file_is_not_made() {
    let scratch = scratch!();
    std::fs::create_dir(scratch.join("tree")).unwrap();
    let missing = "gone.img: No such file or directory";
    refused(
        &scratch,
        &[
            ("build -o gone.img#p1 tree", 1, missing),
            ("build -o gone.img#p1 --size device tree", 1, missing),
            ("build -o gone.img?offset=1M&size=30M tree", 1, missing),
            ("mkfs -q gone.img#p1 20M", 1, missing),
            ("mkfs -q gone.img?offset=1M 20M", 1, missing),
        ],
    );
}

#[test]
fn a_label_that_is_too_long_is_refused() {
    let scratch = scratch!();
    std::fs::create_dir(scratch.join("tree")).unwrap();
    let line = (
        "build -o new.img -L a-label-that-is-long tree",
        2,
        "-L a-label-that-is-long: longer than 16 bytes",
    );
    refused(&scratch, &[line]);
}
