//! QEMU's process: a disk, one port, a console that is kept in a file.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::agent::Hello;
use super::{Trying, VmError};
use crate::environment::is_there;

/// The program.
pub const QEMU: &str = "qemu-system-x86_64";
/// The package that it is in.
const PACKAGE: &str = "qemu-system-x86";
/// Timeout for a guest's first message.
const KVM_PATIENCE: Duration = Duration::from_secs(30);
const EMULATION_PATIENCE: Duration = Duration::from_secs(240);
/// How often the observer is asked whether to continue.
const POLL: Duration = Duration::from_millis(100);

/// Accelerators of a guest's processors.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Acceleration {
    /// KVM where a guest starts with it, else emulation.
    #[default]
    Auto,
    /// The processor itself.
    Kvm,
    /// QEMU's translation: times are not comparable with those of real machines.
    Emulation,
}

impl FromStr for Acceleration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "kvm" => Ok(Self::Kvm),
            "emulation" | "tcg" => Ok(Self::Emulation),
            _ => Err("there are auto, kvm and emulation".to_owned()),
        }
    }
}

impl fmt::Display for Acceleration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Auto => "auto",
            Self::Kvm => "KVM",
            Self::Emulation => "emulation (QEMU's TCG: its times are not those of a machine)",
        })
    }
}

/// Settings of a machine.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) kernel: PathBuf,
    pub(super) initrd: PathBuf,
    pub(super) disk: PathBuf,
    pub(super) console: PathBuf,
    pub(super) memory: u64,
    pub(super) processors: u32,
}

impl Parts {
    /// Words for QEMU.
    fn words(&self, acceleration: Acceleration) -> Vec<String> {
        let (accel, processor) = match acceleration {
            Acceleration::Kvm => ("kvm", "host"),
            _ => ("tcg", "max"),
        };
        let cache = if self.goes_around_the_page_cache() { "none" } else { "writeback" };
        let disk = format!(
            "file={},if=none,id=disk,format=raw,cache={cache},aio=threads,discard=unmap",
            escaped(&self.disk)
        );
        let words = [
            ("-accel", accel.to_owned()),
            ("-cpu", processor.to_owned()),
            ("-m", format!("{}M", self.memory >> 20)),
            ("-smp", self.processors.to_string()),
            ("-kernel", self.kernel.to_string_lossy().into_owned()),
            ("-initrd", self.initrd.to_string_lossy().into_owned()),
            ("-append", "console=ttyS0 panic=-1 loglevel=5".to_owned()),
            ("-serial", format!("file:{}", self.console.display())),
            ("-device", "virtio-serial-pci".to_owned()),
            ("-chardev", "stdio,id=lab,signal=off".to_owned()),
            ("-device", "virtserialport,chardev=lab,name=extant-lab".to_owned()),
            ("-drive", disk),
            // If the host's disk is full the guest gets an error; by default it would pause.
            ("-device", "virtio-blk-pci,drive=disk,werror=report,rerror=report".to_owned()),
        ];
        let fixed = ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"];
        let pairs = words.into_iter().flat_map(|(option, value)| [option.to_owned(), value]);
        fixed.map(str::to_owned).into_iter().chain(pairs).collect()
    }

    /// Whether the disk's file can be read and written without the host's page cache.
    pub(super) fn goes_around_the_page_cache(&self) -> bool {
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&self.disk).is_ok()
    }
}

/// In QEMU's options a comma is written twice.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// A guest that runs; it ends when this is dropped.
pub(super) struct Machine {
    child: Child,
    orders: ChildStdin,
    said: Receiver<String>,
    console: PathBuf,
}

/// The result of waiting.
pub(super) enum Heard {
    Line(String),
    Nothing,
    /// Why it ended.
    Ended(String),
}

impl Machine {
    /// Starts a machine and waits until its guest has described itself; returns also its
    /// accelerator. `None`: it was interrupted.
    pub(super) fn boot(
        parts: &Parts,
        acceleration: Acceleration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<(Self, Hello, Acceleration)>, VmError> {
        if !is_there(QEMU) {
            return Err(VmError(format!("{QEMU} is not there: apt-get install {PACKAGE}")));
        }
        let has_kvm = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
        let tried: &[Acceleration] = match acceleration {
            Acceleration::Auto if has_kvm => &[Acceleration::Kvm, Acceleration::Emulation],
            Acceleration::Auto => &[Acceleration::Emulation],
            Acceleration::Kvm => &[Acceleration::Kvm],
            Acceleration::Emulation => &[Acceleration::Emulation],
        };
        let mut why = VmError("nothing was tried".to_owned());
        for acceleration in tried {
            let mut machine = Self::start(parts, *acceleration)?;
            match machine.hello(*acceleration, is_interrupted) {
                Ok(hello) => return Ok(hello.map(|hello| (machine, hello, *acceleration))),
                Err(error) => {
                    why = VmError(format!("cannot start a guest with {acceleration}: {error}"))
                }
            }
        }
        Err(why)
    }

    fn start(parts: &Parts, acceleration: Acceleration) -> Result<Self, VmError> {
        let words = parts.words(acceleration);
        // With setpriv the kernel ends the machine when we end, however that is.
        let mut command = match is_there("setpriv") {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL", "--", QEMU]);
                command
            }
            false => Command::new(QEMU),
        };
        let errors = parts.console.with_extension("errors");
        let errors = fs::File::create(&errors).trying(errors.display())?;
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        // A terminal's signals go to us.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().trying(QEMU)?;
        let orders = child.stdin.take().expect("it was asked for");
        let out = child.stdout.take().expect("it was asked for");
        let (sender, said) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, orders, said, console: parts.console.clone() })
    }

    fn hello(
        &mut self,
        acceleration: Acceleration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Hello>, VmError> {
        let patience = match acceleration {
            Acceleration::Kvm => KVM_PATIENCE,
            _ => EMULATION_PATIENCE,
        };
        let start = Instant::now();
        loop {
            match self.hear() {
                Heard::Line(line) => {
                    return serde_json::from_str(&line).map(Some).trying("the guest's hello");
                }
                Heard::Ended(why) => return Err(VmError(why)),
                Heard::Nothing if is_interrupted() => return Ok(None),
                Heard::Nothing if start.elapsed() > patience => {
                    let last = self.last_words();
                    return Err(VmError(format!("no output for {} s{last}", patience.as_secs())));
                }
                Heard::Nothing => {}
            }
        }
    }

    /// Gives an order, a line.
    pub(super) fn order(&mut self, line: &[u8]) -> io::Result<()> {
        self.orders.write_all(line)?;
        self.orders.flush()
    }

    /// The guest's next message, if it comes soon.
    pub(super) fn hear(&mut self) -> Heard {
        match self.said.recv_timeout(POLL) {
            Ok(line) => Heard::Line(line),
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => {
                let _ = self.child.wait();
                Heard::Ended(format!("the guest ended{}", self.last_words()))
            }
        }
    }

    /// The last line of output of QEMU or the guest's kernel.
    pub(super) fn last_words(&self) -> String {
        let read = |path: &Path| {
            let text = fs::read(path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
            last.map(|line| format!("; last output: {line}"))
        };
        let errors = self.console.with_extension("errors");
        read(&errors).or_else(|| read(&self.console)).unwrap_or_default()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_qemu_name_every_part() {
        let parts = Parts {
            kernel: "/c/vmlinuz".into(),
            initrd: "/o/initrd".into(),
            disk: "/no/such,dir/disk".into(),
            console: "/o/console".into(),
            memory: 1 << 30,
            processors: 2,
        };
        let words = parts.words(Acceleration::Kvm).join(" ");
        for expected in [
            "-accel kvm -cpu host -m 1024M -smp 2 -kernel /c/vmlinuz -initrd /o/initrd",
            "-serial file:/o/console",
            "-drive file=/no/such,,dir/disk,if=none,id=disk,format=raw,cache=writeback",
            "-device virtio-blk-pci,drive=disk,werror=report",
            "-no-reboot",
        ] {
            assert!(words.contains(expected), "{expected}: {words}");
        }
        assert!(parts.words(Acceleration::Emulation).join(" ").contains("-accel tcg -cpu max"));
    }

    #[test]
    fn accelerations_have_names() {
        assert_eq!("kvm".parse(), Ok(Acceleration::Kvm));
        assert_eq!("emulation".parse(), Ok(Acceleration::Emulation));
        assert_eq!("xen".parse::<Acceleration>(), Err("there are auto, kvm and emulation".into()));
        assert!(Acceleration::Emulation.to_string().contains("not those of a machine"));
    }
}
