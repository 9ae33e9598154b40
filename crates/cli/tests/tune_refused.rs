//! `extant tune` on damaged volumes: it refuses damage that tune2fs refuses, and what is refused
//! leaves every byte as it was.

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::{extant, text};
use extant_testkit::{Scratch, TempImage, debugfs, is_root, skipped, tool};

const BLOCK: u64 = 4096;

/// The number after `word`, decimal or with 0x.
fn number_after(said: &str, word: &str) -> u64 {
    let rest = said.split_once(word).unwrap_or_else(|| panic!("{word}: {said}")).1.trim_start();
    let (digits, radix) = rest.strip_prefix("0x").map_or((rest, 10), |hex| (hex, 16));
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], radix).unwrap_or_else(|_| panic!("{word}: {said}"))
}

/// An image with a directory of one block, an indexed one, a file with an extent block and one with
/// an attribute block; nothing is damaged.
struct Volume {
    image: TempImage,
}

impl Volume {
    fn new(scratch: &Scratch, features: &str) -> Result<Self, String> {
        let tree = scratch.join("tree");
        let write = |path: &str, bytes: &[u8]| std::fs::write(tree.join(path), bytes);
        std::fs::create_dir_all(tree.join("large")).expect("scratch space");
        std::fs::create_dir_all(tree.join("small")).expect("scratch space");
        for at in 0..300 {
            write(&format!("large/a-name-that-takes-some-room-{at:04}"), b"").expect("written");
        }
        write("small/file", b"x").expect("written");
        let holes = std::fs::File::create(tree.join("holes")).expect("created");
        for at in 0..60 {
            holes.write_at(&[1; BLOCK as usize], at * 2 * BLOCK).expect("written");
        }
        let tree = tree.to_str().expect("UTF-8");
        let args = ["-t", "ext4", "-b", "4096", "-O", features, "-d", tree];
        let image = TempImage::by_mke2fs(64 << 20, &args)?;
        let volume = Self { image };
        let path = volume.image.path();
        // mke2fs indexes no directory.
        let e2fsck = tool("e2fsck").ok_or("e2fsck")?;
        let packed = e2fsck.run(["-fyD", path.to_str().expect("UTF-8")]);
        assert!(packed.status.code().is_some_and(|code| code <= 1), "{packed:?}");
        let holds_extents = volume.ask("stat /holes");
        assert!(holds_extents.contains("ETB0"), "{holds_extents}");
        Ok(volume)
    }

    fn ask(&self, command: &str) -> String {
        debugfs(&self.image.path(), command).expect("debugfs answers")
    }

    fn inode(&self, file: &str) -> u64 {
        let said = self.ask(&format!("imap {file}"));
        number_after(&said, "located at block ") * BLOCK + number_after(&said, "offset ")
    }

    /// Byte offset of a block of a file.
    fn block(&self, file: &str, at: u64) -> u64 {
        let said = self.ask(&format!("bmap {file} {at}"));
        said.trim().parse::<u64>().unwrap_or_else(|_| panic!("{file}: {said}")) * BLOCK
    }

    fn group(&self, what: &str) -> u64 {
        number_after(&self.ask("stats"), what) * BLOCK
    }

    /// Place and length of the bytes that a damage inverts.
    fn place(&self, damage: &str) -> (u64, u64) {
        match damage {
            "inode" => (self.inode("/small/file") + 2, 2),
            "journal inode" => (self.inode("<8>") + 124, 2),
            "directory block" => (self.block("/small", 0) + BLOCK - 4, 4),
            "record of a root directory" => (self.block("/", 0) + 4, 2),
            "index root" => (self.block("/large", 0) + BLOCK - 4, 4),
            "index leaf" => (self.block("/large", 1) + BLOCK - 4, 4),
            "extent block" => (number_after(&self.ask("stat /holes"), "(ETB0):") * BLOCK, 2),
            "block bitmap" => (self.group("block bitmap at ") + 4000, 1),
            "inode bitmap" => (self.group("inode bitmap at ") + 500, 1),
            "inode table's place" => (BLOCK + 8, 4),
            _ => panic!("{damage} is in the table"),
        }
    }
}

/// Each damage, and the changes that are refused for it. tune2fs refuses those that are not in
/// parentheses too.
const DAMAGES: [(&str, &[&str]); 10] = [
    ("inode", &["(-O ^metadata_csum)", "(-U random)"]),
    ("journal inode", &["-O ^has_journal", "(-O ^metadata_csum)"]),
    ("directory block", &["(-U random)", "(-O ^metadata_csum)"]),
    ("record of a root directory", &["-O ^metadata_csum", "-O ^dir_index", "-U random"]),
    ("index root", &["(-O ^metadata_csum)", "(-U random)"]),
    ("index leaf", &["(-U random)"]),
    ("extent block", &["-U random", "(-O ^metadata_csum)"]),
    ("block bitmap", &["-O quota", "-O ^orphan_file", "-O ^has_journal", "-O mmp"]),
    ("inode bitmap", &["-O quota", "-O ^orphan_file", "-O ^has_journal"]),
    ("inode table's place", &["-O ^metadata_csum", "-O quota", "-O ^dir_index", "-U random"]),
];

/// Changes that are tried with each damage.
const CHANGES: [&str; 13] = [
    "-O ^metadata_csum",
    "-O metadata_csum_seed",
    "-U random",
    "-O ^dir_index",
    "-O quota",
    "-O quota,project",
    "-O ^orphan_file",
    "-E orphan_file_size=64",
    "-O ^has_journal",
    "-O ^has_journal -J size=8",
    "-O mmp",
    "-L label -O ^metadata_csum,quota",
    "-L label -m 3 -O ^huge_file -U random",
];

fn args<'a>(words: &'a str, image: &'a Path) -> Vec<&'a str> {
    words.split_whitespace().chain([image.to_str().expect("UTF-8")]).collect()
}

/// A copy of an image with inverted bytes.
fn damaged(volume: &Volume, scratch: &Scratch, name: &str, place: (u64, u64)) -> PathBuf {
    let copy = scratch.join(name);
    std::fs::copy(volume.image.path(), &copy).expect("room");
    let file = std::fs::File::options().read(true).write(true).open(&copy).expect("it opens");
    let mut bytes = vec![0; place.1 as usize];
    file.read_exact_at(&mut bytes, place.0).expect("within the image");
    bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
    file.write_all_at(&bytes, place.0).expect("written");
    copy
}

/// Runs tune; what it refuses leaves the image as it was. `None` if it was done.
fn refusal(image: &Path, words: &str) -> Option<String> {
    let before = std::fs::read(image).expect("readable");
    let output = extant(std::iter::once("tune").chain(args(words, image)));
    if output.status.success() {
        std::fs::write(image, before).expect("put back");
        return None;
    }
    let said = text(&output.stderr);
    // Nothing was done, so nothing is reported as done.
    let reported = text(&output.stdout);
    assert!(!reported.contains("Setting") && !reported.contains("done"), "{words}: {reported}");
    assert!(std::fs::read(image).expect("readable") == before, "{words}: bytes changed: {said}");
    Some(said)
}

#[test]
fn a_change_refused_for_damage_leaves_every_byte() {
    let Some(twin) = tool("tune2fs") else { return skipped("tune2fs") };
    let scratch = Scratch::new();
    let Ok(volume) = Volume::new(&scratch, "orphan_file") else { return skipped("mke2fs") };
    let is_slow = std::env::var_os("EXTANT_SLOW").is_some();
    for (damage, refused) in DAMAGES {
        let image = damaged(&volume, &scratch, "image", volume.place(damage));
        for words in refused {
            let plain = words.trim_matches(['(', ')']);
            let said = refusal(&image, plain);
            let said = said.unwrap_or_else(|| panic!("{damage}: {plain} was done"));
            assert!(said.contains("run extant fsck -f first"), "{damage}: {plain}: {said}");
        }
        for words in CHANGES.iter().filter(|_| is_slow) {
            let copy = damaged(&volume, &scratch, "twin", volume.place(damage));
            let theirs = twin.run(args(words, &copy));
            let ours = refusal(&image, words);
            assert!(
                theirs.status.success() || ours.is_some(),
                "{damage}: {words}: done, although tune2fs refuses: {theirs:?}"
            );
        }
    }
}

/// A volume without free blocks takes no journal, quota file or MMP block. Other parts of the same
/// request are not done either.
#[test]
fn a_change_refused_for_lack_of_space_leaves_every_byte() {
    if tool("debugfs").is_none() {
        return skipped("debugfs");
    }
    let features = "^has_journal,^resize_inode";
    let Ok(image) = TempImage::by_mke2fs(4 << 20, &["-t", "ext4", "-b", "1024", "-O", features])
    else {
        return skipped("mke2fs");
    };
    debugfs_writing(&image.path(), "setb 1 4095");
    for words in [
        "-j",
        "-O quota",
        "-O mmp",
        "-Q usrquota",
        "-L label -O ^metadata_csum,quota",
        "-U random -Q grpquota",
        "-C 3 -O ^metadata_csum,quota",
        "-O ^metadata_csum,has_journal,orphan_file",
    ] {
        let said = refusal(&image.path(), words);
        let said = said.unwrap_or_else(|| panic!("{words} was done"));
        assert!(said.contains("not enough free blocks"), "{words}: {said}");
    }
}

fn debugfs_writing(image: &Path, command: &str) {
    let image = image.to_str().expect("UTF-8");
    let output = tool("debugfs").expect("asked for before").run(["-w", "-R", command, image]);
    assert!(output.status.success(), "{output:?}");
}

/// The replay of a journal belongs to the request: if it is refused, the journal stays.
#[test]
fn a_refused_change_does_not_replay_the_journal() {
    if !is_root() {
        return skipped("a loop mount needs root");
    }
    let Ok(image) = TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", "1024"]) else {
        return skipped("mke2fs");
    };
    let path = image.path();
    debugfs_writing(&path, "feature needs_recovery");
    let said = refusal(&path, "-O casefold,^flex_bg").expect("the tables are not in their groups");
    assert!(said.contains("flex_bg"), "{said}");
    let output = extant(std::iter::once("tune").chain(args("-L label", &path)));
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains("the journal was replayed first"), "{output:?}");
}

/// With multiple-mount protection the volume is taken for the time of the attempt, and given back.
#[test]
fn a_refused_change_leaves_the_block_of_multiple_mount_protection() {
    let features = "mmp,^has_journal";
    let args = ["-t", "ext4", "-b", "1024", "-O", features, "-E", "mmp_update_interval=1"];
    let Ok(image) = TempImage::by_mke2fs(16 << 20, &args) else { return skipped("mke2fs") };
    let said = refusal(&image.path(), "-L label -O orphan_file").expect("there is no journal");
    assert!(said.contains("only for filesystems with journal"), "{said}");
}
