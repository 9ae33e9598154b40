//! chattr and lsattr by our links and by theirs: on a mount of the kernel's, and ours in an image
//! next to theirs on a mount of the same image.

use extant_testkit::{LoopMount, Scratch, TempImage, Tool, e2fsck_fn, is_root, skip, tool};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

/// The script that makes the files.
const SETUP: &str = "
mkdir -p d/sub empty
echo hi > d/a
touch d/.hidden f
ln -s a d/link
ln -s d dirlink
mkfifo d/pipe
mknod d/null c 1 3
chattr +i f
chattr +SDTA -e empty
";

fn ours(scratch: &Scratch, name: &str, dir: &Path, words: &[String]) -> Output {
    let link = scratch.join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &link).unwrap();
    }
    Command::new(link).args(words).current_dir(dir).output().unwrap()
}

fn theirs(tool: &Tool, dir: &Path, words: &[String]) -> Output {
    let name = tool.path().file_name().unwrap();
    Command::new(tool.path()).arg0(name).args(words).current_dir(dir).output().unwrap()
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The first line is the version with -V.
fn messages(output: &Output) -> Vec<String> {
    let said = text(&output.stderr);
    let mut lines: Vec<_> = said.lines().map(str::to_owned).collect();
    lines.retain(|line| !line.contains("1.47"));
    lines.sort();
    lines
}

/// An image with the files of [`SETUP`] in `tree`; `None` where there can be none.
fn image(args: &[&str]) -> Result<TempImage, String> {
    if !is_root() || tool("lsattr").is_none() || tool("chattr").is_none() {
        return Err("lsattr, chattr and root are needed".to_owned());
    }
    let image = TempImage::by_mke2fs(16 << 20, args)?;
    let mount = LoopMount::new(&image.path(), "")?;
    let made = Command::new("bash").args(["-euc", SETUP]).current_dir(mount.path()).output();
    let made = made.map_err(|error| error.to_string())?;
    assert!(made.status.success(), "{made:?}");
    mount.unmount()?;
    Ok(image)
}

const LISTED: [&str; 15] = [
    "",
    "d",
    "-a d",
    "-d d f empty",
    "-R",
    "-Ra .",
    "-l d f empty",
    "-p d f",
    "-v d f",
    "-pvl -d f empty",
    "-V f",
    "f nope",
    "d/link",
    "dirlink/ d/pipe",
    "-R d/. dirlink",
];

/// Every letter, and what the kernel or chattr refuses.
fn changes() -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for letter in ('a'..='z').chain('A'..='Z') {
        // The flag of journalled data needs a capability that a container lacks.
        if letter == 'j' {
            continue;
        }
        for file in ["d/a", "d/sub"] {
            lines.push(format!("-V +{letter} {file}"));
            lines.push(format!("-V -{letter} {file}"));
        }
    }
    let others = "\
        -V +d f|-V -i f|-V =Ad f|-V = f|-V +e f|-RV +d d|-R -d d|-f +d d/pipe nope|+d d/link dirlink\
        |+d nope d/a|-V +C d/a|-V -p 7 f|-p 0 f|-p x f|-v x f|-p 4294967295 f|f|+d|-p|-v|- f|-- f\
        |+ f|+d =d f|+d -d f|+d+i f|+d -- f|-V|f +d|+S f +d|-V -v 5 -p 6 +S f|-Vf +C f|=DT d";
    lines.extend(others.split('|').map(str::to_owned));
    lines
}

#[test]
fn files_of_a_kernel_mount_are_listed_and_changed_as_by_theirs() {
    let image = match image(&["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let (lsattr, chattr) = (tool("lsattr").unwrap(), tool("chattr").unwrap());
    let scratch = Scratch::new();
    let copy = scratch.join("copy.img");
    std::fs::copy(image.path(), &copy).unwrap();
    let ours_on = LoopMount::new(&image.path(), "").unwrap();
    let theirs_on = LoopMount::new(&copy, "").unwrap();
    let compare = |name: &str, tool: &Tool, line: &str| {
        let ours = ours(&scratch, name, ours_on.path(), &words(line));
        let theirs = theirs(tool, theirs_on.path(), &words(line));
        assert_eq!(ours.status.code(), theirs.status.code(), "{name} {line}: {ours:?} {theirs:?}");
        assert_eq!(text(&ours.stdout), text(&theirs.stdout), "{name} {line}");
        let says_usage = messages(&theirs).iter().any(|line| line.starts_with("Usage:"));
        if !says_usage {
            assert_eq!(messages(&ours), messages(&theirs), "{name} {line}");
        }
    };
    let order = |line: &str| line.contains('R') || !line.contains('d');
    for line in LISTED.iter().filter(|line| !order(line) || line.starts_with("-d")) {
        compare("lsattr", &lsattr, line);
    }
    for line in changes() {
        compare("chattr", &chattr, &line);
        compare("lsattr", &lsattr, "-d . f d d/a d/sub empty");
    }
    compare("chattr", &chattr, "-R =e d f");
    // Theirs ends with 0, as if the flag were set.
    let refused = ours(&scratch, "chattr", ours_on.path(), &words("=D f"));
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
}

/// The lines of a listing with the image in place of the directory, in byte order: a mount and an
/// image may have different orders.
fn lines(listing: &str, image: &str) -> Vec<String> {
    let mut lines: Vec<_> = listing.lines().map(|line| line.replace(image, "")).collect();
    lines.sort();
    lines
}

#[test]
fn files_of_an_image_are_listed_and_changed_as_on_a_kernel_mount() {
    for args in [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext4", "-O", "^metadata_csum"]] {
        let image = match image(args) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let (lsattr, chattr) = (tool("lsattr").unwrap(), tool("chattr").unwrap());
        let scratch = Scratch::new();
        let copy = scratch.join("copy.img");
        std::fs::copy(image.path(), &copy).unwrap();
        let mount = LoopMount::new(&copy, "").unwrap();
        let name = image.path().to_str().unwrap().to_owned();
        // Operands are paths from the root: `IMAGE:/path`, and below the mount.
        let at = |line: &str, root: &str| -> Vec<String> {
            let mut is_value = false;
            let place = |word: &String| {
                let is_path = !is_value && !word.starts_with(['-', '+', '=']);
                is_value = matches!(&word[..], "-v" | "-p" | "-Vv");
                if is_path { format!("{root}/{word}") } else { word.clone() }
            };
            words(line).iter().map(place).collect()
        };
        let (inside, outside) = (format!("{name}:"), mount.path().to_str().unwrap().to_owned());
        let compare = |program: &str, tool: &Tool, line: &str| {
            let ours = ours(&scratch, program, scratch.path(), &at(line, &inside));
            let theirs = theirs(tool, scratch.path(), &at(line, &outside));
            let codes = (ours.status.code(), theirs.status.code());
            assert_eq!(codes.0, codes.1, "{program} {line}: {ours:?} {theirs:?}");
            let (a, b) = (text(&ours.stdout), text(&theirs.stdout));
            assert_eq!(lines(&a, &inside), lines(&b, &outside), "{program} {line}");
        };
        for line in LISTED.iter().filter(|line| line.contains(['d', 'f']) && !line.contains('l')) {
            compare("lsattr", &lsattr, line);
        }
        for line in changes() {
            compare("chattr", &chattr, &line);
            compare("lsattr", &lsattr, "-d f d d/a d/sub empty");
        }
        compare("chattr", &chattr, "-v 77 f d");
        compare("chattr", &chattr, "-R =e d f");
        compare("lsattr", &lsattr, "-R d f");
        e2fsck_fn(&image.path()).unwrap();
    }
}

/// This kernel may have no quotas, so e2fsprogs judges what was stored.
#[test]
fn projects_are_set_in_an_image() {
    let Some(debugfs) = tool("debugfs") else { skip!("debugfs is not installed") };
    let args = ["-t", "ext4", "-O", "project,quota", "-E", "quotatype=prjquota"];
    let image = match TempImage::by_mke2fs(16 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let name = image.path().to_str().unwrap().to_owned();
    let scratch = Scratch::new();
    let run = |program: &str, line: &str| {
        let line = line.replace("IMG", &name);
        ours(&scratch, program, scratch.path(), &words(&line))
    };
    assert!(run("extant", "mkdir -p IMG:/a/b").status.success());
    let set = run("chattr", "-R -p 42 +P IMG:/a");
    assert!(set.status.success(), "{set:?}");
    let shown = run("lsattr", "-dp IMG:/a IMG:/a/b");
    let line = |path: &str| format!("   42 --------------e----P-- {name}:{path}\n");
    assert_eq!(text(&shown.stdout), line("/a") + &line("/a/b"));
    let long = run("extant", "lsattr -l IMG:/a");
    assert!(text(&long.stdout).ends_with(" Extents, Project_Hierarchy\n"), "{long:?}");
    let stat = debugfs.run(["-R", "stat /a/b", &name]);
    assert!(text(&stat.stdout).contains("Project:    42"), "{stat:?}");
    let refused = run("chattr", "-p 4294967295 IMG:/a");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    e2fsck_fn(&image.path()).unwrap();
}
