//! `extant fsck` as a command: the corpora of damaged images by exit codes, and lists of bad
//! blocks.

mod common;

use std::ffi::OsStr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use common::{EXTANT, extant, text};
use extant_testkit::{
    LoopMount, Scratch, TempImage, copied, corpora, debugfs, e2fsck_fn, gunzip_sparse, is_root,
    skip, skipped, tool,
};

/// Where our exit code is another than e2fsck 1.47.4's, with which option, and why.
const OTHER_CODES: &[(&str, &str, &str)] = &[
    ("f_badcluster", "-fy again", "e2fsck has to correct its own repair; ours is whole"),
    ("f_extent_int_bad_extent", "-fp", "the log still holds the damaged block"),
    ("f_htree_bad_csum", "-fp", "the log still holds the damaged block"),
    ("f_holedir4", "-fy again", "e2fsck has to correct its own repair; ours is whole"),
];

/// With -n e2fsck ends with 12 where it gives up (a journal, a directory to be salvaged) or where a
/// write failed that it was not to do, and it may hang. What can be looked at is looked at here:
/// the end is 4 for errors, 0 for none.
fn is_no_answer(how: &str, expected: &str, found: &str) -> bool {
    how == "-fn" && matches!(expected, "12" | "timeout") && matches!(found, "0" | "4")
}

/// Where e2fsck 1.47.0 finds something in what 1.47.4 calls repaired or healthy, or what no tool
/// can repair.
const NOT_JUDGED: &[(&str, &str)] = &[
    ("f_crashdisk", "there is no volume to be found"),
    ("f_ea_inode_fast_symlink", "1.47.0 objects to a link that is healthy for 1.47.4"),
];

struct Row {
    case: String,
    options: Vec<String>,
    exit_n: String,
    exit_p: String,
    exit_y: String,
    exit_again: String,
    deb_n: String,
}

fn rows(corpus: &Path) -> Vec<Row> {
    let table = std::fs::read_to_string(corpus.join("expected.tsv")).expect("it has its table");
    let mut lines = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let columns = lines.next().expect("a line of column names");
    let at = |name: &str| columns.iter().position(|it| *it == name).expect("a known column");
    lines
        .map(|cells| {
            let cell = |name| cells[at(name)].to_owned();
            let options = cell("opts");
            Row {
                case: cell("case"),
                options: options.split(' ').filter(|it| *it != "-").map(str::to_owned).collect(),
                exit_n: cell("exit_n"),
                exit_p: cell("exit_p"),
                exit_y: cell("exit_y1"),
                exit_again: cell("exit_y2"),
                deb_n: cell("deb_n"),
            }
        })
        .collect()
}

fn fsck(how: &str, options: &[String], image: &Path) -> String {
    let output = Command::new(EXTANT).arg("fsck").arg(how).args(options).arg(image).output();
    let output = output.expect("the binary was built");
    let said = text(&output.stderr);
    assert!(!said.contains("panicked"), "{}: {said}", image.display());
    output.status.code().map_or("a signal".to_owned(), |code| code.to_string())
}

/// Runs -fn, -fp, -fy and -fy again on each image of a corpus: the exit codes are e2fsck's, -n
/// writes nothing, and e2fsck finds nothing in what -y repaired.
fn compare_with_e2fsck(corpus: &str) {
    let Some(corpus) = corpora().map(|corpora| corpora.join(corpus)) else {
        return skipped("no corpora here");
    };
    let scratch = Scratch::new();
    let only = std::env::var("EXTANT_CASE").ok();
    let mut wrong = Vec::new();
    for row in rows(&corpus) {
        if only.as_ref().is_some_and(|only| *only != row.case) {
            continue;
        }
        let image = scratch.join(&row.case);
        let packed = corpus.join(format!("{}.img.gz", row.case));
        let unpack = || gunzip_sparse(&packed, &image).expect("unpacks");
        let mut differs = |how: &str, found: &str, expected: &str| {
            let is_argued =
                OTHER_CODES.iter().any(|(case, which, _)| *case == row.case && *which == how);
            if found != expected && !is_argued && !is_no_answer(how, expected, found) {
                wrong.push(format!("{} {how}: {found}, not {expected}", row.case));
            }
        };
        unpack();
        let fresh = scratch.join("fresh");
        gunzip_sparse(&packed, &fresh).expect("unpacks");
        differs("-fn", &fsck("-fn", &row.options, &image), &row.exit_n);
        let same = Command::new("cmp").args([&image, &fresh]).status();
        assert!(same.is_ok_and(|status| status.success()), "{}: -n wrote", row.case);
        differs("-fp", &fsck("-fp", &row.options, &image), &row.exit_p);
        unpack();
        differs("-fy", &fsck("-fy", &row.options, &image), &row.exit_y);
        differs("-fy again", &fsck("-fy", &row.options, &image), &row.exit_again);
        if !NOT_JUDGED.iter().any(|(case, _)| *case == row.case)
            && row.deb_n == "0"
            && let Err(said) = e2fsck_fn(&image)
        {
            wrong.push(format!("{}: {said}", row.case));
        }
        std::fs::remove_file(&image).expect("it is there");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn images_with_journals_end_with_the_codes_of_e2fsck() {
    compare_with_e2fsck("journal-images");
}

#[test]
fn damaged_images_end_with_the_codes_of_e2fsck() {
    compare_with_e2fsck("fsck-images");
}

fn listed(image: &Path) -> Vec<u64> {
    let twin = tool("dumpe2fs").expect("asked for before");
    let said = twin.text(["-b", image.to_str().expect("UTF-8")]).expect("dumpe2fs lists them");
    said.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

#[test]
fn lists_of_bad_blocks_are_kept_and_files_leave_those_blocks() {
    lists_of_bad_blocks(&["-t", "ext4", "-b", "1024"]);
}

/// Two of the blocks lie in one cluster.
#[test]
fn lists_of_bad_blocks_are_kept_with_clusters() {
    lists_of_bad_blocks(&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"]);
}

fn lists_of_bad_blocks(options: &[&str]) {
    if !is_root() || ["mke2fs", "e2fsck", "dumpe2fs", "debugfs"].iter().any(|it| tool(it).is_none())
    {
        return skipped("root and e2fsprogs are needed");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    std::fs::create_dir(&source).expect("a directory");
    std::fs::write(source.join("file"), vec![b'x'; 20_000]).expect("room");
    let args = [options, &["-d", source.to_str().expect("UTF-8")]].concat();
    let made = TempImage::by_mke2fs(32 << 20, &args).expect("mke2fs makes it");
    let image = made.path();
    let shown = debugfs(&image, "blocks /file").expect("it has blocks");
    let used: u64 = shown.split_whitespace().next().and_then(|it| it.parse().ok()).expect("one");

    let list = scratch.join("list");
    let run = |options: &[&str]| {
        let image = image.to_str().expect("UTF-8");
        let words = ["fsck", "-fy"].iter().chain(options).copied().chain([image]);
        extant(words).status.code()
    };
    let name = list.to_str().expect("UTF-8");
    std::fs::write(&list, "30000\n30001\n99999999\n").expect("room");
    assert_eq!(run(&["-l", name]), Some(0));
    assert_eq!(listed(&image), [30_000, 30_001]);
    e2fsck_fn(&image).expect("nothing to find");

    std::fs::write(&list, format!("{used}\n")).expect("room");
    assert_eq!(run(&["-L", name]), Some(1), "the file had to leave the block");
    assert_eq!(listed(&image), [used]);
    e2fsck_fn(&image).expect("nothing to find");
    let kept = debugfs(&image, "cat /file").expect("it can be read");
    assert_eq!(kept.trim_end(), "x".repeat(20_000));

    assert_eq!(run(&["-c", "-k"]), Some(0));
    assert_eq!(listed(&image), [used]);
    assert_eq!(run(&["-c"]), Some(0), "every block can be read");
    assert!(listed(&image).is_empty());
    e2fsck_fn(&image).expect("nothing to find");
    let before = std::fs::read(&image).expect("it is there");
    assert_eq!(run(&["-cc"]), Some(0), "every block takes other bytes");
    // Only the stamps of two checks differ: the superblock, and nothing else.
    let after = std::fs::read(&image).expect("it is there");
    assert!(before[2048..] == after[2048..], "every block was put back");
}

/// Runs debugfs with a script that may write.
fn spoil(image: &Path, words: &str) {
    let scratch = Scratch::new();
    let script = scratch.join("script");
    std::fs::write(&script, words).expect("room");
    let script = script.to_str().expect("UTF-8");
    let debugfs = tool("debugfs").expect("asked for before");
    debugfs.run(["-w", "-f", script, image.to_str().expect("UTF-8")]);
}

/// Exit codes and what is left, as with e2fsck: an append-only FIFO is told, left by preening, and
/// put right by a yes; features on a volume of revision 0 are passed over by a look, and put right
/// by preening.
#[test]
fn preening_leaves_what_e2fsck_leaves() {
    let Some(e2fsck) = tool("e2fsck").filter(|_| tool("debugfs").is_some()) else {
        return skipped("e2fsprogs are needed");
    };
    let cases = [
        ("mknod fifo p\nset_inode_field fifo flags 0x20\n", ["0", "0", "1"]),
        ("set_super_value rev_level 0\n", ["0", "1", "1"]),
    ];
    for (words, codes) in cases {
        for (how, code) in ["-fn", "-fp", "-fy"].into_iter().zip(codes) {
            let made = || {
                let options = ["-t", "ext2", "-I", "128", "-b", "1024"];
                let made = TempImage::by_mke2fs(16 << 20, &options).expect("mke2fs makes it");
                spoil(&made.path(), words);
                made
            };
            let (ours, theirs) = (made(), made());
            let theirs = e2fsck.command().arg(how).arg(theirs.path()).output().expect("it starts");
            assert_eq!(theirs.status.code().map(|code| code.to_string()).as_deref(), Some(code));
            assert_eq!(fsck(how, &[], &ours.path()), code, "{words} {how}");
            e2fsck_fn(&ours.path()).unwrap_or_else(|said| panic!("{words} {how}: {said}"));
            let is_told = |image: &Path| {
                let said = extant(["fsck", "-fn", image.to_str().expect("UTF-8")]);
                text(&said.stdout).contains(" flag") // "flag set", "feature flag(s) set"
            };
            assert_eq!(is_told(&ours.path()), how == "-fn" || code == "0", "{words} {how}");
        }
    }
}

/// The superblock's copy of the journal's map is made again, which corrects no error.
#[test]
fn a_copy_of_the_journals_map_is_no_correction() {
    const COPY: std::ops::Range<usize> = 1024 + 0x10c..1024 + 0x150;
    let Some(e2fsck) = tool("e2fsck").filter(|_| tool("mke2fs").is_some()) else {
        skip!("e2fsprogs are not installed");
    };
    for how in ["-fp", "-fy"] {
        let made = TempImage::by_mke2fs(16 << 20, &["-t", "ext3"]).expect("mke2fs makes it");
        let mut bytes = std::fs::read(made.path()).expect("it is there");
        let copy = bytes[COPY].to_vec();
        bytes[COPY].fill(0);
        std::fs::write(made.path(), bytes).expect("there is room");
        let theirs = copied(&made.path()).expect("a copy");
        let done = e2fsck.command().arg(how).arg(theirs.path()).output().expect("it starts");
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        assert_eq!(fsck(how, &[], &made.path()), "0", "{how}");
        let bytes = std::fs::read(made.path()).expect("it is there");
        assert!(bytes[COPY] == *copy, "{how}");
    }
}

/// The report says the code that the process ends with, also where preening finds no primary
/// superblock.
#[test]
fn a_report_has_the_exit_code() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let made = TempImage::by_mke2fs(16 << 20, &["-t", "ext4"]).expect("mke2fs makes it");
    let mut bytes = std::fs::read(made.path()).expect("it is there");
    bytes[1024..2048].fill(0);
    std::fs::write(made.path(), bytes).expect("there is room");
    let path = made.path();
    let done = extant(["fsck", "-fp", "--json", path.to_str().expect("UTF-8")]);
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("it is JSON");
    assert_eq!(done.status.code(), Some(8), "{done:?}");
    assert_eq!(report["exit_code"].as_u64(), Some(8));
}

/// Where nothing was wrong but that the volume did not say that it was clean, that was corrected.
#[test]
fn a_state_that_is_put_right_is_a_correction() {
    let Some(e2fsck) = tool("e2fsck").filter(|_| tool("debugfs").is_some()) else {
        return skipped("e2fsprogs are needed");
    };
    for state in ["0", "1", "2", "3", "4", "5"] {
        for how in ["-n", "-fn", "-p", "-fp", "-y", "-fy"] {
            let made = TempImage::by_mke2fs(4 << 20, &["-t", "ext4"]).expect("mke2fs makes it");
            spoil(&made.path(), &format!("set_super_value state {state}\n"));
            let scratch = Scratch::new();
            let theirs = scratch.join("theirs.img");
            std::fs::copy(made.path(), &theirs).expect("copied");
            let code = e2fsck.command().arg(how).arg(&theirs).output().expect("it starts").status;
            let code = code.code().expect("it ends").to_string();
            assert_eq!(fsck(how, &[], &made.path()), code, "{state} {how}");
        }
    }
}

/// `-n` checks a truncated image to its end and exits 4; a repair ends as with e2fsck.
/// The counts that the line of a clean volume tells are those after orphans were finished.
#[test]
fn a_clean_volume_is_told_with_the_counts_after_its_orphans() {
    let Some(e2fsck) = tool("e2fsck") else { skip!("no e2fsck here") };
    let (Ok(image), Some(debugfs)) =
        (TempImage::by_mke2fs(16 << 20, &["-t", "ext4"]), tool("debugfs"))
    else {
        skip!("no mke2fs or debugfs here");
    };
    let path = image.path();
    // The kernel leaves the counts of the superblock old while a volume is mounted.
    for command in [
        "write /etc/passwd f",
        "sif f links_count 0",
        "unlink f",
        "ssv last_orphan 12",
        "ssv free_inodes_count 100",
        "ssv free_blocks_count 1000",
    ] {
        let args = ["-w".as_ref(), "-R".as_ref(), command.as_ref(), path.as_os_str()];
        assert!(debugfs.run(args).status.success(), "{command}");
    }
    let copy = copied(&path).expect("a copy");
    let clean = |said: &str| -> String {
        let line = said.lines().find(|line| line.contains(": clean, ")).expect("the last line");
        line.split_once(": ").expect("a name").1.to_owned()
    };
    let theirs = e2fsck.run(["-p".as_ref(), copy.path().as_os_str()]);
    let ours = extant([OsStr::new("fsck"), OsStr::new("-p"), path.as_os_str()]);
    assert_eq!(clean(&text(&ours.stdout)), clean(&text(&theirs.stdout)));
    e2fsck_fn(&path).unwrap();
}

/// The kernel does not keep the counts of the superblock up to date; e2fsck sets them.
#[test]
fn a_clean_volume_gets_its_free_counts_from_its_groups() {
    let Some(e2fsck) = tool("e2fsck") else { return skipped("e2fsck") };
    for options in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "bigalloc"], &["-t", "ext2"]] {
        let words = [&["-q", "-F"][..], options].concat();
        let Ok(image) = TempImage::by_mke2fs(16 << 20, &words) else { return skipped("mke2fs") };
        let path = image.path();
        for field in ["free_blocks_count 100", "free_inodes_count 7"] {
            spoil(&path, &format!("ssv {field}"));
        }
        let fsck = |how: &str| extant(["fsck".as_ref(), how.as_ref(), path.as_os_str()]);
        let before = std::fs::read(&path).expect("an image");
        let looked = fsck("-n");
        assert_eq!(looked.status.code(), Some(0), "{looked:?}");
        assert!(std::fs::read(&path).expect("an image") == before, "-n wrote");
        let copy = copied(&path).expect("a copy");
        let by_them = e2fsck.run(["-p".as_ref(), copy.path().as_os_str()]);
        let by_us = fsck("-p");
        assert_eq!(by_us.status.code(), by_them.status.code(), "{by_us:?}");
        let counts = |output: &std::process::Output| {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            said.split_once("clean, ").expect("the line of a clean volume").1.to_owned()
        };
        assert_eq!(counts(&by_us), counts(&by_them));
        e2fsck_fn(&path).expect("nothing is left");
    }
}

#[test]
fn a_truncated_image_is_looked_at_and_not_repaired() {
    let Some(e2fsck) = tool("e2fsck").filter(|_| tool("mke2fs").is_some()) else {
        return skipped("e2fsprogs are needed");
    };
    for (how, code, of_e2fsck) in [("-n", "4", 0), ("-fn", "4", 0), ("-p", "4", 4), ("-y", "8", 8)]
    {
        let made = || {
            let options = ["-t", "ext4", "-b", "1024"];
            let made = TempImage::by_mke2fs(16 << 20, &options).expect("mke2fs makes it");
            let file = std::fs::File::options().write(true).open(made.path());
            file.and_then(|file| file.set_len(12 << 20)).expect("it becomes shorter");
            made
        };
        let (ours, theirs) = (made(), made());
        let theirs = e2fsck.command().arg(how).arg(theirs.path()).output().expect("it starts");
        assert_eq!(theirs.status.code(), Some(of_e2fsck), "{how}");
        assert_eq!(fsck(how, &[], &ours.path()), code, "{how}");
        let said = extant(["fsck", how, ours.path().to_str().expect("UTF-8")]);
        let said = text(&said.stdout);
        assert!(said.contains("the physical size of the device is 12288 blocks"), "{how}: {said}");
        assert_eq!(said.contains("Pass 5"), how.ends_with('n'), "{how}: {said}");
    }
}

/// Options are refused before a terminal is required.
#[test]
fn refusals_name_the_option() {
    let option = "ea_ver=1";
    let said = text(&extant(["fsck", "-E", option, "disk.img"]).stderr);
    assert!(said.contains("ea_ver") && !said.contains("terminal"), "{said}");
}

/// With clusters the resize inode counts one for each block that it maps, and for its own.
#[test]
fn a_resize_inode_made_anew_counts_its_clusters() {
    if tool("debugfs").is_none() {
        return skipped("e2fsprogs are needed");
    }
    for (cluster, block) in [("16384", "4096"), ("8192", "2048"), ("4096", "1024")] {
        let options = ["-t", "ext4", "-O", "bigalloc", "-C", cluster, "-b", block];
        let made = TempImage::by_mke2fs(40 << 20, &options).expect("mke2fs makes it");
        let image = made.path();
        assert_eq!(fsck("-fn", &[], &image), "0", "{cluster}");
        spoil(&image, "clri <7>\n");
        assert_eq!(fsck("-fy", &[], &image), "1", "{cluster}");
        e2fsck_fn(&image).unwrap_or_else(|said| panic!("{cluster}: {said}"));
    }
}

/// A check reports blocks of the resize inode beyond the volume, a repair recreates it.
#[test]
fn a_resize_inode_that_maps_what_is_not_there_is_damage() {
    if tool("debugfs").is_none() {
        return skipped("e2fsprogs are needed");
    }
    // So does e2fsck, but where blocks of pointers to others are not there: it gives up.
    let cases = [
        "block[0] 99999",
        "block[IND] 99999",
        "block[TIND] 99999",
        "size 1",
        "size 281475044093952",
    ];
    for damage in cases {
        let made = TempImage::by_mke2fs(40 << 20, &["-t", "ext4"]).expect("mke2fs makes it");
        let image = made.path();
        spoil(&image, &format!("set_inode_field <7> {damage}\n"));
        assert_eq!(fsck("-fn", &[], &image), "4", "{damage}");
        assert_eq!(fsck("-fy", &[], &image), "1", "{damage}");
        e2fsck_fn(&image).unwrap_or_else(|said| panic!("{damage}: {said}"));
    }
}

/// Options given again and options that exclude each other, as with e2fsck.
#[test]
fn options_go_together_as_with_e2fsck() {
    let Some(e2fsck) = tool("e2fsck").filter(|_| tool("mke2fs").is_some()) else {
        return skipped("e2fsprogs are needed");
    };
    let made = TempImage::by_mke2fs(4 << 20, &["-t", "ext4"]).expect("mke2fs makes it");
    let image = made.path();
    let cases = [
        ("-p -p", 0),
        ("-p -a", 0),
        ("-n -n -f -f -v -v", 0),
        ("-y -y -b 8193 -b 1", 0),
        ("-n -y", 8),
        ("-n -c", 8),
        ("-n -c -l list", 8),
        ("-y -c -l list", 16),
        ("-y -c -L list", 16),
    ];
    for (words, code) in cases {
        let options = || words.split(' ').map(OsStr::new).chain([image.as_os_str()]);
        let theirs = e2fsck.command().args(options()).output().expect("it starts");
        assert_eq!(theirs.status.code(), Some(code), "e2fsck {words}");
        let ours = extant([OsStr::new("fsck")].into_iter().chain(options()));
        assert_eq!(ours.status.code(), Some(code), "{words}: {}", text(&ours.stderr));
    }
}

/// Files with gaps between their blocks, directories, indirect blocks at other places: the same
/// lines, and the same share of files that are not in one run.
#[test]
fn fragcheck_lists_the_jumps_that_e2fsck_lists() {
    let Some((e2fsck, debugfs)) = tool("e2fsck").zip(tool("debugfs")) else {
        return skipped("e2fsprogs are needed");
    };
    let scratch = Scratch::new();
    let (big, script) = (scratch.join("big"), scratch.join("script"));
    std::fs::write(&big, vec![b'b'; 300_000]).expect("room");
    for (kind, gaps) in [("ext2", &["594 1", "611 1", "700 2", "870 1"][..]), ("ext4", &["1200 3"])]
    {
        let made = TempImage::by_mke2fs(16 << 20, &["-t", kind, "-b", "1024"]).expect("made");
        let image = made.path();
        let gaps = gaps.iter().map(|gap| format!("setb {gap}\n")).collect::<String>();
        let words = format!(
            "{gaps}write {} big\nmkdir one\nmkdir two\nexpand_dir one\nexpand_dir two\nexpand_dir one\n",
            big.display()
        );
        std::fs::write(&script, words).expect("room");
        let image = image.to_str().expect("UTF-8");
        debugfs.run(["-w", "-f", script.to_str().expect("UTF-8"), image]);
        // The gaps were marks in the bitmap only.
        e2fsck.command().args(["-fy", image]).output().expect("it starts");
        let of_interest = |bytes: &[u8]| -> Vec<String> {
            let said = text(bytes);
            let lines = said.lines().filter(|line| {
                line.contains("expecting")
                    || line.contains("non-contiguous")
                    || line.contains("Pass 2")
            });
            let mut lines: Vec<_> = lines.map(str::to_owned).collect();
            // e2fsck comes back later to inodes that have blocks of pointers.
            lines.sort();
            lines
        };
        let theirs = e2fsck.command().args(["-fn", "-E", "fragcheck", image]).output();
        let theirs = of_interest(&theirs.expect("it starts").stdout);
        let ours = of_interest(&extant(["fsck", "-fn", "-E", "fragcheck", image]).stdout);
        assert!(theirs.len() > 3, "{kind}: there is something to list: {theirs:?}");
        assert_eq!(ours, theirs, "{kind}");
    }
}

/// A tar header of a directory.
fn directory_header(path: &str) -> [u8; 512] {
    let mut header = [0; 512];
    header[..path.len()].copy_from_slice(path.as_bytes());
    for (at, field) in [(100, "0000755"), (108, "0000000"), (116, "0000000"), (124, "00000000000")]
    {
        header[at..at + field.len()].copy_from_slice(field.as_bytes());
    }
    header[136..147].copy_from_slice(b"00000000000");
    header[156] = b'5';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// Link counts of directories go up to 65,000: a volume with more subdirectories in one has the
/// feature that says so.
#[test]
fn a_directory_with_more_than_65000_subdirectories_sets_the_feature() {
    const SUBDIRECTORIES: u32 = 65_010;
    if tool("e2fsck").is_none() || tool("debugfs").is_none() {
        skipped("e2fsck and debugfs are not installed");
        return;
    }
    let scratch = Scratch::new();
    let (archive, made, image) =
        (scratch.join("dirs.tar"), scratch.join("made"), scratch.join("image"));
    let mut tar: Vec<u8> = directory_header("d/").to_vec();
    for number in 0..SUBDIRECTORIES {
        tar.extend(directory_header(&format!("d/{number}/")));
    }
    tar.resize(tar.len() + 1024, 0);
    std::fs::write(&archive, tar).expect("scratch space takes a file");
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let built = extant(["build", "-b", "1024", "-o", &path(&made), &path(&archive)]);
    assert!(built.status.success(), "{}", text(&built.stderr));
    // Any count, the true one, and that of a directory whose links are not counted.
    for (links, feature) in
        [("3", "-dir_nlink"), ("65012", "-dir_nlink"), ("1", "-dir_nlink"), ("65012", "dir_nlink")]
    {
        std::fs::copy(&made, &image).expect("there is room");
        spoil(&image, &format!("feature {feature}\nsif /d links_count {links}\n"));
        assert!(e2fsck_fn(&image).is_err(), "{links}, {feature}");
        let done = extant(["fsck", "-fy", &path(&image)]);
        assert_eq!(done.status.code(), Some(1), "{links}, {feature}: {}", text(&done.stdout));
        e2fsck_fn(&image).unwrap_or_else(|said| panic!("{links}, {feature}: {said}"));
        let features = debugfs(&image, "features").expect("it opens");
        assert!(features.contains("dir_nlink"), "{links}, {feature}: {features}");
    }
}

/// The root directory of a volume that the kernel filled: what the log still holds is proposed as a
/// finding of its own, and a repair with it can be undone.
#[test]
fn the_log_gives_back_the_root_directory() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    match LoopMount::new(&image.path(), "") {
        Ok(mount) => {
            std::fs::write(mount.path().join("file"), "content\n").unwrap();
            mount.unmount().unwrap();
        }
        Err(why) => skip!("{why}"),
    }
    let root = debugfs(&image.path(), "blocks <2>").unwrap();
    let root: u64 = root.trim().parse().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(image.path()).unwrap();
    file.write_all_at(&[0; 1024], root * 1024).unwrap();
    let before = std::fs::read(image.path()).unwrap();
    let path = image.path();
    let path = path.to_str().unwrap();
    let codes = |options: &[&str]| -> Vec<(String, u64)> {
        let output = extant(["fsck", "-fn", "--json"].iter().chain(options).chain([&path]));
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = found["findings"].as_array().unwrap().iter();
        let of = |it: &serde_json::Value| {
            let is_copy = it["code"].as_str().unwrap().starts_with("LogCopy");
            assert_eq!(it["transaction"].as_u64().is_some(), is_copy, "{it}");
            (it["code"].as_str().unwrap().to_owned(), it["block"].as_u64().unwrap_or(0))
        };
        findings.map(of).filter(|(code, _)| code.starts_with("LogCopy")).collect()
    };
    assert_eq!(codes(&[]), [("LogCopyCertain".to_owned(), root)]);
    assert_eq!(codes(&["-E", "journal_evidence=off"]), []);
    let scratch = Scratch::new();
    let undo = scratch.join("undo");
    let undo = undo.to_str().unwrap();
    let output = extant(["fsck", "-fp", "-z", undo, path]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("its last content (block 0 of directory 2, committed at"), "{said}");
    e2fsck_fn(&image.path()).unwrap();
    assert_eq!(text(&extant(["cat", &format!("{path}:/file")]).stdout), "content\n");
    assert_eq!(extant(["undo", undo, path]).status.code(), Some(0));
    assert!(std::fs::read(image.path()).unwrap() == before, "every byte is back");
}

/// A name and the blocks of a lost inode are findings of their own, are kept on request, and the
/// repair can be undone.
#[test]
fn lost_names_and_blocks_are_kept_on_request() {
    let source = Scratch::new();
    std::fs::write(source.join("lost"), [b'x'; 5000]).unwrap();
    let from = source.path().to_str().unwrap();
    let args = ["-t", "ext4", "-b", "1024", "-O", "^has_journal", "-d", from];
    let image = match TempImage::by_mke2fs(16 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    debugfs(&image.path(), "stat /lost").expect("debugfs reads it");
    spoil(&image.path(), "clri /lost\n");
    let before = std::fs::read(image.path()).unwrap();
    let path = image.path();
    let path = path.to_str().unwrap();
    let options = ["-E", "placeholders,carve"];
    let output = extant(["fsck", "-fn", "--json"].iter().chain(&options).chain([&path]));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = found["findings"].as_array().unwrap();
    let with = |code: &str| findings.iter().find(|it| it["code"] == code).cloned();
    assert_eq!(with("EntryPlaceholder").expect("the name")["name"], "lost");
    let run = with("UnclaimedRun").expect("the blocks");
    let undo = source.join("undo");
    let undo = undo.to_str().unwrap();
    let output = extant(["fsck", "-fy", "-z", undo].iter().chain(&options).chain([&path]));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    e2fsck_fn(&image.path()).unwrap();
    assert_eq!(text(&extant(["cat", &format!("{path}:/lost")]).stdout), "");
    let name = format!("{path}:/lost+found/blocks-{}-5", run["block"]);
    let carved = extant(["cat", &name]);
    assert!(carved.stdout.starts_with(&[b'x'; 5000]), "{name}: {}", text(&carved.stderr));
    assert_eq!(extant(["undo", undo, path]).status.code(), Some(0));
    assert!(std::fs::read(image.path()).unwrap() == before, "every byte is back");
}
