//! Copies into images: from other images, within one, and cut off by a kill.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{EXTANT, extant, quiet, snapshot, text};
use extant_testkit::{
    LoopMount, Scratch, TempImage, TreeSnapshot, assert_same_tree, debugfs, e2fsck_fn, is_root,
    skip, tool, tree,
};

fn inside(image: &Path, path: &str) -> String {
    format!("{}:{path}", image.display())
}

/// The tree that the kernel shows.
fn mounted(image: &Path) -> Result<TreeSnapshot, String> {
    let mount = LoopMount::new(image, "ro,noload")?;
    Ok(snapshot(mount.path()))
}

#[test]
fn a_tree_goes_from_image_to_image_and_within_one() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    tree::grow(&source, 71, &tree::Options { block: 1024, ..tree::Options::default() }).unwrap();
    let words = ["-t", "ext4", "-N", "4000", "-d", source.to_str().unwrap()];
    let (from, to) = match (
        TempImage::by_mke2fs(128 << 20, &words),
        TempImage::by_mke2fs(
            192 << 20,
            &["-t", "ext4", "-b", "1024", "-N", "9000", "-O", "ea_inode"],
        ),
    ) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(why), _) | (_, Err(why)) => skip!("{why}"),
    };
    let (from, to) = (from.path(), to.path());
    quiet(&extant(["cp", "-a", &inside(&from, "/."), &inside(&to, "/")]));
    e2fsck_fn(&to).unwrap();
    let expected = match mounted(&from) {
        Ok(expected) => expected,
        Err(why) => skip!("no loop mount here: {why}"),
    };
    assert_same_tree(&expected, &mounted(&to).unwrap());

    quiet(&extant(["mkdir", &inside(&to, "/copy")]));
    let output = extant(["cp", "-a", &inside(&to, "/."), &inside(&to, "/copy")]);
    // The copy does not go into itself, which is told.
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("copied into itself"), "{output:?}");
    e2fsck_fn(&to).unwrap();
    let mount = LoopMount::new(&to, "ro,noload").unwrap();
    let copied = TreeSnapshot::of_dir(&mount.path().join("copy")).unwrap().without("lost+found");
    let root = |tree: TreeSnapshot| {
        tree.map(|entry| {
            // Of the root directory itself the copy has other names and another time.
            entry.links =
                if entry.kind == extant_testkit::Kind::Directory { 0 } else { entry.links };
        })
    };
    let (mut expected, mut copied) = (root(expected), root(copied));
    expected.entries.remove(&b""[..]);
    copied.entries.remove(&b""[..]);
    assert_same_tree(&expected, &copied);
}

#[test]
fn what_cannot_be_copied_or_changed_is_told_by_the_exit_code() {
    let image = match TempImage::by_mke2fs(16 << 20, &["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let Some(debugfs_tool) = tool("debugfs") else { skip!("no debugfs here") };
    let path = image.path();
    let refused = |words: &[&str], sentence: &str| {
        let words = words.iter().map(|word| match word.strip_prefix('@') {
            Some(name) => inside(&path, name),
            None => (*word).to_owned(),
        });
        let output = extant(words);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains(sentence), "{output:?}");
    };
    for name in ["/kept", "/log", "/other"] {
        quiet(&extant(["touch", &inside(&path, name)]));
    }
    quiet(&extant(["mkdir", &inside(&path, "/dir")]));
    refused(&["cp", "@/kept", "@/kept"], "source and target are the same file");
    refused(&["cp", "-r", "@/dir", "@/dir/below"], "itself");
    refused(&["cp", "@/missing", "@/dir"], "no such file or directory");
    refused(&["cp", "@/dir", "@/new"], "-r not specified; omitting directory");
    let link = image.path().with_file_name("second.img");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    refused(&["cp", &inside(&link, "/kept"), "@/dir"], "source and target are the same image");

    // Immutable, append only, and an immutable directory.
    for (name, flags) in [("/kept", "0x80010"), ("/log", "0x80020"), ("/dir", "0x80010")] {
        let command = format!("sif {name} flags {flags}");
        let args = ["-w".as_ref(), "-R".as_ref(), command.as_ref(), path.as_os_str()];
        assert!(debugfs_tool.run(args).status.success());
    }
    let barred = "immutable or append-only";
    for name in ["@/kept", "@/log"] {
        refused(&["rm", name], barred);
        refused(&["mv", name, "@/gone"], barred);
        refused(&["chmod", "600", name], barred);
        refused(&["chown", "5", name], barred);
        refused(&["truncate", "-s", "0", name], barred);
        refused(&["setfattr", "-n", "user.x", "-v", "y", name], barred);
        refused(&["ln", name, "@/second"], barred);
        refused(&["cp", "@/other", name], barred);
    }
    refused(&["touch", "@/dir/new"], barred);
    refused(&["mkdir", "@/dir/new"], barred);
    refused(&["ln", "-s", "x", "@/dir/new"], barred);
    refused(&["cp", "@/other", "@/dir"], barred);
    refused(&["mv", "@/other", "@/dir/other"], barred);
    let listed = debugfs(&path, "ls -p /").unwrap();
    assert!(!listed.contains(".extant") && !listed.contains("second"), "{listed}");
    e2fsck_fn(&path).unwrap();
}

/// A killed copy: the journal is recovered by us and by e2fsck, every file is whole or not there.
#[test]
fn a_killed_copy_leaves_whole_files() {
    if tool("e2fsck").is_none() {
        skip!("no e2fsck here");
    }
    let scratch = Scratch::new();
    let source = scratch.join("source");
    for dir in 0..8 {
        let dir = source.join(format!("dir{dir}"));
        std::fs::create_dir_all(&dir).unwrap();
        for file in 0..60_u64 {
            let bytes: Vec<u8> = (0..file * 4000 + 100).map(|at| (at * 31 + file) as u8).collect();
            std::fs::write(dir.join(format!("file{file}")), bytes).unwrap();
        }
    }
    for (round, wait) in [5, 25, 60, 120, 250].into_iter().enumerate() {
        let options = ["-t", "ext4", "-b", "1024", "-J", "size=4"];
        let image = match TempImage::by_mke2fs(128 << 20, &options) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let path = image.path();
        let mut copy = Command::new(EXTANT)
            .args(["cp", "-r", &format!("{}/.", source.display()), &inside(&path, "/")])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        copy.kill().unwrap();
        copy.wait().unwrap();

        let theirs = scratch.join("theirs.img");
        std::fs::copy(&path, &theirs).unwrap();
        let checked = tool("e2fsck").unwrap().run(["-fy".as_ref(), theirs.as_os_str()]);
        assert!(checked.status.code().is_some_and(|code| code <= 1), "{checked:?}");
        quiet(&extant(["mkdir", &inside(&path, "/after")]));
        for image in [&theirs, &path] {
            e2fsck_fn(image).unwrap();
            let out = scratch.join(format!("out{round}"));
            std::fs::create_dir(&out).unwrap();
            quiet(&extant(["cp", "-r", &inside(image, "/."), out.to_str().unwrap()]));
            check_whole(&out, &source);
            std::fs::remove_dir_all(&out).unwrap();
        }
    }
}

/// Each file is one of the source's, with all its bytes.
fn check_whole(dir: &Path, source: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, original) = (entry.path(), source.join(entry.file_name()));
        if entry.file_name() == "lost+found" || entry.file_name() == "after" {
            continue;
        }
        if path.is_dir() {
            check_whole(&path, &original);
        } else {
            let same = std::fs::read(&path).unwrap() == std::fs::read(&original).unwrap();
            assert!(same, "{} is not whole", path.display());
        }
    }
}

fn shell(script: &str) -> std::process::Output {
    Command::new("sh").args(["-c", script]).output().unwrap()
}

/// An image with `/hello` and `/large`, of 3 MiB.
fn with_files(scratch: &Scratch) -> (String, Vec<u8>) {
    let image = scratch.join("disk.img").to_str().unwrap().to_owned();
    let large: Vec<u8> = (0..3_u32 << 20).map(|at| (at * 7 + (at >> 11)) as u8).collect();
    std::fs::write(scratch.join("hello"), "hello\n").unwrap();
    std::fs::write(scratch.join("large"), &large).unwrap();
    quiet(&extant(["mkfs", "-q", "-t", "ext4", &image, "16M"]));
    for name in ["hello", "large"] {
        quiet(&extant(["cp", scratch.join(name).to_str().unwrap(), &format!("{image}:/")]));
    }
    (image, large)
}

#[test]
fn a_copy_goes_through_a_link_that_the_command_line_names() {
    let scratch = Scratch::new();
    let (image, large) = with_files(&scratch);
    let hello = format!("{image}:/hello");
    let (file, link) = (scratch.join("file"), scratch.join("link"));
    std::os::unix::fs::symlink("file", &link).unwrap();
    let to = link.to_str().unwrap();
    let dangling = extant(["cp", &hello, to]);
    assert_eq!(dangling.status.code(), Some(1));
    assert!(
        text(&dangling.stderr).contains("not writing through dangling symlink"),
        "{dangling:?}"
    );
    assert!(!file.exists());

    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap());
    std::fs::write(&file, "longer than hello\n").unwrap();
    let before = inode(&file);
    quiet(&extant(["cp", &hello, to]));
    assert!(link.is_symlink());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "hello\n");
    assert_eq!(inode(&file), before, "written, not replaced");
    quiet(&extant(["cp", &format!("{image}:/large"), to]));
    assert!(std::fs::read(&file).unwrap() == large);
    // The same in a directory.
    std::fs::create_dir(scratch.join("dir")).unwrap();
    std::os::unix::fs::symlink(&file, scratch.join("dir/hello")).unwrap();
    quiet(&extant(["cp", &hello, scratch.join("dir").to_str().unwrap()]));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "hello\n");

    // A log that standard output is appended to keeps what it has.
    let (log, stdout) = (scratch.join("log"), scratch.join("stdout"));
    std::os::unix::fs::symlink("/proc/self/fd/1", &stdout).unwrap();
    for place in [stdout.to_str().unwrap(), "/dev/stdout"] {
        std::fs::write(&log, "first\n").unwrap();
        quiet(&shell(&format!("{EXTANT} cp {hello} {place} >> {}", log.display())));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "first\nhello\n", "{place}");
        let shown = shell(&format!("{EXTANT} cp {hello} {place} | cat"));
        assert_eq!(text(&shown.stdout), "hello\n", "{place}");
    }
    assert!(stdout.is_symlink());
}

#[test]
fn an_image_without_a_path_is_no_target() {
    let scratch = Scratch::new();
    let (image, _) = with_files(&scratch);
    let before = std::fs::read(&image).unwrap();
    let refused = extant(["cp", scratch.join("hello").to_str().unwrap(), &image]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = format!("extant cp: {image}: to copy into this image write {image}:/\n");
    assert_eq!(text(&refused.stderr), said);
    assert!(std::fs::read(&image).unwrap() == before);
}

/// A link that comes from an image is not written through by the next source.
#[test]
fn a_copy_does_not_go_through_a_link_of_the_same_command() {
    let scratch = Scratch::new();
    let (image, _) = with_files(&scratch);
    let (out, victim) = (scratch.join("out"), scratch.join("victim"));
    std::fs::create_dir(&out).unwrap();
    std::fs::write(&victim, "kept").unwrap();
    quiet(&extant(["mkdir", &format!("{image}:/a")]));
    quiet(&extant(["ln", "-s", victim.to_str().unwrap(), &format!("{image}:/a/hello")]));
    let words = ["cp", "-r", &format!("{image}:/a/hello"), &format!("{image}:/hello")];
    let copied = extant(words.into_iter().chain([out.to_str().unwrap()]));
    assert_eq!(copied.status.code(), Some(1), "{copied:?}");
    assert!(text(&copied.stderr).contains("will not overwrite just-created file"), "{copied:?}");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
    // Nor are links in trees, which are replaced.
    let tree = scratch.join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::os::unix::fs::symlink(&victim, tree.join("hello")).unwrap();
    quiet(&extant(["cp", "-r", &format!("{image}:/."), tree.to_str().unwrap()]));
    assert_eq!(std::fs::read_to_string(tree.join("hello")).unwrap(), "hello\n");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
}

/// The kernel ends the process in the middle of the copy, as Ctrl-C would: by SIGXFSZ, at the same
/// place each time.
#[test]
fn a_copy_that_is_killed_leaves_what_was_there() {
    use std::os::unix::process::ExitStatusExt;
    let scratch = Scratch::new();
    let (image, _) = with_files(&scratch);
    let out = scratch.join("out");
    std::fs::create_dir(&out).unwrap();
    let names =
        || -> Vec<_> { out.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect() };
    let copy = |options: &str| {
        let target = out.join("large");
        let target = target.display();
        // 1 MiB in units of 512 bytes, or 2 MiB in KiB as bash counts.
        let killed =
            shell(&format!("ulimit -f 2048; exec {EXTANT} cp {options} {image}:/large {target}"));
        assert!(killed.status.signal().is_some(), "{killed:?}");
    };
    for options in ["", "-p", "-a"] {
        copy(options);
        assert!(names().is_empty(), "{options}: {:?}", names());
    }
    std::fs::write(out.join("large"), "old").unwrap();
    copy("");
    assert_eq!(names(), ["large"]);
    assert_eq!(std::fs::read_to_string(out.join("large")).unwrap(), "old");
}

#[test]
fn a_name_that_ends_in_a_slash_is_a_directorys() {
    let scratch = Scratch::new();
    let (image, _) = with_files(&scratch);
    let file = scratch.join("hello");
    let (file, out) = (file.to_str().unwrap(), scratch.join("out"));
    let inside = |path: &str| format!("{image}:{path}");
    let missing = "no such directory";
    let cases: [(&[&str], &str); 6] = [
        (&["cp", file, &inside("/nodir/")], missing),
        (&["cp", "-r", file, &inside("/nodir/")], missing),
        (&["mv", &inside("/hello"), &inside("/nodir/")], missing),
        (&["ln", &inside("/hello"), &inside("/nodir/")], missing),
        (&["cp", file, &inside("/hello/")], "not a directory"),
        (&["cp", &inside("/hello"), &format!("{}/", out.display())], missing),
    ];
    for (words, why) in cases {
        let refused = extant(words);
        assert_eq!(refused.status.code(), Some(1), "{words:?}: {refused:?}");
        assert!(text(&refused.stderr).contains(why), "{words:?}: {refused:?}");
    }
    assert!(!out.exists());
    let listed = extant(["ls", &inside("/")]);
    assert_eq!(text(&listed.stdout), "hello\nlarge\nlost+found\n");
    // Directories may be made so.
    std::fs::create_dir(scratch.join("tree")).unwrap();
    quiet(&extant(["cp", "-r", scratch.join("tree").to_str().unwrap(), &inside("/new/")]));
    quiet(&extant(["mv", &inside("/new"), &inside("/renamed/")]));
    quiet(&extant(["cp", file, &inside("/renamed/")]));
    quiet(&extant(["cat", &inside("/renamed/hello")]));
}

#[test]
fn equal_edits_with_a_source_date_give_equal_images() {
    if tool("e2fsck").is_none() {
        skip!("no e2fsck here");
    }
    let scratch = Scratch::new();
    let (first, _) = with_files(&scratch);
    let second = scratch.join("second.img");
    std::fs::copy(&first, &second).unwrap();
    let images = [first.as_str(), second.to_str().unwrap()];
    let (hello, large) = (scratch.join("hello"), scratch.join("large"));
    for image in images {
        let inside = |path: &str| format!("{image}:{path}");
        let edits: [&[&str]; 11] = [
            &["cp", hello.to_str().unwrap(), &inside("/new")],
            &["cp", large.to_str().unwrap(), &inside("/hello")],
            &["mkdir", &inside("/dir")],
            &["cp", "-a", &inside("/large"), &inside("/dir")],
            &["ln", "-s", "target", &inside("/dir/link")],
            &["mv", &inside("/new"), &inside("/dir/renamed")],
            &["rm", &inside("/hello")],
            &["touch", &inside("/touched")],
            &["chmod", "600", &inside("/large")],
            &["setfattr", "-n", "user.name", "-v", "value", &inside("/large")],
            &["tune", "-L", "edited", image],
        ];
        for words in edits {
            let edited = Command::new(EXTANT)
                .args(words)
                .env("SOURCE_DATE_EPOCH", "1700000000")
                .output()
                .unwrap();
            quiet(&edited);
        }
    }
    e2fsck_fn(Path::new(images[0])).unwrap();
    let (first, second) = (std::fs::read(images[0]).unwrap(), std::fs::read(images[1]).unwrap());
    let differs = first.iter().zip(&second).position(|(a, b)| a != b);
    assert_eq!(differs, None, "the first byte that differs");
    let shown = extant(["stat", &format!("{}:/touched", images[0])]);
    assert_eq!(text(&shown.stdout).matches("2023-11-14 22:13:20").count(), 4, "{shown:?}");
    let refused = Command::new(EXTANT)
        .args(["touch", &format!("{}:/x", images[0])])
        .env("SOURCE_DATE_EPOCH", "soon")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

/// A copy that would destroy the image it reads is refused, by each of its names: nothing of it
/// changes.
#[test]
fn an_image_is_not_replaced_by_what_comes_out_of_it() {
    let scratch = Scratch::new();
    let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
    std::fs::create_dir(&source).unwrap();
    for name in ["file", "disk.img"] {
        std::fs::write(source.join(name), "kept").unwrap();
    }
    quiet(&extant(["build", "-q", "-o", image.to_str().unwrap(), source.to_str().unwrap()]));
    let (link, hard) = (scratch.join("link"), scratch.join("hard"));
    std::os::unix::fs::symlink(&image, &link).unwrap();
    std::fs::hard_link(&image, &hard).unwrap();
    let before = std::fs::read(&image).unwrap();

    let (file, root) = (inside(&image, "/file"), inside(&image, "/."));
    for name in [&image, &link, &hard] {
        let name = name.to_str().unwrap();
        let commands: [&[&str]; 7] = [
            &["cp", &file, name],
            &["cp", "-a", &file, name],
            &["export", "-o", name, image.to_str().unwrap()],
            &["export", "-o", image.to_str().unwrap(), name],
            &["map", "-o", name, image.to_str().unwrap()],
            &["build", "-q", "-F", "-o", name, image.to_str().unwrap()],
            &["mkfs", "-q", "-F", "-d", name, image.to_str().unwrap()],
        ];
        for command in commands {
            let output = extant(command);
            assert_eq!(output.status.code(), Some(1), "{command:?}: {output:?}");
            assert!(std::fs::read(&image).unwrap() == before, "{command:?}");
        }
    }
    // Next to it, a file of the image's own name.
    let output = extant(["cp", "-r", &root, scratch.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(std::fs::read(&image).unwrap() == before);
    assert_eq!(std::fs::read(scratch.join("file")).unwrap(), b"kept");
}

/// On a volume without free inodes the files that were not made are named.
#[test]
fn a_copy_into_a_full_volume_names_the_file_that_failed() {
    let scratch = Scratch::new();
    let (image, tree) = (scratch.join("image"), scratch.join("t"));
    std::fs::create_dir(&tree).unwrap();
    for number in 1..=9 {
        std::fs::write(tree.join(format!("f{number}")), b"contents").unwrap();
    }
    std::os::unix::fs::symlink("f1", tree.join("link")).unwrap();
    quiet(&extant(["mkfs", "-q", "-N", "16", image.to_str().unwrap(), "4M"]));
    let output = extant(["cp", "-a", tree.to_str().unwrap(), &inside(&image, "/")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let image = image.display();
    let expected: String = ["f5", "f6", "f7", "f8", "f9", "link"]
        .map(|name| format!("extant cp: {image}:/t/{name}: no inodes left on the volume\n"))
        .concat();
    assert_eq!(text(&output.stderr), expected);
}

/// A source that cannot be read does not truncate the file that a link leads to.
#[test]
fn a_file_behind_a_link_stays_as_it_is_where_the_copy_cannot_begin() {
    let scratch = Scratch::new();
    let Some(debugfs_tool) = tool("debugfs") else { skip!("no debugfs here") };
    let image = scratch.join("image");
    quiet(&extant(["mkfs", "-q", "-O", "encrypt", image.to_str().unwrap(), "4M"]));
    std::fs::write(scratch.join("source"), b"secret").unwrap();
    quiet(&extant(["cp", scratch.join("source").to_str().unwrap(), &inside(&image, "/file")]));
    let args = ["-w", "-R", "sif /file flags 0x80800", image.to_str().unwrap()];
    assert!(debugfs_tool.run(args).status.success());
    let (kept, link) = (scratch.join("kept"), scratch.join("link"));
    std::fs::write(&kept, b"old contents").unwrap();
    std::os::unix::fs::symlink("kept", &link).unwrap();
    let output = extant(["cp", &inside(&image, "/file"), link.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("encrypted"), "{output:?}");
    assert_eq!(std::fs::read(&kept).unwrap(), b"old contents");
}

/// One of two names must lie in an image.
#[test]
fn a_copy_with_no_operand_inside_an_image_is_refused() {
    let scratch = Scratch::new();
    let file = scratch.join("a");
    std::fs::write(&file, b"contents").unwrap();
    let words =
        ["cp", file.to_str().unwrap(), scratch.join("b").to_str().unwrap()].map(str::to_owned);
    let output = extant(words);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let expected = format!(
        "extant cp: {}/b: no operand is in an image: write IMAGE:/path\n",
        scratch.display()
    );
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn a_copy_of_nothing_does_not_open_the_image_for_changes() {
    let scratch = Scratch::new();
    let image = scratch.join("disk.img");
    quiet(&extant(["mkfs", "-q", image.to_str().unwrap(), "8M"]));
    let before = std::fs::read(&image).unwrap();
    let none = scratch.join("none");
    let output = extant(["cp", none.to_str().unwrap(), &inside(&image, "/file")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("none: "), "{output:?}");
    assert!(std::fs::read(&image).unwrap() == before);
}
