//! `extant sh`: many commands on an image that is opened once.

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{EXTANT, extant, quiet, snapshot, text};
use extant_testkit::{
    LoopMount, Scratch, TempImage, assert_same_tree, debugfs, e2fsck_fn, is_root, skip,
};

/// Runs a script of standard input.
fn scripted(dir: &Path, words: &[&str], script: &str) -> Output {
    let mut child = Command::new(EXTANT)
        .arg("sh")
        .args(words)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn empty(scratch: &Scratch, name: &str, words: &[&str]) -> String {
    let image = scratch.join(name).display().to_string();
    quiet(&extant([&["mkfs", "-q"], words, &[&image, "24M"]].concat()));
    image
}

/// A script does what its commands do one by one.
#[test]
fn a_script_is_its_commands() {
    let kinds: [&[&str]; 4] =
        [&["-t", "ext4"], &["-t", "ext2"], &["-t", "ext3", "-b", "1024"], &["-O", "quota"]];
    for kind in kinds {
        let scratch = Scratch::new();
        fs::write(scratch.join("notes.txt"), "notes\n").unwrap();
        fs::create_dir_all(scratch.join("tree/deep")).unwrap();
        fs::write(scratch.join("tree/deep/file"), vec![7; 200_000]).unwrap();
        let (one, other) = (empty(&scratch, "one.img", kind), empty(&scratch, "two.img", kind));
        let script = "
            # comments and empty lines are passed over

            mkdir -p /etc/conf.d var/log
            cp host:notes.txt /etc/; cp -r host:tree /srv
            cp /etc/notes.txt '/etc/a b'
            touch -d @1000000000 /etc/x.conf /etc/y.conf
            chmod 600 /etc/*.conf
            chown 7:8 '/etc/x.conf'
            ln -s ../etc /var/etc
            ln /etc/notes.txt /etc/hard
            mknod /null c 1 3
            setfattr -n user.name -v value /etc/x.conf
            truncate -s 3 /etc/notes.txt
            mv /etc/y.conf /etc/conf.d
            chattr +d /etc/x.conf
            rm -r /srv/deep
            rmdir /var/log
            find /etc -name 'a b' -delete
        ";
        quiet(&scripted(scratch.path(), &[&one], script));
        let commands: [&[&str]; 18] = [
            &["mkdir", "-p", "@/etc/conf.d", "@/var/log"],
            &["cp", "notes.txt", "@/etc/"],
            &["cp", "-r", "tree", "@/srv"],
            &["cp", "@/etc/notes.txt", "@/etc/a b"],
            &["touch", "-d", "@1000000000", "@/etc/x.conf", "@/etc/y.conf"],
            &["chmod", "600", "@/etc/*.conf"],
            &["chown", "7:8", "@/etc/x.conf"],
            &["ln", "-s", "../etc", "@/var/etc"],
            &["ln", "@/etc/notes.txt", "@/etc/hard"],
            &["mknod", "@/null", "c", "1", "3"],
            &["setfattr", "-n", "user.name", "-v", "value", "@/etc/x.conf"],
            &["truncate", "-s", "3", "@/etc/notes.txt"],
            &["mv", "@/etc/y.conf", "@/etc/conf.d"],
            &["chattr", "+d", "@/etc/x.conf"],
            &["rm", "-r", "@/srv/deep"],
            &["rmdir", "@/var/log"],
            &["find", "@/etc", "-name", "a b", "-delete"],
            &["ls", "@/"],
        ];
        for words in commands {
            let inside = |word: &&str| word.replacen("@/", &format!("{other}:/"), 1);
            let done = Command::new(EXTANT)
                .args(words.iter().map(inside))
                .current_dir(scratch.path())
                .output()
                .unwrap();
            assert!(done.status.success() && done.stderr.is_empty(), "{words:?} {done:?}");
        }
        for image in [&one, &other] {
            e2fsck_fn(Path::new(image)).unwrap();
        }
        let trees = [&one, &other].map(|image| {
            let out = scratch.join("out");
            quiet(&extant(["cp", "-a", &format!("{image}:/"), out.to_str().unwrap()]));
            let tree = snapshot(&out);
            fs::remove_dir_all(&out).unwrap();
            tree
        });
        assert_eq!(trees[0].entries.len(), trees[1].entries.len(), "{kind:?}");
        assert!(trees[0].entries.keys().eq(trees[1].entries.keys()), "{kind:?}");
        let diff = extant(["diff", "--no-times", &one, &other]);
        assert_eq!((diff.status.code(), text(&diff.stdout)), (Some(0), String::new()), "{diff:?}");
    }
}

/// Each command sees what those before it did.
#[test]
fn commands_see_what_was_changed() {
    for kind in [&["-t", "ext4"][..], &["-t", "ext2"], &["-t", "ext3"]] {
        let scratch = Scratch::new();
        let image = empty(&scratch, "disk.img", kind);
        fs::write(scratch.join("f"), "first\n").unwrap();
        let before = text(&extant(["df", "-B1", &image]).stdout);
        let script = "
            cp host:f /f
            cat f
            df -B1
            touch /g
            ls /
            rm /f
            ls
            stat --json /g
            du -s
            find / -name g
            tree
            lsattr -d /g
            cp /g host:copied
            cp /g -
        ";
        let said = scripted(scratch.path(), &[&image], script);
        quiet(&said);
        let said = text(&said.stdout);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "first");
        // The free space shrank by the file.
        assert_ne!(lines[2], before.lines().nth(1).unwrap());
        assert_eq!(lines[3..8], ["f", "g", "lost+found", "g", "lost+found"], "{said}");
        assert!(said.contains("\"path\":\"/g\""), "{said}");
        assert!(lines.contains(&"/g") && scratch.join("copied").is_file());
        e2fsck_fn(Path::new(&image)).unwrap();
    }
}

#[test]
fn failures_are_counted_and_named() {
    let scratch = Scratch::new();
    let image = empty(&scratch, "disk.img", &[]);
    let script = "mkdir /a\nrm /none\nmkdir /b\nnonsense\nls --nonsense\nls 'x\nmkdir /c\n";
    let said = scripted(scratch.path(), &[&image], script);
    assert_eq!(said.status.code(), Some(1));
    let errors = text(&said.stderr);
    let expected = format!("extant sh: line 2: rm: {image}:/none: no such file or directory");
    assert!(errors.lines().any(|line| line == expected), "{errors}");
    let expected = "extant sh: line 4: nonsense: unknown command: 'help' lists those of this shell";
    assert!(errors.lines().any(|line| line == expected), "{errors}");
    assert!(errors.contains("line 6: missing closing quote"), "{errors}");
    let names = |image: &str| text(&extant(["ls", image]).stdout);
    assert_eq!(names(&image), "a\nb\nc\nlost+found\n");

    // -e stops; so does exit, well.
    let said = scripted(scratch.path(), &["-e", &image], "rmdir /a\nrm /none\nrmdir /b\n");
    assert_eq!(said.status.code(), Some(1));
    assert_eq!(names(&image), "b\nc\nlost+found\n");
    quiet(&scripted(scratch.path(), &[&image], "rmdir /b\nexit\nrmdir /c\n"));
    assert_eq!(names(&image), "c\nlost+found\n");

    let run = |commands: &str| extant(["sh", "-c", commands, &image]);
    quiet(&run("mkdir /d; mkdir '/e;f' # and no more; mkdir /g"));
    assert_eq!(names(&image), "c\nd\ne;f\nlost+found\n");
    let several = extant(["sh", "-c", "rmdir /d", "-c", "rmdir '/e;f'; sync", &image]);
    quiet(&several);
    assert_eq!(names(&image), "c\nlost+found\n");
    let said = run("rm /none; mkdir /h");
    assert_eq!(
        text(&said.stderr),
        format!("extant sh: rm: {image}:/none: no such file or directory\n")
    );
    for refused in [
        "find / -exec ls {} ;",
        "ls --image other /",
        "cp --image other /a host:b",
        "mkfs x 1M",
        "sh x",
        "touch --wait /x",
        "chmod --memory 64M 600 /c",
        "help nonsense",
        "exit now",
        "fsck",
    ] {
        let said = run(refused);
        assert_eq!(said.status.code(), Some(1), "{refused}: {said:?}");
        assert!(!said.stderr.is_empty(), "{refused}");
    }
    let said = scripted(scratch.path(), &[&image], "cp - /x\n");
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    assert!(text(&run("help").stdout).contains("chmod"));
    let help = run("help cp");
    quiet(&help);
    assert!(text(&help.stdout).contains("--no-clobber") || text(&help.stdout).contains("-n"));
    let missing = extant(["sh", "-c", "ls", scratch.join("no.img").to_str().unwrap()]);
    assert!(!missing.status.success());
    let path = extant(["sh", "-c", "ls", &format!("{image}:/c")]);
    assert_eq!(path.status.code(), Some(2), "{path:?}");
    e2fsck_fn(Path::new(&image)).unwrap();
}

/// The image is opened once: the commands do not replay, recover or mark it one by one.
#[test]
fn the_image_is_opened_once() {
    let scratch = Scratch::new();
    let image = empty(&scratch, "disk.img", &[]);
    let mounts = |image: &str| {
        let stats = debugfs(Path::new(image), "show_super_stats -h").unwrap();
        stats.lines().find(|line| line.starts_with("Mount count")).unwrap().to_owned()
    };
    let before = mounts(&image);
    let script: String = (0..500).map(|at| format!("mkdir /dir{at}\n")).collect();
    let started = std::time::Instant::now();
    quiet(&scripted(scratch.path(), &[&image], &script));
    let together = started.elapsed();
    let after = mounts(&image);
    let started = std::time::Instant::now();
    for at in 0..5 {
        quiet(&extant(["rmdir", &format!("{image}:/dir{at}")]));
    }
    // Far less than a hundred times as long for a hundred times the work.
    assert!(together < started.elapsed() * 50, "{together:?} {:?}", started.elapsed());
    let count = |line: &str| line.split_whitespace().last().unwrap().parse::<u32>().unwrap();
    assert!(count(&after) <= count(&before) + 1, "{before} {after}");
    assert_eq!(text(&extant(["ls", &image]).stdout).lines().count(), 496);
    e2fsck_fn(Path::new(&image)).unwrap();
}

/// The kernel sees what a script made.
#[test]
fn the_kernel_sees_what_a_script_made() {
    if !is_root() {
        skip!("a mount needs root");
    }
    let scratch = Scratch::new();
    let image = match TempImage::by_mke2fs(64 << 20, &["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let source = scratch.join("source");
    fs::create_dir_all(source.join("a/b")).unwrap();
    fs::write(source.join("a/b/c"), vec![1; 100_000]).unwrap();
    fs::write(source.join("d"), "d").unwrap();
    let name = image.path().display().to_string();
    quiet(&scripted(scratch.path(), &[&name], "cp -a host:source/. /\n"));
    e2fsck_fn(&image.path()).unwrap();
    let mount = match LoopMount::new(&image.path(), "ro") {
        Ok(mount) => mount,
        Err(why) => skip!("{why}"),
    };
    assert_same_tree(&snapshot(&source), &snapshot(mount.path()));
}
