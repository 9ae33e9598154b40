//! Direct I/O, and what the kernel's cache holds then.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use extant_testkit::{Scratch, e2fsck_fn, skip, tool};

use super::{Mount, can_mount, image};

/// Overwrites a file by ten asynchronous writes with O_DIRECT at once (libaio's calls), a new byte
/// each round. After every few rounds the kernel's cache must come to hold what was written,
/// without another write.
const OVERWRITES: &str = r"
import ctypes, mmap, os, struct, sys, time
SETUP, GETEVENTS, SUBMIT = {'x86_64': (206, 208, 209)}.get(os.uname().machine, (0, 4, 2))
COUNT, PIECE, PWRITE = 10, 65536, 1
call = ctypes.CDLL(None, use_errno=True).syscall
call.restype = ctypes.c_long
call.argtypes = [ctypes.c_long] * 6
context = ctypes.c_ulong()
assert call(SETUP, 32, ctypes.addressof(context), 0, 0, 0) == 0
file = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
cached = os.open(sys.argv[1], os.O_RDONLY)
area = mmap.mmap(-1, COUNT * PIECE)
at = ctypes.addressof(ctypes.c_char.from_buffer(area))
blocks = (ctypes.c_char * 64 * COUNT)()
pointers = (ctypes.c_void_p * COUNT)(*[ctypes.addressof(block) for block in blocks])
events = (ctypes.c_char * 32 * COUNT)()
for index, block in enumerate(blocks):
    block.raw = struct.pack('=QIiHhIQQqQII', 0, 0, 0, PWRITE, 0, file, at + index * PIECE, PIECE,
                            index * PIECE, 0, 0, 0)
for round in range(1, 421):
    area[:] = bytes([round & 255]) * len(area)
    assert call(SUBMIT, context.value, COUNT, ctypes.addressof(pointers), 0, 0) == COUNT
    assert call(GETEVENTS, context.value, COUNT, COUNT, ctypes.addressof(events), 0) == COUNT
    for event in events:
        assert struct.unpack('=QQqq', event.raw)[2] == PIECE
    if round % 6 == 0:
        end = time.monotonic() + 10
        while os.pread(cached, len(area), 0) != area[:]:
            assert time.monotonic() < end, f'round {round}: the cache holds something else'
            time.sleep(0.002)
";

/// The kernel itself drops what was read while such a write was under way for synchronous ones
/// only.
#[test]
fn the_cache_holds_what_asynchronous_writes_past_it_have_written() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let Some(python) = tool("python3") else { skip!("no python3 here") };
    for options in [&[][..], &["-o", "nowriteback_cache"][..]] {
        let scratch = Scratch::new();
        let image = image(&scratch, &["-t", "ext4"], "64M");
        let mount = Mount::new(&scratch, &image, options);
        let path = mount.path().join("file");
        fs::write(&path, vec![0; 640 << 10]).expect("write");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        assert_eq!(fs::read(&path).expect("read").len(), 640 << 10);
                    }
                });
            }
            let mut command = Command::new("timeout");
            command.args(["-k", "5", "60"]).arg(python.path()).args(["-c", OVERWRITES]);
            let output = command.arg(&path).output().expect("timeout runs");
            is_over.store(true, Ordering::Relaxed);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{options:?}: {said}");
        });
        mount.unmount();
        e2fsck_fn(&image).expect("healthy");
    }
}
