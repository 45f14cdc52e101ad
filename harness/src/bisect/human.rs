//! A report for people.

use std::fmt::Write as _;

use super::{
    gap::Gap,
    report::{Found, LayerGap, Outcome, Parting, Report},
};

/// Widest bar of the profile.
const BAR: f64 = 30.0;

/// What a bar grows by where the error grows tenfold.
const STEPS: f64 = 4.0;

/// Names of one-sided intermediates that are shown.
const SHOWN: usize = 4;

/// The report as text, without a line end.
pub fn text(report: &Report) -> String {
    let Report { model, good, bad, script, threshold, repeats, outcome, replay } = report;
    let mut lines = vec![
        format!("bisect {model}   good {good}   bad {bad}"),
        line(
            "runs",
            &format!("{} ids in calls of {:?}; {threshold}", script.ids().len(), script.calls()),
        ),
    ];
    match outcome {
        Outcome::Same { relative } => {
            let most = number(*relative);
            lines.push(line(
                "same",
                &format!(
                    "the logits of no call part; relative error at most {most}, {repeats} runs each"
                ),
            ));
        }
        Outcome::NotDeterministic { side, runs, differ, call, seen_at } => {
            lines.push(line("not deterministic", ""));
            lines.push(line(
                "",
                &format!("{differ} of {runs} runs of the {side} path give other logits than its first, from call {call} on"),
            ));
            let seen = seen_at.as_ref().map_or_else(
                || "watched, it repeats itself".to_owned(),
                |point| format!("watched, its runs part first at {point}"),
            );
            lines.push(line("", &seen));
        }
        Outcome::LostIt { why } => {
            lines.push(line("lost it", "unwatched the paths part, and watching changes that"));
            lines.push(line("", why));
        }
        Outcome::Found(found) => lines.extend(found_lines(found, *repeats)),
    }
    lines.push(line("replay", replay));
    lines.join("\n")
}

fn found_lines(found: &Found, repeats: usize) -> Vec<String> {
    let Found { call, logits, last_equal, first, parting, cache, swallowed, probes, held, .. } =
        found;
    let mut lines =
        vec![line("outputs", &format!("part in call {call}, {repeats} unwatched runs each"))];
    lines.extend(parting_lines(logits));
    let place = first.layer().map_or("outside of layers".to_owned(), |layer| layer.to_string());
    lines.push(line("layer", &place));
    lines.push(line("op", &format!("{first}")));
    let before = last_equal.as_ref().map_or_else(
        || "it is the first that is compared".to_owned(),
        |point| format!("behind {}, which does not part", point.name),
    );
    lines.push(line("", &before));
    lines.extend(parting_lines(parting));
    if let Some(cache) = cache {
        lines.push(line("cache", &format!("{} parts before that call", cache.tensor)));
        lines.extend(parting_lines(&cache.parting));
    }
    if let Some(point) = swallowed {
        lines.push(line("swallowed", &format!("{point} does not part")));
    }
    lines.push(line(
        "stands",
        &format!("{held} of {repeats} repeats; {probes} watched runs, each with the logits of the unwatched"),
    ));
    if !found.one_sided.is_empty() {
        lines.push(line("not compared", &one_sided(&found.one_sided)));
    }
    lines.extend(profile_lines(&found.profile));
    lines
}

fn one_sided(names: &[String]) -> String {
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => format!("{shown}: only one path gives them"),
        more => format!("{shown} and {more} more: only one path gives them"),
    }
}

fn parting_lines(parting: &Parting) -> Vec<String> {
    let Parting { gap, spread, element, forms } = parting;
    if !gap.same_form {
        let [got, want] = forms;
        let forms =
            format!("got {} {:?}, want {} {:?}", got.dtype, got.shape, want.dtype, want.shape);
        if spread.is_none() {
            return vec![line("", &forms)];
        }
    }
    let mut lines = Vec::new();
    if let Some(element) = element {
        lines.push(line(
            "",
            &format!(
                "element {:?}   got {} ({})   want {} ({})",
                element.coords,
                element.got.hex,
                element.got.decimal,
                element.want.hex,
                element.want.decimal
            ),
        ));
    }
    if let Some(spread) = spread {
        let Gap { elements, relative, .. } = gap;
        let most = number(*relative);
        lines.push(line(
            "",
            &format!("{} of {elements} part, in {spread}; relative error {most}", spread.count),
        ));
    }
    lines
}

fn profile_lines(profile: &[LayerGap]) -> Vec<String> {
    let errors = profile.iter().map(|row| row.gap.relative);
    let least = errors.filter(|x| *x > 0.0 && x.is_finite()).fold(f64::INFINITY, f64::min);
    let bar = |x: f64| if x > 0.0 { (1.0 + STEPS * (x / least).log10()).min(BAR) } else { 0.0 };
    let width = profile.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut lines = Vec::with_capacity(profile.len());
    for (at, LayerGap { name, gap }) in profile.iter().enumerate() {
        let label = if at == 0 { "profile" } else { "" };
        let mut text = format!("{name:width$}  {:>8}  ", number(gap.relative));
        // Writing to a String cannot fail.
        let _ = write!(text, "{}", "▪".repeat(bar(gap.relative) as usize));
        lines.push(line(label, text.trim_end()));
    }
    lines
}

fn number(x: f64) -> String {
    if x == 0.0 { "0".to_owned() } else { format!("{x:.1e}") }
}

fn line(label: &str, text: &str) -> String {
    format!("{label:13} {text}").trim_end().to_owned()
}
