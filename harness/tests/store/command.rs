//! `mlx-parity store` as a person or a script meets it.

use std::process::Command;

use super::*;

const HELD: Option<i32> = Some(0);
const USAGE: Option<i32> = Some(2);
const NOTHING_RAN: Option<i32> = Some(4);
const DAMAGED: Option<i32> = Some(101);

fn store(home: &Home, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_mlx-parity"))
        .arg("store")
        .args(arguments)
        .arg("--store")
        .arg(home.path())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn entries_are_listed_with_what_they_are_of() {
    let home = Home::new();
    fill(&home.store(), &key(3));
    drop(miss(&home.store(), &key(4)));
    let (code, text) = store(&home, &["list"]);
    assert_eq!(code, HELD);
    assert!(text.contains(&key(3).digest()[..12]) && text.contains("l1, prefill 512"), "{text}");
    assert!(text.contains("partial") && text.contains("2 entries, "), "{text}");
}

#[test]
fn damage_exits_101_and_is_removed_when_asked() {
    let home = Home::new();
    assert_eq!(store(&home, &["verify"]).0, NOTHING_RAN);
    fill(&home.store(), &key(3));
    fill(&home.store(), &key(4));
    let (code, text) = store(&home, &["verify"]);
    assert!(code == HELD && text.contains("2 entries, 0 damaged"), "{text}");
    flip(&home.entry(&key(3)).join("logits.zst"), 100);
    for _ in 0..2 {
        let (code, text) = store(&home, &["verify"]);
        assert!(code == DAMAGED && text.contains("does not match its checksum"), "{text}");
    }
    assert_eq!(store(&home, &["verify", "--remove"]).0, DAMAGED);
    let (code, text) = store(&home, &["verify"]);
    assert!(code == HELD && text.contains("1 entry, 0 damaged"), "{text}");
}

#[test]
fn the_store_shrinks_to_its_budget() {
    let home = Home::new();
    fill(&home.store(), &key(3));
    let (code, text) = store(&home, &["gc"]);
    assert!(code == HELD && text.starts_with("\n0 B freed"), "{text}");
    let (code, text) = store(&home, &["gc", "--budget", "1KiB"]);
    assert!(code == HELD && text.contains("removed  ") && text.contains("0 B left"), "{text}");
    assert_eq!(store(&home, &["gc", "--budget", "much"]).0, USAGE);
}
