//! Cells on this machine: a process for each.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, thread};

use super::error::{RunError, failed};
use super::executor::{Ended, Executor, Failure, Watch};
use super::isolate::Isolation;
use super::memory::MemoryLimit;
use crate::cell::{Cell, Message};
use crate::sample::{MEMORY_PEAK, WHOLE};

/// How often a cell is polled.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// This machine: a process for each cell.
#[derive(Debug)]
pub struct Here {
    isolation: Isolation,
}

impl Here {
    /// With the best isolation that works.
    pub fn found() -> Self {
        Self { isolation: Isolation::found() }
    }
}

impl Executor for Here {
    fn is_isolated(&self) -> bool {
        self.isolation != Isolation::None
    }

    fn is_guest(&self) -> bool {
        false
    }

    fn one(&mut self, cell: &Cell, watch: &mut dyn Watch) -> Result<Ended, RunError> {
        one(cell, self.isolation, watch)
    }
}

/// Runs a cell in its process.
pub(super) fn one(
    cell: &Cell,
    isolation: Isolation,
    watch: &mut dyn Watch,
) -> Result<Ended, RunError> {
    fs::create_dir_all(&cell.scratch).map_err(failed(cell.scratch.display()))?;
    let limit = match cell.memory().map(MemoryLimit::new).transpose() {
        Ok(limit) => limit,
        Err(why) => return Ok(Err(why.into())),
    };
    let mut command = isolation.command(&cell.program);
    command.args(["lab", "cell"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed(cell.program.display()))?;
    let mut orders = child.stdin.take().expect("it was asked for");
    let said = child.stdout.take().expect("it was asked for");
    let complained = child.stderr.take().expect("it was asked for");
    let complaints = thread::spawn(move || io::read_to_string(complained).unwrap_or_default());
    let (sender, messages) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let joined = Cell { joins: limit.as_ref().map(MemoryLimit::members), ..cell.clone() };
    let mut order = serde_json::to_vec(&joined).expect("a cell is plain data");
    order.push(b'\n');
    // A child that has ended already is reported below.
    let _ = orders.write_all(&order);
    let mut samples = Vec::new();
    let outcome = loop {
        if watch.is_interrupted() {
            end(&mut child);
            return Err(RunError::Interrupted);
        }
        let line = match messages.recv_timeout(POLL) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Timeout) => continue,
            Err(mpsc::RecvTimeoutError::Disconnected) => break None,
        };
        match serde_json::from_str(&line) {
            Ok(Message::Phase(phase)) => watch.phase(cell, &phase),
            Ok(Message::Sample(sample)) => samples.push(sample),
            Ok(Message::Failed(why)) => break Some(Err(why)),
            Ok(Message::Done) => break Some(Ok(samples)),
            Err(error) => {
                break Some(Err(format!("invalid line from the cell: {line:?}: {error}")));
            }
        }
    };
    drop(orders);
    if outcome.is_some() {
        let _ = child.wait();
    } else {
        end(&mut child);
    }
    let complaint = complaints.join().unwrap_or_default();
    let killed = limit.as_ref().map_or(0, MemoryLimit::killed);
    let ended = outcome.unwrap_or_else(|| {
        let last = complaint.lines().rev().find(|line| !line.trim().is_empty());
        Err(match last.filter(|_| killed == 0) {
            Some(last) => format!("the cell's process died: {last}"),
            None => "the cell's process died".to_owned(),
        })
    });
    Ok(match (ended, limit) {
        (Ok(samples), None) => Ok(samples),
        (Ok(mut samples), Some(limit)) => {
            let peak = limit.peak().map(|bytes| cell.sample(WHOLE, MEMORY_PEAK, bytes as f64));
            samples.extend(peak);
            Ok(samples)
        }
        (Err(why), _) if killed > 0 => Err(Failure {
            why: format!(
                "run {}: {why} (out of memory: the kernel killed {killed} of its processes)",
                cell.run
            ),
            is_want_of_memory: true,
        }),
        (Err(why), _) => Err(why.into()),
    })
}

/// Ends a process that may have ended already; with it go its mounts and its children.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
