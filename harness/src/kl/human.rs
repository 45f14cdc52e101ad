//! A comparison as people read it.

use super::{
    Clusters, Origin, Report, SideInfo,
    control::ControlLane,
    verdict::{Check, Outcome, Verdict},
    windows::{Convention, Cut},
};
use crate::stats::{Agreement, Distribution, Intervals, Perplexity, Side};

/// The whole table.
pub fn table(report: &Report) -> String {
    let mut lines = head(report);
    lines.push(String::new());
    lines.extend(numbers(report));
    lines.push(String::new());
    lines.extend(report.control.iter().map(control));
    lines.extend(report.nonfinite.iter().map(|found| {
        let side = if found.side == Side::Teacher { "teacher" } else { "student" };
        let (position, token) = (found.position, found.token);
        row("not finite", &format!("{side} logits[{position}, {token}] = {}", found.value))
    }));
    lines.extend(report.notes.iter().map(|note| row("note", note)));
    lines.push(String::new());
    lines.extend(verdict(&report.verdict));
    lines.push(tail(report));
    lines.join("\n")
}

fn head(report: &Report) -> Vec<String> {
    let text = &report.text;
    let Cut { window, convention, documents } = &text.cut;
    let scored = match convention {
        Convention::Every => "every position".to_owned(),
        Convention::SecondHalf => format!("positions {} and later of each", window / 2),
    };
    let documents = match documents.len() {
        1 => String::new(),
        count => format!(" in {count} documents"),
    };
    let how = format!(
        "{}: {} tokens{documents}, {} windows of {window}, {scored}, calls of {}",
        text.from,
        count(text.tokens),
        text.windows,
        text.call
    );
    vec![
        row("teacher", &side(&report.teacher)),
        row("student", &side(&report.student)),
        row("text", &how),
    ]
}

fn side(info: &SideInfo) -> String {
    let SideInfo { source, origin, vocab, dtype } = info;
    let origin = match origin {
        Origin::Engine(computed) => {
            format!("{}; {}", computed.composition, computed.fingerprint.class())
        }
        Origin::Dump { .. } => "computed elsewhere".to_owned(),
    };
    format!("{source}  ({dtype}, {} tokens; {origin})", count(*vocab))
}

fn numbers(report: &Report) -> Vec<String> {
    let summary = &report.summary;
    let kl = |found: &Distribution, p99: &str| {
        let Distribution { median, p95, p999, max, .. } = found;
        format!(
            "median {} · p95 {} · p99 {}{p99} · p99.9 {} · max {}",
            number(*median),
            number(*p95),
            number(found.p99),
            number(*p999),
            number(*max)
        )
    };
    let at = summary.kl.max_at.filter(|_| summary.kl.max > 0.0);
    let at = at.map_or(String::new(), |at| format!(" at position {at}"));
    let p99 = interval(summary.kl_p99.as_ref());
    let mean = interval(summary.kl_mean.as_ref());
    let mut lines = vec![
        row(
            "KL, nats",
            &format!("mean {}{mean} · {}{at}", number(summary.kl.mean), kl(&summary.kl, &p99)),
        ),
        row(
            "reverse",
            &format!("mean {} · {}", number(summary.reverse_kl.mean), kl(&summary.reverse_kl, "")),
        ),
    ];
    if let Some(variation) = &summary.total_variation {
        let (mean, max) = (number(variation.mean), number(variation.max));
        lines.push(row("total var.", &format!("mean {mean} · max {max}")));
    }
    lines.push(row("argmax", &agreement(&summary.agreement)));
    let margin = number(summary.options.noise_margin);
    lines.push(row(
        "decided",
        &format!("{} with a margin above {margin}", agreement(&summary.decided)),
    ));
    lines.push(row("top tokens", &format!("overlap {:.5}", summary.top_k_overlap)));
    lines.extend(summary.perplexity.as_ref().map(|found| row("perplexity", &perplexity(found))));
    if let Some(delta) = &summary.delta_p {
        let (mean, rms) = (signed(delta.mean), number(delta.rms));
        lines.push(row("Δp, true", &format!("mean {mean} · rms {rms}")));
    }
    lines.push(row(
        "entropy",
        &format!(
            "teacher {} · student {} · teacher's margin median {}",
            number(summary.entropy_teacher),
            number(summary.entropy_student),
            number(summary.margin_teacher.median)
        ),
    ));
    lines.push(row("intervals", &intervals(report)));
    lines
}

fn intervals(report: &Report) -> String {
    let Clusters { block, count, .. } = report.clusters;
    let of = match block {
        None => format!("{count} windows"),
        Some(length) => format!("{count} blocks of up to {length} neighbouring positions"),
    };
    let options = &report.summary.options;
    let seen = match (report.summary.detectable_kl, report.summary.detectable_disagreement) {
        (Some(kl), Some(part)) => {
            format!("; would have seen KL {}, disagreement {}", number(kl), number(part))
        }
        _ => String::new(),
    };
    format!("{} %, {} resamples of {of}{seen}", options.level * 100.0, options.resamples)
}

fn perplexity(found: &Perplexity) -> String {
    let Perplexity { teacher, student, ratio, ratio_interval, .. } = found;
    let bounds = ratio_interval
        .map_or(String::new(), |bounds| format!(" [{:.5}, {:.5}]", bounds.low, bounds.high));
    format!("{teacher:.4} → {student:.4}, ratio {ratio:.5}{bounds}")
}

fn agreement(found: &Agreement) -> String {
    let bounds = found
        .wilson
        .map_or(String::new(), |bounds| format!(" [{:.5}, {:.5}]", bounds.low, bounds.high));
    format!(
        "{}/{} = {:.5}{bounds}",
        count(found.agree as usize),
        count(found.of as usize),
        found.share()
    )
}

fn control(lane: &ControlLane) -> String {
    let ControlLane { name, how, windows, equal_bits, summary, .. } = lane;
    let positions = summary.positions + summary.unscored;
    let Agreement { agree, of, .. } = summary.agreement;
    row(
        "control",
        &format!(
            "{name}, {how}: first {windows} windows, {equal_bits}/{positions} positions bit-equal, KL \
             mean {} max {}, agree {agree}/{of}",
            number(summary.kl.mean),
            number(summary.kl.max)
        ),
    )
}

fn verdict(verdict: &Verdict) -> Vec<String> {
    let mut lines: Vec<_> = verdict.checks.iter().map(check).collect();
    if verdict.nonfinite > 0 {
        let text =
            format!("FAIL  {} logits are NaN or infinite", count(verdict.nonfinite as usize));
        lines.push(row("verdict", &text));
    } else if verdict.checks.is_empty() {
        lines.push(row("verdict", "none: no threshold was given"));
    }
    lines
}

fn check(check: &Check) -> String {
    let Check { what, upper, floor, excess, most, outcome, .. } = check;
    let said = |value: &Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let outcome = match outcome {
        Outcome::Held => "held",
        Outcome::Exceeded => "FAIL",
        Outcome::BelowFloor => "REFUSED, below the control's floor",
        Outcome::NoInterval => "REFUSED, too few clusters for an interval",
    };
    let text = format!(
        "{outcome}  {what} at most {} above control {} = {} <= {}",
        said(upper),
        number(*floor),
        said(excess),
        number(*most)
    );
    row("verdict", &text)
}

fn tail(report: &Report) -> String {
    let memory = report.peak_memory.map_or(String::new(), |bytes| {
        format!(" · at most {:.0} MB in all processes", bytes as f64 / 1e6)
    });
    let resumed = match report.resumed {
        0 => String::new(),
        count => format!(", {count} positions of an earlier sitting"),
    };
    row("run", &format!("{:.1} s{resumed}{memory} · {}", report.seconds, report.record))
}

fn row(name: &str, text: &str) -> String {
    format!("{name:<11}{text}").trim_end().to_owned()
}

fn interval(found: Option<&Intervals>) -> String {
    found.map_or_else(
        || " [no interval]".to_owned(),
        |found| format!(" [{}, {}]", number(found.bca.low), number(found.bca.high)),
    )
}

/// Four digits; 0 only where it is exactly that.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    match value.abs() {
        size if (1e-3..1e4).contains(&size) => {
            format!("{value:.*}", (3 - size.log10().floor() as i32).max(0) as usize)
        }
        _ => format!("{value:.3e}"),
    }
}

fn signed(value: f64) -> String {
    if value > 0.0 { format!("+{}", number(value)) } else { number(value) }
}

/// With thousands apart.
fn count(value: usize) -> String {
    let digits = value.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
    groups.into_iter().map(String::from_utf8_lossy).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        let found = [0.0, 1.0, 0.012_345, 123.456, 1.5e-7, 12_345.0, f64::NAN].map(number);
        assert_eq!(found, ["0", "1.000", "0.01235", "123.5", "1.500e-7", "1.234e4", "NaN"]);
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
