//! The ledger as TOML.

use std::collections::BTreeMap;

use mlx_parity_tensor::Dtype;
use serde::{Deserialize, Serialize, Serializer};

use super::{
    Cell, Decision, Entry, Evidence, Finding, LEDGER_SCHEMA, Ledger, LedgerError, Place, decide,
    seal,
};

/// What stands above the entries.
const HEAD: &str = "\
# Decisions of the gate: written by `mlx-parity gate`, accepted with `mlx-parity ledger accept`. An entry that was
# edited by hand is refused.

";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireLedger {
    schema: u32,
    #[serde(default, rename = "entry", skip_serializing_if = "Vec::is_empty")]
    entries: Vec<WireEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireEntry {
    kernel: String,
    backend: String,
    chip: String,
    dtype: Dtype,
    class: String,
    mlx: String,
    digest: String,
    decision: String,
    record: String,
    seal: String,
    /// `E0 = "held: …"`
    #[serde(serialize_with = "by_number")]
    evidence: BTreeMap<String, String>,
}

/// E2 before E10.
fn by_number<S: Serializer>(
    evidence: &BTreeMap<String, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let there = Evidence::ALL.into_iter().map(Evidence::code);
    serializer.collect_map(there.filter_map(|code| evidence.get_key_value(code)))
}

pub(super) fn parse(text: &str) -> Result<Ledger, LedgerError> {
    let WireLedger { schema, entries } =
        toml::from_str(text).map_err(|error| LedgerError::Format(error.to_string()))?;
    if schema != LEDGER_SCHEMA {
        return Err(LedgerError::Schema { found: schema });
    }
    let mut ledger = Ledger::default();
    for entry in entries {
        let entry = read(entry)?;
        if ledger.find(&entry.cell).is_some() {
            return Err(LedgerError::Twice { cell: entry.cell.to_string() });
        }
        ledger.put(entry);
    }
    Ok(ledger)
}

fn read(wire: WireEntry) -> Result<Entry, LedgerError> {
    let WireEntry { kernel, backend, chip, dtype, class, mlx, digest, .. } = wire;
    let place = Place { backend, chip, mlx };
    let cell = Cell { kernel, place, dtype, class, digest };
    let named = cell.to_string();
    let format = |message: String| LedgerError::Format(format!("{named}: {message}"));
    let decision: Decision = wire.decision.parse().map_err(format)?;
    let mut evidence = Vec::new();
    for (code, text) in &wire.evidence {
        evidence.push(finding(code, text).map_err(format)?);
    }
    evidence.sort_by_key(|finding| finding.evidence);
    let entry = Entry { cell, decision, evidence, record: wire.record, seal: wire.seal };
    believable(entry)
}

fn finding(code: &str, text: &str) -> Result<Finding, String> {
    let evidence = Evidence::ALL
        .into_iter()
        .find(|evidence| evidence.code() == code)
        .ok_or_else(|| format!("unknown evidence `{code}`, wanted E0 to E10"))?;
    let (verdict, what) = text.split_once(": ").ok_or_else(|| {
        format!("{code} = `{text}`: wanted a verdict, a colon and what was found")
    })?;
    Ok(Finding::new(evidence, verdict.parse().map_err(|why| format!("{code}: {why}"))?, what))
}

/// The entry, where what it says hangs together.
fn believable(entry: Entry) -> Result<Entry, LedgerError> {
    let cell = entry.cell.to_string();
    let wanted = decide(&entry.evidence);
    if entry.decision != wanted {
        let (found, wanted) = (entry.decision.word(), wanted.word());
        return Err(LedgerError::Unfounded { cell, found, wanted });
    }
    if entry.decision == Decision::Promote && entry.cell.place.backend.ends_with("-emulated") {
        return Err(LedgerError::Emulated { cell });
    }
    if seal::of(&entry) != entry.seal {
        return Err(LedgerError::Seal { cell });
    }
    Ok(entry)
}

pub(super) fn text(ledger: &Ledger) -> String {
    let entries = ledger.entries.iter().map(wire).collect();
    let body = toml::to_string(&WireLedger { schema: LEDGER_SCHEMA, entries });
    format!("{HEAD}{}", body.expect("strings and numbers are TOML"))
}

fn wire(entry: &Entry) -> WireEntry {
    let Entry { cell, decision, evidence, record, seal } = entry.clone();
    let Cell { kernel, place: Place { backend, chip, mlx }, dtype, class, digest } = cell;
    let evidence =
        evidence.iter().map(|of| (of.evidence.code().to_owned(), of.to_string())).collect();
    let decision = decision.word().to_owned();
    WireEntry { kernel, backend, chip, dtype, class, mlx, digest, decision, record, seal, evidence }
}
