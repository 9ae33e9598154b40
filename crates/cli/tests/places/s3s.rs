//! Objects in a server of S3 that another project wrote (s3s-fs). It ignores If-Match when an
//! object is read, so that only our comparison of ETags keeps versions apart.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use extant_runtime::Random;
use extant_testkit::{Scratch, Tool, server_on_port, skip, tool};

use extant::rooms::nbd::{Address, Client, ClientOptions};
use extant_device::Device;

use super::common::EXTANT;
use super::common::program::program;
use super::nbd::Serving;
use super::remote::image;

const KEY: &str = "key-of-the-test";
const SECRET: &str = "secret-of-the-test";

/// The server with a bucket `images`.
struct Store {
    server: Child,
    endpoint: String,
    curl: Tool,
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn serve(program: &Path, root: &Path, port: u16) -> Command {
    let mut command = Command::new(program);
    command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--access-key", KEY, "--secret-key", SECRET]).arg(root);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

impl Store {
    /// # Errors
    /// A program is missing.
    fn start(scratch: &Scratch) -> Result<Self, &'static str> {
        let missing = "no s3s-fs here (cargo xtask test --full installs it)";
        let program = program("s3s-fs").ok_or(missing)?;
        let curl = tool("curl").ok_or("curl is missing")?;
        let root = scratch.join("store");
        fs::create_dir_all(root.join("images")).unwrap();
        let (server, port) = server_on_port(|port| serve(&program, &root, port));
        let endpoint = format!("http://127.0.0.1:{port}");
        Ok(Self { server, endpoint, curl })
    }

    /// Puts an object into the bucket, in place of one of the same name.
    fn put(&self, key: &str, file: &PathBuf) {
        let mut put = self.curl.command();
        put.args(["-sS", "--fail", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user"]);
        put.arg(format!("{KEY}:{SECRET}"));
        put.args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "-T"]).arg(file);
        let output = put.arg(format!("{}/images/{key}", self.endpoint)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn environment(&self) -> [(&str, &str); 4] {
        [
            ("AWS_ENDPOINT_URL", &self.endpoint),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
        ]
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(EXTANT);
        command.args(words).envs(self.environment());
        command
    }

    fn done(&self, words: &[&str]) -> Vec<u8> {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        output.stdout
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_volume_in_a_server_of_s3_is_read_and_changed_in_an_overlay() {
    let scratch = Scratch::new();
    let store = match Store::start(&scratch) {
        Ok(store) => store,
        Err(why) => skip!("{why}"),
    };
    image(&scratch);
    let disk = scratch.join("disk.img");
    store.put("a%20dir/disk.img", &disk);
    let url = "s3://images/a dir/disk.img";
    assert_eq!(store.done(&["cat", &format!("{url}:/file")]), b"inside\n");
    let large = store.done(&["cat", &format!("{url}:/a/b/large")]);
    assert!(large == fs::read(scratch.join("tree/a/b/large")).unwrap());
    store.done(&["fsck", "-fn", url]);

    let upper = scratch.join("upper").display().to_string();
    let overlay = format!("overlay:{url}?upper={upper}");
    store.done(&["mkdir", &format!("{overlay}:/new")]);
    store.done(&["fsck", "-fy", &overlay]);
    assert!(store.done(&["ls", &format!("{overlay}:/")]).starts_with(b"a"));
    // The same size, and another byte.
    let mut bytes = fs::read(&disk).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&disk, bytes).unwrap();
    store.put("a%20dir/disk.img", &disk);
    let changed = store.command(&["ls", &format!("{overlay}:/")]).output().unwrap();
    assert!(!changed.status.success());
    let message = said(&changed);
    assert!(message.contains("the base of the overlay has changed"), "{message}");
}

#[test]
fn objects_of_any_size_are_read_from_any_byte_on() {
    let scratch = Scratch::new();
    let store = match Store::start(&scratch) {
        Ok(store) => store,
        Err(why) => skip!("{why}"),
    };
    let mut random = Random::new(3);
    for size in [1, 511, 4097, (4 << 20) + 1, (9 << 20) - 1] {
        let bytes: Vec<u8> = (0..size).map(|_| random.below(256) as u8).collect();
        let file = scratch.join("object");
        fs::write(&file, &bytes).unwrap();
        store.put("object", &file);
        let socket = scratch.join("socket");
        let words = ["--read-only", "--socket", socket.to_str().unwrap(), "s3://images/object"];
        let _server = Serving::start_with(&words, &store.environment());
        let address = Address::Unix(socket);
        let client = Client::connect(&address, "", &ClientOptions::default()).unwrap();
        assert_eq!(client.size(), size as u64);
        let mut all = vec![0; size];
        client.read_at(0, &mut all).unwrap();
        assert!(all == bytes, "{size}");
        for _ in 0..50 {
            let start = random.below(size);
            let mut part = vec![0; 1 + random.below((size - start).min(300_000))];
            client.read_at(start as u64, &mut part).unwrap();
            assert!(part == bytes[start..start + part.len()], "{size}: {start}, {}", part.len());
        }
    }
    let file = scratch.join("object");
    fs::write(&file, b"").unwrap();
    store.put("empty", &file);
    let refused = store.command(&["ls", "s3://images/empty:/"]).output().unwrap();
    assert!(!refused.status.success() && said(&refused).contains("s3://images/empty"));
}

#[test]
fn an_object_that_is_replaced_during_a_command_is_an_error() {
    let scratch = Scratch::new();
    let store = match Store::start(&scratch) {
        Ok(store) => store,
        Err(why) => skip!("{why}"),
    };
    // More than is read ahead of a file.
    let contents = |salt: u8| -> Vec<u8> {
        (0..48_u32 << 20).map(|at| (at / 7 + at / 1000) as u8 ^ salt).collect()
    };
    let made = |name: &str, salt: u8| {
        let tree = scratch.join("tree");
        fs::create_dir_all(&tree).unwrap();
        fs::write(tree.join("large"), contents(salt)).unwrap();
        let at = scratch.path();
        super::shell(&format!("extant build -q --size 64M -o {name} tree"), at);
        scratch.join(name)
    };
    let (one, other) = (made("one", 0), made("other", 0x55));
    assert_eq!(fs::metadata(&one).unwrap().len(), fs::metadata(&other).unwrap().len());
    store.put("disk.img", &one);
    let mut command = store.command(&["cat", "s3://images/disk.img:/large"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut found = vec![0; 1 << 20];
    output.read_exact(&mut found).unwrap();
    // It is in the middle of the file, and waits for us.
    store.put("disk.img", &other);
    output.read_to_end(&mut found).unwrap();
    let ended = child.wait_with_output().unwrap();
    let message = said(&ended);
    assert!(!ended.status.success(), "{message}");
    let expected = "s3://images/disk.img: the object has changed since it was opened";
    assert!(message.contains(expected), "{message}");
    assert!(found.len() < 48 << 20 && contents(0).starts_with(&found), "mixed bytes");
    let found = store.done(&["cat", "s3://images/disk.img:/large"]);
    assert!(found == contents(0x55));
}

#[test]
fn a_server_that_is_killed_is_an_error_with_the_place() {
    let scratch = Scratch::new();
    let store = match Store::start(&scratch) {
        Ok(store) => store,
        Err(why) => skip!("{why}"),
    };
    fs::create_dir(scratch.join("tree")).unwrap();
    let contents: Vec<u8> = (0..48_u32 << 20).map(|at| (at / 7 + at / 1000) as u8).collect();
    fs::write(scratch.join("tree/large"), &contents).unwrap();
    super::shell("extant build -q --size 64M -o disk.img tree", scratch.path());
    store.put("disk.img", &scratch.join("disk.img"));
    for skipped in [1_usize, 3 << 20, 20 << 20] {
        let mut store = Store::start(&scratch).unwrap();
        let mut command = store.command(&["cat", "s3://images/disk.img?timeout=8:/large"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut found = vec![0; skipped];
        output.read_exact(&mut found).unwrap();
        // It waits for us, and has not read all.
        store.server.kill().unwrap();
        output.read_to_end(&mut found).unwrap();
        let ended = child.wait_with_output().unwrap();
        let message = said(&ended);
        assert!(!ended.status.success() && found.len() < contents.len(), "{message}");
        assert!(message.contains("s3://images/disk.img"), "{message}");
        assert!(contents.starts_with(&found), "wrong bytes");
    }
}

#[test]
fn credentials_come_from_the_environment_and_are_in_no_message() {
    let scratch = Scratch::new();
    let store = match Store::start(&scratch) {
        Ok(store) => store,
        Err(why) => skip!("{why}"),
    };
    image(&scratch);
    store.put("disk.img", &scratch.join("disk.img"));
    let refused = |changes: &[(&str, Option<&str>)]| {
        let mut command = store.command(&["ls", "s3://images/disk.img?timeout=2:/"]);
        command.env("AWS_CONFIG_FILE", "/none").env("AWS_SHARED_CREDENTIALS_FILE", "/none");
        for (name, value) in changes {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{changes:?}");
        let message = said(&output);
        assert!(message.contains("s3://images/disk.img"), "{message}");
        for hidden in [KEY, SECRET, "other-text", "Signature="] {
            assert!(!message.contains(hidden), "{message}");
        }
        message
    };
    let denied = "access denied by the server (credentials come from the environment)";
    let message = refused(&[("AWS_SECRET_ACCESS_KEY", Some("other-text"))]);
    assert!(message.contains(denied), "{message}");
    let message = refused(&[("AWS_ACCESS_KEY_ID", Some("other-text"))]);
    assert!(message.contains(denied), "{message}");
    let message = refused(&[("AWS_SKIP_SIGNATURE", Some("true"))]);
    assert!(message.contains(denied), "{message}");
    let message = refused(&[("AWS_ACCESS_KEY_ID", None), ("AWS_SECRET_ACCESS_KEY", None)]);
    assert!(message.contains("no key in the environment and in ~/.aws"), "{message}");
    let message = refused(&[("AWS_PROFILE", Some("other"))]);
    assert!(message.contains("AWS_PROFILE: no profile 'other' in ~/.aws"), "{message}");
}

#[test]
fn keys_and_endpoints_of_the_users_profile_are_used() {
    let scratch = Scratch::new();
    let store = match Store::start(&scratch) {
        Ok(store) => store,
        Err(why) => skip!("{why}"),
    };
    image(&scratch);
    store.put("disk.img", &scratch.join("disk.img"));
    fs::create_dir(scratch.join(".aws")).unwrap();
    let config = format!("[profile test]\nregion = us-east-1\nendpoint_url = {}\n", store.endpoint);
    fs::write(scratch.join(".aws/config"), config).unwrap();
    let credentials =
        format!("[test]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n");
    fs::write(scratch.join(".aws/credentials"), credentials).unwrap();
    let url = "s3://images/disk.img";
    let run = |words: &[&str]| {
        let mut command = Command::new(EXTANT);
        for (name, _) in store.environment() {
            command.env_remove(name);
        }
        let command = command.args(words).env("AWS_PROFILE", "test");
        command.env("HOME", scratch.path()).output().unwrap()
    };
    let read = run(&["cat", &format!("{url}:/file")]);
    assert_eq!(read.stdout, b"inside\n", "{}", said(&read));
    let overlay = format!("overlay:{url}?upper={}", scratch.join("upper").display());
    let changed = run(&["mkdir", &format!("{overlay}:/new")]);
    assert!(changed.status.success(), "{}", said(&changed));
}
