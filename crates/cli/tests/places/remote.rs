//! Objects of servers: an HTTP server of our own, and with EXTANT_SLOW=1 that of moto for `s3://`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use extant_testkit::{Scratch, Tool, server_on_port, skip, tool};

use super::common::EXTANT;
use super::{done, refused, run, shell};

/// The server's way with requests.
#[derive(Default)]
struct Behaviour {
    /// Answers with the whole object.
    is_without_ranges: AtomicBool,
    /// Gives no ETag and no time.
    is_without_tag: AtomicBool,
    /// Takes no notice of If-Match.
    ignores_conditions: AtomicBool,
    /// Every fourth answer is an error, and every fifth is cut off.
    is_unreliable: AtomicBool,
    /// The number of the request that finds another version.
    changes_at: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
}

struct Object {
    bytes: Arc<Vec<u8>>,
    version: u64,
}

struct WebServer {
    behaviour: Arc<Behaviour>,
    objects: Arc<Mutex<BTreeMap<String, Object>>>,
    base: String,
}

impl WebServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let behaviour = Arc::new(Behaviour::default());
        let objects = Arc::new(Mutex::new(BTreeMap::new()));
        let shared = (behaviour.clone(), objects.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (behaviour, objects) = shared.clone();
                let stream = stream.unwrap();
                std::thread::spawn(move || serve(stream, &behaviour, &objects));
            }
        });
        Self { behaviour, objects, base }
    }

    fn put(&self, path: &str, bytes: Vec<u8>) -> String {
        let mut objects = self.objects.lock().unwrap();
        let version = objects.get(path).map_or(1, |object| object.version + 1);
        objects.insert(path.to_owned(), Object { bytes: Arc::new(bytes), version });
        format!("{}{path}", self.base)
    }

    fn requests(&self) -> u64 {
        self.behaviour.requests.load(Relaxed)
    }
}

fn serve(
    stream: TcpStream,
    behaviour: &Behaviour,
    objects: &Mutex<BTreeMap<String, Object>>,
) -> Option<()> {
    let mut output = stream.try_clone().ok()?;
    let mut input = BufReader::new(stream);
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        let mut words = line.split_whitespace();
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            input.read_line(&mut line).ok()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let number = behaviour.requests.fetch_add(1, Relaxed);
        let is_unreliable = behaviour.is_unreliable.load(Relaxed);
        let empty = "content-length: 0\r\n\r\n";
        if is_unreliable && number % 4 == 1 {
            write!(output, "HTTP/1.1 503 Busy\r\n{empty}").ok()?;
            continue;
        }
        let mut found = objects.lock().unwrap();
        let Some(object) = found.get_mut(&path) else {
            drop(found);
            write!(output, "HTTP/1.1 404 Not Found\r\n{empty}").ok()?;
            continue;
        };
        if number > 0 && number == behaviour.changes_at.load(Relaxed) {
            object.version += 1;
        }
        let (bytes, tag) = (object.bytes.clone(), format!("\"v{}\"", object.version));
        drop(found);
        let ignores = behaviour.ignores_conditions.load(Relaxed);
        if headers.get("if-match").is_some_and(|wanted| !ignores && *wanted != tag) {
            write!(output, "HTTP/1.1 412 Precondition Failed\r\n{empty}").ok()?;
            continue;
        }
        let tag = match behaviour.is_without_tag.load(Relaxed) {
            true => String::new(),
            false => format!("etag: {tag}\r\n"),
        };
        let range = headers.get("range").and_then(|range| range.strip_prefix("bytes="));
        let range = range.and_then(|range| range.split_once('-'));
        let part = match range {
            Some((start, end)) if !behaviour.is_without_ranges.load(Relaxed) => {
                let start: usize = start.parse().ok()?;
                let end = bytes.len().min(end.parse::<usize>().ok()? + 1);
                if start >= end {
                    write!(output, "HTTP/1.1 416 Range Not Satisfiable\r\n{empty}").ok()?;
                    continue;
                }
                let of = format!("{start}-{}/{}", end - 1, bytes.len());
                write!(output, "HTTP/1.1 206 Partial\r\ncontent-range: bytes {of}\r\n").ok()?;
                start..end
            }
            _ => {
                write!(output, "HTTP/1.1 200 OK\r\n").ok()?;
                0..bytes.len()
            }
        };
        write!(output, "{tag}content-length: {}\r\n\r\n", part.end - part.start).ok()?;
        if method != "HEAD" {
            let sent = &bytes[part];
            if is_unreliable && number % 5 == 2 && sent.len() > 1000 {
                output.write_all(&sent[..1000]).ok()?;
                return None;
            }
            behaviour.bytes.fetch_add(sent.len() as u64, Relaxed);
            output.write_all(sent).ok()?;
        }
        output.flush().ok()?;
    }
}

/// An image with some files; one of them is large.
pub(super) fn image(scratch: &Scratch) -> Vec<u8> {
    fs::create_dir_all(scratch.join("tree/a/b")).unwrap();
    fs::write(scratch.join("tree/file"), "inside\n").unwrap();
    let large: Vec<u8> = (0..9_000_000_u32).map(|at| (at / 7 + at / 1000) as u8).collect();
    fs::write(scratch.join("tree/a/b/large"), large).unwrap();
    shell("extant build -q --size 64M -o disk.img tree", scratch.path());
    fs::read(scratch.join("disk.img")).unwrap()
}

#[test]
fn an_image_on_a_web_server_is_read() {
    let scratch = Scratch::new();
    let bytes = image(&scratch);
    let server = WebServer::start();
    let url = server.put("/dir/disk.img", bytes.clone());
    assert_eq!(done("cat @:/file", &url), "inside\n");
    assert!(server.requests() <= 12, "{}", server.requests());
    let large =
        String::from_utf8_lossy(&fs::read(scratch.join("tree/a/b/large")).unwrap()).into_owned();
    assert!(done("cat @:/a/b/large", &url) == large);
    done("fsck -fn @", &url);
    let copy = scratch.join("copy.img");
    done(&format!("clone @ {}", copy.display()), &url);
    done("fsck -fn @", copy.to_str().unwrap());
    // Connections that break and a server that is busy are no errors.
    server.behaviour.is_unreliable.store(true, Relaxed);
    assert!(done("cat @:/a/b/large", &url) == large);
    server.behaviour.is_unreliable.store(false, Relaxed);

    // Changes are kept apart; an object that has changed is another base.
    assert!(refused("mkdir @:/new", &url).contains("write overlay:http://...?upper=FILE"));
    let upper = scratch.join("upper");
    let overlay = format!("overlay:{url}?upper={}", upper.display());
    done("mkdir @:/new", &overlay);
    done("fsck -fy @", &overlay);
    assert!(done("ls @:/", &overlay).contains("new"));
    server.put("/dir/disk.img", bytes);
    assert!(refused("ls @:/", &overlay).contains("the base of the overlay has changed"));
}

#[test]
fn pages_are_kept_on_disk_for_one_version_of_an_object() {
    let scratch = Scratch::new();
    let mut bytes = image(&scratch);
    let server = WebServer::start();
    let cache = scratch.join("cache");
    let url = server.put("/disk.img", bytes.clone());
    let cached = format!("{url}?cache={}", cache.display());
    let first = done("cat @:/a/b/large", &cached);
    let before = server.requests();
    assert!(done("cat @:/a/b/large", &cached) == first);
    assert_eq!(server.requests(), before + 1, "the version is asked for");
    // Another version has pages of its own.
    let place = bytes.windows(7).position(|bytes| bytes == b"inside\n").unwrap();
    bytes[place..place + 7].copy_from_slice(b"change\n");
    server.put("/disk.img", bytes);
    assert_eq!(done("cat @:/file", &cached), "change\n");
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 2);
    server.behaviour.is_without_tag.store(true, Relaxed);
    assert!(refused("ls @:/", &cached).contains("cache= requires an ETag"));
    assert_eq!(done("cat @:/file", &url), "change\n");
}

#[test]
fn bytes_of_two_versions_are_never_mixed() {
    let scratch = Scratch::new();
    let bytes = image(&scratch);
    let server = WebServer::start();
    let url = server.put("/disk.img", bytes.clone());
    for ignores_conditions in [false, true] {
        server.behaviour.ignores_conditions.store(ignores_conditions, Relaxed);
        // It changes while the command reads from it.
        server.behaviour.changes_at.store(server.requests() + 2, Relaxed);
        let ended = run("cat @:/a/b/large", &url);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{said}");
        assert!(said.contains("the object has changed since it was opened"), "{said}");
        assert!(said.contains(&url), "{said}");
        assert!(fs::read(scratch.join("tree/a/b/large")).unwrap().starts_with(&ended.stdout));
    }
}

#[test]
fn what_is_wrong_with_an_object_or_its_url_is_said() {
    let scratch = Scratch::new();
    let server = WebServer::start();
    let url = server.put("/disk.img", image(&scratch));
    let said = refused("ls @:/", &url.replace("disk", "other"));
    assert!(said.contains("other.img: the server has no such object"), "{said}");
    server.behaviour.is_without_ranges.store(true, Relaxed);
    let said = refused("ls @:/", &url);
    assert!(said.contains("the server does not support range requests"), "{said}");
    let said = refused("ls @:/", "http://user:SECRET@127.0.0.1/disk.img");
    assert!(said.contains("credentials come from the environment"), "{said}");
    assert!(!said.contains("SECRET"), "{said}");
    let said = refused("ls @:/", &format!("{url}?X-Amz-Signature=SECRET"));
    assert!(said.contains("unknown option") && !said.contains("SECRET"), "{said}");
    let started = Instant::now();
    let said = refused("ls @:/", "http://127.0.0.1:1/disk.img?timeout=1");
    assert!(said.contains("http://127.0.0.1:1/disk.img: "), "{said}");
    assert!(started.elapsed() < Duration::from_secs(20));
    for text in ["s3://bucket", "https:///a", "gs://", "az://container/"] {
        assert!(refused("info @", text).contains("expected "), "{text}");
    }
}

/// Runs an installer, which may load much; why it failed.
pub(super) fn install(installer: &Tool, words: &[&str]) -> Result<(), String> {
    let output = installer.command_within(400).args(words).output().map_err(|it| it.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let failed = || format!("{words:?}: {}: {}", output.status, said.trim());
    output.status.success().then_some(()).ok_or_else(failed)
}

/// The directory of the programs of a new environment of Python that has a package.
pub(super) fn python_programs(scratch: &Scratch, package: &str) -> Result<PathBuf, String> {
    let python = tool("python3").ok_or("python3 is missing")?;
    let place = scratch.join("venv").display().to_string();
    install(&python, &["-m", "venv", &place])?;
    let pip = tool(&format!("{place}/bin/pip")).ok_or("pip is missing")?;
    install(&pip, &["install", "-q", "--disable-pip-version-check", package])?;
    Ok(scratch.join("venv/bin"))
}

/// S3 for tests, in an environment of its own.
const MOTO: &str = "moto[server]==5.2.5";

#[test]
fn an_image_in_s3_is_read() {
    if std::env::var_os("EXTANT_SLOW").is_none() {
        skip!("EXTANT_SLOW is not set");
    }
    let scratch = Scratch::new();
    let programs = match python_programs(&scratch, MOTO) {
        Ok(programs) => programs,
        Err(why) => skip!("{MOTO}: {why}"),
    };
    let (mut moto, port) = server_on_port(|port| {
        let mut command = Command::new(programs.join("moto_server"));
        command.args(["-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        command
    });
    let endpoint = format!("http://127.0.0.1:{port}");
    image(&scratch);
    let put = "import boto3, sys\n\
               s3 = boto3.client('s3', endpoint_url=sys.argv[1], region_name='us-east-1',\n\
                                 aws_access_key_id='a', aws_secret_access_key='b')\n\
               s3.create_bucket(Bucket='images')\n\
               s3.upload_file(sys.argv[2], 'images', 'dir/disk.img')\n";
    let output = Command::new(programs.join("python"))
        .args(["-c", put, &endpoint])
        .arg(scratch.join("disk.img"))
        .output()
        .unwrap();
    let extant = |words: &[&str]| {
        Command::new(EXTANT)
            .args(words)
            .env("AWS_ENDPOINT_URL", &endpoint)
            .env("AWS_ACCESS_KEY_ID", "a")
            .env("AWS_SECRET_ACCESS_KEY", "b")
            .env("AWS_REGION", "us-east-1")
            .output()
            .unwrap()
    };
    let read = extant(&["cat", "s3://images/dir/disk.img:/file"]);
    let checked = extant(&["fsck", "-fn", "s3://images/dir/disk.img"]);
    let missing = extant(&["ls", "s3://images/other:/"]);
    let _ = moto.kill();
    let _ = moto.wait();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(read.stdout, b"inside\n", "{}", String::from_utf8_lossy(&read.stderr));
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let said = String::from_utf8_lossy(&missing.stderr);
    assert!(said.contains("s3://images/other: the server has no such object"), "{said}");
}

/// Certificates as `certtool` and qemu's documentation make them: an authority, a server, a client.
const CERTIFICATES: &str = "\
mkdir pki && cd pki
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca-key.pem -out ca-cert.pem -days 30 -subj /CN=authority \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign 2>/dev/null
for side in server client; do
    openssl req -newkey rsa:2048 -nodes -keyout $side-key.pem -out $side.csr -subj /CN=$side 2>/dev/null
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\\nextendedKeyUsage=%sAuth\\nbasicConstraints=CA:FALSE\\n' $side > $side.ext
    openssl x509 -req -in $side.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 30 \
        -extfile $side.ext -out $side-cert.pem 2>/dev/null
done
mkdir ../other && openssl req -x509 -newkey rsa:2048 -nodes -keyout /dev/null -out ../other/ca-cert.pem \
    -days 30 -subj /CN=other 2>/dev/null
mkdir ../anonymous && cp ca-cert.pem ../anonymous";

/// A static file of nginx, over TLS: a server that others wrote answers ranges.
#[test]
fn a_file_of_nginx_is_read_over_https() {
    let (Some(nginx), Some(_)) = (tool("nginx"), tool("openssl")) else {
        skip!("nginx or openssl is missing");
    };
    let scratch = Scratch::new();
    image(&scratch);
    shell(CERTIFICATES, scratch.path());
    let at = scratch.path().display();
    let (server, port) = server_on_port(|port| {
        let place = |kind: &str| format!("{kind}_temp_path {at}/{kind};");
        let places: String =
            ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(place).concat();
        let config = format!(
            "daemon off; user root; pid {at}/nginx.pid; error_log {at}/nginx.log; events {{}}\n\
             http {{ access_log off; {places} server {{ listen 127.0.0.1:{port} ssl; root {at};\n\
             ssl_certificate {at}/pki/server-cert.pem;\n\
             ssl_certificate_key {at}/pki/server-key.pem; }} }}\n"
        );
        fs::write(scratch.join("nginx.conf"), config).unwrap();
        let mut command = Command::new(nginx.path());
        command.arg("-c").arg(scratch.join("nginx.conf"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    });
    let _server = Ended(server);
    let url = format!("https://localhost:{port}/disk.img");
    let extant = |words: &[&str], authority: &str| {
        let mut command = Command::new(EXTANT);
        command.args(words).env("SSL_CERT_FILE", scratch.join(authority)).output().unwrap()
    };
    let read = extant(&["cat", &format!("{url}:/file")], "pki/ca-cert.pem");
    assert_eq!(read.stdout, b"inside\n", "{}", String::from_utf8_lossy(&read.stderr));
    let large = extant(&["cat", &format!("{url}:/a/b/large")], "pki/ca-cert.pem");
    assert!(large.stdout == fs::read(scratch.join("tree/a/b/large")).unwrap());
    let checked = extant(&["fsck", "-fn", &url], "pki/ca-cert.pem");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let unknown = extant(&["ls", &format!("{url}:/")], "other/ca-cert.pem");
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(!unknown.status.success() && said.contains(&url), "{said}");
}

#[test]
fn volumes_are_used_over_tls() {
    let (Some(nbdkit), Some(qemu), Some(_)) = (tool("nbdkit"), tool("qemu-nbd"), tool("openssl"))
    else {
        skip!("nbdkit, qemu-nbd or openssl is missing");
    };
    let scratch = Scratch::new();
    image(&scratch);
    shell(CERTIFICATES, scratch.path());
    let pki = scratch.join("pki");
    let disk = scratch.join("disk.img");
    let (server, port) = server_on_port(|port| {
        let mut command = Command::new(nbdkit.path());
        command
            .args(["-f", "--tls=require", "--tls-verify-peer", "-i", "127.0.0.1", "-p"])
            .arg(port.to_string())
            .arg(format!("--tls-certificates={}", pki.display()))
            .arg("file")
            .arg(&disk);
        command
    });
    let server = Ended(server);
    use_over_tls(&format!("nbds://localhost:{port}"), &scratch);
    let plain = format!("nbd://127.0.0.1:{port}");
    assert!(refused("ls @:/", &plain).contains("requires TLS (use nbds://"));
    drop(server);

    let object =
        format!("tls-creds-x509,id=tls0,endpoint=server,dir={},verify-peer=yes", pki.display());
    let (server, port) = server_on_port(|port| {
        let mut command = Command::new(qemu.path());
        command
            .args(["-t", "--shared=8", "-f", "raw", "-b", "127.0.0.1", "-x", "", "-p"])
            .arg(port.to_string())
            .args(["--tls-creds", "tls0", "--object", &object])
            .arg(&disk);
        command
    });
    let server = Ended(server);
    use_over_tls(&format!("nbds://127.0.0.1:{port}"), &scratch);
    drop(server);
    done("fsck -fn @", disk.to_str().unwrap());
}

/// A server of another program, killed in the end.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn use_over_tls(server: &str, scratch: &Scratch) {
    let with = |directory: &str| {
        format!("{server}/?tls-certificates={}", scratch.join(directory).display())
    };
    let url = with("pki");
    assert_eq!(done("cat @:/file", &url), "inside\n");
    done("mkdir -p @:/over/tls", &url);
    let large = scratch.join("tree/a/b/large");
    done(&format!("cp {} @:/over/tls/copy", large.display()), &url);
    assert!(run("cat @:/over/tls/copy", &url).stdout == fs::read(&large).unwrap());
    done("rm -r @:/over", &url);
    done("fsck -fn @", &url);
    let said = refused("ls @:/", &with("other"));
    assert!(said.contains("certificate"), "{said}");
    let said = refused("ls @:/", &with("missing"));
    assert!(said.contains("ca-cert.pem"), "{said}");
    // The server wants to know its clients.
    refused("ls @:/", &with("anonymous"));
    let said = refused("ls @:/", &format!("{url}&tls-hostname=elsewhere.example"));
    assert!(said.contains("not valid for name"), "{said}");
}
