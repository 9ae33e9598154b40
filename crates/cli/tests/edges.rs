//! Edge cases of copying, exporting and reading: links among operands, depths, failures,
//! letters of the twins.

mod common;

use common::{EXTANT, extant, quiet, snapshot, text};
use extant_testkit::{Scratch, TempImage, skip, tool};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

/// An image built from a directory of the scratch space.
fn built(scratch: &Scratch, source: &Path) -> String {
    let image = scratch.join("disk.img").display().to_string();
    let output = extant(["build", "-o", &image, source.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    image
}

#[test]
fn hard_links_among_operands_stay_hard_links() {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir_all(source.join("a")).unwrap();
    fs::create_dir_all(source.join("b")).unwrap();
    fs::write(source.join("a/file"), "x").unwrap();
    fs::hard_link(source.join("a/file"), source.join("b/other")).unwrap();
    let image = built(&scratch, &source);
    let target = scratch.join("target");
    fs::create_dir(&target).unwrap();
    let (a, b) = (format!("{image}:/a"), format!("{image}:/b"));
    quiet(&extant(["cp", "-a", &a, &b, target.to_str().unwrap()]));
    let inode = |name: &str| fs::metadata(target.join(name)).unwrap().ino();
    assert_eq!(inode("a/file"), inode("b/other"));
}

/// Directories are reopened on the way back, so that neither open files nor the length of paths
/// end a copy.
#[test]
fn a_tree_deeper_than_the_open_files_is_copied() {
    let Some(shell) = tool("sh") else { skip!("no sh here") };
    let scratch = Scratch::new();
    let source = scratch.join("source");
    let mut dir = source.clone();
    for level in 0..300 {
        dir.push(format!("level-{level}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("file"), format!("{level}")).unwrap();
    }
    let image = built(&scratch, &source);
    let target = scratch.join("target");
    let script = "ulimit -n 100 && exec \"$0\" cp -a \"$1:/\" \"$2\"";
    let output = Command::new(shell.path())
        .args(["-c", script, EXTANT, &image, target.to_str().unwrap()])
        .output()
        .unwrap();
    quiet(&output);
    let (expected, found) = (snapshot(&source), snapshot(&target));
    assert_eq!(found.entries.len(), expected.entries.len());
    extant_testkit::assert_same_tree(&expected, &found);
}

#[test]
fn an_output_that_cannot_be_made_is_named_as_asked_for() {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    let image = built(&scratch, &source);
    for (command, name) in [("export", "x.tar"), ("map", "x.svg")] {
        let output = scratch.join("missing").join(name).display().to_string();
        let said = extant([command, "-o", &output, &image]);
        let why = "No such file or directory";
        assert_eq!(text(&said.stderr), format!("extant {command}: {output}: {why}\n"));
        assert_eq!(said.status.code(), Some(1));
    }
    // A picture takes the place of an older one only when it is complete, and leaves nothing next
    // to it.
    let picture = scratch.join("map.svg");
    fs::write(&picture, "old").unwrap();
    quiet(&extant(["map", "-o", picture.to_str().unwrap(), &image]));
    assert!(fs::read(&picture).unwrap().starts_with(b"<svg"));
    let names = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["disk.img", "map.svg", "source"]);
}

/// mke2fs 1.47.0 stores a file that is one large hole as inline data of 60 bytes: all else of it is
/// a hole.
#[test]
fn an_inline_file_that_is_all_hole_is_exported_as_a_hole() {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    fs::File::create(source.join("hole")).unwrap().set_len(5 << 30).unwrap();
    let args = ["-t", "ext4", "-O", "inline_data", "-d", source.to_str().unwrap()];
    let image = match TempImage::by_mke2fs(16 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let archive = scratch.join("tree.tar");
    let path = image.path().display().to_string();
    quiet(&extant(["export", "-o", archive.to_str().unwrap(), &path]));
    assert!(fs::metadata(&archive).unwrap().len() < 100_000);
    let Some(tar) = tool("tar") else { skip!("tar is not installed") };
    let listed = tar.text(["-tvf".as_ref(), archive.as_os_str()]).unwrap();
    assert!(
        listed.lines().any(|line| line.contains(" 5368709120 ") && line.ends_with("./hole")),
        "{listed}"
    );
}

/// A check runs to its end whether its output is read or not, and a failure that cannot be printed
/// is a failure all the same.
#[test]
fn a_reader_that_goes_away_ends_no_check() {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    let image = built(&scratch, &source);
    let code = |words: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(EXTANT);
        command.args(words).stdout(writer.try_clone().unwrap()).stderr(writer);
        command.status().unwrap().code()
    };
    assert_eq!(code(&["fsck", "-fnv", "-tt", &image]), Some(0));
    assert_eq!(code(&["fsck", "-fy", &image]), Some(0));
    assert_eq!(code(&["ls", "/nonexistent/x.img"]), Some(1));
}

/// Letters of filefrag and dumpe2fs that mean nothing for an image are refused by name; unknown
/// ones end as the twin does.
#[test]
fn letters_of_the_twins_work_or_are_refused_by_name() {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    let image = built(&scratch, &source);
    for twin in ["filefrag", "dumpe2fs"] {
        symlink(EXTANT, scratch.join(twin)).unwrap();
    }
    // By the name filefrag the image alone is a file of the host.
    let root = format!("{image}:/");
    let run = |twin: &str, letter: &str| {
        let file = if twin == "filefrag" { &root } else { &image };
        let output = Command::new(scratch.join(twin)).arg(letter).arg(file).output().unwrap();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    for letter in ["-B", "-E", "-P"] {
        let (code, _, said) = run("filefrag", letter);
        assert!(code == 1 && said.starts_with(&format!("filefrag: {letter}: ")), "{code} {said}");
    }
    let one = format!("{root}: 1 extent found\n");
    for letter in ["-s", "-k", "-b", "-b2K", "-X"] {
        assert_eq!(run("filefrag", letter), (0, one.clone(), String::new()), "{letter}");
    }
    let (code, said, _) = run("filefrag", "-VV");
    assert!(code == 0 && said.contains("unwritten"), "{said}");
    for twin in ["filefrag", "dumpe2fs"] {
        let (code, _, said) = run(twin, "-Q");
        assert!(code == 1 && said.contains("'-Q'"), "{twin}: {code} {said}");
    }
}

#[test]
fn build_replaces_images_and_nothing_else_unasked() {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir_all(&source).unwrap();
    let source = source.to_str().unwrap();
    let build = |output: &Path, more: &[&str]| {
        let words = ["build", "-o", output.to_str().unwrap()];
        extant(words.iter().chain(more).copied().chain([source]))
    };
    let image = scratch.join("disk.img");
    for _ in 0..2 {
        quiet(&build(&image, &["-q"]));
    }
    let notes = scratch.join("notes.txt");
    fs::write(&notes, "keep me").unwrap();
    let refused = build(&notes, &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("notes.txt: contains unknown data"), "{refused:?}");
    assert_eq!(fs::read(&notes).unwrap(), b"keep me");
    quiet(&build(&notes, &["-q", "-F"]));
    let refused = build(Path::new("-"), &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("standard output"), "{refused:?}");
}

#[test]
fn sizes_without_a_unit_are_bytes() {
    let Some(e2fsck) = tool("e2fsck") else { skip!("no e2fsprogs here") };
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir_all(&source).unwrap();
    for (words, bytes) in [
        (&["--size", "20971520"][..], 20 << 20),
        (&["--size", "20974000", "-b", "4096"], 20 << 20),
        (&["--size", "20m"], 20 << 20),
        (&["--size", "256m", "-b", "65536", "-F"], 256 << 20),
    ] {
        let image = scratch.join("disk.img");
        let words = [&["build", "-q", "-o", image.to_str().unwrap()], words].concat();
        let output = extant(words.iter().copied().chain([source.to_str().unwrap()]));
        assert!(output.status.success(), "{words:?}: {output:?}");
        assert_eq!(fs::metadata(&image).unwrap().len(), bytes, "{words:?}");
        let checked = e2fsck.run(["-fn", image.to_str().unwrap()]);
        assert!(checked.status.success(), "{words:?}: {checked:?}");
    }
}

#[test]
fn a_label_that_is_too_long_is_not_cut() {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    fs::create_dir_all(&source).unwrap();
    let image = scratch.join("disk.img");
    let words = ["build", "-q", "-L", "a label with many letters", "-o"];
    let output =
        extant(words.iter().copied().chain([image.to_str().unwrap(), source.to_str().unwrap()]));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("longer than 16 bytes"), "{output:?}");
    assert!(!image.exists());
}

#[test]
fn manual_pages_name_the_values_of_options() {
    let scratch = Scratch::new();
    quiet(&extant(["man", scratch.path().to_str().unwrap()]));
    let page = fs::read_to_string(scratch.join("extant-build.1")).unwrap();
    assert!(page.contains("extant build [OPTIONS] \\-o <IMAGE> <SOURCE>..."), "{page}");
    let table = fs::read_to_string(scratch.join("extant.1")).unwrap();
    assert!(table.contains("SUBCOMMANDS") && table.contains("SYNOPSIS"), "{table}");
    // A heading has something below it.
    for page in fs::read_dir(scratch.path()).unwrap() {
        let page = fs::read_to_string(page.unwrap().path()).unwrap();
        let lines: Vec<_> = page.lines().collect();
        let empty = lines.windows(2).find(|two| two.iter().all(|line| line.starts_with(".SH")));
        assert_eq!(empty, None);
    }
    let mkfs = fs::read_to_string(scratch.join("extant-mkfs.1")).unwrap();
    assert!(mkfs.contains(".SH NOTES\nSIZE counts blocks"), "{mkfs}");
}
