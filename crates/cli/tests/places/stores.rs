//! Objects of Google's and Azure's stores, by emulators in an environment of their own; with
//! EXTANT_SLOW=1, as they are installed first.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use extant_testkit::{Scratch, server_on_port, skip, tool};

use super::common::EXTANT;
use super::remote::{image, install, python_programs};

const GOOGLE: &str = "gcp-storage-emulator==2026.7.19";
const AZURE: &str = "azurite@3.35.0";
/// An account of the test.
const ACCOUNT: &str = "account";
const KEY: &str = "a2V5IG9mIHRoZSB0ZXN0";

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_slow() -> bool {
    std::env::var_os("EXTANT_SLOW").is_some()
}

/// Reads an image and misses another; `base` is the URL of a place in the store.
fn read_objects(base: &str, environment: &[(&str, &str)]) {
    let extant = |words: &[&str]| -> Output {
        let mut command = Command::new(EXTANT);
        command.args(words).envs(environment.iter().copied());
        command.output().unwrap()
    };
    let url = format!("{base}/dir/disk.img");
    let read = extant(&["cat", &format!("{url}:/file")]);
    assert_eq!(read.stdout, b"inside\n", "{}", String::from_utf8_lossy(&read.stderr));
    let checked = extant(&["fsck", "-fn", &url]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let missing = extant(&["ls", &format!("{base}/other:/")]);
    let said = String::from_utf8_lossy(&missing.stderr);
    assert!(said.contains(&format!("{base}/other: the server has no such object")), "{said}");
}

/// A proxy in front of an emulator that gives an object no time and no ETag, as the real store
/// does: both are added to each answer.
fn with_versions(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            std::thread::spawn(move || answer(near.ok()?, port));
        }
    });
    own
}

fn answer(mut near: TcpStream, port: u16) -> Option<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        near.read_exact(&mut byte).ok()?;
        request.push(byte[0]);
    }
    let mut far = TcpStream::connect(("127.0.0.1", port)).ok()?;
    far.write_all(&request).ok()?;
    // The emulator ends the connection with its answer.
    let mut found = Vec::new();
    far.read_to_end(&mut found).ok()?;
    let line = found.iter().position(|byte| *byte == b'\n')? + 1;
    near.write_all(&found[..line]).ok()?;
    near.write_all(b"Connection: close\r\nETag: \"1\"\r\n").ok()?;
    near.write_all(b"Last-Modified: Sat, 28 Nov 2026 08:00:00 GMT\r\n").ok()?;
    near.write_all(&found[line..]).ok()
}

#[test]
fn an_image_in_googles_store_is_read() {
    if !is_slow() {
        skip!("EXTANT_SLOW is not set");
    }
    let scratch = Scratch::new();
    let programs = match python_programs(&scratch, GOOGLE) {
        Ok(programs) => programs,
        Err(why) => skip!("{GOOGLE}: {why}"),
    };
    let program = programs.join("gcp-storage-emulator");
    let python = tool("python3").expect("it made the environment");
    let (server, port) = server_on_port(|port| {
        let mut command = Command::new(&program);
        command.args(["start", "--host=127.0.0.1", "--in-memory", "--default-bucket=images"]);
        command.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
        command
    });
    let _server = Ended(server);
    image(&scratch);
    let put = "import sys, urllib.request\n\
               url = sys.argv[1] + '/upload/storage/v1/b/images/o?uploadType=media&name=dir/disk.img'\n\
               request = urllib.request.Request(url, open(sys.argv[2], 'rb').read())\n\
               request.add_header('Content-Type', 'application/octet-stream')\n\
               urllib.request.urlopen(request).read()\n";
    let server = format!("http://127.0.0.1:{port}");
    let image = scratch.join("disk.img");
    python.text(["-c", put, &server, image.to_str().unwrap()]).unwrap();
    let proxy = format!("127.0.0.1:{}", with_versions(port));
    read_objects("gs://images", &[("STORAGE_EMULATOR_HOST", &proxy)]);
}

/// Requests that are signed with a shared key, by Azure's documentation.
const PUT_TO_AZURE: &str = "\
import base64, email.utils, hashlib, hmac, sys, urllib.request
server, account, key, image = sys.argv[1:]
def put(path, body, query, headers):
    headers = {'x-ms-date': email.utils.formatdate(usegmt=True), 'x-ms-version': '2021-08-06', **headers}
    length = str(len(body)) if body else ''
    listed = ''.join(f'{name}:{headers[name]}\\n' for name in sorted(headers))
    resource = f'/{account}/{account}/{path}' + (f'\\n{query[0]}:{query[1]}' if query else '')
    kind = 'application/octet-stream'
    text = f'PUT\\n\\n\\n{length}\\n\\n{kind}\\n\\n\\n\\n\\n\\n\\n{listed}{resource}'
    mac = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    signed = 'SharedKey ' + account + ':' + base64.b64encode(mac).decode()
    url = f'{server}/{path}' + (f'?{query[0]}={query[1]}' if query else '')
    headers = {**headers, 'Authorization': signed, 'Content-Type': kind}
    urllib.request.urlopen(urllib.request.Request(url, body, headers, method='PUT')).read()
put('images', b'', ('restype', 'container'), {})
put('images/dir/disk.img', open(image, 'rb').read(), None, {'x-ms-blob-type': 'BlockBlob'})
";

#[test]
fn an_image_in_azures_store_is_read() {
    if !is_slow() {
        skip!("EXTANT_SLOW is not set");
    }
    let (Some(npm), Some(python)) = (tool("npm"), tool("python3")) else {
        skip!("npm or python3 is missing");
    };
    let scratch = Scratch::new();
    let place = scratch.join("node");
    let words = ["install", "--silent", "--no-audit", "--prefix", place.to_str().unwrap(), AZURE];
    if let Err(why) = install(&npm, &words) {
        skip!("{AZURE}: {why}");
    }
    let program = place.join("node_modules/.bin/azurite-blob");
    let (server, port) = server_on_port(|port| {
        let mut command = Command::new(&program);
        command.args(["--silent", "--inMemoryPersistence", "--skipApiVersionCheck"]);
        command.args(["--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort"]);
        command.arg(port.to_string()).env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{KEY}"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    });
    let _server = Ended(server);
    image(&scratch);
    let server = format!("http://127.0.0.1:{port}/{ACCOUNT}");
    let disk = scratch.join("disk.img");
    python.text(["-c", PUT_TO_AZURE, &server, ACCOUNT, KEY, disk.to_str().unwrap()]).unwrap();
    let environment = [
        ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT),
        ("AZURE_STORAGE_ACCOUNT_KEY", KEY),
        ("AZURE_STORAGE_ENDPOINT", server.as_str()),
    ];
    read_objects("az://images", &environment);
}
