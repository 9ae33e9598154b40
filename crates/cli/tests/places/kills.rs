//! Servers, clients and links that end at any moment: what a command says that it has done is
//! there, what it prints is right, and its errors name the place.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use extant_runtime::Random;
use extant_testkit::link::{GIGABIT, link};
use extant_testkit::{Scratch, e2fsck_fn, skip};

use super::common::EXTANT;
use super::{done, run, shell};

/// `extant serve nbd`, killed in the end.
struct Server(Child);

impl Server {
    fn start(image: &Path, socket: &Path) -> Self {
        let mut command = Command::new(EXTANT);
        command.args(["serve", "nbd", "--socket"]).arg(socket).arg(image);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        // Its first line comes when it listens.
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("nbd+unix://"), "{line}");
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn contents(number: usize) -> Vec<u8> {
    (0..60_000 + number * 1000).map(|at| (at / 3 + at / 1000 * number) as u8).collect()
}

#[test]
fn nothing_is_wrong_after_servers_clients_and_links_are_killed() {
    let steps = if std::env::var_os("EXTANT_SLOW").is_some() { 200 } else { 9 };
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("tree")).unwrap();
    for number in 0..20 {
        fs::write(scratch.join(format!("tree/f{number}")), contents(number)).unwrap();
    }
    fs::write(scratch.join("large"), contents(9000)).unwrap();
    shell("extant mkfs -q disk.img 512M; extant cp large disk.img:/", scratch.path());
    let (image, far, near) = (scratch.join("disk.img"), scratch.join("far"), scratch.join("near"));
    let mut server = Server::start(&image, &far);
    let wire = link(&near, &far, Duration::from_millis(1), GIGABIT).unwrap();
    let url = format!("nbd+unix:///?socket={}&reconnect=60", near.display());
    let large = contents(9000);
    let mut random = Random::new(5);
    let (mut copied, mut failed) = (Vec::new(), 0);
    for step in 0..steps {
        let is_copy = step % 3 != 2;
        let tree = scratch.join("tree");
        let words = match is_copy {
            true => vec![
                "cp".to_owned(),
                "-r".to_owned(),
                tree.display().to_string(),
                format!("{url}:/copy{step}"),
            ],
            false => vec!["cat".to_owned(), format!("{url}:/large")],
        };
        let mut child = Command::new(EXTANT)
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut is_killed = false;
        for _ in 0..1 + random.below(3) {
            std::thread::sleep(Duration::from_millis(random.below(80) as u64));
            match random.below(7) {
                0 | 1 => {
                    drop(server);
                    server = Server::start(&image, &far);
                }
                2 => {
                    is_killed = true;
                    let _ = child.kill();
                }
                _ => wire.cut(),
            }
        }
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        if !ended.status.success() {
            failed += 1;
            assert!(is_killed || said.contains(near.to_str().unwrap()), "step {step}: {said}");
        }
        match is_copy {
            true if ended.status.success() => copied.push(step),
            true => {
                // The journal repairs the volume that a client leaves.
                let checked = run("fsck -fy @", &url);
                let said = String::from_utf8_lossy(&checked.stdout);
                assert!(matches!(checked.status.code(), Some(0 | 1)), "step {step}: {said}");
            }
            false => {
                assert!(large.starts_with(&ended.stdout), "step {step}: wrong bytes");
                assert_eq!(ended.status.success(), ended.stdout.len() == large.len(), "{step}");
            }
        }
    }
    for step in &copied {
        let found = scratch.join("found");
        let _ = fs::remove_dir_all(&found);
        let copy = format!("cp -r @:/copy{step} {}", found.display());
        let output = run(&copy, &url);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for number in 0..20 {
            let bytes = fs::read(found.join(format!("f{number}"))).unwrap();
            assert!(bytes == contents(number), "copy {step}: f{number}");
        }
    }
    drop(server);
    e2fsck_fn(&image).unwrap();
    eprintln!("{} copies, {failed} of {steps} commands failed", copied.len());
    assert!(!copied.is_empty());
}

/// A mount is in its sandbox when it makes the connection again.
#[test]
fn a_mount_goes_on_after_its_server_was_killed() {
    if fs::File::open("/dev/fuse").is_err() {
        skip!("no /dev/fuse");
    }
    let scratch = Scratch::new();
    shell("extant mkfs -q disk.img 64M; mkdir point", scratch.path());
    let (image, socket) = (scratch.join("disk.img"), scratch.join("socket"));
    let server = Server::start(&image, &socket);
    let url = format!("nbd+unix:///?socket={}&reconnect=60", socket.display());
    let point = scratch.join("point");
    done(&format!("mount @ {}", point.display()), &url);
    let used = || -> std::io::Result<Server> {
        fs::write(point.join("before"), contents(1))?;
        drop(server);
        let server = Server::start(&image, &socket);
        fs::write(point.join("after"), contents(2))?;
        fs::File::open(point.join("after"))?.sync_all()?;
        Ok(server)
    };
    let used = used();
    done("umount @", point.to_str().unwrap());
    let server = used.unwrap();
    for (name, number) in [("before", 1), ("after", 2)] {
        let found = run(&format!("cat @:/{name}"), &url);
        assert!(found.stdout == contents(number), "{name}");
    }
    drop(server);
    e2fsck_fn(&image).unwrap();
}
