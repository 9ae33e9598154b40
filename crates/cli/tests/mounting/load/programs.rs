//! Programs of others at work on the mount until they are told to stop, and what must be there
//! after a crash.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use extant_testkit::Scratch;

use super::super::program::program;
use super::super::programs::missing;
use super::family::{Family, ProgramEnd};

/// A program's work. Its scripts run in a directory of their own on the mount; $1 is a tree, $2 the
/// file whose being ends the work, $3 the file that takes what was made durable, $4 a directory of
/// the host, $5 a number by chance, $6 the program's path.
pub(super) struct Work {
    pub(super) name: &'static str,
    needs: &'static [&'static str],
    /// Exits with 0 when it was told to stop.
    script: &'static str,
    /// Run after a crash where something was made durable: succeeds where that is there.
    check: Option<&'static str>,
    /// Prepares the host's directory.
    prepare: Option<&'static str>,
    /// Run on the mount before the load begins.
    begin: Option<&'static str>,
}

pub(super) const WORKS: [Work; 6] = [
    Work {
        name: "compiler",
        needs: &["cc", "ar"],
        script: "until [ -e \"$2\" ]; do
              for n in 1 2 3 4 5 6; do echo \"int f$n(int x) { return x + $n; }\" > f$n.c; done
              { for n in 1 2 3 4 5 6; do echo \"int f$n(int);\"; done
                echo 'int main(void) { return f1(f2(f3(f4(f5(f6(0)))))) != 21; }'; } > main.c
              for n in 1 2 3 4 5 6; do cc -O1 -c f$n.c; done
              rm -f lib.a; ar rcs lib.a f*.o; cc -o program main.c lib.a; ./program; rm -f f*
            done",
        check: None,
        prepare: None,
        begin: None,
    },
    Work {
        name: "rsync",
        needs: &["rsync"],
        // To compare a hole of 5 GiB takes too long.
        script: "until [ -e \"$2\" ]; do
              rsync -aHAXS --exclude=/sparse/all \"$1\"/ copy/
              [ -z \"$(rsync -aHAXcni --exclude=/sparse/all \"$1\"/ copy/)\" ]; rm -rf copy
            done",
        check: None,
        prepare: None,
        begin: None,
    },
    Work {
        name: "stress-ng",
        needs: &["stress-ng"],
        script: "until [ -e \"$2\" ]; do
              \"$6\" --temp-path . --quiet --verify --timeout 1 --hdd 1 --hdd-bytes 4m --dir 1 --rename 1 --fallocate 1 \\
                --fallocate-bytes 4m --mmap 1 --mmap-file --mmap-bytes 4m
            done",
        check: None,
        prepare: None,
        begin: None,
    },
    Work {
        name: "fsx",
        needs: &["fsx"],
        // The number does not fit into what bash and fsx count with.
        script: "n=${5:0:6}; until [ -e \"$2\" ]; do \"$6\" -N 300 -S $n file; n=$((n + 1)); done",
        check: None,
        prepare: None,
        begin: None,
    },
    Work {
        name: "sqlite",
        needs: &["sqlite3"],
        // In mode DELETE a transaction is durable once the directory is, which EXTRA says.
        script: "modes=(WAL TRUNCATE PERSIST DELETE); mode=${modes[$(($5 % 4))]}; level=FULL; [ $mode != DELETE ] || level=EXTRA
            sqlite3 -bail db \"PRAGMA journal_mode=$mode; CREATE TABLE t(run, n, x); CREATE TABLE sums(run, total)\" > /dev/null
            run=0; until [ -e \"$2\" ]; do
              run=$((run + 1))
              sqlite3 -bail db \"PRAGMA journal_mode=$mode; PRAGMA synchronous=$level; BEGIN;
                WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 40)
                  INSERT INTO t SELECT $run, n, randomblob(300) FROM c;
                DELETE FROM t WHERE run = $((run - 20)); DELETE FROM sums WHERE run = $((run - 20));
                INSERT INTO sums VALUES($run, (SELECT sum(n * length(x)) FROM t WHERE run = $run)); COMMIT\" > /dev/null
              echo $run >> \"$3\"
            done",
        check: Some(
            "[ \"$(sqlite3 -bail db 'PRAGMA integrity_check')\" = ok ]
             [ $(sqlite3 -bail db 'SELECT max(run) FROM sums') -ge $(tail -n 1 \"$3\") ]
             [ $(sqlite3 -bail db 'SELECT count(*) FROM sums WHERE total != 820 * 300
                  OR total != (SELECT sum(n * length(x)) FROM t WHERE t.run = sums.run)') = 0 ]",
        ),
        prepare: None,
        begin: None,
    },
    Work {
        name: "postgres",
        needs: &["setpriv", "psql"],
        script: "bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
            setpriv --reuid=65534 --regid=65534 --clear-groups \"$bin\"/postgres -D db -h '' -k \"$4\" & server=$!; trap 'kill -QUIT $server; wait $server || :' EXIT
            sql() { psql -X -q -t -A -h \"$4\" -U us -v ON_ERROR_STOP=1 -c \"$sql\" postgres; }
            sql='CREATE TABLE t(n int, x text)'
            until sql \"$@\" || [ -e \"$2\" ]; do kill -0 $server; sleep 0.1; done
            run=0; until [ -e \"$2\" ]; do
              run=$((run + 1)); sql=\"INSERT INTO t SELECT $run, repeat('x', 300) FROM generate_series(1, 20)\"; sql \"$@\"
              echo $run >> \"$3\"
            done",
        check: Some(
            "host=$4; bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
             rm -f db/postmaster.pid; setpriv --reuid=65534 --regid=65534 --clear-groups \"$bin\"/postgres -D db -h '' -k \"$4\" & server=$!; trap 'kill -INT $server; wait $server || :' EXIT
             sql() { psql -X -q -t -A -h \"$host\" -U us -v ON_ERROR_STOP=1 -c \"$1\" postgres; }
             until sql 'SELECT 1' > /dev/null 2>&1; do kill -0 $server; sleep 0.1; done
             [ $(sql 'SELECT max(n) FROM t') -ge $(tail -n 1 \"$3\") ]
             [ \"$(sql 'SELECT count(*) - 20 * max(n) FROM t')\" = 0 ]",
        ),
        prepare: Some(
            "chown 65534 . && bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
             setpriv --reuid=65534 --regid=65534 --clear-groups \"$bin\"/initdb -D \"$PWD\"/db -A trust -U us --no-sync --wal-segsize=1
             printf 'max_wal_size = 4MB\\nmin_wal_size = 2MB\\n' >> db/postgresql.conf",
        ),
        // Data that postgres takes for durable.
        begin: Some("chown 65534 . && cp -a \"$4\"/db db && find db -exec sync {} +"),
    },
];

impl Work {
    /// Why it cannot run here, if it cannot.
    pub(super) fn missing(&self) -> Option<String> {
        let own = program(self.needs[0]);
        let is_absent = missing(self.needs).filter(|_| own.is_none());
        is_absent.map(|needed| format!("{}: no {needed}", self.name))
    }

    /// Runs a script to its end, in `dir`; else its commands and what it said.
    fn run(&self, script: &str, dir: &Path, paths: &Paths) -> Result<(), String> {
        let output = paths.command(self, script, dir, ("-xeuc", "100")).output();
        let output = output.map_err(|error| error.to_string())?;
        let said = [output.stdout, output.stderr].concat();
        let said =
            || format!("{}: {}: {}", self.name, output.status, String::from_utf8_lossy(&said));
        output.status.success().then_some(()).ok_or_else(said)
    }
}

/// Where a work has what it needs, on the host.
pub(super) struct Paths {
    tree: PathBuf,
    host: Scratch,
    number: u64,
}

impl Paths {
    fn stop(&self) -> PathBuf {
        self.host.join("stop")
    }

    fn durable(&self) -> PathBuf {
        self.host.join("durable")
    }

    fn command(
        &self,
        work: &Work,
        script: &str,
        dir: &Path,
        (flags, limit): (&str, &str),
    ) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", limit, "bash", flags, script, work.name]);
        command.args([&self.tree, &self.stop(), &self.durable(), self.host.path()]);
        command.arg(self.number.to_string()).arg(program(work.needs[0]).unwrap_or_default());
        command.current_dir(dir).env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
        command
    }
}

/// A work under way.
pub(super) struct Running {
    work: &'static Work,
    family: Family,
    paths: Paths,
}

impl Running {
    pub(super) fn start(
        work: &'static Work,
        tree: &Path,
        dir: &Path,
        number: u64,
    ) -> Result<Self, String> {
        let host = super::open_to_all();
        let failed = |error: std::io::Error| format!("{}: {error}", work.name);
        let paths = Paths { tree: tree.to_owned(), host, number };
        if let Some(prepare) = work.prepare {
            work.run(prepare, paths.host.path(), &paths)?;
        }
        fs::create_dir(dir.join(work.name)).map_err(failed)?;
        if let Some(begin) = work.begin {
            work.run(begin, &dir.join(work.name), &paths)?;
        }
        let said = File::create(paths.host.join("said")).map_err(failed)?;
        let mut command = paths.command(work, work.script, &dir.join(work.name), ("-euc", "240"));
        command.stdout(said.try_clone().map_err(failed)?).stderr(said);
        let family = Family::new(command.spawn().map_err(failed)?);
        Ok(Self { work, family, paths })
    }

    /// Asks it to stop; it takes a moment.
    pub(super) fn ask_to_stop(&self) {
        File::create(self.paths.stop()).expect("the host has room");
    }

    /// Waits for its end, at most `limit`, and ends it otherwise: how it went, and what must be
    /// there now. `is_served`: whether the mount has its server.
    pub(super) fn wait(
        mut self,
        limit: Duration,
        is_served: bool,
    ) -> (Result<(), Failure>, Durable) {
        let name = self.work.name;
        let ended = match self.family.wait(limit, is_served) {
            ProgramEnd::Exited(status) if status.success() => Ok(()),
            ProgramEnd::Exited(status) => {
                let said = fs::read(self.paths.host.join("said")).unwrap_or_default();
                Err(Failure::Ended(format!("{name}: {status}: {}", String::from_utf8_lossy(&said))))
            }
            ProgramEnd::Late(left) => {
                Err(Failure::Ended(format!("{name}: not ended in {limit:?}:\n{left}")))
            }
            ProgramEnd::Stuck(left) => {
                Err(Failure::Stuck(format!("{name}: it waits in the kernel:\n{left}")))
            }
        };
        (ended, Durable { work: self.work, paths: self.paths })
    }
}

/// Why a work has failed.
pub(super) enum Failure {
    /// It may fail so where calls on the mount fail.
    Ended(String),
    /// A call on the mount does not return.
    Stuck(String),
}

/// Data that a work has made durable.
pub(super) struct Durable {
    work: &'static Work,
    paths: Paths,
}

impl Durable {
    /// How much.
    pub(super) fn count(&self) -> u64 {
        fs::read_to_string(self.paths.durable()).map_or(0, |text| text.lines().count() as u64)
    }

    /// Why a crash cannot have left this directory, if it cannot.
    pub(super) fn refuses(&self, dir: &Path) -> Option<String> {
        let check = self.work.check.filter(|_| self.count() > 0)?;
        let dir = dir.join(self.work.name);
        self.work.run(check, &dir, &self.paths).err()
    }
}
