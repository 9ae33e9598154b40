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
    refused(&["cp", "@/kept", "@/kept"], "the same file");
    refused(&["cp", "-r", "@/dir", "@/dir/below"], "itself");
    refused(&["cp", "@/missing", "@/dir"], "no such file or directory");
    refused(&["cp", "@/dir", "@/new"], "left out without -r");
    let link = image.path().with_file_name("second.img");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    refused(&["cp", &inside(&link, "/kept"), "@/dir"], "by another name");

    // Immutable, append only, and an immutable directory.
    for (name, flags) in [("/kept", "0x80010"), ("/log", "0x80020"), ("/dir", "0x80010")] {
        let command = format!("sif {name} flags {flags}");
        let args = ["-w".as_ref(), "-R".as_ref(), command.as_ref(), path.as_os_str()];
        assert!(debugfs_tool.run(args).status.success());
    }
    let barred = "must not be changed";
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
