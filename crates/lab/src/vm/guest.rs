//! The host's side: a guest that runs cells.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::agent::{DISK, SCRATCH};
use super::image::Image;
use super::machine::{Acceleration, Heard, Machine, Parts};
use super::{Trying, VmError};
use crate::cell::{Cell, Message};
use crate::run::{Ended, Executor, GuestMachine, RunError, Watch};
use crate::sample::Sample;

/// Settings of a guest.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of its memory.
    pub memory: u64,
    /// Its processors.
    pub processors: u32,
    /// Its processors.
    pub acceleration: Acceleration,
    /// Bytes of its disk: a file that is as large as what is written.
    pub disk: u64,
    /// How long a cell may take.
    pub patience: Duration,
    /// A directory for the disk and for the files that the guest starts from.
    pub scratch: PathBuf,
    /// The command `extant`.
    pub program: PathBuf,
}

/// A guest, or why it cannot be had: cells report it then.
pub struct Guest {
    image: Option<Image>,
    options: Options,
    parts: Parts,
    machine: Option<Machine>,
    /// The processors' accelerator, as the first start found.
    acceleration: Acceleration,
    /// No more starts are tried.
    gone: Option<String>,
    described: Option<GuestMachine>,
}

impl Guest {
    /// Starts one, unless an image could not be made.
    pub fn start(
        image: Result<Image, VmError>,
        options: Options,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Self {
        let in_scratch = |name: &str| options.scratch.join(name);
        let parts = Parts {
            kernel: image.as_ref().map(Image::kernel).unwrap_or_default(),
            initrd: in_scratch("initrd"),
            disk: in_scratch("disk"),
            console: in_scratch("console.log"),
            memory: options.memory,
            processors: options.processors,
        };
        let acceleration = options.acceleration;
        let (image, gone) = match image {
            Ok(image) => (Some(image), None),
            Err(error) => (None, Some(format!("cannot make the guest: {error}"))),
        };
        let mut guest =
            Self { image, options, parts, machine: None, acceleration, gone, described: None };
        if let Err(error) = guest.furnish().and_then(|()| guest.boot(is_interrupted)) {
            guest.gone.get_or_insert(error.0);
        }
        guest
    }

    /// Its description; `None` without a guest.
    pub fn described(&self) -> Option<GuestMachine> {
        self.described.clone()
    }

    /// Why there is no guest.
    pub fn gone(&self) -> Option<&str> {
        self.gone.as_deref()
    }

    fn furnish(&self) -> Result<(), VmError> {
        let Some(image) = &self.image else { return Ok(()) };
        let scratch = &self.options.scratch;
        fs::create_dir_all(scratch).trying(scratch.display())?;
        image.write_initrd(&self.options.program, &self.parts.initrd)
    }

    /// Starts it where it does not run.
    fn boot(&mut self, is_interrupted: &dyn Fn() -> bool) -> Result<(), VmError> {
        if self.image.is_none() || self.machine.is_some() {
            return Ok(());
        }
        let disk = File::create(&self.parts.disk).trying(self.parts.disk.display())?;
        disk.set_len(self.options.disk).trying(self.parts.disk.display())?;
        let booted = Machine::boot(&self.parts, self.acceleration, is_interrupted)?;
        let Some((machine, hello, acceleration)) = booted else { return Ok(()) };
        self.machine = Some(machine);
        self.acceleration = acceleration;
        let around = match self.parts.goes_around_the_page_cache() {
            true => "around the host's page cache",
            false => "through the host's page cache",
        };
        self.described.get_or_insert(GuestMachine {
            environment: hello.environment,
            accelerator: acceleration.to_string(),
            clock: format!("{}, driven by the host's", hello.clock),
            disk: format!(
                "virtio-blk, {} MiB, a sparse file {around}; each cell begins with it empty, and volumes are as large as it is",
                self.options.disk >> 20
            ),
            overhead_seconds: hello.overhead_seconds,
            call_overhead_seconds: hello.call_overhead_seconds,
        });
        Ok(())
    }

    /// Gives a cell to the guest and waits for its messages.
    fn perform(&mut self, cell: &Cell, watch: &mut dyn Watch) -> Result<Ended, RunError> {
        let Some(machine) = &mut self.machine else {
            // Only an interrupted cell has none.
            return Err(RunError::Interrupted);
        };
        let mut order = serde_json::to_vec(&in_guest(cell)).expect("a cell is plain data");
        order.push(b'\n');
        if let Err(error) = machine.order(&order) {
            let why = format!("cannot send to the guest: {error}{}", machine.last_words());
            return Ok(Err(why.into()));
        }
        let start = Instant::now();
        let mut samples: Vec<Sample> = Vec::new();
        loop {
            if watch.is_interrupted() {
                return Err(RunError::Interrupted);
            }
            if start.elapsed() > self.options.patience {
                let seconds = self.options.patience.as_secs();
                return Ok(Err(format!("it took longer than {seconds} s (--timeout)").into()));
            }
            let line = match machine.hear() {
                Heard::Line(line) => line,
                Heard::Nothing => continue,
                Heard::Ended(why) => return Ok(Err(why.into())),
            };
            match message(&line, cell) {
                Ok(Message::Phase(phase)) => watch.phase(cell, &phase),
                Ok(Message::Sample(sample)) => samples.push(sample),
                Ok(Message::Failed(why)) => return Ok(Err(why.into())),
                Ok(Message::Done) => return Ok(Ok(samples)),
                Err(why) => return Ok(Err(why.into())),
            }
        }
    }
}

impl Executor for Guest {
    fn is_isolated(&self) -> bool {
        true
    }

    fn is_guest(&self) -> bool {
        true
    }

    fn one(&mut self, cell: &Cell, watch: &mut dyn Watch) -> Result<Ended, RunError> {
        if let Some(why) = self.image.as_ref().and_then(|image| image.lacks(&cell.target)) {
            return Ok(Err(why.into()));
        }
        if self.gone.is_none()
            && let Err(error) = self.boot(&|| watch.is_interrupted())
        {
            self.gone = Some(error.0);
        }
        if let Some(why) = &self.gone {
            return Ok(Err(why.clone().into()));
        }
        watch.phase(cell, "");
        let ended = self.perform(cell, watch);
        // A failed cell may have left something: a mount that hangs, a kernel that has stumbled.
        if !matches!(ended, Ok(Ok(_))) {
            self.machine = None;
        }
        ended
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.machine = None;
        for file in [&self.parts.initrd, &self.parts.disk] {
            let _ = fs::remove_file(file);
        }
        // The console's text stays for the analysis of a failure.
        let errors = self.parts.console.with_extension("errors");
        if fs::metadata(&errors).is_ok_and(|found| found.len() == 0) {
            let _ = fs::remove_file(errors);
        }
    }
}

/// The same cell with the guest's paths.
fn in_guest(cell: &Cell) -> Cell {
    let mut cell = cell.clone();
    cell.settings.device = Some(DISK.into());
    cell.scratch = SCRATCH.into();
    cell.program = Path::new("/bin/extant").to_owned();
    cell.isolated = true;
    cell
}

/// A line of the guest's. Samples belong to the cell that was ordered, or something is wrong.
fn message(line: &str, cell: &Cell) -> Result<Message, String> {
    let message: Message = serde_json::from_str(line)
        .map_err(|error| format!("invalid line from the guest: {line:?}: {error}"))?;
    if let Message::Sample(sample) = &message {
        let ours = (cell.experiment.name.clone(), cell.target.to_string(), cell.run);
        if sample.cell() != ours {
            return Err(format!("the guest measured {:?} in place of {ours:?}", sample.cell()));
        }
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Settings};

    fn cell() -> Cell {
        Cell {
            experiment: Experiment::built_in().remove(2),
            settings: Settings::default(),
            target: "ext4+linear".parse().expect("a target"),
            run: 2,
            scratch: "/host/scratch".into(),
            program: "/host/extant".into(),
            isolated: false,
            joins: None,
            job: None,
        }
    }

    #[test]
    fn a_guests_samples_are_those_of_the_cell_that_was_ordered() {
        let line = |run: u32| {
            format!(
                "{{\"sample\":{{\"experiment\":\"hard-links\",\"target\":\"ext4+linear\",\"run\":{run},\
                 \"phase\":\"rm\",\"metric\":\"elapsed_seconds\",\"value\":1.5,\"unit\":\"s\"}}}}"
            )
        };
        let Ok(Message::Sample(sample)) = message(&line(2), &cell()) else { panic!("no sample") };
        assert_eq!((sample.value, sample.unit.as_str()), (1.5, "s"));
        let error = message(&line(3), &cell()).expect_err("another run");
        assert!(error.starts_with("the guest measured"), "{error}");
        let error = message("Oops: 0000", &cell()).expect_err("no message");
        assert!(error.starts_with("invalid line from the guest: \"Oops: 0000\""), "{error}");
        assert_eq!(message("\"done\"", &cell()), Ok(Message::Done));
    }

    #[test]
    fn a_cell_is_sent_with_the_guests_paths() {
        let sent = in_guest(&cell());
        assert_eq!(sent.settings.device.as_deref(), Some(Path::new("/dev/vda")));
        assert_eq!((sent.scratch.to_str(), sent.isolated), (Some(SCRATCH), true));
        assert_eq!((sent.target, sent.run), (cell().target, 2));
    }

    /// Without an image every cell reports why, and nothing is made.
    #[test]
    fn without_a_guest_cells_say_why() {
        let options = Options {
            memory: 1 << 30,
            processors: 1,
            acceleration: Acceleration::Auto,
            disk: 1 << 30,
            patience: Duration::from_secs(1),
            scratch: "/no/such/place".into(),
            program: "/no/such/program".into(),
        };
        let none = Err(VmError("apt-get is not there".to_owned()));
        let mut guest = Guest::start(none, options, &|| false);
        assert_eq!(guest.described(), None);
        struct Unwatched;
        impl Watch for Unwatched {
            fn begins(&mut self, _: usize, _: usize, _: &Cell, _: Option<f64>) {}
            fn phase(&mut self, _: &Cell, _: &str) {}
            fn ended(&mut self, _: &Cell, _: Result<f64, &str>) {}
            fn is_interrupted(&self) -> bool {
                false
            }
        }
        let ended = guest.one(&cell(), &mut Unwatched).expect("an answer");
        assert_eq!(ended, Err("cannot make the guest: apt-get is not there".to_owned().into()));
    }
}
