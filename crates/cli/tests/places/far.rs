//! Round trips: commands that only read ask a server few times.

use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use extant_device::{Device, DeviceError, FileDeviceOptions, Request};
use extant_testkit::{Scratch, skip};

use extant::rooms::nbd::{Address, Export, Listener, Running, Server};

use super::{done, shell};

/// A device that takes its time, and counts requests and bytes.
#[derive(Debug)]
struct Slow {
    inner: Arc<dyn Device>,
    pause: Duration,
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Device for Slow {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        std::thread::sleep(self.pause);
        self.requests.fetch_add(batch.len() as u64, Relaxed);
        self.bytes.fetch_add(batch.iter().map(Request::length).sum(), Relaxed);
        self.inner.submit(batch)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        std::thread::sleep(self.pause);
        self.requests.fetch_add(1, Relaxed);
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

/// A server far away.
struct Far {
    device: Arc<Slow>,
    url: String,
    _server: Running,
}

impl Far {
    fn start(scratch: &Scratch, image: &str, pause: Duration) -> Self {
        let file = FileDeviceOptions::new().open(scratch.join(image)).unwrap();
        let (requests, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let device = Arc::new(Slow { inner: Arc::new(file), pause, requests, bytes });
        let socket = scratch.join("socket");
        let listener = Listener::bind(&Address::Unix(socket.clone())).unwrap();
        let export = Export { name: String::new(), device: device.clone() as _, read_only: true };
        let server = Server::new(export, listener).start().unwrap();
        Self { device, url: format!("nbd+unix:///?socket={}", socket.display()), _server: server }
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
    let far = Far::start(&scratch, "disk.img", Duration::from_millis(1));
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
