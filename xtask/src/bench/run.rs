//! One side of a comparison: what runs before the clock, and what runs on it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Failure;

/// How often the memory of a running side is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// The cost of a run.
pub(crate) struct Measurement {
    /// From start to end, with the final fsync where the side writes a file.
    pub(crate) seconds: f64,
    /// The largest resident set seen.
    pub(crate) peak_bytes: u64,
    /// Seconds that the machine's processors were busy, kernel threads too: the work of a loop
    /// device is not its user's.
    pub(crate) cpu_seconds: f64,
    /// The report of fio about its requests, where the last step is fio.
    pub(crate) latency: Option<Latency>,
}

/// How long single requests took, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Latency {
    /// Half of them.
    pub(crate) p50: f64,
    /// All but one in a hundred.
    pub(crate) p99: f64,
}

impl Latency {
    /// Of fio's report as JSON: of its fsyncs where it made any, else of its writes or reads.
    fn of_fio(report: &str) -> Option<Self> {
        let report: serde_json::Value = serde_json::from_str(report).ok()?;
        let job = report.get("jobs")?.get(0)?;
        let times = ["/sync/lat_ns", "/write/clat_ns", "/read/clat_ns"];
        let mut times = times.iter().filter_map(|at| job.pointer(at)?.get("percentile"));
        let of = |times: &serde_json::Value, which| Some(times.get(which)?.as_f64()? / 1000.0);
        times.find_map(|times| {
            Some(Self { p50: of(times, "50.000000")?, p99: of(times, "99.000000")? })
        })
    }
}

/// Commands that are run in order; their time is added up.
pub(crate) struct Side {
    /// Run before the clock starts.
    pub(crate) before: Vec<Step>,
    /// Removed before each run.
    pub(crate) output: Option<PathBuf>,
    /// A file to make before each run, sparse, of this size in bytes.
    pub(crate) sparse: Option<u64>,
    /// Program, arguments, and where standard output goes.
    pub(crate) steps: Vec<Step>,
    /// The output is synced before the clock stops: both sides must have it on the disk.
    pub(crate) sync: bool,
    /// The last step has the clock: it prints `elapsed: SECONDS`.
    pub(crate) is_reported: bool,
}

/// A command line.
pub(crate) struct Step {
    /// Run by `bash -c` with the paths as $1, $2 …
    pub(crate) script: &'static str,
    pub(crate) args: Vec<PathBuf>,
}

impl Side {
    /// A side of one command.
    pub(crate) fn of(script: &'static str, args: &[&Path], output: Option<&Path>) -> Self {
        Self {
            before: Vec::new(),
            output: output.map(Path::to_owned),
            sparse: None,
            steps: vec![Step::of(script, args)],
            sync: output.is_some(),
            is_reported: false,
        }
    }

    /// Runs it once.
    pub(crate) fn run(&self) -> Result<Measurement, Failure> {
        if let Some(output) = &self.output {
            match std::fs::remove_file(output) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                _ => {}
            }
            if let Some(bytes) = self.sparse {
                std::fs::File::create(output)?.set_len(bytes)?;
            }
        }
        for step in &self.before {
            step.run()?;
        }
        // Dirty pages of earlier runs must not be written on the clock of this one.
        rustix::fs::sync();
        let busy = busy_seconds();
        let started = Instant::now();
        let (mut peak_bytes, mut said) = (0, String::new());
        for step in &self.steps {
            let peak;
            (peak, said) = step.run()?;
            peak_bytes = peak_bytes.max(peak);
        }
        if let (true, Some(output)) = (self.sync, &self.output) {
            std::fs::File::open(output)?.sync_all()?;
        }
        let seconds = match self.is_reported {
            true => elapsed(&said).ok_or("the program did not print what it took")?,
            false => started.elapsed().as_secs_f64(),
        };
        let cpu_seconds = busy_seconds() - busy;
        Ok(Measurement { seconds, peak_bytes, cpu_seconds, latency: Latency::of_fio(&said) })
    }
}

impl Step {
    /// A command line; its paths are $1, $2 …
    pub(crate) fn of(script: &'static str, args: &[&Path]) -> Self {
        Self { script, args: args.iter().map(|arg| arg.to_path_buf()).collect() }
    }

    /// The most memory that it had, and what it printed.
    fn run(&self) -> Result<(u64, String), Failure> {
        let mut command = Command::new("bash");
        // `exec` in the script keeps the process, whose memory is looked at.
        command.args(["-c", self.script, "bench"]).args(&self.args).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let printed = child.stdout.take().map(read_in_background);
        let errors = child.stderr.take().map(read_in_background);
        let mut peak_bytes = 0;
        let status = loop {
            peak_bytes = peak_bytes.max(resident_peak(&child));
            match child.try_wait()? {
                Some(status) => break status,
                None => std::thread::sleep(LOOK),
            }
        };
        let whole = |reader: Option<JoinHandle<String>>| {
            reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
        };
        let (printed, said) = (whole(printed), whole(errors));
        if !status.success() {
            return Err(format!("{} {:?}: {status}: {said}", self.script, self.args).into());
        }
        Ok((peak_bytes, printed))
    }
}

/// The seconds that a program printed.
fn elapsed(printed: &str) -> Option<f64> {
    printed.lines().find_map(|line| line.strip_prefix("elapsed: "))?.trim().parse().ok()
}

fn read_in_background(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Only figures that could be read are shown.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).trim().to_owned()
    })
}

/// VmHWM of a process; 0 when it has gone.
fn resident_peak(child: &Child) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Seconds since the start that all processors together were not idle; 0 where /proc does not tell.
fn busy_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|at| ticks.get(*at)).sum();
    busy as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_fios_times_those_of_its_fsyncs_come_first() {
        let report = |sync: &str| {
            format!(
                r#"{{"jobs": [{{"read": {{"clat_ns": {{"N": 0}}}},
                "write": {{"clat_ns": {{"percentile": {{"50.000000": 8000, "99.000000": 90500}}}}}},
                "sync": {{"lat_ns": {{{sync}}}}}}}]}}"#
            )
        };
        let synced = report(r#""percentile": {"50.000000": 444000, "99.000000": 2000000}"#);
        assert_eq!(Latency::of_fio(&synced), Some(Latency { p50: 444.0, p99: 2000.0 }));
        assert_eq!(Latency::of_fio(&report("")), Some(Latency { p50: 8.0, p99: 90.5 }));
        assert_eq!(Latency::of_fio("elapsed: 3.1"), None);
    }
}
