//! Devices that are not there.
//!
//! - [`model`]: a simulated drive on a clock of its own.
//! - [`Recorder`] and [`FaultyDevice`] are for tests: power cuts and failures.
#![forbid(unsafe_code)]

mod faulty;
pub mod model;
pub mod recorder;

pub use faulty::{Effect, Fault, FaultyDevice};
pub use model::{ModelDevice, ModelOptions};
pub use recorder::{Cut, Cuts, Event, RecordedPart, Recorder, Survivors, Sweep};
