//! `extant debugfs` and its twin next to e2fsprogs' debugfs, on volumes of many feature sets.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use extant_testkit::{Scratch, TempImage, Tool, is_root, left_dirty, skip, tool};

const EXTANT: &str = env!("CARGO_BIN_EXE_extant");

/// Our binary under the twin's name, next to the twin.
struct Pair {
    scratch: Scratch,
    theirs: Tool,
}

impl Pair {
    fn new() -> Option<Self> {
        let theirs = tool("debugfs")?;
        let scratch = Scratch::new();
        symlink(EXTANT, scratch.join("debugfs")).unwrap();
        Some(Self { scratch, theirs })
    }

    fn ours(&self, words: &[&str], image: &Path) -> Output {
        let mut command = Command::new(self.scratch.join("debugfs"));
        command.args(words).arg(image).env("TZ", "UTC").stdin(Stdio::null()).output().unwrap()
    }

    fn theirs(&self, words: &[&str], image: &Path) -> Output {
        let mut command = self.theirs.command();
        let command = command.args(words).arg(image).env("TZ", "UTC").env("DEBUGFS_PAGER", "cat");
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Standard output of a request is the twin's, byte for byte.
    fn agrees(&self, request: &str, image: &Path, what: &str) {
        let expected = self.theirs(&["-R", request], image);
        let found = self.ours(&["-R", request], image);
        if expected.stdout == found.stdout {
            return;
        }
        let lines = |output: &Output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let (expected_lines, found_lines) = (lines(&expected), lines(&found));
        for (at, (expected, found)) in expected_lines.iter().zip(&found_lines).enumerate() {
            assert_eq!(found, expected, "{what}: {request}, line {}", at + 1);
        }
        let said = String::from_utf8_lossy(&found.stderr).into_owned();
        assert_eq!(found_lines.len(), expected_lines.len(), "{what}: {request}: {said}");
        panic!("{what}: {request}: {:?} instead of {:?}", found.stdout, expected.stdout);
    }
}

/// A tree with every kind of file.
fn grow_tree(root: &Path) {
    let make = |name: &str, bytes: &[u8]| fs::write(root.join(name), bytes).unwrap();
    for dir in ["dir/sub/deep", "big", "sp ace"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    make("hello", b"hello\n");
    let bytes: Vec<u8> = (0..300_000_u32).map(|it| (it * 7 % 251) as u8).collect();
    make("rnd", &bytes[..100_000]);
    make("empty", b"");
    make("dir/sub/deep/file", &bytes[..5000]);
    let mut sparse = fs::File::create(root.join("sparse")).unwrap();
    for at in [100 << 10, 1000 << 10, 20_000 << 10] {
        sparse.seek(SeekFrom::Start(at)).unwrap();
        sparse.write_all(&bytes[..30_000]).unwrap();
    }
    fs::hard_link(root.join("hello"), root.join("hard")).unwrap();
    symlink("hello", root.join("link")).unwrap();
    symlink("x".repeat(100), root.join("longlink")).unwrap();
    for index in 0..300 {
        make(&format!("big/file-with-a-long-name-{index}"), index.to_string().as_bytes());
    }
    fs::set_permissions(root.join("dir"), fs::Permissions::from_mode(0o4755)).unwrap();
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("sock", FileType::Socket, 0),
        ("chr", FileType::CharacterDevice, makedev(5, 1)),
        ("blk", FileType::BlockDevice, makedev(8, 300)),
    ] {
        let mode = Mode::from_raw_mode(0o644);
        mknodat(CWD, root.join(name), kind, mode, device).unwrap();
    }
    chown(root.join("dir/sub"), Some(1000), Some(100_000)).unwrap();
    for (name, key, value) in [
        ("hello", "user.test", &b"value"[..]),
        ("hello", "user.bin", &[0, 255, 16]),
        ("hello", "user.forty", &[b'y'; 40]),
        ("rnd", "user.long", &[b'z'; 300]),
        ("rnd", "security.foo", b"bar\"q\\"),
        ("dir", "user.line", b"a\n"),
    ] {
        let path = root.join(name);
        rustix::fs::setxattr(&path, key, value, rustix::fs::XattrFlags::empty()).unwrap();
    }
}

/// Feature sets, with the sizes of volumes.
const FEATURE_SETS: &[(&[&str], u64)] = &[
    (&["-t", "ext4"], 40 << 20),
    (&["-t", "ext4", "-b", "4096"], 80 << 20),
    (&["-t", "ext2", "-b", "1024"], 40 << 20),
    (&["-t", "ext2", "-r", "0", "-O", "none", "-b", "1024"], 40 << 20),
    (&["-t", "ext3", "-I", "128"], 60 << 20),
    (
        &[
            "-t",
            "ext4",
            "-O",
            "inline_data,ea_inode,quota,project,mmp,metadata_csum_seed,large_dir",
        ],
        40 << 20,
    ),
    (&["-t", "ext4", "-O", "bigalloc", "-C", "16384"], 80 << 20),
    (&["-t", "ext4", "-O", "^metadata_csum,uninit_bg,^64bit", "-b", "1024"], 40 << 20),
    (&["-t", "ext4", "-O", "orphan_file,fast_commit,casefold,verity,sparse_super2"], 40 << 20),
    (&["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024"], 60 << 20),
];

/// Requests that read, without an output on the host.
const READING: &[&str] = &[
    "ls",
    "ls -l",
    "ls -p",
    "ls -d",
    "ls -c",
    "ls -r",
    "ls -l dir",
    "ls -p /dir/sub",
    "ls -ld big",
    "ls -c big",
    "ls -pd /",
    "ls <11>",
    "ls \"sp ace\"",
    "ls -l <2>",
    "ls hello",
    "ls nosuch",
    "stat hello",
    "stat link",
    "stat longlink",
    "stat chr",
    "stat blk",
    "stat fifo",
    "stat sock",
    "stat sparse",
    "stat rnd",
    "stat empty",
    "stat dir",
    "stat dir/sub",
    "stat big",
    "stat <1>",
    "stat <2>",
    "stat <3>",
    "stat <7>",
    "stat <8>",
    "stat <11>",
    "stat <0x2>",
    "stat \"\"",
    "stat <1500>",
    "stats",
    "stats -h",
    "show_super_stats",
    "ncheck 12 13 20 300 311 320 2",
    "ncheck -c 12 13 300",
    "ncheck 99999",
    "icheck 1 2 100 1000 1500 2000 3000 3300 4000 9000 16385 999999",
    "imap hello",
    "imap <2>",
    "imap dir/sub",
    "ea_list hello",
    "ea_list rnd",
    "ea_list dir",
    "ea_list link",
    "ea_get hello user.test",
    "ea_get hello user.bin",
    "ea_get -x hello user.test",
    "ea_get -C hello user.bin",
    "ea_get -V hello user.test",
    "ea_get rnd user.long",
    "blocks hello",
    "blocks sparse",
    "blocks dir",
    "blocks chr",
    "blocks <7>",
    "blocks <8>",
    "testb 5",
    "testb 3000 20",
    "testb 8190 5",
    "testi hello",
    "testi <900>",
    "bmap sparse 100",
    "bmap sparse 5",
    "bmap rnd 90",
    "bmap <7> 268",
    "bmap sparse 999999",
    "features",
    "feature",
    "cat hello",
    "cat rnd",
    "cat sparse",
    "cat dir",
    "cat empty",
    "dump_extents sparse",
    "ex -n rnd",
    "extents -l big",
    "ex link",
    "filefrag sparse",
    "filefrag -v rnd",
    "filefrag -dv big",
    "filefrag -r /",
    "filefrag -v dir",
    "freefrag",
    "freefrag -c 64",
    "idump hello",
    "inode_dump -b rnd",
    "idump -e hello",
    "bd 2",
    "block_dump 5",
    "bd -f hello 0",
    "bd -f rnd 3",
    "dx_hash foo",
    "dx_hash -h tea foo",
    "hash -h half_md4 -s 01234567-89ab-cdef-0123-456789abcdef foo",
    "dx_hash -h 1 foo",
    "dx_hash -c FOO",
    "dx_hash -c -e utf8 FOO",
    "dx_hash -h tea -c -e utf8-12.1 ÄÖ",
    "dx_hash -e utf8 FOO",
    "dx_hash -c -e nosuch FOO",
    "dirsearch / hello",
    "dirsearch big file-with-a-long-name-250",
    "dirsearch / nosuch",
    "lsdel",
    "logdump",
    "logdump -S",
    "pwd",
    "list_quota user",
    "lq group",
    "get_quota user 0",
    "get_quota project 77",
    "dump_mmp",
    "ffb",
    "ffb 3",
    "ffb 2 20000",
    "ffi",
    "dump_unused",
    "htree big",
    "list_requests",
    "lr",
    "?",
];

/// Where ours is right and theirs is not: data inside an inode without what lies after the file's
/// end, free clusters counted each once, and a log without its area of fast commits, as dumpe2fs
/// has it.
fn differs(request: &str, options: &[&str]) -> bool {
    let has = |feature: &str| options.iter().any(|it| it.contains(feature));
    has("inline_data") && ["cat hello", "cat empty"].contains(&request)
        || has("fast_commit") && request == "logdump -S"
        || has("bigalloc") && (request.starts_with("freefrag") || request.starts_with("ffb "))
}

#[test]
fn what_requests_print_is_what_debugfs_prints() {
    let Some(pair) = Pair::new() else { skip!("debugfs is not installed") };
    if !is_root() {
        skip!("device files and other owners need root");
    }
    let tree = pair.scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    grow_tree(&tree);
    for &(options, size) in FEATURE_SETS {
        let tree = tree.to_str().unwrap();
        let words: Vec<&str> = [&["-d", tree], options].concat();
        let image = match TempImage::by_mke2fs(size, &words) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let path = image.path();
        for request in READING.iter().filter(|it| !differs(it, options)) {
            pair.agrees(request, &path, &format!("{options:?}"));
        }
    }
}

#[test]
fn what_a_log_holds_is_shown_as_by_debugfs() {
    let Some(pair) = Pair::new() else { skip!("debugfs is not installed") };
    if !is_root() {
        skip!("a loop mount needs root");
    }
    for options in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext4", "-O", "^64bit"]] {
        let image = match TempImage::by_mke2fs(32 << 20, options) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let dirty = left_dirty(&image.path(), "", |root| {
            for number in 0..3 {
                fs::create_dir(root.join(format!("dir{number}"))).unwrap();
                fs::write(root.join(format!("dir{number}/file")), "text\n").unwrap();
                fs::File::open(root.join(format!("dir{number}/file"))).unwrap().sync_all().unwrap();
            }
            fs::remove_dir_all(root.join("dir1")).unwrap();
            fs::File::open(root.join("dir2/file")).unwrap().sync_all().unwrap();
            fs::File::open(root).unwrap().sync_all().unwrap();
        });
        let dirty = match dirty {
            Ok(dirty) => dirty,
            Err(why) => skip!("{why}"),
        };
        let path = dirty.path();
        let log = pair.theirs(&["-R", "logdump -a"], &path);
        let log = String::from_utf8_lossy(&log.stdout).into_owned();
        let word_after = |line: &str, word: &str| {
            line.split_whitespace().skip_while(|it| *it != word).nth(1).map(str::to_owned)
        };
        let mut blocks: Vec<_> = log.lines().filter_map(|line| word_after(line, "block")).collect();
        blocks.sort();
        blocks.dedup();
        assert!(log.contains("Revoke FS block") && blocks.len() > 5, "{log}");
        let file = pair.scratch.join("log");
        pair.theirs(&["-R", &format!("dump <8> {}", file.display())], &path);
        let mut requests = vec!["logdump".to_owned(), "logdump -a".into(), "logdump -ac".into()];
        requests.push(format!("logdump -a -f {}", file.display()));
        requests.extend(blocks.iter().map(|block| format!("logdump -b {block}")));
        requests.push(format!("logdump -c -b {}", blocks[0]));
        requests.push(format!("logdump -a -b {}", blocks[1]));
        for request in &requests {
            pair.agrees(request, &path, &format!("{options:?}"));
        }
    }
}

/// A script goes on after an error, and ends with 1; unless it is told to end as theirs.
#[test]
fn a_request_that_fails_ends_the_program_with_1() {
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let scratch = Scratch::new();
    let script = scratch.join("script");
    fs::write(&script, "pwd\n# a comment\n\ncat nosuch\nls \"a\nnosuch x\npwd\n").unwrap();
    let run = |words: &[&str], theirs: bool| {
        let mut command = Command::new(EXTANT);
        command.arg("debugfs").args(words).arg(image.path()).stdin(Stdio::null());
        if theirs {
            command.env("EXTANT_DEBUGFS_EXIT", "0");
        }
        command.output().unwrap()
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let done = run(&["-f", script.to_str().unwrap()], false);
    assert_eq!(done.status.code(), Some(1));
    let pwd = "[pwd]   INODE:      2  PATH: /\n[root]  INODE:      2  PATH: /\n";
    let shown = format!(
        "debugfs: pwd\n{pwd}# a comment\ndebugfs: \ndebugfs: cat nosuch\ndebugfs: ls \"a\n\
         debugfs: nosuch x\ndebugfs: pwd\n{pwd}"
    );
    assert_eq!(text(&done.stdout), shown);
    let said = "nosuch: File not found by ext2_lookup \n\
                debugfs: Unbalanced quotes in command line\ndebugfs: Command not found nosuch\n";
    assert_eq!(text(&done.stderr), said);
    for (request, code, theirs) in [
        ("pwd", 0, 0),
        ("stat /", 0, 0),
        ("cat nosuch", 1, 0),
        ("nosuch", 1, 1),
        ("ls -q", 1, 0),
        ("journal_open", 1, 0),
        ("jw -b 1 x", 1, 0),
        ("extent_open <12>", 1, 0),
    ] {
        assert_eq!(run(&["-R", request], false).status.code(), Some(code), "{request}");
        assert_eq!(run(&["-R", request], true).status.code(), Some(theirs), "{request}");
    }
    let refused = run(&["-R", "journal_run"], false);
    assert_eq!(text(&refused.stderr), "journal_run: not supported by extant\n");
    let missing = ["debugfs", "-R", "pwd", "/nonexistent"];
    let missing = Command::new(EXTANT).args(missing).output().unwrap();
    let said = "debugfs: No such file or directory while trying to open /nonexistent\n\
                pwd: Filesystem not open\n";
    assert_eq!((text(&missing.stderr).as_str(), missing.status.code()), (said, Some(1)));
}

/// Requests from standard input have a prompt, and `quit` ends them.
#[test]
fn init_filesys_makes_a_volume_with_the_counts_of_debugfs() {
    let Some(pair) = Pair::new() else { skip!("debugfs is not installed") };
    let image = pair.scratch.join("new.img");
    let fields = |program: &mut Command| {
        fs::File::create(&image).unwrap().set_len(20 << 20).unwrap();
        let request = format!("init_filesys {} 10000", image.display());
        let output = program.args(["-R", &request]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = pair.theirs(&["-R", "stats -h"], &image).stdout;
        let counts = [
            "Block count:",
            "Block size:",
            "Inode count:",
            "Inodes per group:",
            "Reserved block count:",
            "Filesystem features:",
            "Filesystem revision #:",
        ];
        let is_count = |line: &&str| counts.iter().any(|count| line.starts_with(count));
        let said = String::from_utf8(said).unwrap();
        let lines: Vec<String> = said.lines().filter(is_count).map(str::to_owned).collect();
        assert_eq!(lines.len(), counts.len(), "{said}");
        lines
    };
    let ours = || Command::new(pair.scratch.join("debugfs"));
    assert_eq!(fields(&mut ours()), fields(&mut pair.theirs.command()));
    fields(&mut ours());
    extant_testkit::e2fsck_fn(&image).unwrap();

    for (requests, why) in [
        (format!("init_filesys {} 5", image.display()), "while initializing filesystem"),
        (format!("init_filesys {} 40000", image.display()), "while initializing filesystem"),
        (format!("init_filesys {} x", image.display()), "Bad blocks count - x"),
        ("init_filesys nosuch 8192".to_owned(), "while initializing filesystem"),
    ] {
        let before = fs::read(&image).unwrap();
        let output = ours().args(["-R", &requests]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(why) && output.status.code() == Some(1), "{requests}: {output:?}");
        assert_eq!(fs::read(&image).unwrap(), before, "{requests}");
    }
    let script = format!("init_filesys {} 10000\nwrite /etc/hostname a\nls\n", image.display());
    let file = pair.scratch.join("script");
    fs::write(&file, script).unwrap();
    let output = ours().arg("-f").arg(&file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    extant_testkit::e2fsck_fn(&image).unwrap();
}

#[test]
fn standard_input_is_a_script_with_prompts() {
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mut command = Command::new(EXTANT);
    let command = command.arg("debugfs").arg(image.path());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let lines = b"cd lost+found\npwd\nnosuch\nquit\npwd\n";
    running.stdin.take().unwrap().write_all(lines).unwrap();
    let done = running.wait_with_output().unwrap();
    let shown = "debugfs:  cd lost+found\ndebugfs:  pwd\n\
                 [pwd]   INODE:     11  PATH: /lost+found\n\
                 [root]  INODE:      2  PATH: /\ndebugfs:  nosuch\ndebugfs:  quit\n";
    assert_eq!(String::from_utf8_lossy(&done.stdout), shown);
    let said = "debugfs: Unknown request \"nosuch\".  Type \"?\" for a request list.\n";
    assert_eq!(String::from_utf8_lossy(&done.stderr), said);
    assert_eq!(done.status.code(), Some(1));
}

/// Files come out as they are, by one user for all owners too.
#[test]
fn dumped_files_are_those_of_the_tree() {
    let Some(pair) = Pair::new() else { skip!("debugfs is not installed") };
    if !is_root() {
        skip!("device files and other owners need root");
    }
    let tree = pair.scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    grow_tree(&tree);
    let words = ["-d", tree.to_str().unwrap(), "-t", "ext4"];
    let image = match TempImage::by_mke2fs(60 << 20, &words) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let list = |dir: &Path| {
        let format = "%P %y %m %U %G %s %l\\n";
        let found = Command::new("find").arg(dir).args(["-printf", format]).output().unwrap();
        let mut lines: Vec<_> =
            String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        // The root directory's own size is the host's.
        lines.retain(|line| !line.contains(" d ") && !line.contains("lost+found"));
        lines
    };
    let [ours, theirs] = ["ours", "theirs"].map(|name| pair.scratch.join(name));
    for dir in [&ours, &theirs] {
        fs::create_dir(dir).unwrap();
    }
    let done = pair.ours(&["-R", &format!("rdump / {}", ours.display())], &image.path());
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    pair.theirs(&["-R", &format!("rdump / {}", theirs.display())], &image.path());
    assert_eq!(list(&ours), list(&theirs));
    let mut diff = Command::new("diff");
    let same = diff.args(["-r", "--no-dereference"]).args([&ours, &theirs]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&same.stdout), "");
    let out = pair.scratch.join("out");
    let done = pair.ours(&["-R", &format!("dump -p rnd {}", out.display())], &image.path());
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(fs::read(&out).unwrap(), fs::read(tree.join("rnd")).unwrap());
    let done = pair.ours(&["-R", "dump sparse /dev/stdout"], &image.path());
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(done.stdout == fs::read(tree.join("sparse")).unwrap());
}

/// Volumes that are damaged are opened, and what is wrong is an error of the request, never a
/// panic.
#[test]
fn a_damaged_volume_is_looked_into() {
    let Some(pair) = Pair::new() else { skip!("debugfs is not installed") };
    if !is_root() {
        skip!("device files and other owners need root");
    }
    let tree = pair.scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    grow_tree(&tree);
    let words = ["-d", tree.to_str().unwrap(), "-t", "ext4", "-b", "1024"];
    let image = match TempImage::by_mke2fs(40 << 20, &words) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let sound = fs::read(image.path()).unwrap();
    let broken = pair.scratch.join("broken.img");
    // A size that is wrong makes `cat` as long as it says.
    let lines: Vec<&str> =
        READING.iter().copied().filter(|request| !request.starts_with("cat ")).collect();
    let script = pair.scratch.join("script");
    fs::write(&script, lines.join("\n") + "\n").unwrap();
    let script = script.to_str().unwrap();
    for seed in 0..24_u64 {
        let mut bytes = sound.clone();
        let mut random = extant_testkit::tree::Random::new(seed);
        // Metadata are in the first part of the volume.
        for _ in 0..200 {
            let at = random.below(3 << 20) as usize;
            bytes[at] = random.number() as u8;
        }
        fs::write(&broken, &bytes).unwrap();
        for words in [&[][..], &["-c"], &["-n"], &["-c", "-n"]] {
            let words = [words, &["-f", script]].concat();
            let done = pair.ours(&words, &broken);
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            let is_told = matches!(done.status.code(), Some(0 | 1));
            assert!(is_told, "seed {seed}: {words:?}: {:?}: {said}", done.status);
        }
    }
}
