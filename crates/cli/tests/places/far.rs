//! Round trips: commands that only read ask a server few times.

use std::fs;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use extant_device::{Device, DeviceError, FileDeviceOptions, Request};
use extant_testkit::link::{GIGABIT, link};
use extant_testkit::{Scratch, skip};

use extant::rooms::nbd::{Address, Export, Listener, Running, Server};

use super::common::EXTANT;
use super::{done, shell};

/// A device that counts requests and bytes.
#[derive(Debug)]
struct Counted {
    inner: Arc<dyn Device>,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Device for Counted {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        self.requests.fetch_add(batch.len() as u64, Relaxed);
        self.bytes.fetch_add(batch.iter().map(Request::length).sum(), Relaxed);
        self.inner.submit(batch)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.requests.fetch_add(1, Relaxed);
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

/// A server far away.
struct Far {
    device: Arc<Counted>,
    url: String,
    _server: Running,
}

impl Far {
    fn start(scratch: &Scratch, image: &str, round_trip: Duration) -> Self {
        let file = FileDeviceOptions::new().open(scratch.join(image)).unwrap();
        let (requests, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let device = Arc::new(Counted { inner: Arc::new(file), requests, bytes });
        let (near, far) = (scratch.join("near"), scratch.join("far"));
        let listener = Listener::bind(&Address::Unix(far.clone())).unwrap();
        let export = Export { name: String::new(), device: device.clone() as _, read_only: true };
        let server = Server::new(export, listener).start().unwrap();
        link(&near, &far, round_trip, GIGABIT).unwrap();
        Self { device, url: format!("nbd+unix:///?socket={}", near.display()), _server: server }
    }

    /// Runs a command; what it printed, and the number of requests.
    fn count(&self, words: &str) -> (String, u64) {
        let (before, bytes) = (self.device.requests.load(Relaxed), self.device.bytes.load(Relaxed));
        let started = Instant::now();
        let printed = done(words, &self.url);
        let requests = self.device.requests.load(Relaxed) - before;
        let read = (self.device.bytes.load(Relaxed) - bytes) >> 10;
        eprintln!("{words}: {requests} requests, {read} KiB, {:?}", started.elapsed());
        (printed, requests)
    }
}

/// Files in directories of 100.
fn tree(scratch: &Scratch, files: usize) {
    for directory in 0..files / 100 {
        let path = scratch.join(format!("tree/{}/{directory}", directory % 10));
        fs::create_dir_all(&path).unwrap();
        for file in 0..100 {
            fs::write(path.join(format!("file{file}")), format!("{directory} {file}\n")).unwrap();
        }
    }
}

#[test]
fn commands_that_read_ask_a_server_few_times() {
    let scratch = Scratch::new();
    tree(&scratch, 4000);
    shell("extant build -q --size 2G -o disk.img tree", scratch.path());
    let far = Far::start(&scratch, "disk.img", Duration::from_millis(20));
    let (printed, requests) = far.count("cat @:/7/37/file99");
    assert_eq!(printed, "37 99\n");
    assert!(requests <= 12, "{requests}");
    let local = scratch.join("disk.img");
    let local = local.to_str().unwrap();
    for (words, most) in [("ls -lR @:/", 40), ("find @:/", 40), ("fsck -fn @", 60)] {
        let (printed, requests) = far.count(words);
        assert_eq!(
            printed.replace(&far.url, "@"),
            done(words, local).replace(local, "@"),
            "{words}"
        );
        assert!(requests <= most, "{words}: {requests} requests");
    }
}

#[test]
fn a_large_volume_is_checked_over_a_slow_link() {
    if std::env::var_os("EXTANT_SLOW").is_none() {
        skip!("EXTANT_SLOW is not set");
    }
    let scratch = Scratch::new();
    tree(&scratch, 160_000);
    shell("extant build -q --size 20G -o disk.img tree; rm -r tree", scratch.path());
    let far = Far::start(&scratch, "disk.img", Duration::from_millis(20));
    let (_, requests) = far.count("cat @:/7/37/file99");
    assert!(requests <= 12, "{requests}");
    let (_, requests) = far.count("fsck -fn @");
    assert!(requests < 600, "{requests}");
    let (_, requests) = far.count("find @:/");
    assert!(requests < 600, "{requests}");
}

#[test]
fn a_server_that_is_killed_is_an_error_and_never_wrong_bytes() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("tree")).unwrap();
    let large: Vec<u8> = (0..24_000_000_u32).map(|at| (at / 3 + at / 1000) as u8).collect();
    fs::write(scratch.join("tree/large"), &large).unwrap();
    shell("extant build -q --size 64M -o disk.img tree", scratch.path());
    let socket = scratch.join("socket");
    let url = format!("nbd+unix:///?socket={}&reconnect=0", socket.display());
    let mut failed = 0;
    for delay in [5, 10, 20, 40, 60, 90, 120] {
        let mut server = Command::new(EXTANT)
            .args(["serve", "nbd", "--socket", socket.to_str().unwrap()])
            .arg(scratch.join("disk.img"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(started.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
        let child = Command::new(EXTANT)
            .args(["cat", &format!("{url}:/large")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(delay));
            server.kill().unwrap();
            server.wait().unwrap();
        });
        let ended = child.wait_with_output().unwrap();
        killer.join().unwrap();
        assert!(large.starts_with(&ended.stdout), "{delay}");
        assert_eq!(ended.status.success(), ended.stdout.len() == large.len(), "{delay}");
        let said = String::from_utf8_lossy(&ended.stderr);
        if !ended.status.success() {
            failed += 1;
            assert!(said.contains(socket.to_str().unwrap()), "{said}");
        }
    }
    assert!(failed > 0);
}
