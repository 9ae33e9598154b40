//! A repair does the same, in the same order, whatever the number of threads.

use super::damages::Requested;
use super::hand::{Base, Hand, device, fsck_with};
use super::{Damage, damages};
use extant_check::{AutoPolicy, CheckOptions};
use extant_runtime::env::Env;
use extant_testkit::{Scratch, TempImage, skip, tool};
use std::path::Path;

/// The difference between the repairs of one damage by several numbers of threads.
fn flaw_of(damage: &Damage, healthy: &Path) -> Option<String> {
    let scratch = Scratch::new();
    let [spoiled, image] = ["spoiled", "image"].map(|name| scratch.join(name));
    std::fs::copy(healthy, &spoiled).expect("scratch space takes a copy");
    (damage.spoil)(&mut Hand::on(&spoiled));
    let now = Env::threads().now();
    let mut first = None;
    for threads in [1, 2, 8] {
        std::fs::copy(&spoiled, &image).expect("scratch space takes a copy");
        let options = CheckOptions {
            threads,
            env: Env::stepped_at(1, now),
            optimize_directories: damage.options == Requested::Optimize,
            bmap_to_extent: damage.options == Requested::Extents,
            unshare_blocks: damage.options == Requested::Unshare,
            ..CheckOptions::default()
        };
        let findings = fsck_with(device(&image), &AutoPolicy::Yes, &options);
        let bytes = std::fs::read(&image).expect("it is there");
        match &first {
            None => first = Some((findings, bytes)),
            Some((of_one, _)) if *of_one != findings => {
                return Some(format!("{threads} threads: {findings:?}, one: {of_one:?}"));
            }
            Some((_, of_one)) if *of_one != bytes => {
                return Some(format!("{threads} threads leave another image than one"));
            }
            Some(_) => {}
        }
    }
    None
}

#[test]
fn a_repair_does_not_depend_on_threads() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let mut made: Vec<(&Base, TempImage)> = Vec::new();
    let mut wrong = Vec::new();
    for damage in damages() {
        let known = made.iter().position(|(base, _)| base.name == damage.base.name);
        let at = known.unwrap_or_else(|| {
            made.push((&damage.base, damage.base.make()));
            made.len() - 1
        });
        if let Some(flaw) = flaw_of(damage, &made[at].1.path()) {
            wrong.push(format!("{:?}: {flaw}", damage.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
