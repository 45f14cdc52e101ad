//! Every planted fault is caught, with its kind and its line.

mod support;

use std::time::Duration;

use mlx_parity_msl_emu::{Mode, run};

use support::options;
use support::plants::{Plant, Sign, plants};
use support::sighting::{Sighting, sighting};
use support::subjects::named;

/// What mode `fibers` sees of a plant; the others are in `examples/fault_table.rs`.
fn seen(plant: &Plant) -> Sighting {
    let subject = named(plant.kernel);
    let case = &(subject.cases)(plant.dtype)[plant.case];
    let body = plant.body(&subject.body());
    let mut options = options(Mode::Fibers);
    options.time_limit = Duration::from_secs(3);
    let outcome = run(&subject.with_body(body.clone()), &case.launch(), &options);
    sighting(plant, &body, case, &outcome)
}

#[test]
fn every_plant_is_caught() {
    let missed: Vec<String> = plants()
        .map(|plant| (plant, seen(plant)))
        .filter(|(_, sighting)| !sighting.caught())
        .map(|(plant, sighting)| format!("{}: {}", plant.name, sighting.describe()))
        .collect();
    assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n"));
}

#[test]
fn every_plant_finds_its_place() {
    for plant in plants() {
        let body = plant.body(&named(plant.kernel).body());
        assert!(plant.line(&body) > 0, "{}", plant.name);
    }
}

#[test]
fn most_plants_are_to_be_named_by_line() {
    let with_line = |plant: &&Plant| matches!(plant.sign, Sign::Report(_));
    assert!(plants().count() >= 45);
    assert!(plants().filter(with_line).count() >= 30);
}
