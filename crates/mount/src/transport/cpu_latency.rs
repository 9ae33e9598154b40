//! Low wake-up latency of processors while programs send one request after the other.
//!
//! On a virtual machine an idle processor exits to the host, and only the host wakes it: 16 µs for
//! a reply that took 2. An idle processor that polls instead sees the wake-up at once
//! (Documentation/virt/guest-halt-polling.rst); it polls while a process requests a CPU latency of
//! zero by holding `/dev/cpu_dma_latency` open (Documentation/power/pm_qos_interface.rst). The
//! request is made only while many FUSE requests come: an idle mount leaves the processors to the
//! host.

use std::fs::{File, OpenOptions, read_to_string};
use std::io::Write;

use zerocopy::IntoBytes;

/// Where microseconds that a wake-up may take are claimed; root's.
const LATENCY: &str = "/dev/cpu_dma_latency";
/// The file that names the cpuidle driver.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// The one of virtual machines.
const HALTPOLL: &str = "haltpoll";

/// Microseconds that a wake-up may take.
const AT_ONCE: i32 = 0;
const WHENEVER: i32 = i32::MAX;

/// All that are idle poll, though one is waited for: with more processors than these it costs the
/// host too much.
const MOST_PROCESSORS: usize = 8;

/// Number of requests in one sample that are worth a processor's time.
const MANY: u64 = 4;
/// The latency request ends after this many samples in a row with fewer.
const FEW_SAMPLES: u32 = 10;

/// A request for a low CPU latency, made and withdrawn with the number of requests.
#[derive(Debug)]
pub(crate) struct CpuLatencyRequest {
    latency: File,
    is_requested: bool,
    few_samples: u32,
}

impl CpuLatencyRequest {
    /// `Some` on a virtual machine with few processors, if this process has the permission. Call it
    /// before the sandbox is closed.
    pub(crate) fn prepare(processors: usize) -> Option<Self> {
        let is_virtual = || read_to_string(DRIVER).is_ok_and(|driver| driver.trim() == HALTPOLL);
        if processors > MOST_PROCESSORS || !is_virtual() {
            return None;
        }
        OpenOptions::new().write(true).open(LATENCY).ok().map(Self::with)
    }

    fn with(latency: File) -> Self {
        Self { latency, is_requested: false, few_samples: 0 }
    }

    /// Takes a sample: the number of requests since the last one.
    pub(super) fn sample(&mut self, requests: u64) {
        self.few_samples = if requests < MANY { self.few_samples.saturating_add(1) } else { 0 };
        let few = if self.is_requested { FEW_SAMPLES } else { 1 };
        let is_requested = self.few_samples < few;
        if is_requested != self.is_requested {
            self.is_requested = is_requested;
            let microseconds = if is_requested { AT_ONCE } else { WHENEVER };
            // Without it all works, more slowly.
            let _ = self.latency.write_all(microseconds.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    #[test]
    fn processors_are_kept_awake_while_many_requests_come_and_no_longer() {
        let mut written = tempfile::tempfile().expect("a file");
        let mut request =
            CpuLatencyRequest::with(written.try_clone().expect("one more descriptor"));
        let mut claims = move || -> Vec<i32> {
            let mut claims = [0_i32; 8];
            written.rewind().expect("rewound");
            let len = written.read(claims.as_mut_bytes()).expect("read");
            claims[..len / 4].to_vec()
        };
        request.sample(MANY - 1);
        assert_eq!(claims(), [0; 0]);
        (0..3).for_each(|_| request.sample(MANY));
        assert_eq!(claims(), [AT_ONCE]);
        (1..FEW_SAMPLES).for_each(|_| request.sample(0));
        request.sample(MANY);
        (1..FEW_SAMPLES).for_each(|_| request.sample(1));
        assert_eq!(claims(), [AT_ONCE]);
        request.sample(1);
        (0..3).for_each(|_| request.sample(0));
        assert_eq!(claims(), [AT_ONCE, WHENEVER]);
        request.sample(MANY);
        assert_eq!(claims(), [AT_ONCE, WHENEVER, AT_ONCE]);
    }
}
