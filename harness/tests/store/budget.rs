//! Keeping within a budget.

use std::{
    fs::File,
    time::{Duration, SystemTime},
};

use mlx_parity::store::{State, StoreError};

use super::*;

/// Gives an entry's last use.
fn used(home: &Home, key: &Key, seconds_ago: u64) {
    let mark = File::options().append(true).open(home.entry(key).join("used")).unwrap();
    mark.set_modified(SystemTime::now() - Duration::from_secs(seconds_ago)).unwrap();
}

fn there(home: &Home, keys: &[Key]) -> Vec<bool> {
    keys.iter().map(|key| home.entry(key).is_dir()).collect()
}

fn bytes(store: &Store) -> u64 {
    store.entries().unwrap().iter().map(|entry| entry.bytes).sum()
}

/// Three entries of 10, 11 and 12 rows, last used 300, 200 and 100 seconds ago.
fn three(home: &Home) -> [Key; 3] {
    let keys = [key(10), key(11), key(12)];
    for (key, ago) in keys.iter().zip([300, 200, 100]) {
        fill(&home.store(), key);
        used(home, key, ago);
    }
    keys
}

#[test]
fn the_least_recently_used_goes_first() {
    let home = Home::new();
    let keys = three(&home);
    drop(home.store().find(&keys[0]).unwrap());
    let names: Vec<_> = home.store().entries().unwrap().into_iter().map(|e| e.digest).collect();
    assert_eq!(names, [&keys[1], &keys[2], &keys[0]].map(Key::digest), "reading is using");
    let total = bytes(&home.store());
    let removed = home.with_budget(total - 1).collect().unwrap();
    assert_eq!(removed.len(), 1);
    assert_eq!(there(&home, &keys), [true, false, true]);
    assert_eq!(home.with_budget(total).collect().unwrap().len(), 0, "within the budget all stay");
    home.with_budget(0).collect().unwrap();
    assert_eq!(there(&home, &keys), [false; 3]);
}

#[test]
fn room_is_made_while_writing() {
    let home = Home::new();
    let keys = three(&home);
    let store = home.with_budget(bytes(&home.store()) + 100);
    fill(&store, &key(9));
    assert_eq!(there(&home, &keys), [false, true, true]);
    assert!(bytes(&store) <= store.budget());
}

#[test]
fn what_is_in_use_stays() {
    let home = Home::new();
    let keys = three(&home);
    let reader = home.store().find(&keys[1]).unwrap().unwrap();
    let mut writer = miss(&home.store(), &key(13));
    writer.append(&rows(0, 13)).unwrap();
    writer.flush().unwrap();
    home.with_budget(0).collect().unwrap();
    assert_eq!(there(&home, &keys), [false, true, false]);
    drop(reader);
    writer.finish().unwrap();
    assert!(home.entry(&key(13)).is_dir());
}

#[test]
fn what_does_not_fit_is_refused_and_kept_so_far() {
    let home = Home::new();
    let store = home.with_budget(20_000);
    let mut writer = miss(&store, &key(10));
    writer.append(&rows(0, 1)).unwrap();
    writer.flush().unwrap();
    writer.append(&rows(1, 10)).unwrap();
    let error = writer.flush().unwrap_err();
    assert!(matches!(error, StoreError::OverBudget { budget: 20_000, .. }), "{error}");
    assert!(error.to_string().contains("its budget is 20000"), "{error}");
    drop(writer);
    assert_eq!(miss(&home.store(), &key(10)).rows(), 1);
}

#[test]
fn what_dead_writers_left_is_collected_and_what_live_ones_write_is_not() {
    let home = Home::new();
    for rows_there in [3, 4] {
        let mut writer = miss(&home.store(), &key(rows_there));
        writer.append(&rows(0, 1)).unwrap();
        writer.flush().unwrap();
    }
    std::fs::create_dir(home.path().join("aa.removed")).unwrap();
    let live = miss(&home.store(), &key(4));
    let removed = home.store().collect().unwrap();
    let names: Vec<_> = removed.iter().map(|entry| (&entry.digest, entry.state)).collect();
    assert_eq!(names, [(&key(3).digest(), State::Partial)]);
    assert!(!home.partial(&key(3)).exists() && home.partial(&key(4)).is_dir());
    assert!(!home.path().join("aa.removed").exists(), "a removal cut short is ended");
    assert_eq!(live.rows(), 1);
}

#[test]
fn folders_of_other_names_are_left_alone() {
    let home = Home::new();
    fill(&home.store(), &key(3));
    std::fs::create_dir(home.path().join("mine")).unwrap();
    std::fs::write(home.path().join("note"), "").unwrap();
    home.with_budget(0).collect().unwrap();
    assert!(home.path().join("mine").is_dir() && home.path().join("note").is_file());
    assert_eq!(home.store().entries().unwrap().len(), 0);
}
