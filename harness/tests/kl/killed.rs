//! Runs that are killed, and workers that die.

use std::{process::Stdio, time::Duration};

use super::*;

/// What must not depend on how often a run was killed.
fn numbers(report: &Report) -> String {
    let Report { summary, by_place, histogram, control, verdict, .. } = report;
    serde_json::to_string(&(summary, by_place, histogram, control, verdict)).unwrap()
}

fn record(bench: &Bench) -> Option<PathBuf> {
    let dir = fs::read_dir(bench.path("record")).ok()?.flatten().next()?;
    Some(dir.path().join("positions.jsonl"))
}

fn lines(bench: &Bench) -> usize {
    record(bench)
        .and_then(|path| fs::read_to_string(path).ok())
        .map_or(0, |text| text.lines().count())
}

fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if there() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what} never came");
}

/// Children of a process, by what the system says of every process.
fn children(parent: u32) -> Vec<u32> {
    let stat = |pid: u32| fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let Some(text) = stat(*pid) else { return false };
            let after = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
            after.split(' ').nth(1) == Some(&parent.to_string())
        })
        .collect()
}

const RUN: [&str; 8] =
    ["--teacher", "glassllm-f32", "--student", "glassllm-4bit", "--window", "8", "--text", ""];

fn arguments(text: &str) -> Vec<&str> {
    let mut run = RUN.to_vec();
    run[7] = text;
    run
}

#[test]
fn a_killed_run_ends_with_identical_numbers() {
    let whole = Bench::new();
    let text = whole.text(1600);
    let run = arguments(&text);
    let wanted = whole.report(&run, HELD);
    let bench = Bench::new();
    let mut child =
        bench.command(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the third window", || lines(&bench) >= 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let done = lines(&bench);
    assert!(done < wanted.text.windows, "it ended before it was killed");
    // As a kill in the middle of a write leaves it.
    let path = record(&bench).unwrap();
    let torn = fs::read_to_string(&path).unwrap() + "{\"window\":";
    fs::write(&path, torn).unwrap();
    let resumed = bench.report(&[&run[..], &["--resume"]].concat(), HELD);
    assert!(resumed.resumed > 0);
    assert_eq!(numbers(&resumed), numbers(&wanted));
    // Once it is whole, it is not computed again.
    let again = bench.report(&[&run[..], &["--resume"]].concat(), HELD);
    assert_eq!(again.resumed as u64, again.summary.positions);
    assert_eq!(numbers(&again), numbers(&wanted));
}

#[test]
fn a_dead_worker_exits_103_and_nothing_is_lost() {
    let whole = Bench::new();
    let text = whole.text(1600);
    let run = arguments(&text);
    let bench = Bench::new();
    let child = bench.command(&run).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the third window", || lines(&bench) >= 3);
    let workers = children(child.id());
    assert_eq!(workers.len(), 2, "two models, two workers");
    Command::new("kill").args(["-ABRT", &workers[0].to_string()]).status().unwrap();
    let done = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(CRASHED), "{stderr}");
    assert!(stderr.contains("is gone: SIGABRT") && stderr.contains("--resume"), "{stderr}");
    let kept = lines(&bench);
    assert!(kept >= 3);
    let resumed = bench.report(&[&run[..], &["--resume"]].concat(), HELD);
    assert!(resumed.resumed >= kept * 8);
    assert_eq!(numbers(&resumed), numbers(&whole.report(&run, HELD)));
}

#[test]
fn another_text_is_another_run() {
    let bench = Bench::new();
    let text = bench.text(2000);
    let run = arguments(&text);
    let ran = bench.run(&[&run[..], &["--resume"]].concat()).expect(USAGE);
    assert!(ran.stderr.contains("nothing to resume"), "{}", ran.stderr);
    bench.run(&run).expect(HELD);
    bench.text(1000);
    bench.run(&[&run[..], &["--resume"]].concat()).expect(USAGE);
}
