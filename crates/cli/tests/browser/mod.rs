//! A headless Chromium, driven over the WebDriver protocol.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use extant_testkit::{Scratch, server_on_port, tool};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

/// Time limit of one command.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the browser has to end once it was told to.
const PATIENCE_AT_THE_END: Duration = Duration::from_secs(5);

/// A browser with one page, which ends when it is dropped.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// Its profile; each of its processes has this directory in its command line.
    profile: Scratch,
}

impl Browser {
    /// Starts one; the error says what is missing.
    pub(crate) fn start() -> Result<Self, &'static str> {
        let chromium = tool("chromium").ok_or("no chromium here")?;
        let chromedriver = tool("chromedriver").ok_or("no chromedriver here")?;
        let (driver, port) = server_on_port(|port| {
            let mut command = Command::new(chromedriver.path());
            command.arg(format!("--port={port}")).process_group(0);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        });
        let mut browser = Self { driver, port, session: String::new(), profile: Scratch::new() };
        let profile = browser.profile.join("profile");
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": {
                "binary": chromium.path(),
                "args": [
                    "--headless=new",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-dev-shm-usage",
                    "--no-first-run",
                    "--disable-background-networking",
                    format!("--user-data-dir={}", profile.display()),
                ],
            },
        } } });
        let begun = browser.call("POST", "/session", &wanted);
        browser.session = begun["sessionId"].as_str().expect("a session").to_owned();
        Ok(browser)
    }

    /// Makes the page so wide, in pixels, and its scheme "light" or "dark".
    pub(crate) fn show_as(&self, width: u32, scheme: &str) {
        // A window has a least width; the page in it does not.
        let size =
            json!({ "width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size);
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": [feature] }));
    }

    /// Opens a file and waits until it is loaded.
    pub(crate) fn open(&self, file: &Path) {
        self.command("url", &json!({ "url": format!("file://{}", file.display()) }));
    }

    /// The value of a function's body.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The console's messages since the last call, failed requests included.
    pub(crate) fn console(&self) -> Vec<String> {
        let entries = self.command("se/log", &json!({ "type": "browser" }));
        let entries = entries.as_array().expect("a list of messages").iter();
        entries.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn devtools(&self, name: &str, params: Value) {
        self.command("goog/cdp/execute", &json!({ "cmd": name, "params": params }));
    }

    fn command(&self, name: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}/{name}", self.session), body)
    }

    /// A command's answer.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.request(method, path, body);
        let answer = answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let value = &answer["value"];
        assert!(
            value["error"].is_null(),
            "{method} {path}: {}: {}",
            value["error"],
            value["message"]
        );
        value.clone()
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = if method == "POST" { body.to_string() } else { String::new() };
        write!(
            &stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        )?;
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else {
                if line.trim().is_empty() {
                    break;
                }
                continue;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body)?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// The browser's processes, by the directory that they alone have in their command lines.
    fn processes(&self) -> Vec<Pid> {
        let profile = self.profile.join("profile");
        let profile = profile.to_string_lossy();
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pid = |entry: std::fs::DirEntry| {
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            let is_its = String::from_utf8_lossy(&words).contains(&*profile);
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Pid::from_raw(pid).filter(|_| is_its)
        };
        all.filter_map(pid).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.request("DELETE", &format!("/session/{}", self.session), &Value::Null);
        }
        if let Some(driver) = Pid::from_raw(self.driver.id().cast_signed()) {
            let _ = kill_process_group(driver, Signal::KILL);
        }
        let _ = self.driver.wait();
        let started = Instant::now();
        while started.elapsed() < PATIENCE_AT_THE_END {
            let left = self.processes();
            if left.is_empty() {
                break;
            }
            for pid in left {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
