//! `extant fsck` of several images: a line of JSON for each, and progress as lines of JSON.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use extant_testkit::{Scratch, skip, tool};
use serde_json::Value;

const EXTANT: &str = env!("CARGO_BIN_EXE_extant");

fn extant(words: &[&str]) -> Output {
    Command::new(EXTANT).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A sound image, a damaged one, and a file that is not one.
fn images(scratch: &Scratch) -> [PathBuf; 4] {
    let names = ["sound", "damaged", "other", "missing"];
    let images = names.map(|name| scratch.join(format!("{name}.img")));
    for image in &images[..2] {
        assert!(extant(&["mkfs", "-q", image.to_str().unwrap(), "4M"]).status.success());
    }
    let mut bytes = fs::read(&images[1]).unwrap();
    // The number of free blocks.
    bytes[1024 + 12] ^= 0xff;
    fs::write(&images[1], bytes).unwrap();
    fs::write(&images[2], [0; 4096]).unwrap();
    images
}

fn lines(output: &[u8]) -> Vec<Value> {
    text(output).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn each_image_has_a_line_and_the_exit_code_is_the_union() {
    let scratch = Scratch::new();
    let images = images(&scratch);
    let names = images.each_ref().map(|image| image.to_str().unwrap());
    for jobs in ["1", "3"] {
        let words = [&["fsck", "-f", "-n", "--json", "--jobs", jobs][..], &names[..]].concat();
        let done = extant(&words);
        assert_eq!(done.status.code(), Some(4 | 8), "{}", text(&done.stderr));
        let lines = lines(&done.stdout);
        assert_eq!(lines.len(), 4);
        let by_name: BTreeMap<&str, &Value> =
            lines.iter().map(|line| (line["image"].as_str().unwrap(), line)).collect();
        let verdicts = names.map(|name| by_name[name]["verdict"].as_str().unwrap());
        assert_eq!(verdicts, ["clean", "damaged", "unreadable", "unreadable"]);
        // A line is the document of the image alone.
        let alone = extant(&["fsck", "-f", "-n", "--json", names[1]]);
        let alone: Value = serde_json::from_slice(&alone.stdout).unwrap();
        assert_eq!(alone["findings"], by_name[names[1]]["findings"]);
        assert!(by_name[names[3]]["error"].as_str().unwrap().contains("No such file"));
        assert_eq!(by_name[names[3]]["findings"], Value::Array(Vec::new()));
    }
    // Repairs are made in each, and a single image with --jobs has a line too.
    let done = extant(&["fsck", "-f", "-y", "--json", names[0], names[1]]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    let done = extant(&["fsck", "-f", "-n", "--json", "--jobs", "2", names[1]]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(lines(&done.stdout).len(), 1);
}

#[test]
fn progress_is_lines_of_json() {
    let scratch = Scratch::new();
    let images = images(&scratch);
    let [sound, damaged, ..] = images.each_ref().map(|image| image.to_str().unwrap());
    let alone = extant(&["fsck", "-f", "-n", "--progress", "json", sound]);
    assert!(alone.status.success(), "{}", text(&alone.stderr));
    let several = extant(&["fsck", "-fn", "--json", "--progress", "json", sound, damaged]);
    assert_eq!(lines(&several.stdout).len(), 2);
    for (output, count) in [(&alone, 1), (&several, 2)] {
        let lines = lines(&output.stderr);
        let mut ends = 0;
        for line in &lines {
            let number = |key: &str| line[key].as_u64().unwrap_or_else(|| panic!("{line}"));
            assert!((1..=5).contains(&number("pass")) && number("done") <= number("whole"));
            assert!(line["image"].as_str().unwrap().ends_with(".img"));
            ends += usize::from(number("pass") == 5 && number("done") == number("whole"));
        }
        assert_eq!(ends, count, "{lines:?}");
    }
}

#[test]
fn options_for_one_image_are_refused_for_several() {
    let cases: [(&[&str], &str); 4] = [
        (&["-n", "a.img", "b.img"], "--json"),
        (&["-y", "--json", "-z", "undo", "a.img", "b.img"], "-z"),
        (&["-n", "--json", "-j", "log", "a.img", "b.img"], "-j"),
        (&["-n", "--json", "--jobs", "0", "a.img"], "--jobs"),
    ];
    for (words, said) in cases {
        let done = extant(&[&["fsck"], words].concat());
        assert_eq!(done.status.code(), Some(16), "{words:?}");
        assert!(text(&done.stderr).contains(said), "{words:?}: {}", text(&done.stderr));
    }
    // By the name of e2fsck there is one operand, as there.
    let scratch = Scratch::new();
    let link = scratch.join("e2fsck");
    std::os::unix::fs::symlink(EXTANT, &link).unwrap();
    let done = Command::new(link).args(["-n", "a.img", "b.img"]).output().unwrap();
    assert_eq!(done.status.code(), Some(16));
}

/// An image that is read slowly, and the checks of it that run.
struct Slow {
    server: Child,
    inside: String,
    socket: String,
}

impl Slow {
    fn new(scratch: &Scratch, nbdkit: &std::path::Path) -> Self {
        let (image, socket) = (&images(scratch)[0], scratch.join("socket"));
        let read = format!(
            "if [ $4 -gt 8192 ]; then sleep 1; fi; \
             dd if={} iflag=skip_bytes,count_bytes skip=$4 count=$3 status=none bs=64k",
            image.display()
        );
        let mut command = Command::new(nbdkit);
        command.args(["-f", "-r", "-U"]).arg(&socket).arg("eval");
        command.arg(format!("get_size=stat -c %s {}", image.display()));
        let server = command.arg(format!("pread={read}")).spawn().unwrap();
        until(|| socket.exists());
        let inside = format!("nbd+unix:///?socket={}", socket.display());
        Self { server, inside, socket: socket.display().to_string() }
    }

    /// Number of checks that run.
    fn checks(&self) -> usize {
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let words = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
        let is_check = |words: &Vec<u8>| {
            let words = text(words);
            words.starts_with("extant\0fsck") && words.contains(&self.socket)
        };
        words.filter(is_check).count()
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn until(is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(20), "it takes too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The checks end with the process that has started them, by whatever signal.
#[test]
fn checks_end_with_the_process_that_has_started_them() {
    let Some(nbdkit) = tool("nbdkit") else { skip!("nbdkit is missing") };
    let scratch = Scratch::new();
    let slow = Slow::new(&scratch, nbdkit.path());
    for (signal, number) in [("TERM", 15), ("INT", 2), ("KILL", 9)] {
        let mut command = Command::new(EXTANT);
        command.args(["fsck", "-fn", "--json", "--jobs", "2", &slow.inside, &slow.inside]);
        let mut command = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until(|| slow.checks() == 2);
        // The checks have begun.
        std::thread::sleep(Duration::from_millis(500));
        let sent = Command::new("kill").args(["-s", signal, &command.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let status = command.wait().unwrap();
        match signal {
            "INT" => assert_eq!(status.code(), Some(32)),
            _ => assert_eq!(status.signal(), Some(number)),
        }
        if signal != "KILL" {
            assert_eq!(slow.checks(), 0, "{signal}: the checks were not waited for");
        }
        until(|| slow.checks() == 0);
    }
}

/// A report that cannot be written is no repair.
#[test]
fn a_full_output_is_an_operational_error() {
    let scratch = Scratch::new();
    let images = images(&scratch);
    for more in [&[][..], &["--jobs", "2"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(EXTANT);
        command.args(["fsck", "-fn", "--json"]).args(more).arg(&images[0]);
        let status = command.stdout(full).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(8), "{more:?}");
    }
}
