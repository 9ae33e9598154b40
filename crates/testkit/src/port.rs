//! Servers of other programs that are told a port and do not tell the one that they chose.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Ports that are tried.
const TRIES: usize = 20;
/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// Starts a server on a port of this machine, and waits until it listens. A port that another
/// program has taken before the server did is given up for the next one.
///
/// # Panics
/// The server does not start.
pub fn server_on_port(command: impl Fn(u16) -> Command) -> (Child, u16) {
    for _ in 0..TRIES {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.expect("a free port").port();
        let mut child = command(port).spawn().expect("the server starts");
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < PATIENCE, "the server does not listen");
            let is_there = TcpStream::connect(("127.0.0.1", port)).is_ok();
            if let Ok(Some(_)) = child.try_wait() {
                break;
            }
            // Another program may listen there, and the server has not seen that yet.
            if is_there && is_of(child.id(), port) {
                return (child, port);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    panic!("the server does not start on any of {TRIES} ports");
}

/// Whether a process, or a child of it, listens on a port.
fn is_of(pid: u32, port: u16) -> bool {
    let mut sockets = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, state, .., inode] = &words[..words.len().min(10)] else { continue };
            if local.ends_with(&format!(":{port:04X}")) && *state == "0A" {
                sockets.push(format!("socket:[{inode}]"));
            }
        }
    }
    let has = |pid: u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = descriptors.filter_map(|it| fs::read_link(it.path()).ok());
        links.any(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))
    };
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    std::iter::once(pid).chain(children).any(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_of_the_process_that_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_of(std::process::id(), port));
        assert!(!is_of(1, port) || std::process::id() == 1);
        drop(listener);
        assert!(!is_of(std::process::id(), port));
    }
}
