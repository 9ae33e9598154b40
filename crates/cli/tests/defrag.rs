//! `extant defrag`: files that a kernel mount fragmented have one extent for the kernel and for
//! e2fsprogs, with the same bytes.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::process::{Command, Output};

use extant_testkit::{LoopMount, Scratch, TempImage, e2fsck_fn, is_root, skip, tool};

const EXTANT: &str = env!("CARGO_BIN_EXE_extant");

fn extant(args: &[&str]) -> Output {
    Command::new(EXTANT).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn files_that_the_kernel_fragmented_have_one_extent_after() {
    if !is_root() || tool("mke2fs").is_none() || tool("debugfs").is_none() {
        skip!("a loop mount needs root, and e2fsprogs");
    }
    for options in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext4", "-O", "bigalloc"]] {
        let image = TempImage::by_mke2fs(96 << 20, options).unwrap();
        let path = image.path();
        let name = path.to_str().unwrap();
        let grow = |mounted: &LoopMount| {
            let files = ["first", "second"].map(|name| {
                fs::File::options()
                    .create(true)
                    .write(true)
                    .truncate(true)
                    .open(mounted.path().join(name))
                    .unwrap()
            });
            for at in 0..40_u64 {
                for (which, file) in files.iter().enumerate() {
                    let bytes = vec![at as u8 * 2 + which as u8; 8 << 10];
                    file.write_all_at(&bytes, at * (8 << 10)).unwrap();
                    file.sync_all().unwrap();
                }
            }
            fs::hard_link(mounted.path().join("first"), mounted.path().join("same")).unwrap();
        };
        let mounted = LoopMount::new(&path, "").unwrap();
        grow(&mounted);
        drop(mounted);
        let extents = |file: &str| -> usize {
            let said = extant_testkit::debugfs(&path, &format!("filefrag {file}")).unwrap();
            let count = said.split(": ").nth(1).and_then(|rest| rest.split(' ').next());
            count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{said}"))
        };
        assert!(extents("/first") > 4 && extents("/second") > 4, "{options:?}");
        let before = fs::read(&path).unwrap();
        let counted = extant(&["defrag", "-c", name]);
        assert!(counted.status.success(), "{counted:?}");
        let said = text(&counted.stdout);
        // A file of two names is counted once.
        assert_eq!(said.matches(": extents: ").count(), 2, "{said}");
        assert!(said.contains("2 of them fragmented"), "{said}");
        assert!(fs::read(&path).unwrap() == before, "-c has changed the image");

        let moved = extant(&["defrag", "-v", name]);
        assert!(moved.status.success(), "{moved:?}");
        let said = text(&moved.stdout);
        assert_eq!(said.matches(" -> 1\n").count(), 2 + 2, "{said}");
        assert_eq!((extents("/first"), extents("/second")), (1, 1), "{options:?}");
        e2fsck_fn(&path).unwrap();
        let mounted = LoopMount::new(&path, "").unwrap();
        for (which, file) in ["first", "second"].iter().enumerate() {
            let found = fs::read(mounted.path().join(file)).unwrap();
            for (at, bytes) in found.chunks(8 << 10).enumerate() {
                assert!(bytes.iter().all(|byte| *byte == (at * 2 + which) as u8), "{file} {at}");
            }
        }
        drop(mounted);
        let again = extant(&["defrag", "--json", name]);
        let lines: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
        let lines = lines.as_array().unwrap();
        assert!(lines.iter().all(|line| line["blocks_moved"] == 0), "{lines:?}");
    }
}

#[test]
fn what_cannot_be_moved_is_an_error_where_it_was_named() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let scratch = Scratch::new();
    let program = scratch.join("e4defrag");
    symlink(EXTANT, &program).unwrap();
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    let words = ["-t", "ext3", "-b", "1024", "-d", tree.to_str().unwrap()];
    let image = TempImage::by_mke2fs(16 << 20, &words).unwrap();
    let name = image.path().to_str().unwrap().to_owned();
    // The blocks of pointers lie between those of the contents.
    let file = scratch.join("contents");
    fs::write(&file, vec![7; 300 << 10]).unwrap();
    let target = format!("{name}:/file");
    assert!(extant(&["cp", file.to_str().unwrap(), &target]).status.success());
    let all = extant(&["defrag", "-v", &name]);
    assert!(all.status.success(), "{all:?}");
    let said = text(&all.stdout);
    assert!(said.contains("not supported: defragmentation of a file without extents"), "{said}");
    for (program, operand, why) in [
        (EXTANT, &target, "not supported"),
        (program.to_str().unwrap(), &target, "not supported"),
        (EXTANT, &format!("{name}:/none"), "no such file or directory"),
        (program.to_str().unwrap(), &file.to_str().unwrap().to_owned(), "contents: "),
    ] {
        let mut command = Command::new(program);
        if program == EXTANT {
            command.arg("defrag");
        }
        let output = command.arg(operand).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{operand}: {output:?}");
    }
    e2fsck_fn(&image.path()).unwrap();
}

/// The root of an index that the kernel made has the tail of a leaf before its own.
#[test]
fn a_directory_with_an_index_of_the_kernel_is_moved_whole() {
    if !is_root() || tool("mke2fs").is_none() {
        skip!("a loop mount needs root, and e2fsprogs");
    }
    let image = TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", "4096"]).unwrap();
    let path = image.path();
    let mounted = LoopMount::new(&path, "").unwrap();
    let dir = mounted.path().join("d");
    fs::create_dir(&dir).unwrap();
    for round in 0..20 {
        for file in 0..50 {
            fs::write(dir.join(format!("{round}-{file}-{}", "a".repeat(80))), "").unwrap();
        }
        fs::write(mounted.path().join(format!("between-{round}")), vec![1; 300_000]).unwrap();
        rustix::fs::sync();
    }
    drop(mounted);
    let operand = format!("{}:/d", path.display());
    let moved = extant(&["defrag", &operand]);
    // A block of its map may lie between two parts.
    let is_whole = [" -> 1\n", " -> 2\n"].map(|end| text(&moved.stdout).contains(end));
    assert!(moved.status.success() && is_whole != [false; 2], "{moved:?}");
    e2fsck_fn(&path).unwrap();
    let mounted = LoopMount::new(&path, "ro").unwrap();
    assert_eq!(fs::read_dir(mounted.path().join("d")).unwrap().count(), 1000);
    assert!(mounted.path().join(format!("d/7-7-{}", "a".repeat(80))).exists());
}
