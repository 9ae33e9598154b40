//! The guest's side: orders come on standard input, messages of cells go to standard output.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use serde::{Deserialize, Serialize};

use super::modules;
use crate::cell::{Cell, Message};
use crate::environment::Environment;
use crate::run::{Executor, Here, Watch, call_overhead, clean, overhead};
use crate::target::LabTarget;

/// Modules to load, in the guest.
pub(super) const ORDERS: &str = "lib/modules/orders.json";
/// The guest's disk.
pub(super) const DISK: &str = "/dev/vda";
/// Where cells have their mount points.
pub(super) const SCRATCH: &str = "/run/extant-lab";

const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The first line: the guest's description.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Hello {
    pub(super) environment: Environment,
    pub(super) clock: String,
    pub(super) overhead_seconds: f64,
    pub(super) call_overhead_seconds: f64,
}

/// The guest's process: what `extant lab guest` does.
///
/// # Errors
/// The port is closed.
pub fn serve() -> io::Result<()> {
    let clock = fs::read_to_string(CLOCK).unwrap_or_default().trim().to_owned();
    let environment = Environment::here("/".as_ref());
    say(&Hello {
        environment,
        clock,
        overhead_seconds: overhead(),
        call_overhead_seconds: call_overhead(),
    })?;
    let mut modules = Modules::read()?;
    let gone = Arc::new(AtomicBool::new(false));
    let orders = orders(gone.clone());
    for cell in orders {
        let ended = match modules.load(&cell.target) {
            Ok(()) => measure(&cell, &gone)?,
            Err(why) => Err(why),
        };
        clean(&cell);
        match ended {
            Ok(samples) => {
                for sample in samples {
                    say(&Message::Sample(sample))?;
                }
                say(&Message::Done)?;
            }
            Err(why) => say(&Message::Failed(why))?,
        }
    }
    Ok(())
}

/// Cells as they come; when there are no more, the host has gone.
fn orders(gone: Arc<AtomicBool>) -> mpsc::Receiver<Cell> {
    let (sender, orders) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(cell) = serde_json::from_str(&line) else { break };
            if sender.send(cell).is_err() {
                break;
            }
        }
        gone.store(true, Ordering::Relaxed);
    });
    orders
}

fn measure(
    cell: &Cell,
    gone: &Arc<AtomicBool>,
) -> io::Result<Result<Vec<crate::sample::Sample>, String>> {
    // Punches the disk's file on the host empty; if that is impossible, mkfs overwrites the old
    // contents.
    let _ = quiet(Command::new("blkdiscard").args(["-f", DISK]));
    let mut forward = Forward { gone: gone.clone() };
    let ended = Here::found().one(cell, &mut forward).map_err(io::Error::other)?;
    Ok(ended.map_err(|failure| failure.why))
}

fn quiet(command: &mut Command) -> io::Result<std::process::Output> {
    command.stdin(Stdio::null()).output()
}

fn say(what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

/// Reports the progress to the host.
struct Forward {
    gone: Arc<AtomicBool>,
}

impl Watch for Forward {
    fn begins(&mut self, _: usize, _: usize, _: &Cell, _: Option<f64>) {}

    fn phase(&mut self, _: &Cell, phase: &str) {
        if say(&Message::Phase(phase.to_owned())).is_err() {
            self.gone.store(true, Ordering::Relaxed);
        }
    }

    fn ended(&mut self, _: &Cell, _: Result<f64, &str>) {}

    fn is_interrupted(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

/// Modules by what is loaded for them, and those that are.
struct Modules {
    orders: BTreeMap<String, Vec<String>>,
    loaded: BTreeSet<String>,
}

impl Modules {
    fn read() -> io::Result<Self> {
        let orders = serde_json::from_slice(&fs::read(format!("/{ORDERS}"))?)?;
        let first = fs::read_to_string("/lib/modules/first")?;
        Ok(Self { orders, loaded: first.lines().map(str::to_owned).collect() })
    }

    /// Requirements of a target, and modules that speed it up if the processor supports them.
    fn load(&mut self, target: &LabTarget) -> Result<(), String> {
        for name in modules::wanted_by(target) {
            let _ = self.load_one(name);
        }
        modules::needed_by(target).into_iter().try_for_each(|name| self.load_one(name))
    }

    fn load_one(&mut self, name: &str) -> Result<(), String> {
        let Some(order) = self.orders.get(name) else {
            return Err(format!("the guest's kernel has no module {name}"));
        };
        for module in order {
            if self.loaded.contains(module) {
                continue;
            }
            let path = format!("/lib/modules/{module}.ko");
            let output = quiet(Command::new("insmod").arg(path));
            let output = output.map_err(|error| format!("insmod: {error}"))?;
            if !output.status.success() {
                let why = String::from_utf8_lossy(&output.stderr);
                return Err(format!("insmod {module}: {}", why.trim()));
            }
            self.loaded.insert(module.clone());
        }
        Ok(())
    }
}
