//! The lab in a guest: `extant lab vm`.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{extant, text};
use extant_testkit::{Scratch, skipped, tool};
use serde_json::Value;

#[test]
fn what_a_guest_does_not_have_is_refused_by_name() {
    let refused = |words: &[&str], expected: &str| {
        let output = extant([&["lab", "vm", "run", "hard-links"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{words:?}: {output:?}");
    };
    refused(&["--accel", "xen"], "there are auto, kvm and emulation");
    refused(&["--cpus", "0"], "0 is not in 1..=64");
    refused(&["--guest-memory", "64M"], "--guest-memory: at least 512M");
    refused(&["--targets", "ext4+raid"], "unknown target \"ext4+raid\"");
    refused(
        &["--targets", "ext4+linear", "--device", "/dev/null"],
        "/dev/null: not a block device",
    );
    let output = extant(["lab", "vm"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// A machine without QEMU, apt or the packages still gets a report: each target says why it did not
/// run.
#[test]
fn without_a_guest_every_target_says_why() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
    command.args(["lab", "vm", "run", "hard-links", "--targets", "nilfs2,ext4+linear", "--cache"]);
    command.arg(scratch.join("cache")).arg("--out").arg(&out);
    let output = command.env("PATH", scratch.join("nothing")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains("no measurements (see the samples in"), "{output:?}");
    let found = samples(&out);
    let names: Vec<_> = found.iter().map(|it| it["target"].as_str().unwrap()).collect();
    assert_eq!(names, ["nilfs2", "ext4+linear"]);
    for sample in &found {
        assert_eq!(sample["metric"], "skipped");
        let why = sample["why"].as_str().unwrap();
        assert!(why.starts_with("cannot make the guest: apt-get is not there"), "{why}");
    }
    assert!(!out.join("guest/disk").exists());
}

/// A guest is made, boots, and brings the figures of one small run of systems that this kernel does
/// not have. It is killed between the two, and goes on with the second.
#[test]
fn a_guest_measures_what_this_kernel_lacks() {
    for needed in ["qemu-system-x86_64", "apt-get", "dpkg-deb", "ldd"] {
        if tool(needed).is_none() {
            return skipped(format!("{needed} is not there"));
        }
    }
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vm-guest");
    let cache_name = cache.to_str().unwrap();
    if !cache.join("guest.json").exists() {
        let output = extant(["lab", "vm", "prepare", "--cache", cache_name]);
        if !output.status.success() {
            return skipped(text(&output.stderr).trim().to_owned());
        }
    }
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let out_name = out.to_str().unwrap();
    let words = [
        "lab",
        "vm",
        "run",
        "hard-links",
        "--cache",
        cache_name,
        "--out",
        out_name,
        "--runs",
        "1",
        "--sizes",
        "0.000001",
        "--counts",
        "0.00002",
        "--disk",
        "2G",
        "--guest-memory",
        "1G",
        "--timeout",
        "200",
        "--targets",
        "nilfs2:noatime,ext4+linear+crypt:noatime",
    ];
    let before = killed_after_a_cell(&words, &out);
    let output = extant(words);
    assert!(output.status.success(), "{output:?}");
    let found = samples(&out);
    assert_eq!(found[..before.len()], before, "what was measured before stays");
    for target in ["nilfs2:noatime", "ext4+linear+crypt:noatime"] {
        let of = |metric: &str| {
            let fits = |it: &&Value| it["target"] == target && it["metric"] == metric;
            found.iter().filter(fits).count()
        };
        assert_eq!((of("cell_seconds"), of("skipped")), (1, 0), "{target}: {found:?}");
        assert!(of("elapsed_seconds") >= 5, "{target}: {found:?}");
    }
    let run: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let guest = &run["guest"];
    assert!(guest["environment"]["kernel"].as_str().unwrap().starts_with("Linux "), "{guest}");
    let accelerator = guest["accelerator"].as_str().unwrap();
    assert!(accelerator == "KVM" || accelerator.starts_with("emulation"), "{guest}");
    assert!(guest["disk"].as_str().unwrap().contains("2048 MiB"), "{guest}");
    let output = extant(["lab", "report", "--out", out_name]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("Run in a guest") && page.contains("ext4+linear+crypt:noatime: seconds"));
    assert!(!out.join("guest/disk").exists() && !out.join("guest/initrd").exists());
}

/// Starts a run, kills it when its first cell has ended, and waits until its guest has gone; what
/// it has measured.
fn killed_after_a_cell(words: &[&str], out: &Path) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
    let mut child = command.args(words).stderr(Stdio::null()).spawn().unwrap();
    // Written at once, whole lines.
    let is_whole = || {
        let text = std::fs::read_to_string(out.join("samples.jsonl")).unwrap_or_default();
        text.ends_with('\n') && text.contains("cell_seconds")
    };
    while !is_whole() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    let status = child.wait().unwrap();
    let before = samples(out);
    assert!(!status.success(), "it was killed: {before:?}");
    let disk = out.join("guest/disk");
    let has_guest = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let lines =
            all.map(|entry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default());
        let disk = format!("file={}", disk.display());
        lines.into_iter().any(|line| String::from_utf8_lossy(&line).contains(&disk))
    };
    for _ in 0..500 {
        if !has_guest() {
            return before;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the guest outlives the run");
}

fn samples(out: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(out.join("samples.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
