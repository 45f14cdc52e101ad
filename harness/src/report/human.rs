//! The terminal report: a heading, a table, the failures in full, one closing line.

use super::{Context, columns, thousands};
use crate::{
    compare::{ToleranceReport, tolerance::WorstElement},
    envelope::EnvelopeReport,
    gradcheck::GradientReport,
    row::{FAULT, FIRST_IN, NotRunKind, Outcome, Row, Tier},
    summary::{Counts, Group, groups},
};

/// Failures shown in full before the rest is only counted.
const SHOWN_FAILURES: usize = 8;

/// `mlx-parity 0.1.0 · MLX 0.32.2 cpu · x86_64-linux (…) · oracle … · 412 checks, 2 workers`.
pub fn header(context: &Context, checks: usize) -> String {
    let fingerprint = &context.fingerprint;
    format!(
        "mlx-parity {} · MLX {} {} · {}-{} ({}) · oracle {} · {}{} checks, {} worker{}",
        env!("CARGO_PKG_VERSION"),
        fingerprint.mlx,
        fingerprint.backend,
        fingerprint.arch,
        fingerprint.os,
        fingerprint.chip,
        context.oracle,
        levers().map(|levers| format!("kernels {levers} · ")).unwrap_or_default(),
        thousands(checks),
        context.workers,
        if context.workers == 1 { "" } else { "s" },
    )
}

/// The levers of kernels that the environment pulls (`MLX_PARITY_KERNELS`).
fn levers() -> Option<String> {
    std::env::var("MLX_PARITY_KERNELS").ok().filter(|levers| !levers.is_empty())
}

/// One line for each tier, subject and dtype.
pub fn table(rows: &[Row]) -> String {
    let heads = ["tier", "subject", "dtype", "checks", "held", "differ", "not run", "worst"];
    let mut cells = vec![heads.map(str::to_owned).to_vec()];
    cells.extend(groups(rows).iter().filter_map(line));
    columns(&cells, &[3, 4, 5, 6]).join("\n")
}

fn line(group: &Group) -> Option<Vec<String>> {
    let (tier, subject, dtype) = group.key.as_ref()?;
    let counts = group.counts;
    let ran = counts.checks - counts.not_run;
    let number = |n: usize| if ran == 0 { "–".to_owned() } else { thousands(n) };
    let differ = counts.failed + counts.crashed + counts.expected;
    let star = if counts.expected > 0 { "*" } else { "" };
    Some(vec![
        tier.label().to_owned(),
        subject.clone(),
        dtype.clone(),
        if ran == 0 { "–".to_owned() } else { thousands(counts.checks) },
        number(counts.held),
        format!("{}{star}", number(differ)),
        thousands(counts.not_run),
        group.worst.clone().unwrap_or_default(),
    ])
}

/// The failures in full, the gravest kind first as rows come.
pub fn failures(rows: &[Row]) -> String {
    let failed: Vec<_> = rows.iter().filter(|row| row.failed()).collect();
    let mut blocks: Vec<_> = failed.iter().take(SHOWN_FAILURES).map(|row| failure(row)).collect();
    if failed.len() > SHOWN_FAILURES {
        let rest = failed.len() - SHOWN_FAILURES;
        blocks.push(format!("… and {} more, all in the record", thousands(rest)));
    }
    blocks.join("\n\n")
}

/// One failing check: what, where, the values, how to replay it.
pub fn failure(row: &Row) -> String {
    let word = match &row.outcome {
        Outcome::NotRun { .. } => "NOT RUN",
        Outcome::Crashed { .. } => "CRASHED",
        _ => "FAIL",
    };
    let mut lines = vec![format!("{word} {}", row.id)];
    match &row.outcome {
        Outcome::Error { message } | Outcome::NotRun { message, .. } => lines.push(message.clone()),
        Outcome::Crashed { how } => lines.push(format!("crashed: {how}")),
        Outcome::UnexpectedPass { reason } => lines.push(format!(
            "holds, but goldens/expectations.toml expects a failure ({reason}); delete the entry"
        )),
        Outcome::Differ | Outcome::Held | Outcome::ExpectedFailure { .. } => {}
    }
    if let Some(report) = &row.envelope {
        lines.extend(envelope(report));
    }
    if let Some(report) = row.tolerance.as_ref().filter(|report| !report.held) {
        lines.extend(over(report));
    }
    if let Some(report) = &row.gradient {
        lines.extend(gradient(report));
    }
    if let Some(report) = &row.report {
        lines.push(report.named(tensor_name(row)).to_string());
    }
    lines.extend(row.composition.iter().map(|named| format!("composition {named}")));
    if let Some(convention) = &row.convention {
        lines.push(format!("follows  the convention {convention}"));
    }
    lines.extend(row.notes.iter().map(|note| format!("note     {note}")));
    // Only a model has intermediates to explain a difference with.
    let bare = matches!(row.tier, Tier::Ops | Tier::Metal | Tier::Vjp);
    let explain = if bare { "" } else { " --explain" };
    let fault = row.notes.iter().find_map(|note| note.strip_prefix(FAULT));
    let fault = fault.map(|name| format!(" --fault {name}")).unwrap_or_default();
    lines.push(format!("replay   mlx-parity case {}{explain}{fault}", row.id));
    lines.join("\n").replace('\n', "\n  ")
}

/// A composition outside of its envelope: the numbers, then each bound that is broken or refused.
fn envelope(report: &EnvelopeReport) -> Vec<String> {
    let EnvelopeReport { kl, agreement, decided, noise_margin, .. } = report;
    let mut lines = vec![
        report.to_string(),
        format!(
            "median {:.1e} · p95 {:.1e} · p99 {:.1e} · max {:.1e} at position {}",
            kl.median,
            kl.p95,
            kl.p99,
            kl.max,
            kl.max_at.map_or("–".to_owned(), |at| at.to_string())
        ),
        format!(
            "agree {}/{} · of those with a margin above {noise_margin:.1e} nats {}/{}",
            agreement.agree, agreement.of, decided.agree, decided.of
        ),
    ];
    lines.extend(report.refused.iter().map(|reason| format!("refused  {reason}")));
    lines.extend(report.broken.iter().map(|reason| format!("broken   {reason}")));
    lines
}

/// Gradients that differ: the worst comparison, how many, what was needed to know, each broken property.
fn gradient(report: &GradientReport) -> Vec<String> {
    let GradientReport { comparisons, over, at, orders, step, spread, failures, .. } = report;
    let mut lines = vec![
        format!("{at}: {}", report.words()),
        format!("over {over} of {comparisons} comparisons"),
        format!(
            "differences: {} forward, {} central, {} five-point; step {step:.1e}, uncertain by {spread:.0e}",
            orders[0], orders[1], orders[2]
        ),
    ];
    lines.extend(failures.iter().map(|failure| format!("broken   {failure}")));
    lines
}

/// Values out of their bound: the worst one, how many, and the bound that would let them pass.
fn over(report: &ToleranceReport) -> Vec<String> {
    let ToleranceReport { tolerance, elements, over, apart, minimum, worst, .. } = report;
    let mut lines = Vec::new();
    if let Some(WorstElement { coords, got, want, reference, units, .. }) = worst {
        let units = units.map_or("another class".to_owned(), |units| format!("{units:.2} ulp"));
        lines.push(format!(
            "value{coords:?}   got {got}   want {want}   reference {reference}   {units}"
        ));
    }
    let apart = if *apart > 0 { format!(" · {apart} of another class") } else { String::new() };
    lines.push(format!(
        "over {over} of {elements}{apart} · bound {tolerance} ulp · {minimum:.3} would hold all of the right class"
    ));
    lines
}

fn tensor_name(row: &Row) -> &str {
    let named = row.notes.iter().find_map(|note| note.strip_prefix(FIRST_IN));
    match row.tier {
        Tier::Ops => "value",
        _ if let Some(name) = named => name,
        _ if row.id.ends_with("/tokenize") || row.id.ends_with("/ids") => "ids",
        _ => "logits",
    }
}

/// Failures that are on file, one line for each fault: its kind, where it is filed, the checks.
pub fn expected(rows: &[Row]) -> String {
    let mut faults: Vec<(Vec<String>, usize)> = Vec::new();
    for row in rows {
        let Outcome::ExpectedFailure { reason, fault, upstream } = &row.outcome else { continue };
        let what = format!("{} {}", row.subject, row.dtype);
        let line = vec![what, fault.clone(), upstream.clone(), reason.clone()];
        match faults.iter_mut().find(|(known, _)| *known == line) {
            Some((_, count)) => *count += 1,
            None => faults.push((line, 1)),
        }
    }
    if faults.is_empty() {
        return String::new();
    }
    let heads = ["expected failures", "checks", "kind", "upstream", "reason"];
    let mut cells = vec![heads.map(str::to_owned).to_vec()];
    cells.extend(faults.into_iter().map(|(mut line, count)| {
        line.insert(1, thousands(count));
        line
    }));
    columns(&cells, &[1]).join("\n")
}

/// The closing lines: counts, times, where the record is.
pub fn tally(rows: &[Row], context: &Context) -> String {
    let counts = Counts::of(rows);
    let engine: f64 = rows.iter().map(|row| row.engine_ms).sum::<f64>() / 1e3;
    let mut parts = vec![format!("{} held", thousands(counts.held))];
    if counts.expected > 0 {
        parts.push(format!("{} expected failures", thousands(counts.expected)));
    }
    parts.push(format!("{} not run", thousands(counts.not_run)));
    if counts.crashed > 0 {
        parts.push(format!("{} crashed", thousands(counts.crashed)));
    }
    parts.push(format!("{} failed", thousands(counts.failed)));
    let total = format!("{} checks: {}", thousands(counts.checks), parts.join(" · "));
    let times = format!("{:.1} s (MLX {engine:.1} s)", context.seconds);
    let mut lines = vec![format!("{total}    {times}")];
    for reason in left_out(rows) {
        lines.push(format!("not run  {reason}"));
    }
    for complaint in &context.complaints {
        lines.push(format!("FAIL     {complaint}"));
    }
    lines.push(format!("record   {}", context.record));
    lines.join("\n")
}

/// Reasons of checks that did not run and fail nothing, each once.
fn left_out(rows: &[Row]) -> Vec<String> {
    let mut reasons = Vec::new();
    for row in rows {
        if let Outcome::NotRun { kind, message } = &row.outcome
            && *kind != NotRunKind::Interrupted
            && !row.failed()
        {
            let reason = format!("{} {}: {message}", row.subject, row.dtype);
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
    }
    reasons
}
