use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use extant_testkit::{LoopDevice, LoopMount, Scratch, e2fsck_fn, is_root, skip};

use super::common::EXTANT;
use super::{done, refused, run, shell};

struct Overlay {
    scratch: Scratch,
    base: PathBuf,
    upper: PathBuf,
}

impl Overlay {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (base, upper) = (scratch.join("base.img"), scratch.join("upper"));
        let overlay = Self { scratch, base, upper };
        done("mkfs -q @ 32M", overlay.base.to_str().unwrap());
        fs::write(overlay.scratch.join("file"), "of the base\n").unwrap();
        done(&format!("cp {}/file @:/", overlay.scratch.path().display()), &overlay.plain());
        overlay
    }

    fn plain(&self) -> String {
        self.base.display().to_string()
    }

    fn url(&self) -> String {
        format!("overlay:{}?upper={}", self.base.display(), self.upper.display())
    }

    /// The base with the changes, as copies that keep their times.
    fn committed(&self) -> PathBuf {
        shell("cp -p base.img copy.img; cp --sparse=always upper copy", self.scratch.path());
        let copy = self.scratch.join("copy.img");
        let url =
            format!("overlay:{}?upper={}", copy.display(), self.scratch.join("copy").display());
        done("commit @", &url);
        copy
    }
}

#[test]
fn changes_go_to_a_file_of_their_own_and_come_into_the_base_by_commit() {
    let overlay = Overlay::new();
    let (url, before) = (overlay.url(), fs::read(&overlay.base).unwrap());
    // Reading makes no file.
    assert_eq!(done("cat @:/file", &url), "of the base\n");
    assert!(!overlay.upper.exists());

    done("mkdir -p @:/new/dir", &url);
    done(&format!("cp {}/file @:/new/dir/copy", overlay.scratch.path().display()), &url);
    done("rm @:/file", &url);
    done("tune -L changed @", &url);
    let script = format!("extant debugfs -w -R 'mkdir /by_debugfs' '{url}'");
    shell(&script, overlay.scratch.path());
    done("fsck -fy @", &url);
    assert_eq!(done("ls @:/new/dir", &url), "copy\n");
    assert_eq!(done("cat @:/file", &overlay.plain()), "of the base\n");
    assert!(fs::read(&overlay.base).unwrap() == before, "the base was written");

    let told = String::from_utf8(run("diff @", &url).stdout).unwrap();
    for line in ["new", "by_debugfs", "file"] {
        assert!(told.contains(line), "{told}");
    }
    assert!(refused("diff @", &overlay.plain()).contains("only an overlay is compared"));

    let copy = overlay.committed();
    e2fsck_fn(&copy).unwrap();
    assert_eq!(done("diff @", &format!("{url} {}", copy.display())), "");
    if is_root() {
        let mount = LoopMount::new(&copy, "ro").unwrap();
        let text = fs::read_to_string(mount.path().join("new/dir/copy")).unwrap();
        assert_eq!(text, "of the base\n");
        assert!(!mount.path().join("file").exists());
    }

    // The base has the changes now, and the file begins again.
    done("commit @", &url);
    assert_eq!(done("ls @:/new/dir", &overlay.plain()), "copy\n");
    assert_eq!(run("diff @", &url).status.code(), Some(0));
    done("rmdir @:/by_debugfs", &url);
    assert_eq!(run("diff @", &url).status.code(), Some(1));
    assert_eq!(done("commit @", &url).lines().count(), 1);
    e2fsck_fn(&overlay.base).unwrap();
}

#[test]
fn without_a_file_changes_are_dropped() {
    let overlay = Overlay::new();
    let before = fs::read(&overlay.base).unwrap();
    let url = format!("overlay:{}", overlay.plain());
    done("mkdir @:/new", &url);
    done("fsck -fy @", &url);
    assert_eq!(done("ls @:/", &url), done("ls @:/", &overlay.plain()));
    assert!(fs::read(&overlay.base).unwrap() == before, "the base was written");
    assert!(refused("commit @", &url).contains("give upper=FILE"));
    assert!(refused("commit @", &overlay.plain()).contains("not an overlay"));
}

#[test]
fn a_base_that_has_changed_or_is_another_is_refused() {
    let overlay = Overlay::new();
    let url = overlay.url();
    done("mkdir @:/new", &url);
    let kept = fs::read(&overlay.upper).unwrap();
    done("mkdir @:/other", &overlay.plain());
    for words in ["ls @:/", "mkdir @:/more", "commit @", "fsck -fy @", "info @"] {
        let said = refused(words, &url);
        assert!(said.contains("the base of the overlay has changed"), "{words}: {said}");
    }
    assert!(fs::read(&overlay.upper).unwrap() == kept);
    let other = format!("overlay:{}?upper={}", overlay.upper.display(), overlay.upper.display());
    assert!(refused("mkdir @:/x", &other).contains("cannot be its base"));
    let other =
        format!("overlay:{}?upper={}/file", overlay.plain(), overlay.scratch.path().display());
    assert!(refused("ls @:/", &other).contains("not an overlay's file"));
    let inner = format!("linear:overlay:{}", overlay.plain());
    assert!(refused("ls @:/", &inner).contains("overlay: must be the outermost layer"));
}

#[test]
fn a_base_that_is_read_only_or_behind_layers_is_changed_in_the_file() {
    let overlay = Overlay::new();
    let table = "truncate -s 64M disk.img; printf 'label: gpt\\nsize=40M\\n' | sfdisk -q disk.img";
    if extant_testkit::tool("sfdisk").is_none() {
        skip!("sfdisk is missing");
    }
    shell(table, overlay.scratch.path());
    let part = format!("{}#p1", overlay.scratch.join("disk.img").display());
    done("mkfs -q @", &part);
    let url = format!("overlay:{part}?upper={}", overlay.upper.display());
    done("mkdir @:/new", &url);
    assert!(!done("ls @:/", &part).contains("new"));
    done("commit @", &url);
    assert!(done("ls @:/", &part).contains("new"));
    done("fsck -fn @", &part);

    if !is_root() {
        skip!("a read-only loop device needs root");
    }
    let device = LoopDevice::read_only(&overlay.base).unwrap();
    let upper = overlay.scratch.join("other");
    let url = format!("overlay:{}?upper={}", device.path().display(), upper.display());
    done("mkdir @:/new", &url);
    done("fsck -fy @", &url);
    assert!(done("ls @:/", &url).contains("new"));
    assert!(refused("commit @", &url).contains("read-only"));
}

/// A new file system and a built tree go into the file as any change does.
#[test]
fn mkfs_and_build_write_into_the_file() {
    let overlay = Overlay::new();
    let before = fs::read(&overlay.base).unwrap();
    let tree = overlay.scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("built"), "built\n").unwrap();
    done("mkfs -q -F @", &overlay.url());
    done(&format!("build -q -o @ {}", tree.display()), &overlay.url());
    assert_eq!(done("cat @:/built", &overlay.url()), "built\n");
    assert!(fs::read(&overlay.base).unwrap() == before, "the base was written");
    e2fsck_fn(&overlay.committed()).unwrap();
}

#[test]
fn a_mount_writes_to_the_file() {
    let overlay = Overlay::new();
    if fs::File::open("/dev/fuse").is_err() {
        skip!("no /dev/fuse");
    }
    let before = fs::read(&overlay.base).unwrap();
    let point = overlay.scratch.join("point");
    fs::create_dir(&point).unwrap();
    for url in [format!("overlay:{}", overlay.plain()), overlay.url()] {
        done(&format!("mount @ {}", point.display()), &url);
        let written = fs::write(point.join("by mount"), "kept\n");
        done("umount @", point.to_str().unwrap());
        written.unwrap();
    }
    assert!(fs::read(&overlay.base).unwrap() == before, "the base was written");
    assert!(done("ls @:/", &overlay.url()).contains("by mount"));
    let copy = overlay.committed();
    e2fsck_fn(&copy).unwrap();
    assert!(done("ls @:/", copy.to_str().unwrap()).contains("by mount"));
}

/// A commit that is killed is begun again and loses nothing.
#[test]
fn a_killed_commit_is_repeated() {
    if std::env::var_os("EXTANT_SLOW").is_none() {
        skip!("kills a commit at many moments: EXTANT_SLOW=1");
    }
    let overlay = Overlay::new();
    let url = overlay.url();
    fs::write(overlay.scratch.join("large"), vec![7; 12 << 20]).unwrap();
    done(&format!("cp {}/large @:/", overlay.scratch.path().display()), &url);
    let started = Instant::now();
    let expected = fs::read(overlay.committed()).unwrap();
    let whole = started.elapsed();
    shell("cp -p base.img kept.img; cp -p upper kept", overlay.scratch.path());
    let mut interrupted = 0;
    for step in 0..40 {
        shell("cp -p kept.img base.img; cp -p kept upper", overlay.scratch.path());
        let mut child = Command::new(EXTANT).args(["commit", &url]).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(f64::from(step) / 40.0).max(Duration::from_millis(1)));
        child.kill().unwrap();
        child.wait().unwrap();
        let said = run("ls @:/", &url);
        if !said.status.success() {
            let said = String::from_utf8_lossy(&said.stderr).into_owned();
            assert!(said.contains("run extant commit again"), "{said}");
            interrupted += 1;
        }
        done("commit @", &url);
        assert!(fs::read(&overlay.base).unwrap() == expected, "step {step}");
    }
    eprintln!("{interrupted} of 40 commits were interrupted");
}
