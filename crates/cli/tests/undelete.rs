//! `extant undelete`: files that the kernel or this program deleted, next to what they held.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use extant_testkit::tree::Random;
use extant_testkit::{LoopMount, Scratch, TempImage, is_root, skip, tool};

const EXTANT: &str = env!("CARGO_BIN_EXE_extant");

fn extant(args: &[&str]) -> Output {
    Command::new(EXTANT).args(args).output().unwrap()
}

fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.below(256) as u8).collect()
}

/// The state of each file, by its path or number, and where it was copied to.
fn undeleted(image: &Path, output: &Path) -> BTreeMap<String, serde_json::Value> {
    let (image, output) = (image.to_str().unwrap(), output.to_str().unwrap());
    let before = fs::read(image).unwrap();
    let done = extant(&["undelete", "--all", "--json", "-o", output, image]);
    assert!(fs::read(image).unwrap() == before, "the image was written");
    let lines: Vec<serde_json::Value> =
        serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    let name = |line: &serde_json::Value| match line["path"].as_str() {
        Some(path) => path.to_owned(),
        None => format!("<{}>", line["inode"]),
    };
    lines.into_iter().map(|line| (name(&line), line)).collect()
}

const KINDS: [&[&str]; 5] = [
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "4096", "-O", "inline_data"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit"],
];

#[test]
fn what_was_deleted_is_copied_out_as_it_was() {
    if !is_root() || tool("mke2fs").is_none() {
        skip!("a loop mount needs root, and e2fsprogs");
    }
    for options in KINDS {
        let image = TempImage::by_mke2fs(64 << 20, options).unwrap();
        let path = image.path();
        let mounted = LoopMount::new(&path, "").unwrap();
        let top = mounted.path().to_owned();
        fs::create_dir_all(top.join("kept/below")).unwrap();
        fs::create_dir_all(top.join("gone/deep")).unwrap();
        let mut files = BTreeMap::new();
        for (at, name) in
            ["kept/a", "kept/below/b", "gone/c", "gone/deep/d", "e"].iter().enumerate()
        {
            for (size, len) in [("tiny", 40), ("some", 5000), ("large", 700_000)] {
                let bytes = content(at as u64 * 3 + len as u64, len);
                fs::write(top.join(format!("{name}-{size}")), &bytes).unwrap();
                files.insert(format!("/{name}-{size}"), bytes);
            }
        }
        std::os::unix::fs::symlink("kept/a-tiny", top.join("gone/link")).unwrap();
        rustix::fs::sync();
        fs::remove_dir_all(top.join("gone")).unwrap();
        fs::remove_file(top.join("kept/a-large")).unwrap();
        fs::remove_file(top.join("kept/below/b-some")).unwrap();
        rustix::fs::sync();
        drop(mounted);
        let scratch = Scratch::new();
        let found = undeleted(&path, &scratch.join("found"));
        // Maps of pointers to pointers are in blocks that a deletion leaves alone.
        let expected = [
            "/gone/c-tiny",
            "/gone/c-some",
            "/gone/c-large",
            "/gone/deep/d-tiny",
            "/gone/deep/d-some",
            "/gone/deep/d-large",
            "/kept/a-large",
            "/kept/below/b-some",
        ];
        for name in expected {
            let line = found.get(name).unwrap_or_else(|| panic!("{options:?}: {name}: {found:?}"));
            assert_eq!(line["state"], "whole", "{options:?}: {line}");
            let copy = PathBuf::from(line["copy"].as_str().unwrap());
            assert!(fs::read(copy).unwrap() == files[name], "{options:?}: {name}");
            assert!(line["deleted"].as_i64().unwrap() > 1_700_000_000, "{line}");
        }
        let link = fs::read_link(scratch.join("found/gone/link")).unwrap();
        assert_eq!(link, Path::new("kept/a-tiny"));
        for name in found.keys() {
            assert!(!files.contains_key(name) || expected.contains(&&name[..]), "{name} is there");
        }
    }
}

/// Files are made and deleted at random, and space is used again: what is said to be whole is what
/// the file held, and of the rest so are the bytes that are not said to be lost.
#[test]
fn no_other_content_is_given_to_a_deleted_file() {
    if !is_root() || tool("mke2fs").is_none() {
        skip!("a loop mount needs root, and e2fsprogs");
    }
    let rounds = if std::env::var_os("EXTANT_SLOW").is_some() { 60 } else { 4 };
    let (mut whole, mut partly) = (0, 0);
    for round in 0..rounds {
        let options = KINDS[round as usize % KINDS.len()];
        let journal = ["-J", "size=2"];
        let words = [options, if round % 2 == 0 { &journal[..] } else { &[] }].concat();
        // Little space, so that it is used again.
        let image = match TempImage::by_mke2fs(24 << 20, &words) {
            Ok(image) => image,
            Err(_) => TempImage::by_mke2fs(24 << 20, options).unwrap(),
        };
        let path = image.path();
        let mut random = Random::new(700 + round);
        let mounted = LoopMount::new(&path, "").unwrap();
        let top = mounted.path().to_owned();
        // Every content that a name had when it was synced.
        let mut contents: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        for step in 0..120 {
            let name = format!("file-{}", random.below(30));
            let file = top.join(&name);
            match random.below(5) {
                0 | 1 if file.exists() => fs::remove_file(&file).unwrap(),
                2 => rustix::fs::sync(),
                _ => {
                    let most = 1 << (4 + random.below(17));
                    let len = 1 + random.below(most) as usize;
                    let bytes = content(round * 1000 + step, len);
                    drop(fs::remove_file(&file));
                    if fs::write(&file, &bytes).is_ok() {
                        contents.entry(format!("/{name}")).or_default().push(bytes);
                    }
                }
            }
        }
        rustix::fs::sync();
        drop(mounted);
        let scratch = Scratch::new();
        for (name, line) in undeleted(&path, &scratch.join("found")) {
            let Some(copy) = line["copy"].as_str() else { continue };
            let Some(contents) = contents.get(&name) else {
                // Without a name nothing tells which file it was.
                assert!(name.starts_with('<') || name == "/lost+found", "{name}");
                continue;
            };
            let found = fs::read(copy).unwrap();
            let lost: Vec<(usize, usize)> =
                serde_json::from_value(line["lost"].clone()).unwrap_or_default();
            let is_lost = |at: usize| lost.iter().any(|(from, to)| (*from..*to).contains(&at));
            // Data that were still in the kernel's memory when the file was deleted are not on the
            // disk: the file ends before them.
            let is_it = |bytes: &Vec<u8>| {
                bytes.len() >= found.len()
                    && (0..found.len()).all(|at| is_lost(at) || found[at] == bytes[at])
            };
            assert!(contents.iter().any(is_it), "round {round}, {options:?}: {line}");
            match line["state"].as_str().unwrap() {
                "whole" => whole += 1,
                _ => partly += 1,
            }
        }
    }
    println!("{whole} whole, {partly} partly");
    assert!(whole > 10, "{whole} whole, {partly} partly");
}

#[test]
fn the_choice_is_checked_before_anything_is_written() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let scratch = Scratch::new();
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4"]).unwrap();
    let name = image.path().to_str().unwrap().to_owned();
    let file = scratch.join("file");
    fs::write(&file, content(1, 20_000)).unwrap();
    for target in ["one", "two"] {
        let target = format!("{name}:/{target}");
        assert!(extant(&["cp", file.to_str().unwrap(), &target]).status.success());
    }
    assert!(extant(&["rm", &format!("{name}:/two")]).status.success());
    let found = scratch.join("found");
    let found = found.to_str().unwrap();
    let full = scratch.join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("x"), "x").unwrap();
    for (words, code, why) in [
        (vec!["undelete", "-o", found, &name], 2, "choose files"),
        (vec!["undelete", "-o", found, "--since", "x", &name], 2, "invalid date"),
        (vec!["undelete", "-o", found, &name, "/none"], 1, "no deleted file of that name"),
        (vec!["undelete", "-o", full.to_str().unwrap(), "--all", &name], 1, "not empty"),
    ] {
        let output = extant(&words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && said.contains(why), "{words:?}: {output:?}");
        assert!(!Path::new(found).exists());
    }
    let output = extant(&["ls", "--deleted", &format!("{name}:/nosuch")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("no such directory"), "{output:?}");
    let output = extant(&["recover", "nosuch.img"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "extant recover: nosuch.img: No such file or directory\n";
    assert!(output.status.code() == Some(1) && said == expected, "{output:?}");
    let listed = extant(&["undelete", &name]);
    let said = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.status.success() && said.contains("/two"), "{listed:?}");
    assert!(!said.contains("/one"), "{said}");
    let output = extant(&["undelete", "-o", found, &name, "two"]);
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(Path::new(found).join("two")).unwrap() == fs::read(&file).unwrap());
}

#[test]
fn the_body_file_has_the_lines_of_fls_and_the_deleted_names_that_the_log_has() {
    let Some(fls) = tool("fls") else { skip!("no fls (The Sleuth Kit) here") };
    if !is_root() || tool("mke2fs").is_none() {
        skip!("a loop mount needs root, and e2fsprogs");
    }
    for options in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext3", "-I", "128"]] {
        let image = TempImage::by_mke2fs(32 << 20, options).unwrap();
        let path = image.path();
        let mounted = LoopMount::new(&path, "").unwrap();
        let script = "mkdir -p etc/sub; echo hello > etc/hostname; ln -s hostname etc/link; \
                      ln etc/hostname etc/hard; mknod char c 5 1; mkfifo pipe; echo x > 'a|b'; \
                      chmod 4755 etc/hostname; chown 1000:1001 etc/sub; chmod 1777 etc/sub; \
                      mkdir gone; echo x > gone/x; echo y > y; sync; rm -r gone y; sync";
        let done = Command::new("sh").args(["-c", script]).current_dir(mounted.path()).status();
        assert!(done.unwrap().success());
        drop(mounted);
        let output = extant(&["timeline", "--bodyfile", path.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        let ours = String::from_utf8(output.stdout).unwrap();
        let theirs = Command::new(fls.path()).args(["-r", "-m", "/"]).arg(&path).output().unwrap();
        let theirs = String::from_utf8(theirs.stdout).unwrap();
        let is_there = |line: &&str| !line.contains("(deleted)") && !line.contains("$OrphanFiles");
        let lines = |text: &str| {
            let mut lines: Vec<String> = text.lines().filter(is_there).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(&ours), lines(&theirs), "{options:?}");
        for name in ["|/gone (deleted)|", "|/gone/x (deleted)|", "|/y (deleted)|"] {
            assert!(ours.contains(name), "{options:?}: {name}: {ours}");
        }
        let listed = extant(&["timeline", path.to_str().unwrap()]);
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.contains("  mac"), "{listed}");
        assert!(listed.lines().is_sorted_by_key(|line| line[..19].to_owned()), "{listed}");
    }
}

#[test]
fn the_history_of_a_file_is_its_inode_at_each_commit() {
    if !is_root() || tool("mke2fs").is_none() {
        skip!("a loop mount needs root, and e2fsprogs");
    }
    let image = TempImage::by_mke2fs(32 << 20, &["-t", "ext4"]).unwrap();
    let path = image.path();
    let mounted = LoopMount::new(&path, "").unwrap();
    let file = mounted.path().join("file");
    fs::write(&file, "one").unwrap();
    rustix::fs::sync();
    let mut expected = vec![(3, 0o644)];
    for (text, mode) in [("the second", 0o600), ("the third text", 0o640), ("", 0o400)] {
        use std::os::unix::fs::PermissionsExt;
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        rustix::fs::sync();
        expected.push((text.len() as u64, u64::from(mode)));
    }
    fs::remove_file(&file).unwrap();
    fs::write(mounted.path().join("other"), "x").unwrap();
    fs::write(&file, "new").unwrap();
    rustix::fs::sync();
    drop(mounted);
    let name = path.to_str().unwrap();
    // The file of that inode number now may be either of the two.
    let lines = ["file", "other"].map(|file| {
        let output = extant(&["history", "--json", &format!("{name}:/{file}")]);
        let lines: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        lines
    });
    let of =
        |line: &serde_json::Value| (line["size"].as_u64().unwrap(), line["mode"].as_u64().unwrap());
    let versions = lines.iter().find(|lines| lines.len() > 3).expect("the inode was used again");
    let mut found: Vec<_> = versions.iter().map(of).collect();
    found.dedup();
    let mut rest = found.iter();
    assert!(expected.iter().all(|it| rest.any(|found| found == it)), "{expected:?} {found:?}");
    for lines in &lines {
        assert!(lines.last().is_some_and(|last| last["is_present"] == true), "{lines:?}");
    }
    let reused = if lines[0].len() > 3 { "file" } else { "other" };
    let output = extant(&["history", &format!("{name}:/{reused}")]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let others = said.lines().filter(|line| line.ends_with("another file's")).count();
    assert!(others >= expected.len(), "{said}");
    let listed = extant(&["ls", "--deleted", &format!("{name}:/")]);
    let said = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.status.success() && said.contains("/file"), "{listed:?}");
}

/// A new directory has the number of a deleted one: what was in that keeps its path. And a link
/// that was deleted is not followed.
#[test]
fn paths_are_those_of_the_directory_that_was_there() {
    if !is_root() || tool("mke2fs").is_none() || tool("debugfs").is_none() {
        skip!("a loop mount needs root, and e2fsprogs");
    }
    let image = TempImage::by_mke2fs(32 << 20, &["-t", "ext4"]).unwrap();
    let path = image.path();
    let mounted = LoopMount::new(&path, "").unwrap();
    let script = "mkdir -p t/projects; echo work > t/projects/report; sync; rm -r t/projects; sync; \
                  mkdir t/live; sync";
    let done = Command::new("sh").args(["-c", script]).current_dir(mounted.path()).status();
    assert!(done.unwrap().success());
    drop(mounted);
    let scratch = Scratch::new();
    let found = undeleted(&path, &scratch.join("found"));
    assert!(found.contains_key("/t/projects/report"), "{found:?}");
    // The path may be written as that of a file in an image.
    let output = extant(&["undelete", &format!("{}:/t/projects", path.display())]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("/t/projects/report"), "{output:?}");
    let output = extant(&["undelete", &format!("{}:/t/live", path.display())]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = extant(&["undelete", &format!("{}?sb=8193", path.display())]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let copy = scratch.join("found/t/projects/report");
    assert_eq!(fs::read_to_string(copy).unwrap(), "work\n");

    // Directories with two names each, forty levels deep.
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4"]).unwrap();
    let mut requests: String = (0..41).map(|at| format!("mkdir d{at}\n")).collect();
    for at in 0..40 {
        let next = at + 1;
        requests += &format!("cd /d{at}\nln /d{next} a\nln /d{next} b\ncd /\n");
    }
    let file = scratch.join("requests");
    fs::write(&file, requests).unwrap();
    let debugfs = tool("debugfs").unwrap();
    let words =
        ["-w", "-f", file.to_str().unwrap(), image.path().to_str().unwrap()].map(str::to_owned);
    drop(Command::new(debugfs.path()).args(words).output());
    let output = extant(&["timeline", image.path().to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.len() < 1 << 20);
}

/// The share of deleted files that each tool finds whole. `EXTANT_SLOW=1 cargo test --test undelete
/// -- share --nocapture` prints the table of the book.
#[test]
fn the_share_of_deleted_files_that_is_found_next_to_other_tools() {
    if std::env::var_os("EXTANT_SLOW").is_none() {
        skip!("a comparison that takes minutes: EXTANT_SLOW=1");
    }
    if !is_root() || tool("mke2fs").is_none() {
        skip!("a loop mount needs root, and e2fsprogs");
    }
    let tools = ["extant", "extundelete", "ext4magic", "tsk_recover", "photorec"];
    println!("| volume | work after the deletion | deleted | {} |", tools.join(" | "));
    println!("|---|---|---|{}", "---|".repeat(tools.len()));
    let work = [("none", 0), ("100 files of 20 KB", 100), ("2,000 files of 20 KB", 2000)];
    let kinds =
        [("ext4", "dir_index"), ("ext4 without 64bit and metadata_csum", "^64bit,^metadata_csum")];
    for ((volume, features), (what, later)) in
        kinds.into_iter().flat_map(|kind| work.map(|work| (kind, work)))
    {
        let image = TempImage::by_mke2fs(256 << 20, &["-t", "ext4", "-O", features]).unwrap();
        let path = image.path();
        let mounted = LoopMount::new(&path, "").unwrap();
        let top = mounted.path();
        let mut files = BTreeMap::new();
        for at in 0..600_u64 {
            let dir = top.join(format!("dir-{}", at % 12));
            fs::create_dir_all(&dir).unwrap();
            let len = 500 + (at * 7919 % 90_000) as usize;
            let bytes = sound(at, len);
            fs::write(dir.join(format!("file-{at}.wav")), &bytes).unwrap();
            files.insert(at, bytes);
        }
        rustix::fs::sync();
        let gone: Vec<u64> = (0..600).filter(|at| at % 3 == 0).collect();
        for at in &gone {
            fs::remove_file(top.join(format!("dir-{}/file-{at}.wav", at % 12))).unwrap();
        }
        rustix::fs::sync();
        for at in 0..later {
            fs::write(top.join(format!("later-{at}.wav")), sound(5000 + at, 20_000)).unwrap();
        }
        rustix::fs::sync();
        drop(mounted);
        let scratch = Scratch::new();
        undeleted(&path, &scratch.join("extant"));
        for (name, words) in [
            ("extundelete", vec!["--restore-all", "-o", "extundelete"]),
            ("ext4magic", vec!["-a", "1700000000", "-R", "-d", "ext4magic"]),
            ("tsk_recover", vec!["tsk_recover"]),
            ("photorec", vec!["/d", "photorec/found", "/cmd"]),
        ] {
            let Some(program) = tool(name) else { continue };
            let mut command = Command::new(program.path());
            let command = command.current_dir(scratch.path());
            match name {
                "ext4magic" | "tsk_recover" => command.arg(&path).args(words),
                _ => command.args(words).arg(&path),
            };
            if name == "photorec" {
                fs::create_dir(scratch.join("photorec")).unwrap();
                command.arg("partition_none,fileopt,everything,enable,freespace,search");
            }
            drop(command.output());
        }
        let mut row = format!("| {volume} | {what} | {}", gone.len());
        for name in tools {
            if name != "extant" && tool(name).is_none() {
                row += " | not installed";
                continue;
            }
            // Not all of them give names.
            let found = files_below(&scratch.join(name));
            let found: HashSet<Vec<u8>> = found.iter().filter_map(|it| fs::read(it).ok()).collect();
            let is_whole = |at: &&u64| found.contains(&files[*at]);
            row += &format!(" | {}", gone.iter().filter(is_whole).count());
        }
        println!("{row} |");
    }
}

/// A sound file of noise: a tool that searches for types of files finds its start and its length.
fn sound(seed: u64, len: usize) -> Vec<u8> {
    let data = (len as u32 - 44).to_le_bytes();
    let all = (len as u32 - 8).to_le_bytes();
    let header: [&[u8]; 6] = [
        b"RIFF",
        &all,
        b"WAVEfmt ",
        // Its length, PCM, one channel, 8000 bytes a second of one byte each.
        &[16, 0, 0, 0, 1, 0, 1, 0, 0x40, 0x1f, 0, 0, 0x40, 0x1f, 0, 0, 1, 0, 8, 0],
        b"data",
        &data,
    ];
    [header.concat(), content(seed, len - 44)].concat()
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&entry.path())),
            _ => found.push(entry.path()),
        }
    }
    found
}
