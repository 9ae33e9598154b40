//! The commands that change images: each judged by e2fsck, and by what the kernel's mount of the
//! image shows.

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Output;

use common::{extant, quiet, snapshot, text};
use extant_testkit::{
    LoopMount, Scratch, TempImage, assert_same_tree, e2fsck_fn, is_root, skip, tree,
};

/// A new image, or why it is not made.
macro_rules! image {
    ($options:expr) => {
        match TempImage::by_mke2fs(64 << 20, $options) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        }
    };
}

/// Runs a command whose words may name files as `@/path`: inside the image.
fn run(image: &TempImage, line: &str) -> Output {
    let inside = format!("{}:/", image.path().display());
    let words = line.split_whitespace().map(|word| match word.strip_prefix("@/") {
        Some(path) => format!("{inside}{path}"),
        None => word.to_owned(),
    });
    extant(words)
}

/// Runs commands that must end well without a word on standard error.
fn script(image: &TempImage, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let output = run(image, line);
        let said = text(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{line}: {:?} {said}", output.status);
    }
}

/// Runs a command that must fail with this code and say this.
fn refused(image: &TempImage, line: &str, code: i32, sentence: &str) {
    let output = run(image, line);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line}: {said}");
    assert!(said.contains(sentence), "{line}: {said}");
}

fn copied_in_is_the_tree(options: &[&str], seed: u64, block: usize) {
    if !is_root() {
        skip!("other owners and a loop mount need root");
    }
    let image = image!(options);
    let scratch = Scratch::new();
    let source = scratch.join("source");
    let grown = tree::Options { block, ..tree::Options::default() };
    tree::grow(&source, seed, &grown).expect("scratch space takes a tree");
    let words = ["cp", "-a", &format!("{}/.", source.display())];
    quiet(&extant(words.into_iter().chain([&*format!("{}:/", image.path().display())])));
    e2fsck_fn(&image.path()).unwrap();
    let mount = match LoopMount::new(&image.path(), "ro,noload") {
        Ok(mount) => mount,
        Err(why) => skip!("no loop mount here: {why}"),
    };
    assert_same_tree(&snapshot(&source), &snapshot(mount.path()));
    let hole = mount.path().join("sparse/all").metadata().unwrap();
    assert!(hole.size() > 1 << 30 && hole.blocks() < 100, "{hole:?}");
}

#[test]
fn a_tree_copied_into_ext4_is_the_tree() {
    copied_in_is_the_tree(&["-t", "ext4", "-b", "4096", "-N", "4000"], 61, 4096);
}

#[test]
fn a_tree_copied_into_ext4_of_small_blocks_is_the_tree() {
    copied_in_is_the_tree(&["-t", "ext4", "-b", "1024", "-O", "ea_inode", "-N", "4000"], 62, 1024);
}

#[test]
fn a_tree_copied_into_ext2_is_the_tree() {
    copied_in_is_the_tree(&["-t", "ext2", "-b", "1024", "-I", "256", "-N", "4000"], 63, 1024);
}

#[test]
fn each_command_does_what_its_twin_does_on_a_mount() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let image = image!(&["-t", "ext4"]);
    let scratch = Scratch::new();
    let file = scratch.join("file");
    std::fs::write(&file, "contents\n").unwrap();
    script(
        &image,
        &"
            mkdir -p @/etc/network/if-up.d
            mkdir -m 1777 @/tmp @/var
            cp {file} @/etc/hosts
            cp {file} @/etc/network
            ln -s hosts @/etc/alias
            ln @/etc/hosts @/etc/other
            chmod u=rw,go= @/etc/hosts
            chown 1000:5 @/etc/hosts
            chown -h 7 @/etc/alias
            touch -d @1234567890.5 @/etc/hosts
            touch @/etc/empty
            truncate -s 5 @/etc/network/file
            truncate -s +1M @/etc/sparse
            setfattr -n user.note -v text @/etc/hosts
            setfattr -n user.gone @/etc/hosts
            setfattr -x user.gone @/etc/hosts
            mknod -m 600 @/etc/null c 1 3
            mknod @/etc/pipe p
            mv @/etc/network @/etc/net
            mkdir -p @/old/below/it
            touch @/old/below/file @/old/file
            ln -s /etc @/old/link
            rm -r @/old
            rm -f @/missing
            mkdir @/empty
            rmdir @/empty
            chmod -R g+w @/var @/etc/net
            "
        .replace("{file}", &file.display().to_string()),
    );
    e2fsck_fn(&image.path()).unwrap();
    let mount = match LoopMount::new(&image.path(), "ro,noload") {
        Ok(mount) => mount,
        Err(why) => skip!("no loop mount here: {why}"),
    };
    let at = |path: &str| mount.path().join(path);
    let stat = |path: &str| at(path).symlink_metadata().unwrap();
    let read = |path: &str| std::fs::read_to_string(at(path)).unwrap();
    assert_eq!(read("etc/hosts"), "contents\n");
    assert_eq!(read("etc/net/file"), "conte");
    let hosts = stat("etc/hosts");
    assert_eq!((hosts.mode(), hosts.nlink()), (0o100_600, 2));
    assert_eq!((hosts.uid(), hosts.gid()), (1000, 5));
    assert_eq!((hosts.mtime(), hosts.mtime_nsec()), (1_234_567_890, 500_000_000));
    assert_eq!(stat("etc/other").ino(), hosts.ino());
    assert_eq!(at("etc/alias").read_link().unwrap(), Path::new("hosts"));
    assert_eq!(stat("etc/alias").uid(), 7);
    assert_eq!(stat("tmp").mode(), 0o041_777);
    assert_eq!((stat("etc/sparse").size(), stat("etc/sparse").blocks()), (1 << 20, 0));
    let null = stat("etc/null");
    assert_eq!((null.mode(), null.rdev()), (0o020_600, rustix::fs::makedev(1, 3)));
    assert_eq!(stat("etc/pipe").mode() & 0o170_000, 0o010_000);
    let mut value = [0; 10];
    let len = rustix::fs::getxattr(at("etc/hosts"), "user.note", &mut value).unwrap();
    assert_eq!(&value[..len], b"text");
    assert!(rustix::fs::getxattr(at("etc/hosts"), "user.gone", &mut value).is_err());
    assert_eq!(stat("var").mode() & 0o020, 0o020);
    let mut names: Vec<_> = std::fs::read_dir(mount.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["etc", "lost+found", "tmp", "var"]);
}

#[test]
fn failures_name_the_file_and_change_nothing() {
    let image = image!(&["-t", "ext4"]);
    script(&image, "mkdir @/dir\ntouch @/dir/file @/file");
    let at = |path: &str| format!("{}:/{path}", image.path().display());
    let missing = at("missing: no such file or directory");
    refused(&image, "rm @/missing", 1, &missing);
    refused(&image, "rm @/dir", 1, &at("dir: is a directory"));
    refused(&image, "rmdir @/dir", 1, &at("dir: directory not empty"));
    refused(&image, "mkdir @/dir", 1, &at("dir: file exists"));
    refused(&image, "mkdir @/none/dir", 1, "no such file or directory");
    refused(&image, "ln @/dir @/other", 1, &at("dir: hard link not allowed for directory"));
    refused(&image, "ln -s x @/file", 1, "file exists");
    refused(&image, "mv @/dir @/dir/below", 1, &at("dir"));
    refused(&image, "mv @/missing @/there", 1, &missing);
    refused(&image, "chmod 9 @/file", 2, "invalid mode: '9'");
    refused(&image, "chmod 600 @/missing", 1, &missing);
    refused(
        &image,
        "chown no-such-user @/file",
        1,
        "unknown user 'no-such-user': not a number and not found in ",
    );
    refused(&image, "chown 4294967295 @/file", 2, "invalid user or group ID: 4294967295");
    refused(&image, "find @/ -mtime x", 2, "-mtime: invalid number 'x'");
    refused(&image, "find @/ -user no-such-user", 1, "unknown user 'no-such-user': not a number");
    refused(&image, "find @/ -exec cat {}", 2, "--exec");
    refused(&image, "find @/ -exec cat {} ; -delete", 2, "--delete");
    refused(&image, "find @/ --wait", 2, "--wait: only with -delete");
    refused(&image, "find @/dir/none -delete", 1, "no such file or directory");
    refused(&image, "chown : @/file", 2, "invalid owner: ':'");
    refused(&image, "truncate -s x @/file", 2, "invalid size");
    refused(&image, "truncate -s 1 @/dir", 1, &at("dir: is a directory"));
    refused(&image, "touch -d tomorrow @/file", 2, "invalid date: 'tomorrow'");
    refused(&image, "setfattr -n nothing @/file", 1, &at("file"));
    refused(&image, "setfattr -x user.none @/file", 1, "no such attribute");
    refused(&image, "setfattr -n user.x -v 0xz @/file", 2, "invalid value: '0xz'");
    refused(&image, "mknod @/node b 1", 2, "");
    refused(&image, "mknod @/node q", 2, "invalid device type: 'q'");
    refused(&image, "cp /missing-on-this-machine @/file", 1, "/missing-on-this-machine");
    refused(&image, "cp / @/file", 1, "/: -r not specified; omitting directory");
    refused(&image, "cp @/file @/file", 1, "source and target are the same file");
    refused(&image, "rm -r @/", 1, &at(": cannot remove the root directory"));
    refused(&image, "rmdir @/", 1, &at(": cannot remove the root directory"));
    refused(&image, "rm @/", 1, &at(": is a directory"));
    refused(&image, "rm @/file @/missing @/dir/file", 1, &missing);
    // One that fails does not stop the next.
    let listed = run(&image, "ls @/ @/dir");
    assert!(!text(&listed.stdout).contains("file"), "{listed:?}");
    e2fsck_fn(&image.path()).unwrap();
}

#[test]
fn paths_beside_image_are_inside_it() {
    let image = image!(&["-t", "ext4"]);
    let name = image.path().display().to_string();
    for words in [
        &["mkdir", "-p", "--image", &name, "/a/b"][..],
        &["touch", "--image", &name, "/a/file"],
        &["mv", "--image", &name, "/a/file", "/a/b"],
        &["ln", "-s", "--image", &name, "file", "/a/b/link"],
        &["chmod", "--image", &name, "600", "/a/b/file"],
    ] {
        quiet(&extant(words));
    }
    let listed = extant(["ls", "-l", "--image", &name, "/a/b"]);
    let listed = text(&listed.stdout);
    assert!(listed.contains("-rw-------") && listed.contains("link"), "{listed}");
    e2fsck_fn(&image.path()).unwrap();
}

/// A copy over a file takes its name in one moment; other names of the old file keep its contents.
#[test]
fn a_copy_over_a_file_writes_what_all_its_names_have() {
    let image = image!(&["-t", "ext4"]);
    let scratch = Scratch::new();
    for (name, contents) in [("old", "old contents"), ("new", "new")] {
        std::fs::write(scratch.join(name), contents).unwrap();
    }
    let (old, new) = (scratch.join("old"), scratch.join("new"));
    script(&image, &format!("cp {} @/file\nln @/file @/second", old.display()));
    script(&image, &format!("cp -n {} @/file", new.display()));
    assert_eq!(text(&run(&image, "cat @/file").stdout), "old contents");
    script(&image, &format!("cp {} @/file", new.display()));
    assert_eq!(text(&run(&image, "cat @/file").stdout), "new");
    assert_eq!(text(&run(&image, "cat @/second").stdout), "new");
    let names = text(&run(&image, "ls -a @/").stdout);
    assert!(!names.contains(".extant"), "{names}");
    e2fsck_fn(&image.path()).unwrap();
}

#[test]
fn an_image_that_somebody_else_has_is_refused() {
    let image = image!(&["-t", "ext4"]);
    let held = alone().open(image.path()).unwrap();
    refused(&image, "mkdir @/dir", 1, &image.path().display().to_string());
    drop(held);
    script(&image, "mkdir @/dir");
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let before = std::fs::read(image.path()).unwrap();
    let mount = match LoopMount::new(&image.path(), "ro,noload") {
        Ok(mount) => mount,
        Err(why) => skip!("no loop mount here: {why}"),
    };
    refused(&image, "rm -r @/dir", 1, "loop");
    mount.unmount().unwrap();
    assert!(std::fs::read(image.path()).unwrap() == before, "not one byte has changed");
}

fn alone() -> extant::rooms::device::FileDeviceOptions {
    extant::rooms::device::FileDeviceOptions::new().write(true)
}

/// Names of owners are those of the image.
#[test]
fn owners_are_looked_up_in_the_image() {
    let image = image!(&["-t", "ext4"]);
    let scratch = Scratch::new();
    std::fs::write(scratch.join("passwd"), "root:x:0:0::/:\ndaemon:x:71:72::/:\n").unwrap();
    std::fs::write(scratch.join("group"), "root:x:0:\nwheel:x:90:\n").unwrap();
    let (passwd, group) = (scratch.join("passwd"), scratch.join("group"));
    script(
        &image,
        &format!(
            "mkdir @/etc\ncp {} {} @/etc\nchown daemon:wheel @/etc/passwd",
            passwd.display(),
            group.display()
        ),
    );
    let shown = text(&run(&image, "ls -ln @/etc/passwd").stdout);
    let shown =
        if shown.is_empty() { text(&run(&image, "stat @/etc/passwd").stdout) } else { shown };
    assert!(shown.contains("71") && shown.contains("90"), "{shown}");
}

/// Many times what may be delayed goes through the least memory; less, or memory for what changes
/// no image, is refused.
#[test]
fn memory_limits_what_changes_an_image() {
    let image = image!(&["-t", "ext4"]);
    let scratch = Scratch::new();
    let file = scratch.join("file");
    let bytes: Vec<u8> = (0..24_u32 << 20).map(|at| ((at / 4096) ^ at) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    let file = file.display();
    script(
        &image,
        &format!(
            "mkdir --memory 16M @/dir
            cp --memory 16M {file} @/dir/file
            truncate --memory 16M -s 20M @/dir/file"
        ),
    );
    let back = run(&image, "cat @/dir/file");
    assert!(back.stdout == bytes[..20 << 20], "{} bytes came back", back.stdout.len());
    script(&image, "rm --memory 16M -r @/dir");
    e2fsck_fn(&image.path()).unwrap();
    refused(&image, "mkdir --memory 1M @/dir", 2, "at least 16M is required");
    refused(&image, "mkdir --memory much @/dir", 2, "invalid size");
    let outside = format!("cp --memory 16M @/file {file}");
    refused(&image, &outside, 2, "--memory: only valid for copies into an image");
}

/// The paths that `find` prints for a tree at `start`, without that, in order.
fn found(output: &Output, start: &str) -> Vec<String> {
    let said = text(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{:?} {said}", output.status);
    let text = text(&output.stdout);
    let paths = text.lines().map(|path| path.strip_prefix(start).unwrap().trim_start_matches('/'));
    let mut paths: Vec<_> = paths.filter(|it| !it.is_empty()).map(str::to_owned).collect();
    paths.sort();
    paths
}

#[test]
fn ages_and_owners_are_those_of_find() {
    const AGES: [&str; 10] = [
        "10 seconds",
        "90 seconds",
        "170 seconds",
        "59 minutes",
        "23 hours",
        "25 hours",
        "47 hours",
        "49 hours",
        "80 hours",
        "900 days",
    ];
    let image = image!(&["-t", "ext4"]);
    let scratch = Scratch::new();
    let source = scratch.join("tree");
    std::fs::create_dir(&source).unwrap();
    for (number, age) in AGES.iter().enumerate() {
        let date = [format!("--date={age} ago"), format!("file{number}")];
        let touch = std::process::Command::new("touch").args(date).current_dir(&source).status();
        assert!(touch.unwrap().success());
    }
    let future = ["--date=2 hours", "later"];
    let touch = std::process::Command::new("touch").args(future).current_dir(&source).status();
    assert!(touch.unwrap().success());
    run(&image, &format!("cp -a {}/. @/", source.display()));
    let tests = [
        "-mtime 0",
        "-mtime 1",
        "-mtime +1",
        "-mtime -2",
        "-mtime 2",
        "-mtime +800",
        "-mmin 2",
        "-mmin 3",
        "-mmin -61",
        "-mmin +1500",
        "-mmin -1",
        "-mtime -1",
        "-mtime +0 -mtime -3",
    ];
    for test in tests {
        let words = [source.to_str().unwrap(), "-type", "f"].into_iter().chain(test.split(' '));
        let theirs = std::process::Command::new("find").args(words).output().unwrap();
        let ours = run(&image, &format!("find @/ -type f {test}"));
        assert_eq!(found(&ours, ""), found(&theirs, source.to_str().unwrap()), "{test}");
    }
    std::fs::write(source.join("passwd"), "root:x:0:0::/:\nother:x:1234:77::/:\n").unwrap();
    std::fs::write(source.join("group"), "those:x:77:\n").unwrap();
    let tables = format!("{0}/passwd {0}/group", source.display());
    script(&image, &format!("mkdir @/etc\ncp {tables} @/etc\nchown other:those @/file3 @/file4"));
    script(&image, "chown :0 @/file4");
    let found_by = |test: &str| found(&run(&image, &format!("find @/ -name file* {test}")), "");
    assert_eq!(found_by("-user other"), ["file3", "file4"]);
    assert_eq!(found_by("-user 1234 -group those"), ["file3"]);
    assert_eq!(found_by("-ctime 0 -user root -mtime +800"), ["file9"]);
}

#[test]
fn what_find_finds_is_deleted_or_given_to_a_command() {
    let image = image!(&["-t", "ext4"]);
    script(&image, "mkdir -p @/a/b/c @/kept @/full");
    script(&image, "touch @/a/x.o @/a/b/y.o @/a/b/c/z.o @/kept/n.c @/kept/o.o @/full/m.c");
    let all = || found(&run(&image, "find @/ -path /[akf]*"), "");
    let before = all();
    // A command gets the names, each in its place or all at its end.
    let each = run(&image, "find @/a -name *.o -exec printf <%s|%s> {} x{} ;");
    let at = |path: &str| format!("{}:/{path}", image.path().display());
    let three = ["a/b/c/z.o", "a/b/y.o", "a/x.o"];
    let pairs: String = three.map(|it| format!("<{0}|x{0}>", at(it))).concat();
    assert_eq!(text(&each.stdout), pairs, "{}", text(&each.stderr));
    let together = run(&image, "find @/a -name *.o -print -exec echo all {} +");
    let lines: String = three.map(|it| format!("/{it}\n")).concat();
    let line = three.map(at).join(" ");
    assert_eq!(text(&together.stdout), format!("{lines}all {line}\n"));
    // As in find(1), only one that got many says that it failed.
    assert_eq!(run(&image, "find @/a -name *.o -exec false {} ;").status.code(), Some(0));
    assert_eq!(run(&image, "find @/a -name *.o -exec false {} +").status.code(), Some(1));
    refused(&image, "find @/a -name x.o -exec no-such-program {} ;", 1, "no-such-program");
    assert_eq!(all(), before);
    // Our own commands may change the image.
    let extant = env!("CARGO_BIN_EXE_extant");
    quiet(&run(&image, &format!("find @/kept -name o.o -exec {extant} mv {{}} {{}}.old ;")));
    assert_eq!(found(&run(&image, "find @/kept -type f"), "/kept"), ["n.c", "o.o.old"]);
    quiet(&run(&image, "find @/a -name *.o -delete"));
    assert_eq!(found(&run(&image, "find @/a"), "/a"), ["b", "b/c"]);
    let printed = run(&image, "find @/a -type d -print -delete");
    assert_eq!(text(&printed.stdout), "/a\n/a/b\n/a/b/c\n");
    // A directory that is not empty stays, and the rest goes.
    refused(&image, "find @/ -path /full -o", 2, "-o");
    let output = run(&image, "find @/full @/kept -not-a-test -delete");
    assert_eq!(output.status.code(), Some(2));
    refused(&image, "find @/full @/kept/n.c -maxdepth 0 -delete", 1, "directory not empty");
    assert_eq!(all(), ["full", "full/m.c", "kept", "kept/o.o.old"]);
    e2fsck_fn(&image.path()).unwrap();
}

/// The output of `extant diff`, which must end with this code.
fn diff(words: &[&str], code: i32) -> String {
    let output = extant(["diff"].iter().chain(words));
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The tree in an image is equal to the one on the host that it was copied from, and to the image's
/// kernel mount; each change of it is told.
#[test]
fn trees_are_compared() {
    if !is_root() {
        skip!("other owners and a loop mount need root");
    }
    let image = image!(&["-t", "ext4", "-b", "4096", "-N", "4000", "-O", "ea_inode"]);
    let scratch = Scratch::new();
    let source = scratch.join("source");
    let grown = tree::Options { block: 4096, ..tree::Options::default() };
    tree::grow(&source, 63, &grown).expect("scratch space takes a tree");
    let make = "cd \"$1\" && mkdir -p t/sub && echo one > t/file && echo two > t/sub/file && ln t/file t/link && \
        ln -s file t/symlink && mkfifo t/pipe && mknod t/null c 1 3 && truncate -s 5G t/hole && echo x > t/attr";
    let made = std::process::Command::new("bash").args(["-ec", make, "make"]).arg(&source).status();
    assert!(made.unwrap().success());
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(source.join("t/attr"), "user.a", b"1", flags).unwrap();
    let inside = format!("{}:/", image.path().display());
    quiet(&extant(["cp", "-a", &format!("{}/.", source.display()), &inside]));
    let host = source.to_str().unwrap();
    assert_eq!(diff(&[host, &inside], 0), "");
    assert_eq!(diff(&[&image.path().display().to_string(), host], 0), "");
    assert_eq!(diff(&["--json", &inside, &inside], 0), "[\n]\n");
    // Below the root an empty lost+found is a directory like any other.
    script(&image, "cp -a @/t @/t2");
    let mount = match LoopMount::new(&image.path(), "ro,noload") {
        Ok(mount) => mount,
        Err(why) => skip!("no loop mount here: {why}"),
    };
    let kernel = mount.path().to_str().unwrap();
    assert_eq!(diff(&[&inside, kernel], 0), "");
    let [one, other] = ["t", "t2"].map(|name| format!("{inside}{name}"));
    assert_eq!(diff(&[&one, &other], 0), "");
    drop(mount);
    let changes = "rm @/t2/link\\ncp @/t2/file @/t2/link\\ntouch -d 2001-02-03 @/t2/file @/t2/link\\n
        truncate -s 4 @/t2/sub/file\\nrm @/t2/pipe\\nmkdir @/t2/pipe\\nrm @/t2/null\\nmknod @/t2/null c 1 5\\n
        chmod 600 @/t2/attr\\nchown 7:8 @/t2/sub\\nsetfattr -x user.a @/t2/attr\\nln -s other @/t2/new\\n
        truncate -s 5G @/t2/hole\\nrm @/t2/symlink\\nln -s elsewhere @/t2/symlink";
    script(&image, &changes.replace("\\n", "\n"));
    script(&image, &format!("cp {host}/t/sub/file @/t2/sub/file"));
    std::fs::write(scratch.join("two"), "tWo\n").unwrap();
    script(&image, &format!("cp {} @/t2/sub/file", scratch.join("two").display()));
    let said = diff(&["--no-times", &one, &other], 1);
    let expected = format!(
        "Files {one}/attr and {other}/attr differ: mode 0644, 0600; extended attributes\n\
         Files {one}/link and {other}/link differ: hard links\n\
         Only in {other}: new\n\
         Files {one}/null and {other}/null differ: device number 1:3, 1:5\n\
         File {one}/pipe is a fifo while file {other}/pipe is a directory\n\
         Files {one}/sub and {other}/sub differ: uid 0, 7; gid 0, 8\n\
         Files {one}/symlink and {other}/symlink differ: target file, elsewhere\n\
         Files {one}/sub/file and {other}/sub/file differ: contents\n"
    );
    assert_eq!(said, expected);
    assert!(diff(&[&one, &other], 1).contains("/file differ: mtime "));
    let said = diff(&["--contents", &one, &other], 1);
    assert!(!said.contains("attr") && !said.contains("uid") && said.contains("sub/file"), "{said}");
    let found: serde_json::Value =
        serde_json::from_str(&diff(&["--contents", "--json", &one, &other], 1)).unwrap();
    assert_eq!(found[0], serde_json::json!({"path": "new", "only_in": "second"}));
    let contents = serde_json::json!({"path": "sub/file", "differences": [{"what": "contents"}]});
    assert!(found.as_array().unwrap().contains(&contents), "{found}");
    // Single files, and one that is an image by its name only.
    let file = source.join("t/file");
    let file = file.to_str().unwrap();
    assert_eq!(diff(&[&format!("{one}/file"), file], 0), "");
    assert!(diff(&[file, &format!("{one}/sub/file")], 1).contains("contents"));
    assert!(diff(&[file, &one], 1).contains("is a file while"));
    diff(&[file, &inside], 2);
    diff(&[&one, &format!("{inside}none")], 2);
    diff(&["/no-such-directory", &inside], 2);
}
