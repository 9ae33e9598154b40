//! Patterns in paths of images, standard streams of cp, and the patterns of getfattr.

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{EXTANT, extant, quiet, text};
use extant_testkit::{Scratch, e2fsck_fn, skip, tool};

struct Made {
    scratch: Scratch,
    image: String,
}

impl Made {
    fn new() -> Self {
        let scratch = Scratch::new();
        let source = scratch.join("source");
        for dir in ["etc/conf.d", "etc/other.d", "star*dir", "users/a", "users/b", ".hidden"] {
            fs::create_dir_all(source.join(dir)).unwrap();
        }
        for file in [
            "etc/a.conf",
            "etc/b.conf",
            "etc/.c.conf",
            "etc/readme",
            "etc/conf.d/d.conf",
            "etc/other.d/e.conf",
            "etc/[x]",
            "etc/x",
            "star*dir/s",
            "starrydir",
            "a*b",
            "aXb",
            "users/a/.profile",
            "users/b/.profile",
            "users/a/note",
            "back\\slash",
        ] {
            fs::write(source.join(file), file).unwrap();
        }
        symlink("etc", source.join("link")).unwrap();
        symlink("nowhere", source.join("etc/dangling")).unwrap();
        let image = scratch.join("disk.img").display().to_string();
        let source = source.to_str().unwrap();
        quiet(&extant(["build", "-q", "--size", "auto+8M", "-o", &image, source]));
        Self { scratch, image }
    }

    fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.image)
    }

    fn run(&self, words: &[&str]) -> Output {
        // A word that begins with a slash is a path of the image.
        extant(words.iter().map(|word| match word.starts_with('/') {
            true => self.at(word),
            false => (*word).to_owned(),
        }))
    }

    fn names(&self) -> BTreeSet<String> {
        let found = extant(["find", &self.image]);
        quiet(&found);
        text(&found.stdout).lines().map(str::to_owned).collect()
    }
}

/// The names that a shell makes of a pattern in the tree of the same files.
fn by_shell(source: &Path, pattern: &str) -> Vec<String> {
    let script = format!("shopt -s failglob; printf '%s\\n' {pattern}");
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(source)
        .env("LC_ALL", "C")
        .output()
        .expect("bash runs");
    text(&output.stdout).lines().map(|line| format!("/{line}")).collect()
}

#[test]
fn patterns_match_as_in_a_shell() {
    if tool("bash").is_none() {
        skip!("no bash here");
    }
    let made = Made::new();
    let source = made.scratch.join("source");
    for pattern in [
        "etc/*.conf",
        "etc/*",
        "*/*.conf",
        "*/*/*.conf",
        "etc/?.conf",
        "etc/[ab].conf",
        "etc/[!a].conf",
        "etc/.*.conf",
        "*",
        "star*",
        "users/*/.profile",
        "link/*.conf",
        "et[c]/readme",
        "*/",
        "etc/*/",
        "etc/d*",
        "u*/[a-b]/n*",
        "none*",
        "etc/readme/*",
        "*/none",
        "[[:lower:]]*",
    ] {
        // -d shows directories as such; without -l names stand as they were matched.
        let ours = made.run(&["ls", "-d", &format!("/{pattern}")]);
        let expected = by_shell(&source, pattern);
        if expected.is_empty() {
            assert_eq!(ours.status.code(), Some(1), "{pattern}: {ours:?}");
            assert!(text(&ours.stderr).contains("no such file or directory"), "{ours:?}");
            continue;
        }
        let said = text(&ours.stdout);
        let found: Vec<&str> = said.lines().filter(|line| !line.contains("lost+found")).collect();
        assert_eq!(found, expected, "{pattern} {}", text(&ours.stderr));
    }
}

#[test]
fn a_name_with_a_star_is_reached() {
    let made = Made::new();
    let said = |path: &str| {
        let output = made.run(&["cat", path]);
        quiet(&output);
        text(&output.stdout)
    };
    assert_eq!(said("/a*b"), "a*b");
    assert_eq!(said("/a\\*b"), "a*b");
    assert_eq!(said("/a?b"), "a*baXb");
    assert_eq!(said("/star*dir/s"), "star*dir/s");
    assert_eq!(said("/etc/[x]"), "etc/[x]");
    assert_eq!(said("/back\\slash"), "back\\slash");
    // New names are taken as they are.
    quiet(&made.run(&["mkdir", "/new*"]));
    quiet(&made.run(&["mkdir", "/ne[w]"]));
    quiet(&made.run(&["touch", "/t\\*"]));
    let names = made.names();
    for name in ["/new*", "/ne[w]", "/t*"] {
        assert!(names.contains(name), "{names:?}");
    }
}

#[test]
fn commands_that_change_files_take_patterns() {
    let made = Made::new();
    quiet(&made.run(&["chmod", "600", "/etc/*.conf", "/etc/*/"]));
    quiet(&made.run(&["chown", "7:8", "/users/*"]));
    quiet(&made.run(&["touch", "-d", "@5", "/etc/?.conf"]));
    quiet(&made.run(&["setfattr", "-n", "user.x", "-v", "1", "/etc/*.conf"]));
    quiet(&made.run(&["truncate", "-s", "3", "/etc/[ab].conf"]));
    quiet(&made.run(&["chattr", "+d", "/etc/[ab].conf"]));
    let stat = made.run(&["stat", "--json", "/etc/*.conf"]);
    let stat: serde_json::Value = serde_json::from_slice(&stat.stdout).unwrap();
    assert_eq!(stat.as_array().unwrap().len(), 2);
    for file in stat.as_array().unwrap() {
        assert_eq!((file["mode"].as_str(), file["size"].as_u64()), (Some("0600"), Some(3)));
        assert!(file["flags"].to_string().contains("No_Dump"), "{file}");
        assert_eq!(file["xattrs"].as_array().unwrap().len(), 1);
    }
    let listed = made.run(&["lsattr", "-d", "/etc/*.conf"]);
    quiet(&listed);
    assert_eq!(text(&listed.stdout).lines().count(), 2);

    // All or nothing of a pattern that has no match; the others are done.
    let some = made.run(&["rm", "/etc/*.none", "/etc/*.conf"]);
    assert_eq!(some.status.code(), Some(1));
    let names = made.names();
    assert!(!names.contains("/etc/a.conf") && names.contains("/etc/.c.conf"), "{names:?}");

    // As rm -f of a name that no file has; touch -c and truncate -c too.
    quiet(&made.run(&["rm", "-f", "/etc/*.none"]));
    quiet(&made.run(&["touch", "-c", "/etc/*.none"]));
    quiet(&made.run(&["truncate", "-c", "-s", "1", "/etc/*.none"]));
    let refused = made.run(&["touch", "/etc/*.none"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let refused = made.run(&["mv", "/none*", "/etc/readme", "/etc/x"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(made.names().contains("/etc/readme"));

    // Several files are never moved over each other.
    let refused = made.run(&["mv", "/users/a/*", "/users/b/.profile", "/users/one"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let refused = made.run(&["mv", "/etc/*.d", "/users/one"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(text(&refused.stderr).contains("target is not a directory"), "{refused:?}");
    quiet(&made.run(&["mv", "/etc/*.d", "/users"]));
    quiet(&made.run(&["rm", "-r", "/u*/*.d", "/star*"]));
    quiet(&made.run(&["rmdir", "/.h*"]));
    let names = made.names();
    let gone = ["/users/conf.d", "/users/other.d", "/starrydir", "/star*dir/s", "/.hidden"];
    // The literal name comes first: `/star*` is not one.
    assert!(gone.iter().all(|name| !names.contains(*name)), "{names:?}");
    e2fsck_fn(Path::new(&made.image)).unwrap();
}

#[test]
fn cp_takes_patterns_on_both_sides() {
    let made = Made::new();
    let out = made.scratch.join("out");
    fs::create_dir(&out).unwrap();
    let target = out.to_str().unwrap();
    // The target is a host path.
    quiet(&extant(["cp", &made.at("/etc/*.conf"), target]));
    let listed: BTreeSet<_> =
        fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(listed, ["a.conf", "b.conf"].map(Into::into).into());
    let one = extant(["cp", &made.at("/etc/*.conf"), out.join("file").to_str().unwrap()]);
    assert_eq!(one.status.code(), Some(1), "{one:?}");
    assert!(!out.join("file").exists());
    quiet(&extant(["cp", &made.at("/etc/a*"), out.join("file").to_str().unwrap()]));
    assert_eq!(fs::read_to_string(out.join("file")).unwrap(), "etc/a.conf");

    // Within one image, and into another.
    let refused = made.run(&["cp", "/etc/*.conf", "/copy"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    quiet(&made.run(&["mkdir", "/copy"]));
    quiet(&made.run(&["cp", "/etc/*.conf", "/copy"]));
    let other = made.scratch.join("other.img").display().to_string();
    quiet(&extant(["mkfs", "-q", &other, "8M"]));
    quiet(&extant(["cp", "-r", &made.at("/etc/*.d"), &format!("{other}:/")]));
    let names = made.names();
    assert!(names.contains("/copy/a.conf") && names.contains("/copy/b.conf"), "{names:?}");
    let found = text(&extant(["find", &other, "-type", "f"]).stdout);
    assert_eq!(
        found.lines().collect::<BTreeSet<_>>(),
        ["/conf.d/d.conf", "/other.d/e.conf"].into()
    );
}

/// An operand that is not opened does not shift the others.
#[test]
fn find_deletes_in_the_image_that_it_searched() {
    let made = Made::new();
    let none = made.scratch.join("none.img");
    fs::write(&none, vec![0; 8192]).unwrap();
    let (none, etc) = (none.to_str().unwrap(), made.at("/u*"));
    let found = extant(["find", &format!("{none}:/"), &etc, "-name", "note", "-delete"]);
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    let names = made.names();
    assert!(!names.contains("/users/a/note") && names.contains("/users/a/.profile"), "{names:?}");
}

fn piped(words: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(EXTANT)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn standard_streams_are_copied() {
    let made = Made::new();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|it| (it.wrapping_mul(7919) >> 8) as u8).collect();
    let place = made.at("/etc/large");
    quiet(&piped(&["cp", "-", &place], &bytes));
    let back = extant(["cp", &place, "-"]);
    quiet(&back);
    assert!(back.stdout == bytes);
    // As with a shell's redirection.
    let mode = fs::metadata(&made.image).unwrap().permissions().mode() & 0o777;
    let stat = extant(["stat", "--json", &place]);
    assert!(text(&stat.stdout).contains(&format!("\"mode\":\"{mode:04o}\"")), "{stat:?}");
    // Over a file that is there; nothing is a file too.
    quiet(&piped(&["cp", "-", &place], b""));
    assert_eq!(extant(["cp", &place, "-"]).stdout, b"");
    // A file on standard input is read from where it is.
    let name = made.scratch.join("lines");
    fs::write(&name, "first\nsecond\n").unwrap();
    let mut file = File::open(&name).unwrap();
    file.seek(SeekFrom::Start(6)).unwrap();
    let copied = Command::new(EXTANT).args(["cp", "-", &place]).stdin(file).output().unwrap();
    quiet(&copied);
    assert_eq!(extant(["cp", &made.at("/etc/lar*"), "-"]).stdout, b"second\n");
    // Standard output to a file is appended where it is.
    let out = made.scratch.join("out");
    let mut to = File::create(&out).unwrap();
    to.write_all(b"before ").unwrap();
    let copied = Command::new(EXTANT).args(["cp", &place, "-"]).stdout(to).output().unwrap();
    quiet(&copied);
    assert_eq!(fs::read_to_string(&out).unwrap(), "before second\n");
    assert!(!Path::new("-").exists());
    e2fsck_fn(Path::new(&made.image)).unwrap();
}

#[test]
fn what_a_standard_stream_cannot_be_is_refused() {
    let made = Made::new();
    let (dir, root) = (made.at("/etc"), made.at("/"));
    let file = made.at("/etc/readme");
    for words in [
        &["cp", "-", &dir][..],
        &["cp", "-", &root],
        &["cp", "-", &made.image],
        &["cp", "-p", "-", &file],
        &["cp", "-a", "-", &file],
        &["cp", "-", "/etc/passwd", &dir],
        &["cp", &dir, "-"],
        &["cp", "-r", &dir, "-"],
        &["cp", &file, &file, "-"],
        &["cp", &made.at("/etc/*.conf"), "-"],
        &["cp", &made.at("/none"), "-"],
        &["cp", "-", "-"],
        &["cp", "-", &made.at("/none/file")],
    ] {
        let refused = piped(words, b"");
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{words:?}: {refused:?}");
        assert!(!refused.stderr.is_empty(), "{words:?}");
    }
    assert_eq!(text(&made.run(&["cat", "/etc/readme"]).stdout), "etc/readme");
    assert!(!Path::new("-").exists());
}

/// A reader that goes away ends the copy as it ends cat.
#[test]
fn a_reader_that_goes_away_ends_the_copy() {
    let made = Made::new();
    let place = made.at("/large");
    quiet(&piped(&["cp", "-", &place], &vec![9; 4 << 20]));
    let mut child = Command::new(EXTANT)
        .args(["cp", &place, "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 10]).unwrap();
    drop(out);
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr), (Some(141), Vec::new()));
}

#[test]
fn getfattr_takes_patterns() {
    let made = Made::new();
    let file = made.at("/etc/readme");
    for name in ["user.one", "user.two", "trusted.three"] {
        quiet(&extant(["setfattr", "-n", name, "-v", "x", &file]));
    }
    let names = |words: &[&str]| -> Vec<String> {
        let output = extant([&["getfattr"], words, &[&file]].concat());
        quiet(&output);
        let lines = text(&output.stdout);
        lines
            .lines()
            .filter(|it| !it.starts_with('#') && !it.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let all = ["trusted.three", "user.one", "user.two"];
    assert_eq!(names(&[]), all);
    assert_eq!(names(&["-m", "-"]), all);
    assert_eq!(names(&["-m", "^user\\."]), all[1..]);
    assert_eq!(names(&["-m", "t(hree|wo)$"]), [all[0], all[2]]);
    assert_eq!(names(&["-d", "-m", "one"]), ["user.one=\"x\""]);
    assert!(names(&["-m", "^one"]).is_empty());
    for words in [&["-m", "("][..], &["-m", "x", "-n", "user.one"]] {
        let refused = extant([&["getfattr"], words, &[&file]].concat());
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
}
