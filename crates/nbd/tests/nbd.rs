//! The client against qemu-nbd and nbdkit, the server against qemu-img, qemu-io and libnbd's
//! programs, and both against strangers who send anything.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extant_device::{Device, DeviceError, FileDeviceOptions, MemoryDevice, Request, data_runs};
use extant_nbd::{Address, Client, ClientOptions, Export, Listener, NbdError, Running, Server};
use extant_runtime::Random;
use extant_testkit::{Scratch, skip, tool};

const SIZE: usize = 4 << 20;

/// A server of another program, killed in the end.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    /// Starts a server, and waits until its socket is there.
    fn start(command: &mut Command, socket: &Path) -> Self {
        let program = Self(command.spawn().expect("it starts"));
        let started = Instant::now();
        while UnixStream::connect(socket).is_err() {
            assert!(started.elapsed() < Duration::from_secs(20), "{}", socket.display());
            std::thread::sleep(Duration::from_millis(10));
        }
        program
    }
}

fn qemu_nbd(scratch: &Scratch, options: &[&str], image: &Path) -> Option<(Program, Address)> {
    let qemu = tool("qemu-nbd")?;
    let socket = scratch.join("socket");
    let mut command = Command::new(qemu.path());
    command.args(["-t", "-k"]).arg(&socket).args(options).arg(image);
    Some((Program::start(&mut command, &socket), Address::Unix(socket)))
}

fn writing() -> ClientOptions {
    ClientOptions { read_only: false, timeout: Duration::from_secs(10), ..ClientOptions::default() }
}

fn served(device: Arc<dyn Device>, read_only: bool, socket: &Path) -> (Running, Address) {
    let address = Address::Unix(socket.to_owned());
    let listener = Listener::bind(&address).expect("a socket");
    let export = Export { name: "disk".to_owned(), device, read_only };
    (Server::new(export, listener).start().expect("it runs"), address)
}

fn bytes_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0xff; device.size() as usize];
    device.read_at(0, &mut bytes).expect("read");
    bytes
}

/// Requests of every kind at random, in batches, on the device and on bytes in memory.
fn use_it(device: &dyn Device, expected: &mut [u8], seed: u64, unit: usize) {
    let mut random = Random::new(seed);
    for _ in 0..150 {
        let count = 1 + random.below(6);
        let width = expected.len() / count / unit * unit;
        let mut data = Vec::new();
        // Requests of a batch do not overlap.
        for index in 0..count {
            let start = index * width + random.below(width / unit) * unit;
            let most = ((index + 1) * width - start) / unit;
            let length = random.below(most.min(100_000 / unit + 2) + 1) * unit;
            let byte = random.below(256) as u8;
            data.push((random.below(8), start..start + length, vec![byte; length]));
        }
        let mut batch = Vec::new();
        for (kind, range, bytes) in &mut data {
            let at = range.start as u64..range.end as u64;
            match kind {
                0..=2 => batch.push(Request::write(at.start, bytes)),
                3 => batch.push(Request::write_zeroes(at)),
                4 => batch.push(Request::flush()),
                _ => batch.push(Request::read(at.start, bytes)),
            }
        }
        device.submit(&mut batch).expect("done");
        assert!(batch.iter().all(|request| request.status.is_done()));
        drop(batch);
        for (kind, range, bytes) in data {
            match kind {
                0..=2 => expected[range].copy_from_slice(&bytes),
                3 => expected[range].fill(0),
                4 => {}
                _ => assert!(bytes == expected[range.clone()], "seed {seed}: {range:?}"),
            }
        }
    }
    assert!(bytes_of(device) == expected, "seed {seed}");
    let mut told = vec![0; expected.len()];
    for run in data_runs(device, 0..device.size()) {
        let run = run.expect("told");
        let run = run.start as usize..run.end as usize;
        told[run.clone()].copy_from_slice(&expected[run]);
    }
    assert!(told == expected, "seed {seed}: a hole that is told has data");
    device.flush().expect("flushed");
}

#[test]
fn a_client_reads_and_writes_what_qemu_serves() {
    let scratch = Scratch::new();
    let image = scratch.join("image");
    fs::write(&image, vec![7; SIZE]).unwrap();
    for (seed, options) in [&["-f", "raw", "--shared=8"][..], &["-f", "raw", "--discard=unmap"]]
        .into_iter()
        .enumerate()
    {
        let Some((program, address)) = qemu_nbd(&scratch, options, &image) else {
            skip!("qemu-nbd is missing")
        };
        let client = Client::connect(&address, "", &writing()).expect("connected");
        assert_eq!(client.connections(), if seed == 0 { 4 } else { 1 });
        let mut expected = fs::read(&image).unwrap();
        use_it(&client, &mut expected, seed as u64, 1);
        client.discard(0..1 << 20).expect("discarded");
        client.write_zeroes(0..1 << 20).expect("zeroed");
        client.flush().expect("flushed");
        expected[..1 << 20].fill(0);
        assert!(fs::read(&image).unwrap() == expected);
        drop(client);
        drop(program);
    }
}

#[test]
fn a_client_tells_the_holes_that_qemu_maps() {
    let (Some(qemu_img), scratch) = (tool("qemu-img"), Scratch::new()) else {
        skip!("qemu-img is missing")
    };
    let mut bytes = vec![0; SIZE];
    for block in [0, 3, 4, 77, 300, 1023] {
        bytes[block * 4096..(block + 1) * 4096].fill((block % 250) as u8 + 1);
    }
    let raw = scratch.join("raw");
    fs::write(&raw, &bytes).unwrap();
    let image = scratch.join("image");
    let words = ["convert", "-f", "raw", "-O", "qcow2", "-o", "cluster_size=4k"];
    let words = words.map(str::to_owned).into_iter();
    let paths = [&raw, &image].map(|path| path.display().to_string());
    qemu_img.text(words.chain(paths)).unwrap();
    let Some((_program, address)) = qemu_nbd(&scratch, &["-f", "qcow2", "-r"], &image) else {
        skip!("qemu-nbd is missing")
    };
    assert!(matches!(Client::connect(&address, "", &writing()), Err(NbdError::ReadOnly)));
    let client = Client::connect(&address, "", &ClientOptions::default()).expect("connected");
    let runs = client.data_ranges(0..SIZE as u64).expect("told");
    let expected = [0..1, 3..5, 77..78, 300..301, 1023..1024];
    assert_eq!(runs, expected.map(|run| run.start * 4096..run.end * 4096));
    let first = client.next_data(5000..13_000).expect("told");
    assert_eq!(first, Some(12_288..13_000));
    assert!(bytes_of(&client) == bytes);
    assert!(client.write_at(0, &[1]).is_err());
}

/// Blocks of 4096 bytes at least, and one connection at a time without structured replies.
#[test]
fn a_client_keeps_to_the_blocks_of_nbdkit_and_to_its_simple_replies() {
    let Some(nbdkit) = tool("nbdkit") else { skip!("nbdkit is missing") };
    for (seed, words) in [
        "--filter=blocksize-policy memory 4M blocksize-minimum=4096 blocksize-preferred=4096 \
         blocksize-maximum=64k blocksize-error-policy=error",
        "--no-sr memory 4M",
        "--filter=nozero --filter=noextents memory 4M",
        "--filter=fua memory 4M fuamode=pass",
        "--filter=delay memory 4M rdelay=1ms",
        "--mask-handshake=0 memory 4M",
    ]
    .into_iter()
    .enumerate()
    {
        let scratch = Scratch::new();
        let socket = scratch.join("socket");
        let mut command = Command::new(nbdkit.path());
        command.args(["-f", "-U"]).arg(&socket).args(words.split_whitespace());
        let _program = Program::start(&mut command, &socket);
        let address = Address::Unix(socket);
        let client = Client::connect(&address, "", &writing());
        if words.contains("--mask-handshake=0") {
            assert!(matches!(client, Err(NbdError::OldStyle)));
            continue;
        }
        let client = client.unwrap_or_else(|error| panic!("{words}: {error}"));
        use_it(&client, &mut vec![0; SIZE], seed as u64, if seed == 4 { 512 } else { 1 });
    }
}

#[test]
fn a_client_says_what_is_wrong_with_an_export() {
    let Some(nbdkit) = tool("nbdkit") else { skip!("nbdkit is missing") };
    let scratch = Scratch::new();
    let socket = scratch.join("socket");
    let mut command = Command::new(nbdkit.path());
    command.args(["-f", "-U"]).arg(&socket);
    command.args(["--tls=require", "--tls-psk=/dev/null", "memory", "1M"]);
    let _program = Program::start(&mut command, &socket);
    let address = Address::Unix(socket);
    let error = Client::connect(&address, "", &ClientOptions::default()).expect_err("TLS");
    assert!(matches!(error, NbdError::Tls), "{error}");

    let device = Arc::new(MemoryDevice::new(1 << 20));
    let (running, address) = served(device, false, &scratch.join("ours"));
    let error = Client::connect(&address, "other", &writing()).expect_err("no such export");
    assert!(matches!(error, NbdError::NoExport { .. }), "{error}");
    Client::connect(&address, "disk", &writing()).expect("it has a name");
    running.stop();
    let error = Client::connect(&address, "disk", &writing()).expect_err("it is gone");
    assert_eq!(error.errno(), 2, "{error}");
}

#[test]
fn a_server_serves_qemu_and_itself() {
    let (Some(qemu_img), Some(qemu_io)) = (tool("qemu-img"), tool("qemu-io")) else {
        skip!("qemu-img is missing")
    };
    let scratch = Scratch::new();
    let image = scratch.join("image");
    let file = fs::File::create(&image).unwrap();
    file.set_len(SIZE as u64).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[3; 8192], 1 << 20).unwrap();
    let device = FileDeviceOptions::new().write(true).open(&image).expect("opened");
    let (running, address) = served(Arc::new(device), false, &scratch.join("socket"));
    let url = format!("nbd+unix:///disk?socket={address}");
    let done = |words: &str| {
        let words = words.split(' ').map(|word| word.replace('@', &url));
        qemu_img.text(words).unwrap_or_else(|error| panic!("{error}"))
    };
    let copy = scratch.join("copy").display().to_string();
    done(&format!("convert -f raw -O raw @ {copy}"));
    done(&format!("compare -f raw -F raw @ {copy}"));
    let map = done("map --output=json -f raw @");
    assert!(map.contains("\"start\": 1048576"), "{map}");
    for command in [
        "write -P 9 64k 3M",
        "write -z 128k 64k",
        "discard 1M 64k",
        "write -f -P 8 512 1024",
        "flush",
        "read -P 9 256k 4k",
    ] {
        let said = qemu_io.text(["-f", "raw", "-c", command, &url]).unwrap();
        assert!(!said.contains("failed"), "{command}: {said}");
    }
    done(&format!("convert -f raw -O raw @ {copy}"));
    assert!(fs::read(&image).unwrap() == fs::read(&copy).unwrap());

    let client = Client::connect(&address, "disk", &writing()).expect("connected");
    assert_eq!(client.connections(), 4);
    let mut expected = fs::read(&image).unwrap();
    use_it(&client, &mut expected, 5, 1);
    assert!(fs::read(&image).unwrap() == expected);
    if let (Some(nbdinfo), Some(nbdcopy)) = (tool("nbdinfo"), tool("nbdcopy")) {
        let said = nbdinfo.text([&url]).unwrap();
        for line in ["export-size: 4194304", "can_multi_conn: true", "can_fua: true"] {
            assert!(said.contains(line), "{said}");
        }
        assert_eq!(nbdinfo.text(["--size", &url]).unwrap().trim(), SIZE.to_string());
        assert!(nbdinfo.text(["--map", "--totals", &url]).unwrap().contains("data"));
        assert!(nbdinfo.text(["--list", &url]).unwrap().contains("export=\"disk\""));
        let copied = scratch.join("nbdcopy");
        nbdcopy.text([&url, copied.to_str().unwrap()]).unwrap();
        assert!(fs::read(&copied).unwrap() == expected);
        nbdcopy.text([&copy, &url]).unwrap();
        client.flush().unwrap();
        assert!(fs::read(&image).unwrap() == fs::read(&copy).unwrap());
    }
    drop(client);
    running.stop();
    assert!(!PathBuf::from(address.to_string()).exists(), "the socket is left");
}

#[test]
fn a_server_that_only_reads_refuses_changes() {
    let scratch = Scratch::new();
    let device = Arc::new(MemoryDevice::from_bytes(&[5; 1 << 20]));
    let (_running, address) = served(device, true, &scratch.join("socket"));
    let error = Client::connect(&address, "", &writing()).expect_err("read-only");
    assert_eq!(error.errno(), 30);
    let client = Client::connect(&address, "", &ClientOptions::default()).expect("connected");
    assert!(client.is_read_only() && bytes_of(&client) == [5; 1 << 20]);
    let Some(qemu_io) = tool("qemu-io") else { skip!("qemu-io is missing") };
    let url = format!("nbd+unix:///?socket={address}");
    let written = qemu_io.run(["-f", "raw", "-c", "write 0 4k", &url]);
    assert!(!written.status.success());
}

/// Threads use the connections at the same time, and none loses what another wrote.
#[test]
fn threads_share_the_connections() {
    let scratch = Scratch::new();
    let device = Arc::new(MemoryDevice::new(SIZE as u64));
    let (_running, address) = served(device, false, &scratch.join("socket"));
    let client = Client::connect(&address, "", &writing()).expect("connected");
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let client = &client;
            scope.spawn(move || {
                let start = thread * (SIZE as u64 / 8);
                for round in 0..40_u64 {
                    let data = vec![(thread * 40 + round) as u8; 20_000];
                    client.write_at(start + round, &data).expect("written");
                    let mut found = vec![0; data.len()];
                    client.read_at(start + round, &mut found).expect("read");
                    assert!(found == data);
                }
                client.flush().expect("flushed");
            });
        }
    });
}

/// The bytes that a real server sends to a client.
fn recorded(address: &Address, socket: &Path) -> Vec<u8> {
    let Address::Unix(real) = address.clone() else { unreachable!() };
    let listener = UnixListener::bind(socket).unwrap();
    let proxy = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = UnixStream::connect(real).unwrap();
        let (mut to, mut from) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let forward = std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
        let mut said = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = server.read(&mut buffer) {
            said.extend(&buffer[..count]);
            if client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        forward.join().unwrap();
        said
    });
    let options = ClientOptions { connections: 1, ..writing() };
    let client = Client::connect(&Address::Unix(socket.to_owned()), "", &options).unwrap();
    use_a_little(&client).unwrap();
    drop(client);
    proxy.join().unwrap()
}

fn use_a_little(client: &Client) -> Result<(), DeviceError> {
    let size = client.size().min(1 << 20);
    let mut buffer = vec![0; 8192.min(size as usize)];
    client.next_data(0..size)?;
    client.read_at(0, &mut buffer)?;
    client.write_at(0, &buffer)?;
    client.write_zeroes(0..size.min(4096))?;
    client.flush()
}

/// Whatever a server says, the client ends in time, with an error or with what it was told.
#[test]
fn a_server_may_say_anything() {
    let scratch = Scratch::new();
    let device = Arc::new(MemoryDevice::from_bytes(&[6; 1 << 18]));
    let (_running, address) = served(device, false, &scratch.join("real"));
    let said = recorded(&address, &scratch.join("proxy"));
    let socket = scratch.join("strange");
    let listener = UnixListener::bind(&socket).unwrap();
    let rounds = if std::env::var_os("EXTANT_SLOW").is_some() { 20_000 } else { 600 };
    let speaker = std::thread::spawn(move || {
        let mut random = Random::new(3);
        for round in 0..rounds {
            let (mut client, _) = listener.accept().unwrap();
            let mut said = said.clone();
            if round % 20 == 0 {
                said = (0..300).map(|_| random.below(256) as u8).collect();
            }
            for _ in 0..1 + random.below(3) {
                let limit = if random.below(3) == 0 { said.len() } else { 300.min(said.len()) };
                let at = random.below(limit);
                said[at] = [said[at] ^ (1 << random.below(8)), 0xff, 0][random.below(3)];
            }
            if random.below(8) == 0 {
                said.truncate(random.below(said.len()));
            }
            let _ = client.write_all(&said);
            let _ = client.shutdown(std::net::Shutdown::Write);
            let _ = client.set_read_timeout(Some(Duration::from_millis(200)));
            let _ = std::io::copy(&mut client, &mut std::io::sink());
        }
    });
    let options = ClientOptions {
        timeout: Duration::from_millis(500),
        connections: 1,
        reconnect: Duration::ZERO,
        ..writing()
    };
    let (mut refused, mut failed, mut done) = (0, 0, 0);
    for _ in 0..rounds {
        match Client::connect(&Address::Unix(socket.clone()), "", &options) {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
            Ok(client) => match use_a_little(&client) {
                Err(_) => failed += 1,
                Ok(()) => done += 1,
            },
        }
    }
    speaker.join().unwrap();
    eprintln!("{refused} refused, {failed} failed, {done} done");
    assert!(refused > 0 && failed > 0 && done > 0);
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let scratch = Scratch::new();
    let socket = scratch.join("silent");
    let listener = UnixListener::bind(&socket).unwrap();
    let options = ClientOptions { timeout: Duration::from_millis(100), ..writing() };
    let error = Client::connect(&Address::Unix(socket), "", &options).expect_err("silence");
    assert_eq!(error.to_string(), "the NBD server does not answer");
    drop(listener);
}

/// Whatever a client says, the server lives, and serves the next one.
#[test]
fn a_client_may_say_anything() {
    let scratch = Scratch::new();
    let device = Arc::new(MemoryDevice::from_bytes(&[6; 1 << 18]));
    let (running, address) = served(device, false, &scratch.join("socket"));
    let Address::Unix(socket) = &address else { unreachable!() };
    let mut random = Random::new(9);
    let options = |random: &mut Random| -> Vec<u8> {
        let mut said = vec![0, 0, 0, 3];
        for _ in 0..random.below(4) {
            said.extend(b"IHAVEOPT");
            said.extend([0, 0, 0, random.below(12) as u8]);
            let length = random.below(40);
            said.extend((length as u32).to_be_bytes());
            said.extend((0..length).map(|_| [0, 1, 4, 255][random.below(4)]));
        }
        // The export without a name, then requests.
        said.extend(b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0");
        for _ in 0..random.below(5) {
            said.extend([0x25, 0x60, 0x95, 0x13, 0, 0, 0, random.below(9) as u8]);
            said.extend((0..20).map(|_| [0, 0, 0, 1, 255][random.below(5)]));
        }
        said
    };
    for _ in 0..300 {
        let mut client = UnixStream::connect(socket).unwrap();
        let mut said = options(&mut random);
        if random.below(3) == 0 {
            let at = random.below(said.len());
            said[at] ^= 1 << random.below(8);
        }
        let _ = client.write_all(&said);
        let _ = client.shutdown(std::net::Shutdown::Write);
        let _ = client.set_read_timeout(Some(Duration::from_secs(5)));
        let _ = std::io::copy(&mut client, &mut std::io::sink());
    }
    let client = Client::connect(&address, "", &writing()).expect("it lives");
    assert_eq!(client.size(), 1 << 18);
    drop(client);
    running.stop();
}
