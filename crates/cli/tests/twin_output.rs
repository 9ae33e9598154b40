//! The output of our programs by the names of e2fsprogs, next to the programs themselves: on
//! volumes of every option set of mke2fs, and for damaged ones.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use extant_testkit::{Scratch, corpora, skip, tool};

/// One row in this many is tried here. EXTANT_ALL_ROWS tries all.
const STEP: usize = 9;
/// Larger volumes are left out.
const MAX_SIZE: u64 = 1 << 30;

/// The parts of the output that are compared for each volume.
const PRINTED: [&[&str]; 6] = [
    &["dumpe2fs"],
    &["dumpe2fs", "-x"],
    &["dumpe2fs", "-g"],
    &["dumpe2fs", "-b"],
    &["tune2fs", "-l"],
    &["e2fsck", "-fnv"],
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a program, ours or theirs, on an image.
fn run(links: Option<&Path>, words: &[&str], image: &Path) -> Output {
    let mut command = match links {
        Some(links) => Command::new(links.join(words[0])),
        None => tool(words[0]).expect("looked for before").command(),
    };
    command.args(&words[1..]).arg(image).env("LC_ALL", "C").stdin(Stdio::null());
    command.output().unwrap()
}

/// A scratch directory with our links; `None` if one of the tools is not installed.
fn with_links(names: &[&str]) -> Option<Scratch> {
    names.iter().all(|name| tool(name).is_some()).then_some(())?;
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("bin")).unwrap();
    for name in names {
        symlink(env!("CARGO_BIN_EXE_extant"), scratch.join("bin").join(name)).unwrap();
    }
    Some(scratch)
}

/// Makes the volume of a row of the table; `None` where the row makes no file system.
fn make(line: &str, corpora: &Path, image: &Path) -> Option<String> {
    let fields: Vec<_> = line.split('\t').collect();
    let (conf, env, options, exit) = (fields[2], fields[3], fields[4], fields[5]);
    let size = fields[7].parse::<u64>().ok()?.checked_mul(fields[8].parse().ok()?)?;
    let is_left_out = options.split(' ').any(|word| matches!(word, "-n" | "-S" | "-z"));
    // e2fsck waits where there is multiple-mount protection.
    let is_other = ["journal_dev", "mmp"].iter().any(|feature| fields[6].contains(feature));
    if exit != "0" || is_left_out || is_other || size > MAX_SIZE {
        return None;
    }
    fs::File::create(image).unwrap().set_len(size).unwrap();
    let mut command = tool("mke2fs").expect("looked for before").command();
    command.args(["-q", "-F"]);
    for word in options.split_whitespace() {
        match word {
            "IMAGE" => command.arg(image),
            word => command.arg(word),
        };
    }
    let conf = corpora.join("mkfs-conf").join(conf);
    command.env("MKE2FS_CONFIG", if conf.is_file() { conf } else { "/dev/null".into() });
    command.envs(env.split_whitespace().filter_map(|word| word.split_once('=')));
    // Options that the installed version does not know make nothing.
    let made = command.stdin(Stdio::null()).output().unwrap();
    made.status.success().then(|| options.to_owned())
}

#[test]
fn volumes_of_all_option_sets_are_printed_as_theirs_are() {
    let Some(corpora) = corpora() else { skip!("no corpora") };
    let Some(scratch) = with_links(&["mke2fs", "dumpe2fs", "tune2fs", "e2fsck"]) else {
        skip!("e2fsprogs is not installed");
    };
    let (bin, image) = (scratch.join("bin"), scratch.join("image"));
    let step = if std::env::var_os("EXTANT_ALL_ROWS").is_some() { 1 } else { STEP };
    let table = fs::read_to_string(corpora.join("mkfs-options.tsv")).unwrap();
    let mut seen = 0;
    for line in table.lines().skip(1).step_by(step) {
        let Some(options) = make(line, &corpora, &image) else { continue };
        seen += 1;
        for words in PRINTED {
            let [ours, theirs] = [Some(&*bin), None].map(|links| run(links, words, &image));
            assert_eq!(ours.status.code(), theirs.status.code(), "{options}: {words:?}");
            // The first line of tune2fs is its version. A file that goes on in the next group after
            // its tables is in one piece for e2fsck.
            let head = usize::from(words[0] == "tune2fs");
            let is_compared = |line: &&str| !line.contains(" non-contiguous file");
            let [ours, theirs] = [ours, theirs].map(|output| {
                let lines = text(&output.stdout);
                lines.lines().skip(head).filter(is_compared).map(str::to_owned).collect::<Vec<_>>()
            });
            assert_eq!(ours, theirs, "{options}: {words:?}");
        }
    }
    assert!(seen > 10, "{seen} volumes");
}

/// A volume with a directory, `/test`, and a file in it, and what debugfs does to it.
fn damaged(scratch: &Scratch, requests: &[&str]) -> std::path::PathBuf {
    let (image, tree) = (scratch.join("damaged"), scratch.join("tree"));
    if !tree.exists() {
        fs::create_dir_all(tree.join("test/sub")).unwrap();
        fs::write(tree.join("test/file"), "contents").unwrap();
    }
    let tree = tree.to_str().unwrap();
    let mut mke2fs = tool("mke2fs").expect("looked for before").command();
    mke2fs.args(["-q", "-F", "-t", "ext4", "-L", "vol", "-d", tree]).arg(&image).arg("8M");
    let made = mke2fs.stdin(Stdio::null()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let debugfs = tool("debugfs").expect("looked for before");
    for request in requests {
        let done = debugfs.run(["-w".as_ref(), "-R".as_ref(), request.as_ref(), image.as_os_str()]);
        assert!(done.status.success(), "{done:?}");
    }
    image
}

#[test]
fn e2fsck_names_directories_by_their_paths() {
    let Some(scratch) = with_links(&["mke2fs", "e2fsck", "debugfs"]) else {
        skip!("e2fsprogs is not installed");
    };
    let bin = scratch.join("bin");
    let rows: [(&[&str], &str); 5] = [
        (&["clri /test/file"], "in /test (12)"),
        (&["ln /test /test/again"], "in /test (12)"),
        (&["sif /test/sub mode 0100644"], "in /test (12)"),
        (&["sif /test/file mode 0"], "(/test/file)"),
        (&["clri /test"], "in / (2)"),
    ];
    for (requests, place) in rows {
        let image = damaged(&scratch, requests);
        let [ours, theirs] =
            [Some(&*bin), None].map(|links| text(&run(links, &["e2fsck", "-fn"], &image).stdout));
        // The first finding, up to the question, which theirs puts on a line of its own.
        let first = |said: &str| {
            let line = said.lines().find(|line| line.contains(place));
            let line = line.unwrap_or_else(|| panic!("{requests:?}: {said}"));
            line.split("  ").next().unwrap_or_default().trim_end().to_owned()
        };
        assert_eq!(first(&ours), first(&theirs), "{requests:?}");
        // The document for programs has the numbers.
        let json = run(Some(&bin), &["e2fsck", "-fn", "--json"], &image);
        let json = text(&json.stdout);
        assert!(json.contains("directory") && !json.contains(place), "{json}");
    }
}

#[test]
fn e2fsck_says_of_preening_what_theirs_does() {
    let Some(scratch) = with_links(&["mke2fs", "e2fsck", "debugfs"]) else {
        skip!("e2fsprogs is not installed");
    };
    let bin = scratch.join("bin");
    let rows: [&[&str]; 6] = [
        &["sif /test/sub links_count 5"],
        &["clri /test/file"],
        &["rm /test/file", "ssv free_inodes_count 3"],
        &["setb 7000 9", "seti <500>"],
        &["ssv free_blocks_count 77"],
        &["sif /test/file links_count 9", "freeb 3 2"],
    ];
    for requests in rows {
        let image = damaged(&scratch, requests);
        let spoiled = fs::read(&image).unwrap();
        let [ours, theirs] = [Some(&*bin), None].map(|links| {
            fs::write(&image, &spoiled).unwrap();
            let output = run(links, &["e2fsck", "-fp"], &image);
            (output.status.code(), text(&output.stdout))
        });
        assert_eq!(ours, theirs, "{requests:?}");
    }
    // `extant fsck` says everything.
    let image = damaged(&scratch, &["ssv free_blocks_count 77"]);
    let words = ["fsck".as_ref(), "-fp".as_ref(), image.as_os_str()];
    let output = Command::new(env!("CARGO_BIN_EXE_extant")).args(words).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("vol: Free blocks count wrong (77, counted="), "{said}");
    assert!(said.contains(").  FIXED.\n"), "{said}");
}

#[test]
fn dumpe2fs_shows_damaged_volumes_as_theirs_does() {
    let Some(scratch) = with_links(&["mke2fs", "debugfs", "dumpe2fs"]) else {
        skip!("e2fsprogs is not installed");
    };
    let bin = scratch.join("bin");
    let sound = fs::read(damaged(&scratch, &[])).unwrap();
    let dumped = text(&run(None, &["dumpe2fs"], &scratch.join("damaged")).stdout);
    let block_of = |name: &str| {
        let rest = dumped.split_once(name).expect("in the first group").1;
        rest.split([' ', ',']).next().and_then(|word| word.parse::<usize>().ok()).unwrap() * 1024
    };
    let damages = [
        ("checksum of the superblock", 1024 + 0x3fc),
        ("label", 1024 + 0x78),
        ("checksum of a descriptor", 2048 + 0x1e),
        ("block bitmap", block_of("Block bitmap at ") + 900),
        ("inode bitmap", block_of("Inode bitmap at ") + 20),
    ];
    let image = scratch.join("image");
    for (what, at) in damages {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x11;
        fs::write(&image, &bytes).unwrap();
        for words in [&["dumpe2fs"][..], &["dumpe2fs", "-h"], &["dumpe2fs", "-g"]] {
            let [ours, theirs] = [Some(&*bin), None].map(|links| {
                let output = run(links, words, &image);
                (output.status.code(), text(&output.stdout))
            });
            assert_eq!(ours, theirs, "{what}: {words:?}");
        }
    }
    // Block sizes, and blocks past the end.
    fs::write(&image, &sound).unwrap();
    for option in ["blocksize=1024", "blocksize=4096", "superblock=1048576"] {
        let [ours, theirs] = [Some(&*bin), None].map(|links| {
            let output = run(links, &["dumpe2fs", "-o", option], &image);
            (output.status.code(), text(&output.stdout))
        });
        assert_eq!(ours, theirs, "{option}");
    }
}
