//! Connections that are lost: made again, with no write lost and no wrong byte; by a proxy that
//! cuts them, servers that end and come back, and servers that hang up.

use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use extant_device::{Device, DeviceError, MemoryDevice, Request};
use extant_nbd::{Address, Client, ClientOptions, Export, Listener, Running, Server};
use extant_runtime::Random;
use extant_testkit::{Scratch, skip, tool};

const SIZE: usize = 1 << 20;

fn writing() -> ClientOptions {
    ClientOptions {
        read_only: false,
        timeout: Duration::from_secs(60),
        reconnect: Duration::from_secs(60),
        ..ClientOptions::default()
    }
}

fn serve(device: Arc<dyn Device>, socket: &Path) -> Running {
    let listener = Listener::bind(&Address::Unix(socket.to_owned())).expect("a socket");
    let export = Export { name: "disk".to_owned(), device, read_only: false };
    Server::new(export, listener).start().expect("it runs")
}

fn connect(socket: &Path, options: &ClientOptions) -> Client {
    Client::connect(&Address::Unix(socket.to_owned()), "disk", options).expect("connected")
}

/// A disk with a cache: what was not flushed is lost when it fails.
#[derive(Debug)]
struct Cached {
    live: Mutex<Arc<MemoryDevice>>,
    medium: Mutex<Vec<u8>>,
}

impl Cached {
    fn new() -> Self {
        let live = Mutex::new(Arc::new(MemoryDevice::new(SIZE as u64)));
        Self { live, medium: Mutex::new(vec![0; SIZE]) }
    }

    fn lose_cache(&self) {
        let medium = self.medium.lock().unwrap();
        *self.live.lock().unwrap() = Arc::new(MemoryDevice::from_bytes(&medium));
    }
}

impl Device for Cached {
    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let live = self.live.lock().unwrap();
        live.submit(batch)?;
        let is_flush = |request: &Request<'_>| !request.is_change() && request.length() == 0;
        if batch.iter().any(is_flush) {
            let mut bytes = vec![0; SIZE];
            live.read_at(0, &mut bytes)?;
            *self.medium.lock().unwrap() = bytes;
        }
        Ok(())
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        Ok(Some(range).filter(|range| !range.is_empty()))
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn can_discard(&self) -> bool {
        true
    }
}

/// A proxy that ends each connection after some bytes, or at some requests.
struct Proxy {
    socket: PathBuf,
    /// Bytes of both directions after which a connection ends.
    limit: Arc<AtomicU64>,
    /// A request to read this byte ends the connection.
    refuses: Arc<AtomicU64>,
    cuts: Arc<AtomicU64>,
}

impl Proxy {
    fn start(scratch: &Scratch, to: &Path) -> Self {
        let socket = scratch.join("proxy");
        let listener = UnixListener::bind(&socket).unwrap();
        let [limit, refuses, cuts] = [u64::MAX, u64::MAX, 0].map(|it| Arc::new(AtomicU64::new(it)));
        let shared = (limit.clone(), refuses.clone(), cuts.clone());
        let to = to.to_owned();
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, UnixStream::connect(&to)) else { continue };
                let left = Arc::new(AtomicU64::new(shared.0.load(Relaxed)));
                let is_cut = Arc::new(AtomicBool::new(false));
                let ways = [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)];
                for (input, output) in ways {
                    let (refuses, cuts) = (shared.1.clone(), shared.2.clone());
                    let (left, is_cut) = (left.clone(), is_cut.clone());
                    std::thread::spawn(move || {
                        let cut = || {
                            if !is_cut.swap(true, Relaxed) {
                                cuts.fetch_add(1, Relaxed);
                            }
                        };
                        forward(input, output, &left, &refuses, &cut);
                    });
                }
            }
        });
        Self { socket, limit, refuses, cuts }
    }
}

fn forward(
    mut input: UnixStream,
    mut output: UnixStream,
    left: &AtomicU64,
    refuses: &AtomicU64,
    cut: &dyn Fn(),
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = input.read(&mut buffer) {
        let mut bytes = &buffer[..count];
        let wanted = refuses.load(Relaxed);
        let is_refused = bytes.windows(28).any(|header| {
            header.starts_with(&[0x25, 0x60, 0x95, 0x13])
                && header[6..8] == [0, 0]
                && header[16..24] == wanted.to_be_bytes()
        });
        let rest = left.load(Relaxed);
        if is_refused || rest < count as u64 {
            bytes = &bytes[..if is_refused { 0 } else { rest as usize }];
            cut();
        } else if rest != u64::MAX {
            left.fetch_sub(count as u64, Relaxed);
        }
        if output.write_all(bytes).is_err() || bytes.len() < count {
            break;
        }
    }
    let _ = output.shutdown(std::net::Shutdown::Both);
    let _ = input.shutdown(std::net::Shutdown::Both);
}

/// Random requests on a part of the device and on its bytes in memory.
fn use_part(device: &dyn Device, part: Range<usize>, expected: &mut [u8], seed: u64, rounds: u64) {
    let mut random = Random::new(seed);
    for round in 0..rounds {
        let start = part.start + random.below(part.len());
        let end = part.end.min(start + 1 + random.below(20_000));
        let within = start - part.start..end - part.start;
        match random.below(8) {
            0..=3 => {
                let bytes = vec![random.below(256) as u8; end - start];
                device.write_at(start as u64, &bytes).expect("written");
                expected[within].copy_from_slice(&bytes);
            }
            4 => {
                device.write_zeroes(start as u64..end as u64).expect("zeroed");
                expected[within].fill(0);
            }
            5 => device.flush().expect("flushed"),
            _ => {
                let mut found = vec![0; end - start];
                device.read_at(start as u64, &mut found).expect("read");
                assert!(found == expected[within], "seed {seed}, round {round}: {start}..{end}");
            }
        }
    }
    device.flush().expect("flushed");
}

#[test]
fn connections_that_are_cut_anywhere_are_made_again() {
    let rounds = if std::env::var_os("EXTANT_SLOW").is_some() { 40 } else { 6 };
    for seed in 0..rounds {
        let scratch = Scratch::new();
        let device = Arc::new(MemoryDevice::new(SIZE as u64));
        let server = serve(device.clone(), &scratch.join("socket"));
        let proxy = Proxy::start(&scratch, &scratch.join("socket"));
        let client = connect(&proxy.socket, &writing());
        // The handshake and some requests fit; then others do not.
        proxy.limit.store(200_000 + seed * 1777, Relaxed);
        let client = {
            drop(client);
            connect(&proxy.socket, &writing())
        };
        let mut expected = vec![0; SIZE];
        use_part(&client, 0..SIZE, &mut expected, seed, 300);
        assert!(proxy.cuts.load(Relaxed) > 3, "{}", proxy.cuts.load(Relaxed));
        proxy.limit.store(u64::MAX, Relaxed);
        let mut found = vec![1; SIZE];
        client.read_at(0, &mut found).expect("read");
        assert!(found == expected, "seed {seed}");
        drop(client);
        server.stop();
        device.read_at(0, &mut found).expect("read");
        assert!(found == expected, "seed {seed}");
    }
}

/// The server ends and loses its cache while threads write: what they wrote and flushed is there.
#[test]
fn no_write_is_lost_when_a_server_ends_and_comes_back() {
    const THREADS: usize = 4;
    let ends = if std::env::var_os("EXTANT_SLOW").is_some() { 200 } else { 15 };
    let scratch = Scratch::new();
    let socket = scratch.join("socket");
    let disk = Arc::new(Cached::new());
    let server = serve(disk.clone(), &socket);
    let client = connect(&socket, &writing());
    assert!(client.connections() >= 1);
    let is_over = AtomicBool::new(false);
    let mut expected = vec![vec![0; SIZE / THREADS]; THREADS];
    let server = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let (mut server, mut random) = (server, Random::new(1));
            for _ in 0..ends {
                std::thread::sleep(Duration::from_millis(5 + random.below(30) as u64));
                server.stop();
                disk.lose_cache();
                server = serve(disk.clone(), &socket);
            }
            is_over.store(true, Relaxed);
            server
        });
        for (thread, expected) in expected.iter_mut().enumerate() {
            let (client, is_over) = (&client, &is_over);
            scope.spawn(move || {
                let part = thread * SIZE / THREADS..(thread + 1) * SIZE / THREADS;
                let mut seed = thread as u64;
                while !is_over.load(Relaxed) {
                    use_part(client, part.clone(), expected, seed, 40);
                    seed += THREADS as u64;
                }
            });
        }
        killer.join().expect("it ends")
    });
    client.flush().expect("flushed");
    drop(client);
    server.stop();
    disk.lose_cache();
    let medium = disk.medium.lock().unwrap();
    assert!(*medium == expected.concat(), "a write is lost");
}

#[test]
fn a_server_that_is_gone_is_an_error_until_it_is_back() {
    let scratch = Scratch::new();
    let socket = scratch.join("socket");
    let disk = Arc::new(Cached::new());
    let server = serve(disk.clone(), &socket);
    let options = ClientOptions { reconnect: Duration::from_millis(100), ..writing() };
    let client = connect(&socket, &options);
    client.write_at(4096, &[7; 4096]).expect("written");
    server.stop();
    disk.lose_cache();
    let error = client.read_at(0, &mut [0; 512]).expect_err("it is gone").to_string();
    assert!(error.contains("the connection to the NBD server is lost"), "{error}");
    client.flush().expect_err("it is gone");
    let server = serve(disk.clone(), &socket);
    client.flush().expect("it is back, and has what it had lost");
    let mut found = [0; 4096];
    client.read_at(4096, &mut found).expect("read");
    assert_eq!(found, [7; 4096]);
    server.stop();
    assert!(disk.medium.lock().unwrap()[4096..8192] == [7; 4096]);

    // Another disk is not taken for it, then or later.
    let other = serve(Arc::new(MemoryDevice::new(2 << 20)), &socket);
    let error = client.read_at(0, &mut [0; 512]).expect_err("another").to_string();
    assert!(error.contains("is another than the one that was opened"), "{error}");
    other.stop();
    let server = serve(disk, &socket);
    client.flush().expect_err("it stays an error");
    server.stop();
    // Without reconnecting a loss is the end.
    let disk = Arc::new(MemoryDevice::new(SIZE as u64));
    let server = serve(disk.clone(), &socket);
    let client = connect(&socket, &ClientOptions { reconnect: Duration::ZERO, ..writing() });
    server.stop();
    client.read_at(0, &mut [0; 512]).expect_err("it is gone");
    let server = serve(disk, &socket);
    client.read_at(0, &mut [0; 512]).expect_err("it stays an error");
    server.stop();
}

/// A server may hang up on a request that it does not like: it fails, and others go on.
#[test]
fn one_request_that_a_server_hangs_up_on_is_one_error() {
    let scratch = Scratch::new();
    let bytes: Vec<u8> = (0..SIZE).map(|at| (at / 4096) as u8).collect();
    let server = serve(Arc::new(MemoryDevice::from_bytes(&bytes)), &scratch.join("socket"));
    let proxy = Proxy::start(&scratch, &scratch.join("socket"));
    proxy.refuses.store(5 * 4096, Relaxed);
    let client = connect(&proxy.socket, &writing());
    let mut pages = vec![[0_u8; 4096]; 12];
    let requests = pages.iter_mut().enumerate();
    let mut batch: Vec<_> =
        requests.map(|(page, buffer)| Request::read(page as u64 * 4096, buffer)).collect();
    client.submit(&mut batch).expect_err("one fails");
    let done: Vec<bool> = batch.iter().map(|request| request.status.is_done()).collect();
    drop(batch);
    for (page, is_done) in done.into_iter().enumerate() {
        assert_eq!(is_done, page != 5, "{page}");
        if is_done {
            assert_eq!(pages[page], [page as u8; 4096]);
        }
    }
    client.read_at(9 * 4096, &mut [0; 4096]).expect("others are read");
    drop(client);
    server.stop();
}

/// A server of another program, killed in the end.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    fn start(command: &mut Command, socket: &Path) -> Self {
        let _ = std::fs::remove_file(socket);
        let program = Self(command.stderr(Stdio::null()).spawn().expect("it starts"));
        let started = Instant::now();
        while UnixStream::connect(socket).is_err() {
            assert!(started.elapsed() < Duration::from_secs(60), "{}", socket.display());
            std::thread::sleep(Duration::from_millis(10));
        }
        program
    }
}

/// qemu-nbd lets a client wait that is one too many.
#[test]
fn connections_that_a_server_does_not_take_are_not_waited_for() {
    let Some(qemu) = tool("qemu-nbd") else { skip!("qemu-nbd is missing") };
    let scratch = Scratch::new();
    let (image, socket) = (scratch.join("image"), scratch.join("socket"));
    std::fs::write(&image, vec![3; SIZE]).unwrap();
    let mut command = Command::new(qemu.path());
    command.args(["-t", "-f", "raw", "--shared=2", "-k"]).arg(&socket).arg(&image);
    let _program = Program::start(&mut command, &socket);
    let started = Instant::now();
    let client = Client::connect(&Address::Unix(socket), "", &writing()).expect("connected");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(client.connections() <= 2);
    let mut found = vec![0; SIZE];
    client.read_at(0, &mut found).expect("read");
    assert!(found == vec![3; SIZE]);
}

/// A server without a flush, whose writes cannot be made sure: the next flush tells of the loss.
#[test]
fn a_loss_that_cannot_be_made_good_is_an_error_of_the_next_flush() {
    let Some(nbdkit) = tool("nbdkit") else { skip!("nbdkit is missing") };
    let scratch = Scratch::new();
    let (image, socket) = (scratch.join("image"), scratch.join("socket"));
    std::fs::write(&image, vec![0; SIZE]).unwrap();
    let file = image.display();
    let start = || {
        let mut command = Command::new(nbdkit.path());
        command.args(["-f", "-U"]).arg(&socket).args([
            "eval",
            &format!("get_size=echo {SIZE}"),
            &format!("pread=dd if={file} skip=$4 count=$3 iflag=skip_bytes,count_bytes"),
            &format!("pwrite=dd of={file} seek=$4 oflag=seek_bytes conv=notrunc"),
            "can_write=exit 0",
            "can_flush=exit 3",
            "can_fua=echo none",
        ]);
        Program::start(&mut command, &socket)
    };
    let program = start();
    let address = Address::Unix(socket.clone());
    let client = Client::connect(&address, "", &writing()).expect("connected");
    client.write_at(0, &[1; 4096]).expect("written");
    client.flush().expect("nothing is known to be lost");
    client.write_at(4096, &[2; 4096]).expect("written");
    drop(program);
    let _program = start();
    client.read_at(0, &mut [0; 512]).expect("it is back");
    let error = client.flush().expect_err("a write may be lost").to_string();
    assert!(error.contains("writes since the last flush may be lost"), "{error}");
    client.flush().expect("it is told once");
}
