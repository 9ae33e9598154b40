//! A volume whose primary superblock is lost, read by a backup: `IMAGE?sb=N`.

mod common;

use std::os::unix::fs::FileExt;

use common::{extant, quiet, text};
use extant_testkit::{Scratch, TempImage, skip};

/// A volume with the file `/dir/file`, its first bytes overwritten.
fn lost(args: &[&str], bytes: usize) -> Result<TempImage, String> {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    std::fs::create_dir_all(source.join("dir")).map_err(|error| error.to_string())?;
    std::fs::write(source.join("dir/file"), "content\n").map_err(|error| error.to_string())?;
    let source = source.to_str().ok_or("scratch paths are UTF-8")?;
    let image = TempImage::by_mke2fs(512 << 20, &[args, &["-d", source]].concat())?;
    let file = std::fs::OpenOptions::new().write(true).open(image.path());
    let file = file.map_err(|error| error.to_string())?;
    file.write_all_at(&vec![0; bytes], 0).map_err(|error| error.to_string())?;
    Ok(image)
}

macro_rules! lost {
    ($args:expr, $bytes:expr) => {
        match lost($args, $bytes) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        }
    };
}

#[test]
fn the_message_names_the_backup_and_the_backup_is_read_by_every_command() {
    let cases = [
        // The descriptors after the superblock are lost too.
        (&["-t", "ext4", "-b", "4096"][..], 8192, 32768),
        (&["-t", "ext4", "-b", "1024"], 2048, 8193),
        (&["-t", "ext2", "-b", "2048"], 4096, 16384),
        (&["-t", "ext4", "-b", "4096", "-O", "sparse_super2"], 4096, 32768),
    ];
    for (args, bytes, block) in cases {
        let image = lost!(args, bytes);
        let name = image.path().display().to_string();
        let by_backup = format!("{name}?sb={block}");
        for command in ["ls", "find", "tree", "export", "info", "map", "stat", "frag"] {
            let refused = extant([command, &*name]);
            let expected = format!(
                "extant {command}: {name}: bad superblock: magic is 0x0, expected 0xef53: \
                 try {by_backup}\n"
            );
            assert_eq!((refused.status.code(), text(&refused.stderr)), (Some(1), expected));
        }
        let said = |words: &[&str]| {
            let output = extant(words);
            quiet(&output);
            text(&output.stdout)
        };
        assert_eq!(said(&["ls", &format!("{by_backup}:/")]), "dir\nlost+found\n");
        assert_eq!(said(&["cat", &format!("{by_backup}:/dir/file")]), "content\n");
        assert!(said(&["find", &by_backup, "-name", "file"]).ends_with("/dir/file\n"));
        assert!(said(&["tree", &format!("{by_backup}:/dir")]).contains("── file\n"));
        assert!(said(&["stat", &format!("{by_backup}:/dir/file")]).contains("Size: 8"));
        assert!(said(&["frag", &format!("{by_backup}:/dir/file")]).contains("1 extent found"));
        assert!(said(&["map", "--json", &by_backup]).contains("\"unreadable\": 0"));
        assert!(said(&["info", "--json", &by_backup]).contains("\"block_size\""));
        let scratch = Scratch::new();
        let (copy, archive) = (scratch.join("copy"), scratch.join("all.tar"));
        said(&["cp", "-r", &format!("{by_backup}:/dir"), copy.to_str().unwrap()]);
        assert_eq!(std::fs::read_to_string(copy.join("file")).unwrap(), "content\n");
        said(&["export", &by_backup, "-o", archive.to_str().unwrap()]);
        assert!(archive.metadata().unwrap().len() > 1024);
    }
}

#[test]
fn a_backup_is_for_reading_only() {
    let image = lost!(&["-t", "ext4", "-b", "4096"], 4096);
    let name = image.path().display().to_string();
    let by_backup = format!("{name}?sb=32768");
    let scratch = Scratch::new();
    let before = std::fs::read(image.path()).unwrap();
    for words in [
        &["mkdir", &format!("{by_backup}:/new")][..],
        &["mkfs", "-q", "-F", &by_backup],
        &["fsck", "-fy", &by_backup],
        &["tune", "-L", "x", &by_backup],
        &["build", "-o", &by_backup, scratch.to_str().unwrap()],
    ] {
        let refused = extant(words);
        let said = text(&refused.stderr);
        assert!(!refused.status.success(), "{words:?}");
        assert!(said.contains("sb=32768 is for commands that only read the volume"), "{said}");
    }
    let refused = extant(["mkdir", &format!("{name}:/new")]);
    let said = text(&refused.stderr);
    assert!(said.ends_with(&format!("expected 0xef53: run extant fsck {name}\n")), "{said}");
    assert!(std::fs::read(image.path()).unwrap() == before);
}

#[test]
fn a_block_without_a_superblock_is_named() {
    let image = lost!(&["-t", "ext4", "-b", "4096"], 4096);
    let name = format!("{}?sb=32769", image.path().display());
    let output = extant(["ls", &name]);
    let expected = format!("extant ls: {name}: block 32769: no backup superblock\n");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), expected));
    let output = extant(["info", "-o", "superblock=32768", &name]);
    let expected =
        format!("extant info: {name}: sb=32769 and -o superblock are mutually exclusive\n");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), expected));
    for wrong in ["sb=x", "sb=", "sb=1k", "sb=1&sb=2"] {
        let output = extant(["ls".to_owned(), format!("{}?{wrong}:/", image.path().display())]);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {}", text(&output.stderr));
    }
}

/// A slice and a backup superblock, also through layers.
#[test]
fn a_backup_superblock_goes_with_other_options() {
    let image = lost!(&["-t", "ext4", "-b", "4096"], 4096);
    let scratch = Scratch::new();
    let disk = scratch.join("disk.img");
    let moved = std::process::Command::new("dd")
        .arg(format!("if={}", image.path().display()))
        .arg(format!("of={}", disk.display()))
        .args(["bs=1M", "seek=1", "conv=sparse", "status=none"])
        .status();
    assert!(moved.is_ok_and(|status| status.success()));
    // dd leaves the hole at the end out.
    let file = std::fs::OpenOptions::new().write(true).open(&disk).unwrap();
    file.set_len(513 << 20).unwrap();
    let name = format!("{}?offset=1M", disk.display());
    let refused = text(&extant(["ls", &name]).stderr);
    assert!(refused.ends_with(&format!(": try {name}&sb=32768\n")), "{refused}");
    let linear = format!("linear:{}?sb=32768&offset=1M", disk.display());
    for name in [format!("{name}&sb=32768"), linear] {
        let output = extant(["cat".to_owned(), format!("{name}:/dir/file")]);
        quiet(&output);
        assert_eq!(text(&output.stdout), "content\n");
    }
}
