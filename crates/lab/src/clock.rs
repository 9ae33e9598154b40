//! The clock of an experiment: this machine's, or the virtual clock of a simulated drive.

use std::time::{Duration, Instant};

use extant::Env;

use crate::cpu::Cpu;

/// A clock, and the processor time by it.
#[derive(Clone, Debug)]
pub enum Clock {
    /// This machine's.
    Machine(Instant),
    /// A virtual clock, which only the simulated work advances.
    Simulated(Env),
}

impl Default for Clock {
    fn default() -> Self {
        Self::Machine(Instant::now())
    }
}

impl Clock {
    /// The clock of the environment that a device runs in, or this machine's.
    pub fn of(env: Option<Env>) -> Self {
        env.map_or_else(Self::default, Self::Simulated)
    }

    /// Time since some moment that stays the same.
    pub fn now(&self) -> Duration {
        match self {
            Self::Machine(start) => start.elapsed(),
            Self::Simulated(env) => env.elapsed(),
        }
    }

    /// Seconds since a moment of [`Self::now`].
    pub fn since(&self, moment: Duration) -> f64 {
        self.now().saturating_sub(moment).as_secs_f64()
    }

    /// Processor time used so far. On a virtual clock it is the sum of the calls' costs, all in one
    /// figure.
    pub fn cpu(&self) -> Cpu {
        match self {
            Self::Machine(_) => Cpu::now(),
            Self::Simulated(env) => {
                let worked = env.worked().as_secs_f64();
                Cpu { user_seconds: worked, system_seconds: 0.0, machine_seconds: Some(worked) }
            }
        }
    }
}
