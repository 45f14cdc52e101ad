//! Prints which detector of which mode catches each planted fault, as a table in Markdown:
//! `cargo run -p mlx-parity-msl-emu --example fault_table`.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use mlx_parity_msl_emu::{Mode, run};

use support::options;
use support::plants::{Plant, Sign, plants};
use support::sighting::{Sighting, sighting};
use support::subjects::named;

fn seen(plant: &Plant, mode: Mode) -> (Sighting, Option<u32>) {
    let subject = named(plant.kernel);
    let case = &(subject.cases)(plant.dtype)[plant.case];
    let body = plant.body(&subject.body());
    let mut options = options(mode);
    options.time_limit = Duration::from_secs(5);
    let outcome = run(&subject.with_body(body.clone()), &case.launch(), &options);
    let line = (!plant.at.is_empty()).then(|| plant.line(&body));
    (sighting(plant, &body, case, &outcome), line)
}

/// What a mode has to say: its detectors, or that a value is wrong, or nothing.
fn cell(sighting: &Sighting) -> String {
    let mut words: Vec<&str> = sighting.detectors().into_iter().collect();
    if sighting.is_wrong() {
        words.push("ref64");
    }
    words.join(", ")
}

fn row(plant: &Plant) -> String {
    let mut cells = Vec::new();
    let mut line = None;
    for mode in Mode::ALL {
        let (sighting, at) = seen(plant, mode);
        line = at;
        cells.push(cell(&sighting));
    }
    let kind = match plant.sign {
        Sign::Report(kinds) => format!("{:?}", kinds[0]),
        Sign::Nowhere(kind) => format!("{kind:?}"),
        Sign::Value => "wrong value".to_owned(),
    };
    let place = match line {
        Some(line) => format!("{}:{line}", plant.kernel),
        None => plant.kernel.to_owned(),
    };
    format!("| {} | {place} | {kind} | {} |", plant.name, cells.join(" | "))
}

fn main() {
    let modes: Vec<&str> = Mode::ALL.iter().map(|mode| mode.name()).collect();
    println!("| fault | kernel and line | kind | {} |", modes.join(" | "));
    println!("|{}", "---|".repeat(3 + modes.len()));
    for plant in plants() {
        println!("{}", row(plant));
    }
}
