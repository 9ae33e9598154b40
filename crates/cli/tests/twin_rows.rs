//! Command lines that scripts use, by our links and by the tools of e2fsprogs: a table of rows.
//! Compared are the exit codes, and the output or the volume. Intended differences are listed in
//! `docs/src/reference/e2fsprogs.md`.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use extant_testkit::{LoopDevice, LoopMount, Scratch, is_root, skip, tool};

/// A program, ours or theirs, in a directory.
struct Twin<'a> {
    name: &'a str,
    /// A directory with our links; `None` for theirs.
    links: Option<&'a Path>,
}

impl Twin<'_> {
    fn run(&self, directory: &Path, words: &[&str]) -> Output {
        let mut command = match self.links {
            Some(links) => Command::new(links.join(self.name)),
            None => tool(self.name).expect("looked for before").command(),
        };
        let command = command.current_dir(directory).env("LC_ALL", "C").args(words);
        command.stdin(Stdio::null()).output().unwrap()
    }
}

/// Links of ours by these names.
fn links(scratch: &Scratch, names: &[&str]) {
    for name in names {
        symlink(env!("CARGO_BIN_EXE_extant"), scratch.join(name)).unwrap();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn make(image: &Path, words: &[&str], size: &str) {
    let mke2fs = tool("mke2fs").expect("looked for before");
    // In the past: a time that is written again differs, however soon it is.
    let mut mke2fs = mke2fs.command();
    mke2fs.env("E2FSPROGS_FAKE_TIME", "1700000000");
    let made = mke2fs.args(["-q", "-F"]).args(words).arg(image).arg(size).output();
    assert!(made.as_ref().unwrap().status.success(), "{words:?} {made:?}");
}

/// Runs both programs on the same files; the exit codes and the output are the same.
fn same(scratch: &Scratch, name: &str, directory: &Path, rows: &[&[&str]]) {
    let path = scratch.path().to_owned();
    let (ours, theirs) = (Twin { name, links: Some(&path) }, Twin { name, links: None });
    for words in rows {
        let (ours, theirs) = (ours.run(directory, words), theirs.run(directory, words));
        assert_eq!(
            ours.status.code(),
            theirs.status.code(),
            "{name} {words:?}: {ours:?} {theirs:?}"
        );
        assert_eq!(text(&ours.stdout), text(&theirs.stdout), "{name} {words:?}");
    }
}

#[test]
fn dumpe2fs_fails_with_the_codes_of_theirs() {
    let (Some(_), Some(_)) = (tool("mke2fs"), tool("dumpe2fs")) else {
        skip!("mke2fs or dumpe2fs is not installed");
    };
    let scratch = Scratch::new();
    links(&scratch, &["dumpe2fs"]);
    let at = |name: &str| scratch.join(name);
    make(&at("good.img"), &["-t", "ext4"], "16M");
    make(&at("mmp.img"), &["-t", "ext4", "-O", "mmp"], "16M");
    make(&at("journal.img"), &["-O", "journal_dev", "-b", "1024"], "4M");
    fs::write(at("zero.img"), [0; 4096]).unwrap();
    fs::write(at("empty.img"), "").unwrap();
    fs::create_dir(at("directory")).unwrap();
    fs::copy(at("good.img"), at("feature.img")).unwrap();
    let feature = File::options().write(true).open(at("feature.img")).unwrap();
    // An unknown bit of s_feature_incompat; the checksum is not right then either.
    feature.write_all_at(&[0x80], 1024 + 0x63).unwrap();
    make(&at("bad.img"), &["-t", "ext4"], "16M");
    fs::write(at("list"), "7000\n7001\n7002\n7010\n").unwrap();
    let mut check = Command::new("e2fsck");
    check.args(["-fy", "-L", "list", "bad.img"]).current_dir(scratch.path());
    assert!(check.output().unwrap().status.success());
    let rows: &[&[&str]] = &[
        &["bad.img"],
        &["-h", "bad.img"],
        &["-b", "bad.img"],
        &["none.img"],
        &["-h", "none.img"],
        &["-m", "none.img"],
        &["zero.img"],
        &["-b", "zero.img"],
        &["-g", "zero.img"],
        &["-m", "zero.img"],
        &["empty.img"],
        &["directory"],
        &["journal.img"],
        &["-m", "good.img"],
        &["-m", "mmp.img"],
        &["-o", "nonsense=1", "good.img"],
        &["-o", "superblock=x", "good.img"],
        &["-Z", "good.img"],
        &["good.img", "good.img"],
        &[],
        &["-h", "good.img"],
        &["-x", "good.img"],
        &["-g", "good.img"],
    ];
    same(&scratch, "dumpe2fs", scratch.path(), rows);
    let feature = Twin { name: "dumpe2fs", links: Some(scratch.path()) };
    let code = feature.run(scratch.path(), &["-h", "feature.img"]).status.code();
    assert!(matches!(code, Some(67 | 152)), "{code:?}");
}

/// Files of many kinds on a mount, in pieces, with holes, without blocks.
fn files(root: &Path) {
    fs::write(root.join("whole"), vec![1; 300 << 10]).unwrap();
    let pieces = [File::create(root.join("one")).unwrap(), File::create(root.join("two")).unwrap()];
    for round in 1..9_u64 {
        for file in &pieces {
            file.write_all_at(&[2; 4096], round * 12_288).unwrap();
            file.sync_all().unwrap();
        }
    }
    File::create(root.join("hole")).unwrap().set_len(1 << 20).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("tiny"), "tiny").unwrap();
    fs::create_dir(root.join("directory")).unwrap();
    symlink("whole", root.join("link")).unwrap();
    rustix::fs::sync();
}

#[test]
fn filefrag_shows_files_of_the_host_as_theirs_does() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let (Some(_), Some(_)) = (tool("mke2fs"), tool("filefrag")) else {
        skip!("mke2fs or filefrag is not installed");
    };
    let scratch = Scratch::new();
    links(&scratch, &["filefrag"]);
    let image = scratch.join("disk.img");
    let kinds: [&[&str]; 3] = [
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext4", "-b", "1024", "-O", "inline_data"],
    ];
    for kind in kinds {
        make(&image, kind, "64M");
        let mount = match LoopMount::new(&image, "") {
            Ok(mount) => mount,
            Err(why) => skip!("no loop mount here: {why}"),
        };
        files(mount.path());
        let rows: &[&[&str]] = &[
            &["whole", "one", "two", "hole", "empty", "tiny", "directory", "link"],
            &["-v", "whole", "one", "two", "hole", "empty", "tiny", "directory", "link"],
            &["-e", "one"],
            &["-k", "-v", "one"],
            &["-v", "-b512", "one"],
            &["-v", "-b1M", "one"],
            &["-v", "-b3", "whole"],
            &["-vX", "one"],
            &["-s", "one"],
            &["-sv", "two"],
            &["-P", "whole"],
            &["-E", "one"],
            &["-Ev", "whole"],
            &["-B", "whole"],
            &["-Bv", "one"],
            &["-Be", "one"],
            &["-Be", "whole"],
            &["-Bv", "hole"],
            &["-Bv", "-k", "two"],
            &["-B", "directory"],
            &["-xv", "directory"],
            &["none"],
            &["whole", "none", "one"],
            &["-b2G", "whole"],
            &["-Z"],
            &[],
            &["/dev/null"],
            &["-v", "/proc/self/status"],
        ];
        same(&scratch, "filefrag", mount.path(), rows);
        mount.unmount().unwrap();
    }
}

#[test]
fn filefrag_on_a_file_system_without_extents_ends_as_theirs() {
    if !is_root() || !Path::new("/dev/shm").is_dir() {
        skip!("no file system in memory, or no privilege for FIBMAP");
    }
    let Some(_) = tool("filefrag") else { skip!("filefrag is not installed") };
    let scratch = Scratch::new();
    links(&scratch, &["filefrag"]);
    let name = format!("/dev/shm/extant-twin-rows-{}", std::process::id());
    fs::write(&name, "data").unwrap();
    let rows: &[&[&str]] = &[
        &[&name],
        &["-v", &name],
        &["-Bv", &name],
        &["-x", &name],
        &["-P", &name],
        &["-E", &name],
        &["/dev/shm"],
        &["-v", "/dev/shm"],
    ];
    same(&scratch, "filefrag", scratch.path(), rows);
    fs::remove_file(&name).unwrap();
}

/// Requests on a mounted volume, and whether theirs is followed: what lies outside the superblock
/// is refused.
const MOUNTED: [(&[&str], bool); 30] = [
    (&["-L", "mounted"], true),
    (&["-m", "3"], true),
    (&["-r", "100"], true),
    (&["-c", "20"], true),
    (&["-C", "3"], true),
    (&["-i", "5d"], true),
    (&["-o", "debug"], true),
    (&["-e", "panic"], true),
    (&["-u", "5"], true),
    (&["-g", "6"], true),
    (&["-T", "20200101"], true),
    (&["-M", "/somewhere"], true),
    (&["-E", "stride=4"], true),
    (&["-E", "stripe_width=8"], true),
    (&["-E", "mount_opts=debug"], true),
    (&["-E", "force_fsck"], true),
    (&["-E", "hash_alg=tea"], true),
    (&["-O", "large_dir,ea_inode"], true),
    (&["-O", "quota"], true),
    (&["-O", "casefold"], true),
    (&["-O", "mmp"], true),
    (&["-O", "^has_journal"], true),
    (&["-O", "^metadata_csum"], true),
    (&["-O", "^huge_file"], true),
    (&["-U", "random"], true),
    (&["-I", "512"], true),
    (&["-Q", "usrquota"], true),
    (&["-O", "metadata_csum_seed"], true),
    (&["-E", "orphan_file_size=64"], false),
    (&["-U", "d5a3a0a6-7f0f-4c33-9a59-2f9a5f1c7b10"], true),
];

/// Exit codes, reserved blocks as the kernel counts them, and fields of the superblock.
type Tuned = (Vec<Option<i32>>, u64, String);

/// Makes the requests while the kernel has the volume mounted; the exit codes, what statfs(2) says
/// then, and the superblock afterwards.
fn tune_mounted(twin: &Twin<'_>, image: &Path) -> Result<Tuned, String> {
    let seed = ["-E", "hash_seed=d5a3a0a6-7f0f-4c33-9a59-2f9a5f1c7b11"];
    let uuid = ["-t", "ext4", "-U", "d5a3a0a6-7f0f-4c33-9a59-2f9a5f1c7b12"];
    make(image, &[&uuid[..], &seed].concat(), "32M");
    let device = LoopDevice::new(image)?;
    let point = image.with_extension("mount");
    fs::create_dir(&point).unwrap();
    let mounted = Command::new("mount").arg(device.path()).arg(&point).output().unwrap();
    if !mounted.status.success() {
        return Err(text(&mounted.stderr));
    }
    let device_name = device.path().display().to_string();
    let followed = MOUNTED.iter().filter(|(_, follows)| *follows || twin.links.is_some());
    let codes = followed
        .map(|(words, follows)| {
            let output = twin.run(Path::new("/"), &[*words, &[&device_name]].concat());
            if !follows {
                assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
                assert!(text(&output.stderr).contains("unmounted"), "{words:?}: {output:?}");
            }
            (*follows, output.status.code())
        })
        .filter(|(follows, _)| *follows)
        .map(|(_, code)| code)
        .collect();
    let free = rustix::fs::statvfs(&point).unwrap();
    let unmounted = Command::new("umount").arg(&point).output().unwrap();
    assert!(unmounted.status.success(), "{unmounted:?}");
    drop(device);
    let shown = tool("dumpe2fs").expect("looked for before").run(["-h".as_ref(), image]);
    // Theirs has the kernel write the label, which takes a transaction.
    let differs = ["time", "created", "checked", "check after", "hecksum", "Journal "];
    let is_same = |line: &&str| !differs.iter().any(|word| line.contains(word));
    let shown = text(&shown.stdout);
    let fields: Vec<_> = shown.lines().filter(is_same).collect();
    let checked = tool("e2fsck").expect("looked for before").run(["-fn".as_ref(), image]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    Ok((codes, free.f_bfree - free.f_bavail, fields.join("\n")))
}

#[test]
fn tune2fs_changes_the_superblock_of_a_mounted_device() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let tools = ["mke2fs", "tune2fs", "dumpe2fs", "e2fsck"];
    if tools.iter().any(|name| tool(name).is_none()) {
        skip!("{tools:?} are not all installed");
    }
    let scratch = Scratch::new();
    links(&scratch, &["tune2fs"]);
    let ours = Twin { name: "tune2fs", links: Some(scratch.path()) };
    let theirs = Twin { name: "tune2fs", links: None };
    let (ours, theirs) = match (
        tune_mounted(&ours, &scratch.join("ours.img")),
        tune_mounted(&theirs, &scratch.join("theirs.img")),
    ) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(why), _) | (_, Err(why)) => skip!("no loop mount here: {why}"),
    };
    for (at, (words, _)) in MOUNTED.iter().filter(|(_, follows)| *follows).enumerate() {
        assert_eq!(ours.0[at], theirs.0[at], "{words:?}");
    }
    assert_eq!((ours.1, &*ours.2), (theirs.1, &*theirs.2));
}

#[test]
fn e2fsck_counts_as_theirs_does() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let (Some(_), Some(_)) = (tool("mke2fs"), tool("e2fsck")) else {
        skip!("mke2fs or e2fsck is not installed");
    };
    let scratch = Scratch::new();
    links(&scratch, &["e2fsck"]);
    let kinds: [&[&str]; 3] =
        [&["-t", "ext4"], &["-t", "ext2"], &["-t", "ext4", "-O", "orphan_file,quota,project"]];
    for (at, kind) in kinds.into_iter().enumerate() {
        let name = format!("{at}.img");
        let image = scratch.join(&name);
        make(&image, kind, "64M");
        if at < 2 {
            let mount = match LoopMount::new(&image, "") {
                Ok(mount) => mount,
                Err(why) => skip!("no loop mount here: {why}"),
            };
            files(mount.path());
            fs::hard_link(mount.path().join("whole"), mount.path().join("again")).unwrap();
            File::create(mount.path().join("large")).unwrap().set_len(3 << 30).unwrap();
            mount.unmount().unwrap();
        }
        let rows: &[&[&str]] = &[
            &["-fnv", &name],
            &["-fn", &name],
            &["-C", "-1", "-fn", &name],
            &["-fn", "-N", "first", "-N", "shown", &name],
            &["-n", "-N", "shown", &name],
            &["-fn", "-I", "4", "-P", "16", &name],
            &["-E", "nonsense", "-fn", &name],
            &["-E", "fixes_only,bmap2extent", &name],
        ];
        same(&scratch, "e2fsck", scratch.path(), rows);
    }
}

#[test]
fn names_of_programs_that_are_not_built_are_refused() {
    let scratch = Scratch::new();
    let names = ["badblocks", "logsave", "e2scrub", "e2scrub_all", "e4crypt", "mklost+found"];
    links(&scratch, &names);
    for name in names {
        for words in [&["-V"][..], &["a.img"], &[]] {
            let twin = Twin { name, links: Some(scratch.path()) };
            let output = twin.run(scratch.path(), words);
            assert_eq!(
                (output.status.code(), output.stdout.len()),
                (Some(1), 0),
                "{name} {words:?}"
            );
            let says = text(&output.stderr);
            assert!(says.starts_with(&format!("{name}: not included in extant: ")), "{says}");
        }
    }
}

#[test]
fn e2fsck_says_its_version_unless_it_preens() {
    if tool("e2fsck").is_none() {
        skip!("e2fsck is not installed");
    }
    let scratch = Scratch::new();
    links(&scratch, &["e2fsck"]);
    make(&scratch.join("a.img"), &["-t", "ext4"], "16M");
    for words in [["-fn", "a.img"], ["-n", "a.img"], ["-y", "a.img"], ["-p", "a.img"]] {
        let says = [None, Some(scratch.path())].map(|links| {
            let output = Twin { name: "e2fsck", links }.run(scratch.path(), &words);
            text(&output.stderr).starts_with("e2fsck 1.47.")
        });
        assert_eq!(says[0], says[1], "{words:?}");
    }
}

/// Needs script(1), which gives the program a pseudo terminal.
#[test]
#[allow(clippy::disallowed_methods, reason = "another program sets its terminal")]
fn a_question_takes_one_key_at_a_terminal() {
    let tools = ["mke2fs", "e2fsck", "debugfs", "script"];
    if tools.iter().any(|name| tool(name).is_none()) {
        skip!("{tools:?} are not all installed");
    }
    let scratch = Scratch::new();
    links(&scratch, &["e2fsck"]);
    let good = scratch.join("good.img");
    make(&good, &["-t", "ext4"], "8M");
    let damage = tool("debugfs").expect("there").run([
        "-w".as_ref(),
        "-R".as_ref(),
        "sif lost+found links_count 9".as_ref(),
        good.as_os_str(),
    ]);
    assert!(damage.status.success(), "{damage:?}");
    for keys in ["y", "n", "a", " ", "qy"] {
        let answer = |program: &str| {
            let image = scratch.join("disk.img");
            fs::copy(&good, &image).unwrap();
            let line = format!("{program} -f disk.img");
            let script = tool("script").expect("there");
            let mut script = script.command();
            let script = script.args(["-qec", &line, "/dev/null"]).env("LC_ALL", "C");
            let script = script.current_dir(scratch.path()).stdin(Stdio::piped());
            let mut child = script.stdout(Stdio::piped()).spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            let mut output = child.stdout.take().unwrap();
            let mut shown = Vec::new();
            // Keys that are typed before the question is there are echoed into the output.
            let mut one = [0];
            while !shown.ends_with(b"? ") && output.read(&mut one).unwrap() > 0 {
                shown.push(one[0]);
            }
            // The question is shown before the terminal stops to echo.
            std::thread::sleep(Duration::from_millis(300));
            input.write_all(keys.as_bytes()).unwrap();
            // The terminal hangs up at the end of the input: it is kept open.
            output.read_to_end(&mut shown).unwrap();
            let status = child.wait().unwrap();
            drop(input);
            let shown = text(&shown);
            let asked = shown.split_once("Pass 4").map(|(_, rest)| rest.to_owned());
            (status.code(), asked.unwrap_or(shown))
        };
        let theirs = answer("e2fsck");
        assert_eq!(answer("./e2fsck"), theirs, "{keys:?}");
        assert!(theirs.1.contains("<y>? "), "{theirs:?}");
    }
}

#[test]
fn e2fsck_conf_is_followed_by_the_name_e2fsck() {
    let Some(theirs) = tool("e2fsck") else { skip!("e2fsck is not installed") };
    let scratch = Scratch::new();
    links(&scratch, &["e2fsck"]);
    let (image, conf) = (scratch.join("image"), scratch.join("conf"));
    make(&image, &["-t", "ext4"], "8M");
    let run = |mut program: Command, options: &str| {
        fs::write(&conf, options).unwrap();
        program.env("E2FSCK_CONFIG", &conf).args(["-fn"]).arg(&image).output().unwrap()
    };
    for options in ["", "[options]\n report_verbose = yes\n", "[options]\n report_time = 0\n"] {
        let ours = run(Command::new(scratch.join("e2fsck")), options);
        let theirs = run(theirs.command(), options);
        assert_eq!(ours.status.code(), theirs.status.code(), "{ours:?}");
        assert_eq!(text(&ours.stdout), text(&theirs.stdout), "{options}");
    }
    let timed = run(Command::new(scratch.join("e2fsck")), "[options]\n report_time = 1\n");
    assert!(text(&timed.stdout).contains("Pass 5: time:"), "{timed:?}");
    for (options, code, why) in [
        ("[options]\n log_filename = x\n", 0, "log_filename: not supported"),
        ("[problems]\n 0x040002 = {\n  force_no = 1\n }\n", 8, "[problems]: not supported"),
        ("[options\n", 8, "line 1"),
    ] {
        let said = run(Command::new(scratch.join("e2fsck")), options);
        assert_eq!(said.status.code(), Some(code), "{said:?}");
        assert!(text(&said.stderr).contains(why), "{said:?}");
    }
    // By our own name nothing of the machine is read.
    let mut extant = Command::new(env!("CARGO_BIN_EXE_extant"));
    extant.arg("fsck");
    assert_eq!(run(extant, "[options\n").status.code(), Some(0));
}

#[test]
fn mke2fs_takes_and_refuses_the_options_of_theirs() {
    let (Some(_), Some(dumpe2fs)) = (tool("mke2fs"), tool("dumpe2fs")) else {
        skip!("mke2fs or dumpe2fs is not installed")
    };
    let scratch = Scratch::new();
    links(&scratch, &["mke2fs"]);
    let path = scratch.path().to_owned();
    let image = scratch.join("image");
    let rows = [
        "-E stride=0",
        "-E stride=0,stripe_width=0",
        "-O quota -E quotatype=usr",
        "-O quota -E quotatype=usrquota:grp",
        "-O quota -E quotatype=g",
        "-O quota -E quotatype=usr:bogus",
        "-E root_perms",
        "-J location=100",
        "-J fast_commit_size=64",
        "-t ext2 -J location=100",
        "-t ext2 -J fast_commit_size=64",
        "-t ext2 -J size=4",
        "-t ext2 -J size=4,location=100",
        "-J bogus",
        "-S",
        "-F -S",
        "-r 1",
        "-r 2",
        "-t ext2 -l bad",
        "-t ext4 -b 1024 -l bad",
    ];
    fs::write(scratch.join("bad"), "3000\n3001\n4000\n").unwrap();
    for row in rows {
        let is_only_superblocks = row.contains("-S");
        let force: &[&str] = if is_only_superblocks { &["-q"] } else { &["-q", "-F"] };
        let words: Vec<_> = row.split(' ').collect();
        let made = [Some(&*path), None].map(|links| {
            drop(fs::remove_file(&image));
            let twin = Twin { name: "mke2fs", links };
            let words = [force, &words[..], &["image", "16M"]].concat();
            let code = twin.run(&path, &words).status.code();
            let shown = text(&dumpe2fs.run(["-h", image.to_str().unwrap()]).stdout);
            let is_compared = |line: &&str| {
                ["quota inode", "Overhead", "RAID"].iter().any(|name| line.contains(name))
                    || line.starts_with("Total journal")
            };
            // With -S the rest is left to a check.
            let lines = shown.lines().filter(|line| !is_only_superblocks && is_compared(line));
            (code, lines.map(str::to_owned).collect::<Vec<_>>())
        });
        assert_eq!(made[0], made[1], "{row}");
    }
}

#[test]
fn tune2fs_leaves_to_resize2fs_what_theirs_leaves() {
    let Some(_) = tool("tune2fs") else { skip!("tune2fs is not installed") };
    let scratch = Scratch::new();
    links(&scratch, &["tune2fs"]);
    let path = scratch.path().to_owned();
    let (base, image) = (scratch.join("base"), scratch.join("image"));
    for (kind, rows) in [
        ("64bit", &["-O ^64bit", "-O 64bit", "-O ^64bit -L name", "-I 512", "-I 128"][..]),
        ("^64bit", &["-O ^64bit", "-O 64bit", "-O 64bit,^dir_index", "-J fast_commit_size=64"]),
    ] {
        make(&base, &["-t", "ext4", "-O", kind], "16M");
        for row in rows {
            let done = [Some(&*path), None].map(|links| {
                fs::copy(&base, &image).unwrap();
                let words: Vec<_> = row.split(' ').chain(["image"]).collect();
                let output = Twin { name: "tune2fs", links }.run(&path, &words);
                let dumpe2fs = tool("dumpe2fs").expect("part of e2fsprogs, too");
                let shown = text(&dumpe2fs.run(["-h", image.to_str().unwrap()]).stdout);
                let lines: Vec<_> = shown
                    .lines()
                    .filter(|line| line.contains("features:") || line.contains("volume name"))
                    .map(str::to_owned)
                    .collect();
                let said = [text(&output.stdout), text(&output.stderr)].concat();
                let said: Vec<_> = said
                    .lines()
                    .filter(|line| line.starts_with("Please run"))
                    .map(str::to_owned)
                    .collect();
                (output.status.code(), lines, said)
            });
            assert_eq!(done[0], done[1], "{kind} {row}");
        }
    }
}

/// A command line of tune2fs on a copy of an image, by our link and by theirs.
struct Tuning {
    code: Option<i32>,
    /// Whether the image has other bytes than before.
    is_changed: bool,
    stdout: String,
    fields: Vec<String>,
}

fn tune_both(scratch: &Scratch, base: &Path, words: &[&str], fields: &[&str]) -> [Tuning; 2] {
    let (path, image) = (scratch.path(), scratch.join("image"));
    [Some(path), None].map(|links| {
        fs::copy(base, &image).unwrap();
        let words = [words, &["image"]].concat();
        let output = Twin { name: "tune2fs", links }.run(path, &words);
        let dumpe2fs = tool("dumpe2fs").expect("part of e2fsprogs, too");
        let shown = text(&dumpe2fs.run(["-h".as_ref(), image.as_os_str()]).stdout);
        let is_wanted = |line: &&str| fields.iter().any(|field| line.contains(field));
        Tuning {
            code: output.status.code(),
            is_changed: fs::read(&image).unwrap() != fs::read(base).unwrap(),
            stdout: text(&output.stdout),
            fields: shown.lines().filter(is_wanted).map(str::to_owned).collect(),
        }
    })
}

/// An image whose last mount was after its last check.
fn mounted_after_its_check(image: &Path, features: &str) {
    make(image, &["-t", "ext4", "-O", features], "16M");
    let debugfs = tool("debugfs").expect("part of e2fsprogs, too");
    let set = ["-w".as_ref(), "-R".as_ref(), "ssv mtime 20300101".as_ref(), image.as_os_str()];
    assert!(debugfs.run(set).status.success());
}

#[test]
fn tune2fs_asks_for_a_check_after_the_last_mount() {
    let Some(_) = tool("tune2fs") else { skip!("tune2fs is not installed") };
    let scratch = Scratch::new();
    links(&scratch, &["tune2fs"]);
    let base = scratch.join("base");
    for features in ["metadata_csum", "^metadata_csum,uninit_bg", "metadata_csum_seed"] {
        mounted_after_its_check(&base, features);
        for row in [
            "-O metadata_csum",
            "-O ^metadata_csum",
            "-f -O ^metadata_csum",
            "-U random",
            "-f -U clear",
            "-O ^dir_index",
            "-O quota",
            "-O ^uninit_bg",
            "-O ^has_journal",
            "-O metadata_csum_seed",
            "-I 512",
        ] {
            let words: Vec<_> = row.split(' ').collect();
            let [ours, theirs] = tune_both(&scratch, &base, &words, &[]);
            assert_eq!(ours.code, theirs.code, "{features} {row}");
            assert!(ours.code == Some(0) || !ours.is_changed, "{features} {row}");
        }
    }
}

#[test]
fn tune2fs_writes_nothing_where_nothing_changes() {
    let Some(_) = tool("tune2fs") else { skip!("tune2fs is not installed") };
    let scratch = Scratch::new();
    links(&scratch, &["tune2fs"]);
    let base = scratch.join("base");
    make(&base, &["-t", "ext4", "-O", "quota"], "16M");
    for row in [
        "-O ^mmp",
        "-O has_journal,dir_index,quota",
        "-O ^casefold,^orphan_file",
        "-O ^64bit",
        "-s 1",
        "-J fast_commit_size=64",
        "-Q usr",
        "-Q ^prj",
        "-O ^mmp -o acl",
        "-E ^test_fs",
        "-m 5",
        "-O ^quota",
    ] {
        let words: Vec<_> = row.split(' ').collect();
        let [ours, theirs] = tune_both(&scratch, &base, &words, &[]);
        assert_eq!((ours.code, ours.is_changed), (theirs.code, theirs.is_changed), "{row}");
    }
}

#[test]
fn tune2fs_reads_quotas_and_times_as_theirs_does() {
    let Some(_) = tool("tune2fs") else { skip!("tune2fs is not installed") };
    let scratch = Scratch::new();
    links(&scratch, &["tune2fs"]);
    let base = scratch.join("base");
    make(&base, &["-t", "ext4"], "16M");
    for list in [
        "usr",
        "usrquota,grp",
        "usrquota:grpquota",
        "a:b",
        "usr:grp,prj",
        "^usr:b",
        "usrx",
        "us",
        "USR",
        "",
        ",",
        ":",
        "usr,,grp",
        "^",
        "prjquota:usr",
        "\u{e4}\u{e4}\u{e4}",
    ] {
        let [ours, theirs] = tune_both(&scratch, &base, &["-Q", list], &["quota"]);
        assert_eq!((ours.code, ours.fields), (theirs.code, theirs.fields), "-Q {list}");
    }
    for time in ["20200102", "2020010203", "20380119031408"] {
        let [ours, theirs] = tune_both(&scratch, &base, &["-T", time], &["Last checked"]);
        let said = |tuning: &Tuning| tuning.stdout.split_once('\n').unwrap().1.to_owned();
        assert_eq!(said(&ours), said(&theirs), "-T {time}");
        assert_eq!(ours.fields, theirs.fields, "-T {time}");
    }
}

/// A refused request leaves no undo file and reports nothing as done.
#[test]
fn tune2fs_leaves_nothing_of_a_refused_request() {
    let Some(_) = tool("mke2fs") else { skip!("mke2fs is not installed") };
    let scratch = Scratch::new();
    links(&scratch, &["tune2fs"]);
    make(&scratch.join("image"), &["-t", "ext4", "-O", "mmp"], "16M");
    let twin = Twin { name: "tune2fs", links: Some(scratch.path()) };
    let refused = |words: &[&str]| {
        let output = twin.run(scratch.path(), words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        text(&output.stdout)
    };
    refused(&["-z", "undo", "-I", "512", "-f", "-E", "clear_mmp", "image"]);
    make(&scratch.join("plain"), &["-t", "ext4"], "16M");
    refused(&["-z", "undo_of_plain", "-I", "512", "plain"]);
    assert!(!scratch.join("undo_of_plain").exists());
    let said = refused(&["-f", "-E", "clear_mmp", "-I", "512", "image"]);
    assert!(!said.contains("Resetting"), "{said}");
    let done = twin.run(scratch.path(), &["-f", "-E", "clear_mmp", "image"]);
    assert!(text(&done.stdout).contains("Resetting the MMP block"), "{done:?}");
}

#[test]
fn tune2fs_attaches_a_journal_on_another_device() {
    if !is_root() {
        skip!("loop devices need root");
    }
    let tools = ["mke2fs", "tune2fs", "dumpe2fs", "e2fsck"];
    if tools.iter().any(|name| tool(name).is_none()) {
        skip!("{tools:?} are not all installed");
    }
    let scratch = Scratch::new();
    links(&scratch, &["tune2fs"]);
    let (base, journal) = (scratch.join("base"), scratch.join("journal"));
    make(&base, &["-t", "ext4", "-O", "^has_journal", "-b", "1024"], "16M");
    make(&journal, &["-O", "journal_dev", "-b", "1024"], "4M");
    let device = match LoopDevice::new(&journal) {
        Ok(device) => device,
        Err(why) => skip!("no loop device here: {why}"),
    };
    let name = device.path().display().to_string();
    let option = format!("device={name}");
    let fields = ["ournal", "Filesystem features", "state"];
    let [ours, theirs] = tune_both(&scratch, &base, &["-J", &option], &fields);
    assert_eq!((ours.code, &ours.fields), (theirs.code, &theirs.fields));
    let said = |tuning: &Tuning| tuning.stdout.split_once('\n').unwrap().1.trim_end().to_owned();
    assert_eq!(said(&ours), said(&theirs));
    // The last of both was theirs: ours once more, on a journal without users.
    make(&journal, &["-O", "journal_dev", "-b", "1024"], "4M");
    let image = scratch.join("image");
    fs::copy(&base, &image).unwrap();
    let ours = Twin { name: "tune2fs", links: Some(scratch.path()) };
    let done = ours.run(scratch.path(), &["-J", &option, "image"]);
    assert!(done.status.success(), "{done:?}");
    let users = tool("dumpe2fs").expect("there").run(["-h", &name]);
    let uuid =
        text(&tool("dumpe2fs").expect("there").run(["-h".as_ref(), image.as_os_str()]).stdout);
    let uuid = uuid.lines().find_map(|line| line.strip_prefix("Filesystem UUID:")).unwrap();
    let is_user = text(&users.stdout)
        .lines()
        .any(|line| line.starts_with("Journal users:") && line.contains(uuid.trim()));
    assert!(is_user, "{users:?}");
    let words = ["-fn".as_ref(), "-j".as_ref(), device.path().as_os_str(), image.as_os_str()];
    let checked = tool("e2fsck").expect("there").run(words);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let taken_off = ours.run(scratch.path(), &["-O", "^has_journal", "image"]);
    assert!(taken_off.status.success(), "{taken_off:?}");

    // Refusals, which change neither.
    make(&scratch.join("other"), &["-O", "journal_dev", "-b", "4096"], "8M");
    make(&scratch.join("inside"), &["-t", "ext4", "-b", "1024"], "16M");
    for (words, why) in [
        (&["-J", &option, "inside"], "already has a journal"),
        (&["-J", "device=other", "image"], "blocks have 4096 bytes"),
        (&["-J", "device=inside", "image"], "not a journal device"),
        (&["-J", "device=nothing", "image"], "nothing"),
    ] {
        let volume = scratch.join(words[2]);
        let before = fs::read(&volume).unwrap();
        let refused = ours.run(scratch.path(), words);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(text(&refused.stderr).contains(why), "{refused:?}");
        assert!(fs::read(&volume).unwrap() == before, "{words:?}");
    }
}
