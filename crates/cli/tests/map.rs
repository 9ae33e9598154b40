//! `extant map`: figures that add up, pictures that are pictures.

mod common;

use common::{Fixture, extant, quiet, text};
use extant_testkit::{TempImage, skip, tool};

#[test]
fn every_block_is_of_one_kind() {
    let fixture = match Fixture::by_mke2fs(&["-t", "ext4", "-b", "1024"], 51, 1024) {
        Ok(fixture) => fixture,
        Err(why) => skip!("{why}"),
    };
    let image = fixture.image.path().display().to_string();
    let output = extant(["map", "--json", &image]);
    quiet(&output);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let fields = extant_testkit::dumpe2fs_h(&fixture.image.path()).unwrap();
    let number = |name: &str| fields[name].parse::<u64>().unwrap();
    let totals = json["totals"].as_array().unwrap();
    let total: u64 = totals.iter().map(|it| it.as_u64().unwrap()).sum();
    assert_eq!(total, number("Block count") - number("First block"));
    assert_eq!(totals.last().unwrap().as_u64().unwrap(), number("Free blocks"));
    assert_eq!(json["kinds"].as_array().unwrap().len(), totals.len());
    let journal = json["kinds"].as_array().unwrap().iter().position(|it| it == "journal").unwrap();
    assert_eq!(totals[journal].as_u64().unwrap(), number("Total journal blocks"));

    for (name, start) in [
        ("map.png", &b"\x89PNG\r\n\x1a\n"[..]),
        ("map.svg", b"<svg"),
        ("map.html", b"<!DOCTYPE html>"),
    ] {
        let target = fixture.scratch.join(name);
        quiet(&extant(["map", &image, "-o", target.to_str().unwrap()]));
        assert!(std::fs::read(target).unwrap().starts_with(start), "{name}");
    }
    let svg = text(&extant(["map", &image]).stdout);
    assert!(svg.contains("files in one piece") && svg.trim_end().ends_with("</svg>"));
}

#[test]
fn bad_blocks_are_listed_as_by_dumpe2fs() {
    let Some(dumpe2fs) = tool("dumpe2fs") else { skip!("dumpe2fs is not installed") };
    let list = extant_testkit::Scratch::new();
    let bad = list.join("bad");
    std::fs::write(&bad, "3000\n3001\n5000\n").unwrap();
    let args = ["-t", "ext4", "-b", "1024", "-l", bad.to_str().unwrap()];
    let image = match TempImage::by_mke2fs(16 << 20, &args) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let path = image.path().display().to_string();
    let expected = dumpe2fs.text(["-b", &path]).unwrap();
    let output = extant(["info", "-b", &path]);
    quiet(&output);
    assert_eq!(text(&output.stdout), expected);
}
