//! Recorder of the samples that a cell measures.

use std::fmt::Display;

use super::error::CellError;
use super::protocol::{Cell, Message};
use super::volume::MountedVolume;
use crate::clock::Clock;
use crate::cpu::Cpu;
use crate::sample::{SKIPPED, Sample};

/// Hands samples on as they come.
pub(super) struct Recorder<'c> {
    cell: &'c Cell,
    say: &'c mut dyn FnMut(Message),
    clock: Clock,
}

impl<'c> Recorder<'c> {
    pub(super) fn new(cell: &'c Cell, say: &'c mut dyn FnMut(Message)) -> Self {
        Self { cell, say, clock: Clock::default() }
    }

    /// Measures by the clock of the volume in use from now on.
    pub(super) fn follow(&mut self, mounted: &MountedVolume) {
        self.clock = mounted.clock.clone();
        if let Some(why) = &mounted.cached {
            self.skip("mount", why);
        }
    }

    /// The clock of the measurements.
    pub(super) fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Announces the current phase to the observer.
    pub(super) fn announce(&mut self, phase: &str) {
        (self.say)(Message::Phase(phase.to_owned()));
    }

    /// A figure.
    pub(super) fn record(&mut self, phase: &str, metric: &str, value: f64) {
        self.record_at(phase, metric, value, None);
    }

    /// A figure at a place of a curve.
    pub(super) fn record_at(&mut self, phase: &str, metric: &str, value: f64, at: Option<f64>) {
        // The rate of a phase that took no time is not finite.
        if value.is_finite() {
            let sample = self.cell.sample(phase, metric, value);
            (self.say)(Message::Sample(Sample { at, ..sample }));
        }
    }

    /// Records a part that could not be done, with its reason; the cell continues.
    pub(super) fn skip(&mut self, phase: &str, why: impl Display) {
        let sample = self.cell.sample(phase, SKIPPED, 1.0);
        (self.say)(Message::Sample(Sample { why: Some(why.to_string()), ..sample }));
    }

    /// Runs `work` and records its duration and the processor time used during it. Returns the
    /// seconds too.
    pub(super) fn timed<T>(
        &mut self,
        phase: &str,
        work: impl FnOnce() -> Result<T, CellError>,
    ) -> Result<(T, f64), CellError> {
        self.timed_somewhere(phase, None, work)
    }

    /// The same, at a place of a curve.
    pub(super) fn timed_at<T>(
        &mut self,
        phase: &str,
        at: f64,
        work: impl FnOnce() -> Result<T, CellError>,
    ) -> Result<(T, f64), CellError> {
        self.timed_somewhere(phase, Some(at), work)
    }

    fn timed_somewhere<T>(
        &mut self,
        phase: &str,
        at: Option<f64>,
        work: impl FnOnce() -> Result<T, CellError>,
    ) -> Result<(T, f64), CellError> {
        self.announce(phase);
        let clock = self.clock();
        let (start, before) = (clock.now(), clock.cpu());
        let done = work()?;
        let seconds = clock.since(start);
        self.times_at(phase, seconds, clock.cpu().since(before), at);
        Ok((done, seconds))
    }

    /// Records a time and the processor time during it. `cpu_percent` is of the whole machine,
    /// servers and kernel threads included; 100 is one processor.
    pub(super) fn times(&mut self, phase: &str, seconds: f64, cpu: Cpu) {
        self.times_at(phase, seconds, cpu, None);
    }

    fn times_at(&mut self, phase: &str, seconds: f64, cpu: Cpu, at: Option<f64>) {
        self.record_at(phase, "elapsed_seconds", seconds, at);
        self.record_at(phase, "user_seconds", cpu.user_seconds, at);
        self.record_at(phase, "system_seconds", cpu.system_seconds, at);
        if let Some(machine) = cpu.machine_seconds {
            self.record_at(phase, "machine_cpu_seconds", machine, at);
            if seconds > 0.0 {
                self.record_at(phase, "cpu_percent", 100.0 * machine / seconds, at);
            }
        }
    }
}
