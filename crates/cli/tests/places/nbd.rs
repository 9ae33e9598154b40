use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use extant_testkit::link::{GIGABIT, link};
use extant_testkit::{Scratch, e2fsck_fn, skip, tool};

use super::common::EXTANT;
use super::{done, refused, run, shell};

/// `extant serve nbd`, ended by SIGTERM.
pub(super) struct Serving {
    child: Child,
    pub(super) url: String,
}

impl Serving {
    fn start(words: &[&str]) -> Self {
        Self::start_with(words, &[])
    }

    pub(super) fn start_with(words: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(EXTANT);
        command.args(["serve", "nbd"]).args(words).envs(environment.iter().copied());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim_end().to_owned() }
    }

    fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").arg(&id).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn made(scratch: &Scratch) -> PathBuf {
    fs::create_dir(scratch.join("tree")).unwrap();
    fs::write(scratch.join("tree/file"), "inside\n").unwrap();
    shell("extant build -q --size 32M -o disk.img tree", scratch.path());
    scratch.join("disk.img")
}

/// Commands that read and change a volume on a server.
fn use_it(url: &str, scratch: &Scratch) {
    assert_eq!(done("cat @:/file", url), "inside\n");
    done("mkdir -p @:/new/dir", url);
    done(&format!("cp {}/tree/file @:/new/dir/copy", scratch.path().display()), url);
    done("tune -L far @", url);
    done("fsck -fy @", url);
    done("trim @", url);
    shell(&format!("extant debugfs -w -R 'mkdir /by_debugfs' '{url}'"), scratch.path());
    assert_eq!(done("cat @:/new/dir/copy", url), "inside\n");
    done("fsck -fn @", url);
}

#[test]
fn a_volume_that_qemu_serves_is_read_and_changed() {
    let Some(qemu) = tool("qemu-nbd") else { skip!("qemu-nbd is missing") };
    let scratch = Scratch::new();
    let image = made(&scratch);
    shell("qemu-img convert -f raw -O qcow2 disk.img disk.qcow2", scratch.path());
    for (format, name) in [("raw", "disk.img"), ("qcow2", "disk.qcow2")] {
        let socket = scratch.join(format);
        let mut command = Command::new(qemu.path());
        command.args(["-t", "--shared=8", "-f", format, "-k"]).arg(&socket);
        let child = command.arg(scratch.join(name)).spawn().unwrap();
        let server = Serving { child, url: format!("nbd+unix:///?socket={}", socket.display()) };
        let started = Instant::now();
        while !socket.exists() && started.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        use_it(&server.url, &scratch);
        let upper = scratch.join(format!("{format}.upper"));
        let overlay = format!("overlay:{}&upper={}", server.url, upper.display());
        done("mkdir @:/only_here", &overlay);
        assert!(!done("ls @:/", &server.url).contains("only_here"));
        done("commit @", &overlay);
        assert!(done("ls @:/", &server.url).contains("only_here"));
        done("fsck -fn @", &server.url);
    }
    e2fsck_fn(&image).unwrap();
    shell("qemu-img convert -f qcow2 -O raw disk.qcow2 back.img", scratch.path());
    e2fsck_fn(&scratch.join("back.img")).unwrap();
}

#[test]
fn an_image_and_a_file_in_an_image_are_served() {
    let scratch = Scratch::new();
    let image = made(&scratch);
    let path = image.to_str().unwrap();
    let server = Serving::start(&[path]);
    assert_eq!(server.url, format!("nbd+unix:///?socket={path}.sock"));
    use_it(&server.url, &scratch);
    assert!(refused("mkdir @:/x", path).contains("in use"));
    server.stop();
    e2fsck_fn(&image).unwrap();
    assert!(!Path::new(&format!("{path}.sock")).exists());

    // An image in the image, by a port that the system chooses.
    done("truncate -s 16M @:/inner.img", path);
    let server = Serving::start(&["--listen", "127.0.0.1:0", &format!("{path}:/inner.img")]);
    assert!(server.url.starts_with("nbd://127.0.0.1:"), "{}", server.url);
    done("mkfs -q @", &server.url);
    done(&format!("cp {}/tree/file @:/", scratch.path().display()), &server.url);
    use_it(&server.url, &scratch);
    server.stop();
    e2fsck_fn(&image).unwrap();
    let inner = scratch.join("inner.img");
    done(&format!("cp @:/inner.img {}", inner.display()), path);
    e2fsck_fn(&inner).unwrap();
    assert_eq!(done("cat @:/new/dir/copy", inner.to_str().unwrap()), "inside\n");

    let socket = scratch.join("read");
    let words = ["--read-only", "--name", "a/b", "--socket", socket.to_str().unwrap(), path];
    let server = Serving::start(&words);
    assert_eq!(server.url, format!("nbd+unix:///a/b?socket={}", socket.display()));
    assert_eq!(done("cat @:/file", &server.url), "inside\n");
    assert!(refused("mkdir @:/x", &server.url).contains("the NBD export is read-only"));
    assert!(refused("ls @:/", &server.url.replace("a/b", "c")).contains("has no export 'c'"));
    let other = format!("{}&connections=99", server.url);
    assert!(refused("ls @:/", &other).contains("`connections` is 1 to 16"));
    server.stop();
    // With --once the end of the last client is the end.
    let mut server = Serving::start(&["--once", path]);
    assert_eq!(done("cat @:/file", &server.url), "inside\n");
    assert!(server.child.wait().unwrap().success());
    #[cfg(not(feature = "remote"))]
    assert!(refused("ls @:/", "nbds://host/disk").contains("(cargo feature remote)"));
    assert!(refused("ls @:/", "nbd+unix:///a").contains("`socket` is required"));
    assert!(refused("serve nbd @", "nbd://127.0.0.1/x").contains("--socket PATH or --listen"));
}

#[test]
fn a_mount_writes_to_a_server() {
    if fs::File::open("/dev/fuse").is_err() {
        skip!("no /dev/fuse");
    }
    let scratch = Scratch::new();
    let image = made(&scratch);
    let server = Serving::start(&[image.to_str().unwrap()]);
    let point = scratch.join("point");
    fs::create_dir(&point).unwrap();
    done(&format!("mount @ {}", point.display()), &server.url);
    let written = fs::write(point.join("by mount"), vec![7; 3 << 20]);
    done("umount @", point.to_str().unwrap());
    written.unwrap();
    assert!(done("ls @:/", &server.url).contains("by mount"));
    server.stop();
    e2fsck_fn(&image).unwrap();
}

/// The server of the mount still writes when the kernel has unmounted it.
#[test]
fn umount_waits_until_a_slow_server_has_everything() {
    if fs::File::open("/dev/fuse").is_err() {
        skip!("no /dev/fuse");
    }
    let scratch = Scratch::new();
    let image = made(&scratch);
    let (near, far, point) = (scratch.join("near"), scratch.join("far"), scratch.join("point"));
    fs::create_dir(&point).unwrap();
    let server = Serving::start(&["--socket", far.to_str().unwrap(), image.to_str().unwrap()]);
    let _wire = link(&near, &far, Duration::from_millis(100), GIGABIT).unwrap();
    let url = format!("nbd+unix:///?socket={}", near.display());
    done(&format!("mount @ {}", point.display()), &url);
    let written = (0..20).try_for_each(|number| fs::write(point.join(format!("{number}")), "new"));
    done("umount @", point.to_str().unwrap());
    let names = done("ls @:/", &server.url);
    written.unwrap();
    assert_eq!(names.lines().filter(|name| name.parse::<u32>().is_ok()).count(), 20, "{names}");
    server.stop();
    e2fsck_fn(&image).unwrap();
}

/// Flushed data are there after a server was killed, and the client says what failed.
#[test]
fn a_killed_server_loses_nothing_that_was_flushed() {
    if std::env::var_os("EXTANT_SLOW").is_none() {
        skip!("kills servers at many moments: EXTANT_SLOW=1");
    }
    for step in 0..25_u64 {
        let scratch = Scratch::new();
        let image = made(&scratch);
        let socket = scratch.join("socket");
        let words = ["--socket", socket.to_str().unwrap(), image.to_str().unwrap()];
        let mut server = Serving::start(&words);
        // Each command ends with a flush: its file is there if it says that it went well.
        let mut made = Vec::new();
        let url = format!("{}&reconnect=0", server.url);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20 + step * 17));
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            server
        });
        for number in 0..200 {
            let output = run(&format!("mkdir @:/d{number}"), &url);
            if !output.status.success() {
                assert!(!output.stderr.is_empty());
                break;
            }
            made.push(format!("d{number}"));
        }
        drop(killer.join().unwrap());
        done("fsck -fy @", image.to_str().unwrap());
        e2fsck_fn(&image).unwrap();
        let names = done("ls @:/", image.to_str().unwrap());
        for name in &made {
            assert!(names.lines().any(|line| line == name), "step {step}: {name} is lost");
        }
    }
}
