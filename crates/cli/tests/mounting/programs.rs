//! Programs of others at work on a mount, each with a comparison and e2fsck afterwards; and the
//! server killed under them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use extant_testkit::{Scratch, TreeSnapshot, assert_same_tree, e2fsck_fn, skip, tool, tree};

use super::{Mount, can_mount, image};

/// Runs a script that must succeed; its paths are $1, $2 …
fn script(text: &str, paths: &[&Path]) -> String {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", "bash", "-euc", text, "script"]).args(paths);
    let output = command.env("LC_ALL", "C").stdin(Stdio::null()).output().expect("timeout runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}: {}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The first of the programs that is not installed.
pub(super) fn missing<'a>(programs: &[&'a str]) -> Option<&'a str> {
    programs.iter().find(|program| tool(program).is_none()).copied()
}

/// A mount on an image of 512 MiB, and a tree next to it.
fn with_tree(test: impl FnOnce(&Scratch, &Mount, &Path)) {
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4", "-b", "4096"], "512M");
    let source = scratch.join("source");
    tree::grow(&source, 5, &tree::Options::default()).expect("a tree");
    let mount = Mount::new(&scratch, &image, &[]);
    test(&scratch, &mount, &source);
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

#[test]
fn rsync_copies_a_tree_with_all_that_it_has() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    if missing(&["rsync"]).is_some() {
        skip!("no rsync here");
    }
    with_tree(|_, mount, source| {
        script("rsync -aHAXS \"$1\"/ \"$2\"/copy/", &[source, mount.path()]);
        let expected = TreeSnapshot::of_dir(source).expect("readable");
        let found = TreeSnapshot::of_dir(&mount.path().join("copy")).expect("readable");
        assert_same_tree(&expected, &found);
        let told = script("rsync -aHAXni \"$1\"/ \"$2\"/copy/", &[source, mount.path()]);
        assert_eq!(told, "", "rsync sees differences");
    });
}

#[test]
fn tar_packs_and_unpacks_on_a_mount() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    with_tree(|_, mount, source| {
        // A socket is nothing that tar packs.
        let make = "rm -f \"$1\"/special/socket; tar -C \"$1\" --xattrs --xattrs-include='*' --acls -cSf \"$2\"/a.tar . &&
            mkdir \"$2\"/copy && tar -C \"$2\"/copy --xattrs --xattrs-include='*' --acls -xpSf \"$2\"/a.tar";
        script(make, &[source, mount.path()]);
        let expected = TreeSnapshot::of_dir(source).expect("readable");
        let found = TreeSnapshot::of_dir(&mount.path().join("copy")).expect("readable");
        assert_same_tree(&expected, &found);
    });
}

#[test]
fn git_clones_commits_and_finds_its_objects_whole() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    if missing(&["git"]).is_some() {
        skip!("no git here");
    }
    with_tree(|scratch, mount, _| {
        let source = &scratch.join("repository");
        let text = "export HOME=\"$3\" GIT_CONFIG_NOSYSTEM=1
            mkdir -p \"$1\" && cd \"$1\"
            for n in $(seq 200); do mkdir -p d$((n % 20)) && seq $n $((n * 20)) > d$((n % 20))/f$n; done
            ln -s d1/f1 link && chmod +x d2/f2
            git config --global user.email tester@example.org
            git config --global user.name tester
            git config --global --add safe.directory '*'
            git -C \"$1\" init -q && git -C \"$1\" add . && git -C \"$1\" commit -qm all
            git clone -q --no-hardlinks \"$1\" \"$2\"/clone && cd \"$2\"/clone
            git fsck --strict && git status --porcelain
            git checkout -qb other && rm -rf ./*  && git commit -qam gone && git checkout -q - && git gc -q";
        script(text, &[source, mount.path(), scratch]);
        assert_eq!(script("git -C \"$1\"/clone status --porcelain", &[mount.path()]), "");
    });
}

#[test]
fn a_program_is_built_on_a_mount_and_runs() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    if let Some(program) = missing(&["cc", "ar"]) {
        skip!("no {program} here");
    }
    with_tree(|_, mount, _| {
        let text = "cd \"$1\"
            for n in $(seq 40); do echo \"int f$n(int x) { return x + $n; }\" > f$n.c; done
            { for n in $(seq 40); do echo \"int f$n(int);\"; done; echo '#include <stdio.h>'
              echo 'int main(void) { int sum = 0;'
              for n in $(seq 40); do echo \"sum = f$n(sum);\"; done
              echo 'printf(\"%d\\n\", sum); return 0; }'; } > main.c
            for n in $(seq 40); do cc -O1 -c f$n.c & done; wait
            ar rcs libf.a f*.o && cc -o program main.c libf.a && ./program";
        assert_eq!(script(text, &[mount.path()]).trim(), "820");
    });
}

/// A library of 25,000 lines, from its sources, with a program that uses it.
#[test]
fn a_rust_library_is_built_on_a_mount() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    if missing(&["rustc"]).is_some() {
        skip!("no rustc here");
    }
    let Some(library) = sources("regex-syntax-0.8") else {
        skip!("cargo keeps no sources of regex-syntax here");
    };
    with_tree(|_, mount, _| {
        let text = "cd \"$1\" && cp -a \"$2\" library && mkdir out
            for build in first second; do
                rustc --edition 2021 --cap-lints allow -C incremental=\"$1\"/kept --crate-type lib --crate-name regex_syntax \\
                    --cfg 'feature=\"std\"' --out-dir out library/src/lib.rs
            done
            echo 'fn main() { println!(\"{}\", regex_syntax::escape(\"a.b\")) }' > main.rs
            rustc --edition 2021 -L out --extern regex_syntax=out/libregex_syntax.rlib -o program main.rs && ./program";
        assert_eq!(script(text, &[mount.path(), &library]).trim(), "a\\.b");
    });
}

/// The sources that cargo keeps of a crate.
fn sources(name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")))?;
    let registries = fs::read_dir(home.join("registry/src")).ok()?.flatten();
    let crates =
        registries.flat_map(|registry| fs::read_dir(registry.path()).into_iter().flatten());
    let mut found = crates.flatten().map(|entry| entry.path());
    found.find(|path| path.file_name().is_some_and(|it| it.to_string_lossy().starts_with(name)))
}

#[test]
fn sqlite_keeps_a_database_whole() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    if missing(&["sqlite3"]).is_some() {
        skip!("no sqlite3 here");
    }
    with_tree(|_, mount, _| {
        for mode in ["delete", "wal"] {
            let text = format!(
                "sqlite3 \"$1\"/{mode}.db 'PRAGMA journal_mode={mode}; PRAGMA synchronous=FULL;
                 CREATE TABLE t(id INTEGER PRIMARY KEY, text);
                 WITH RECURSIVE n(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM n WHERE x<20000)
                 INSERT INTO t SELECT x, hex(randomblob(50)) FROM n; CREATE INDEX i ON t(text);'
                 for i in $(seq 20); do sqlite3 \"$1\"/{mode}.db \"UPDATE t SET text='new' WHERE id=$i\"; done
                 sqlite3 \"$1\"/{mode}.db 'DELETE FROM t WHERE id%3=0; VACUUM; PRAGMA integrity_check; SELECT count(*) FROM t'"
            );
            let told = script(&text, &[mount.path()]);
            assert!(told.ends_with("ok\n13334\n"), "{mode}: {told}");
        }
    });
}

#[test]
fn postgresql_serves_from_a_mount() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let found = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let Some(bin) = found
        .map(|version| version.path().join("bin"))
        .find(|bin| bin.join("initdb").exists() && bin.join("pgbench").exists())
    else {
        skip!("no PostgreSQL here");
    };
    let Some(setpriv) = tool("setpriv") else { skip!("no setpriv here") };
    with_tree(|scratch, mount, _| {
        let text = "chmod 755 \"$2\" && mkdir \"$1\"/db \"$1\"/run && chown 65534:65534 \"$1\"/db \"$1\"/run
            setpriv=$4; as() { \"$setpriv\" --reuid=65534 --regid=65534 --clear-groups \"$@\"; }
            cd \"$1\"/run; as \"$3\"/initdb -D \"$1\"/db -A trust -U us > /dev/null
            as \"$3\"/pg_ctl -D \"$1\"/db -w -o \"-k $1/run -h ''\" -l \"$1\"/run/log start > /dev/null
            pid=$(head -n 1 \"$1\"/db/postmaster.pid)
            # It has the volume until it is gone, which is after it says that it has stopped.
            trap 'as \"$3\"/pg_ctl -D \"$1\"/db -m fast -w stop > /dev/null
                for n in $(seq 100); do kill -0 $pid 2> /dev/null || break; sleep 0.1; done' EXIT
            as \"$3\"/pgbench -h \"$1\"/run -U us -i -q -s 2 postgres 2> /dev/null > /dev/null
            as \"$3\"/pgbench -h \"$1\"/run -U us -c 4 -T 5 postgres 2>&1
            as \"$3\"/psql -h \"$1\"/run -U us -Atc 'SELECT sum(abalance) = (SELECT sum(tbalance) FROM pgbench_tellers) FROM pgbench_accounts' postgres";
        let told = script(text, &[mount.path(), scratch, &bin, setpriv.path()]);
        assert!(told.trim_end().ends_with("\nt"), "{told}");
        assert!(told.contains("number of failed transactions: 0"), "{told}");
    });
}
