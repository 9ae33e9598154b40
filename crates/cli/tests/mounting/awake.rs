//! Idle processors of a virtual machine, which a mount keeps awake while it has much to do.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use extant_testkit::{Scratch, skip};

use super::{Mount, can_mount, image};

/// Says how long a wake-up may take, and to those who read it, how long it may now.
const LATENCY: &str = "/dev/cpu_dma_latency";
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";

/// Whether a mount's server may say something about that.
fn may_say(mount: &Mount) -> bool {
    let files = fs::read_dir(Path::new("/proc").join(mount.server()).join("fd")).expect("it runs");
    files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|to| to == Path::new(LATENCY)))
}

/// Whether a wake-up must take no time now.
fn is_claimed() -> bool {
    let mut microseconds = [1; 4];
    let file = fs::File::open(LATENCY);
    file.and_then(|mut file| file.read_exact(&mut microseconds)).expect("it tells");
    microseconds == [0; 4]
}

#[test]
fn processors_stay_awake_while_many_requests_come() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let is_virtual = fs::read_to_string(DRIVER).is_ok_and(|driver| driver.trim() == "haltpoll");
    if !is_virtual || fs::File::open(LATENCY).is_err() {
        skip!("no host that processors are given back to, or no say in it");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &["-o", "nobusy_poll"]);
    assert!(!may_say(&mount));
    mount.unmount();
    let mount = Mount::new(&scratch, &image, &[]);
    if !may_say(&mount) {
        skip!("too many processors");
    }
    let begun = Instant::now();
    // Each is asked for: nothing of that name is known.
    for number in 0.. {
        if is_claimed() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing was claimed");
        assert!(!mount.path().join(number.to_string()).exists());
    }
    mount.unmount();
}
