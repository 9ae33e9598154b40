//! `cp` onto a file of an image: what the file has besides its contents stays, as by GNU cp.

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use common::{extant, quiet, text};
use extant_testkit::{
    BadBlock, BadDirectory, LoopMount, Scratch, TempImage, debugfs, e2fsck_fn, is_root, skip, tool,
};

fn script(image: &Path, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let at = format!("{}:", image.display());
        let words = line.split_whitespace().map(|word| word.replace("@", &at));
        quiet(&extant(words));
    }
}

fn cat(image: &Path, path: &str) -> String {
    text(&extant(["cat".to_owned(), format!("{}:{path}", image.display())]).stdout)
}

/// The facts that stat and getfattr tell of the names of a tree, without inode numbers and times
/// of change.
fn facts(root: &Path) -> Vec<String> {
    let Some(getfattr) = tool("getfattr") else { return Vec::new() };
    let mut facts = Vec::new();
    for name in ["file", "dir/second", "dir/third", "alone"] {
        let path = root.join(name);
        let found = path.symlink_metadata().expect(name);
        let xattrs =
            getfattr.command().args(["-d", "-m", "-", "--absolute-names"]).arg(&path).output();
        let xattrs = text(&xattrs.expect("getfattr runs").stdout);
        let xattrs = xattrs.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
        let flags = Command::new("lsattr").arg(&path).output().map(|it| text(&it.stdout));
        let flags = flags.unwrap_or_default();
        facts.push(format!(
            "{name}: {:o} {}:{} {} links, read {}, {xattrs:?} {:?} {:?}",
            found.mode(),
            found.uid(),
            found.gid(),
            found.nlink(),
            found.atime(),
            flags.split(' ').next(),
            std::fs::read_to_string(&path).expect("readable"),
        ));
    }
    facts
}

#[test]
fn a_copy_over_a_file_keeps_what_gnu_cp_keeps() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    for kind in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "inline_data"], &["-t", "ext2"]] {
        let image = match TempImage::by_mke2fs(16 << 20, kind) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let scratch = Scratch::new();
        let (old, new) = (scratch.join("old"), scratch.join("new"));
        std::fs::write(&old, "old contents").unwrap();
        std::fs::write(&new, "new").unwrap();
        let path = image.path();
        script(
            &path,
            &format!(
                "mkdir @/dir
                cp {old} @/file
                cp {old} @/alone
                ln @/file @/dir/second
                ln @/file @/dir/third
                chown 5:6 @/file @/alone
                setfattr -n user.note -v text @/file
                touch -a -d 2001-02-03 @/file
                chmod 4751 @/file
                chmod 640 @/alone",
                old = old.display()
            ),
        );
        // A default list, which the copy is not to have, a list of the file, and chattr +dS.
        let mount = LoopMount::new(&path, "").expect("a loop mount");
        if let Some(setfacl) = tool("setfacl") {
            let set = |words: &[&str], name: &str| {
                let set = setfacl.command().args(words).arg(mount.path().join(name)).status();
                assert!(set.is_ok_and(|status| status.success()));
            };
            set(&["-d", "-m", "u:77:rwx"], "");
            set(&["-m", "u:88:rx"], "alone");
        }
        let chattr = Command::new("chattr").arg("+dS").arg(mount.path().join("file")).status();
        assert!(chattr.is_ok_and(|status| status.success()));
        mount.unmount().unwrap();

        let theirs = scratch.join("theirs.img");
        std::fs::copy(&path, &theirs).unwrap();
        let mount = LoopMount::new(&theirs, "").expect("a loop mount");
        for name in ["dir/second", "alone"] {
            let copied = Command::new("cp").arg(&new).arg(mount.path().join(name)).status();
            assert!(copied.is_ok_and(|status| status.success()));
        }
        mount.unmount().unwrap();
        script(&path, &format!("cp {new} @/dir/second\ncp {new} @/alone", new = new.display()));
        e2fsck_fn(&path).unwrap();
        let shown = |image: &Path| {
            let mount = LoopMount::new(image, "ro").expect("a loop mount");
            let names = std::fs::read_dir(mount.path()).unwrap().count();
            (facts(mount.path()), names)
        };
        assert_eq!(shown(&path), shown(&theirs), "{kind:?}");
    }
}

#[test]
fn a_copy_that_fails_leaves_every_name_with_the_old_contents() {
    let image = match TempImage::by_mke2fs(8 << 20, &["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let scratch = Scratch::new();
    let (old, large) = (scratch.join("old"), scratch.join("large"));
    std::fs::write(&old, "old contents").unwrap();
    std::fs::write(&large, vec![7; 9 << 20]).unwrap();
    let path = image.path();
    script(&path, &format!("cp {} @/file\nln @/file @/second", old.display()));
    let target = format!("{}:/file", path.display());
    let output = extant(["cp", large.to_str().unwrap(), &target]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(&format!("{target}: no space left")), "{output:?}");
    assert_eq!([cat(&path, "/file"), cat(&path, "/second")], ["old contents", "old contents"]);
    let names =
        text(&extant(["ls".to_owned(), "-a".to_owned(), format!("{}:/", path.display())]).stdout);
    assert_eq!(names, ".\n..\nfile\nlost+found\nsecond\n");
    e2fsck_fn(&path).unwrap();
}

/// Names that cannot be found would keep the old contents.
#[test]
fn a_copy_over_a_file_whose_names_are_not_all_found_is_refused() {
    let damaged = match BadDirectory::new(false, 2, BadBlock::Checksum) {
        Ok(damaged) => damaged,
        Err(why) => skip!("{why}"),
    };
    let path = damaged.image.path();
    let scratch = Scratch::new();
    let (old, new) = (scratch.join("old"), scratch.join("new"));
    std::fs::write(&old, "old").unwrap();
    std::fs::write(&new, "new").unwrap();
    script(&path, &format!("cp {} @/file\nln @/file @/second", old.display()));
    script(&path, &format!("cp {} @/second", new.display()));
    assert_eq!([cat(&path, "/file"), cat(&path, "/second")], ["new", "new"]);
    // One more name than there is: it may be in the corrupt block.
    debugfs_write(&path, "sif /file links_count 3");
    let target = format!("{}:/file", path.display());
    let output = extant(["cp", old.to_str().unwrap(), &target]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.starts_with(&format!("extant cp: {target}: cannot find all its names: ")),
        "{said}"
    );
    assert_eq!([cat(&path, "/file"), cat(&path, "/second")], ["new", "new"]);
}

fn debugfs_write(image: &Path, command: &str) {
    let tool = tool("debugfs").expect("debugfs, as for the fixture");
    let args = ["-w".as_ref(), "-R".as_ref(), command.as_ref(), image.as_os_str()];
    assert!(tool.run(args).status.success());
    debugfs(image, "stats -h").expect("the image opens");
}

/// A copy reads its source, which changes when that was last read.
#[test]
fn equal_copies_with_a_source_date_give_equal_images() {
    let scratch = Scratch::new();
    let file = scratch.join("file");
    std::fs::write(&file, "contents").unwrap();
    let image = match TempImage::by_mke2fs(8 << 20, &["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let copies = ["one.img", "two.img"].map(|name| scratch.join(name));
    // Last read before the source date, and after it.
    for (copy, read) in copies.iter().zip([1_000_000_000, 1_900_000_000]) {
        let times = std::fs::FileTimes::new()
            .set_accessed(std::time::UNIX_EPOCH + std::time::Duration::from_secs(read))
            .set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000));
        std::fs::File::open(&file).unwrap().set_times(times).unwrap();
        std::fs::copy(image.path(), copy).unwrap();
        let copied = Command::new(common::EXTANT)
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .args(["cp", "-a", file.to_str().unwrap(), &format!("{}:/", copy.display())])
            .output()
            .unwrap();
        quiet(&copied);
    }
    let [one, two] = copies.each_ref().map(|copy| std::fs::read(copy).unwrap());
    assert!(one == two, "the images differ");
    let shown = extant(["stat".to_owned(), format!("{}:/file", copies[0].display())]);
    assert!(text(&shown.stdout).contains("2023-11-14"), "{}", text(&shown.stdout));
    // Without a source date the time of the last read is kept, as by GNU cp.
    quiet(&extant(["cp", "-p", file.to_str().unwrap(), &format!("{}:/kept", copies[0].display())]));
    let shown = text(&extant(["stat".to_owned(), format!("{}:/kept", copies[0].display())]).stdout);
    assert!(shown.contains("2030-03-17"), "{shown}");
}
