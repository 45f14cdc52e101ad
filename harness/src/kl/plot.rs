//! Plots as SVG: KL by place in a window, and how many positions have a KL of which size.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use super::{Report, error::KlError, human::number, record::failed, report::Histogram};
use crate::stats::Profile;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 360.0;
/// Space around the plot for axes: left, top, right, bottom.
const MARGINS: [f64; 4] = [72.0, 48.0, 24.0, 52.0];

/// Writes both plots into a folder and gives their files.
///
/// # Errors
/// [`KlError::Record`] where a file cannot be written.
pub fn write(report: &Report, dir: &Path) -> Result<Vec<PathBuf>, KlError> {
    fs::create_dir_all(dir).map_err(failed("create", dir))?;
    let plots = [("kl-by-place.svg", by_place(report)), ("kl-histogram.svg", histogram(report))];
    let mut files = Vec::new();
    for (name, svg) in plots {
        let path = dir.join(name);
        fs::write(&path, svg).map_err(failed("write", &path))?;
        files.push(path);
    }
    Ok(files)
}

/// Mean and greatest KL by place in a window, on a logarithmic axis.
pub fn by_place(report: &Report) -> String {
    let found: Vec<_> = report.by_place.iter().filter(|bin| bin.positions > 0).collect();
    let decades = Decades::of(found.iter().flat_map(|bin| [bin.mean, bin.max]));
    let last = found.last().map_or(1, |bin| bin.to) as f64;
    let mut plot = Plot::new(&title("KL by place in the window", report));
    if !found.iter().any(|bin| bin.max > 0.0) {
        return plot.nothing("no position has a KL above 0");
    }
    plot.axis_y(decades, |decade| format!("1e{decade}"));
    for part in 0..=4 {
        let at = f64::from(part) / 4.0;
        plot.tick_x(at, &format!("{:.0}", at * last));
    }
    plot.label_x("scored position of its window");
    for (value, class, name) in [
        (max as fn(&Profile) -> f64, "max", "greatest"),
        (mean as fn(&Profile) -> f64, "mean", "mean"),
    ] {
        let points = found.iter().map(|bin| {
            let x = f64::midpoint(bin.from as f64, bin.to as f64) / last;
            (x, decades.part(value(bin)))
        });
        plot.line(points, class);
        plot.legend(class, name);
    }
    plot.end()
}

fn mean(bin: &Profile) -> f64 {
    bin.mean
}

fn max(bin: &Profile) -> f64 {
    bin.max
}

/// Positions by the size of their KL.
pub fn histogram(report: &Report) -> String {
    let Histogram { zero, tiny, bins } = &report.histogram;
    let heading = format!(
        "{} · {zero} positions of exactly 0, {tiny} below 1e{}",
        title("KL of positions", report),
        Histogram::FIRST
    );
    let mut plot = Plot::new(&heading);
    let per_decade = Histogram::PER_DECADE as usize;
    let used = |at: &usize| bins[*at] > 0;
    let first = (0..bins.len()).find(used).unwrap_or(0) / per_decade * per_decade;
    let end = (0..bins.len()).rfind(used).map_or(per_decade, |at| at + 1);
    let end = end.next_multiple_of(per_decade);
    let most = bins.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return plot.nothing("no position has a KL above 0");
    }
    let ticks = most.min(4);
    for tick in 0..=ticks {
        let at = tick as f64 / ticks as f64;
        plot.tick_y(at, &format!("{:.0}", at * most as f64));
    }
    let span = (end - first) as f64;
    for at in (first..=end).step_by(per_decade) {
        let decade = Histogram::FIRST + (at / per_decade) as i32;
        plot.tick_x((at - first) as f64 / span, &format!("1e{decade}"));
    }
    plot.label_x("KL, nats");
    for (at, count) in bins.iter().enumerate().take(end).skip(first) {
        let left = (at - first) as f64 / span;
        plot.bar(left, 1.0 / span, *count as f64 / most as f64);
    }
    plot.end()
}

fn title(what: &str, report: &Report) -> String {
    let summary = &report.summary;
    format!("{what} · mean {} nats over {} positions", number(summary.kl.mean), summary.positions)
}

/// A logarithmic axis of whole decades.
#[derive(Clone, Copy)]
struct Decades {
    first: i32,
    last: i32,
}

impl Decades {
    /// Most decades shown: what is further down sits on the axis.
    const MOST: i32 = 12;

    fn of(values: impl Iterator<Item = f64>) -> Self {
        let seen: Vec<f64> = values.filter(|value| *value > 0.0 && value.is_finite()).collect();
        let most = seen.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let least = seen.iter().copied().fold(f64::MAX, f64::min);
        let last = most.log10().ceil() as i32;
        let first = (least.log10().floor() as i32).clamp(last - Self::MOST, last - 1);
        Self { first, last }
    }

    /// How far up the axis, from 0 to 1.
    fn part(self, value: f64) -> f64 {
        if value <= 0.0 {
            return 0.0;
        }
        let span = f64::from(self.last - self.first);
        ((value.log10() - f64::from(self.first)) / span).clamp(0.0, 1.0)
    }
}

/// An SVG in the making. Places are parts of the plot's width and height, from 0 to 1, up and right.
struct Plot {
    svg: String,
    legends: usize,
}

impl Plot {
    fn new(title: &str) -> Self {
        let title = title.replace('&', "&amp;").replace('<', "&lt;");
        let [left, ..] = MARGINS;
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<style>\
             .axis{{stroke:#999;stroke-width:.5}}.mean{{stroke:#1b6ca8;fill:none;stroke-width:2}}\
             .max{{stroke:#d9822b;fill:none;stroke-width:1}}.bar{{fill:#1b6ca8}}text{{fill:#444}}\
             </style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{left}\" y=\"24\">{title}</text>\n"
        );
        Self { svg, legends: 0 }
    }

    fn place(x: f64, y: f64) -> (f64, f64) {
        let [left, top, right, bottom] = MARGINS;
        (left + x * (WIDTH - left - right), HEIGHT - bottom - y * (HEIGHT - top - bottom))
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.svg, "{element}");
    }

    fn axis_y(&mut self, decades: Decades, label: impl Fn(i32) -> String) {
        for decade in decades.first..=decades.last {
            let span = f64::from(decades.last - decades.first);
            self.tick_y(f64::from(decade - decades.first) / span, &label(decade));
        }
    }

    fn tick_y(&mut self, at: f64, label: &str) {
        let ((x1, y), (x2, _)) = (Self::place(0.0, at), Self::place(1.0, at));
        self.push(format_args!(
            "<path class=\"axis\" d=\"M{x1:.1} {y:.1}H{x2:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{label}</text>",
            x1 - 6.0,
            y + 4.0
        ));
    }

    fn tick_x(&mut self, at: f64, label: &str) {
        let (x, y) = Self::place(at, 0.0);
        self.push(format_args!(
            "<path class=\"axis\" d=\"M{x:.1} {y:.1}v5\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{label}</text>",
            y + 18.0
        ));
    }

    fn label_x(&mut self, label: &str) {
        let (x, y) = Self::place(0.5, 0.0);
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            y + 38.0
        ));
    }

    fn line(&mut self, points: impl Iterator<Item = (f64, f64)>, class: &str) {
        let points: Vec<_> =
            points.map(|(x, y)| Self::place(x, y)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.push(format_args!("<polyline class=\"{class}\" points=\"{}\"/>", points.join(" ")));
    }

    fn bar(&mut self, left: f64, width: f64, height: f64) {
        let ((x1, y1), (x2, y2)) = (Self::place(left, height), Self::place(left + width, 0.0));
        self.push(format_args!(
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{y1:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            x1 + 0.5,
            (x2 - x1 - 1.0).max(0.5),
            y2 - y1
        ));
    }

    fn legend(&mut self, class: &str, name: &str) {
        let x = WIDTH - 190.0 + 90.0 * self.legends as f64;
        self.legends += 1;
        self.push(format_args!(
            "<path class=\"{class}\" d=\"M{x:.1} 40h20\"/><text x=\"{:.1}\" y=\"44\">{name}</text>",
            x + 26.0
        ));
    }

    /// The end of a plot that has nothing to show.
    fn nothing(mut self, why: &str) -> String {
        let (x, y) = Self::place(0.5, 0.5);
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{why}</text>"
        ));
        self.end()
    }

    fn end(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_whole_decades_and_room_for_zero() {
        let decades = Decades::of([0.0, 2e-5, 3e-2].into_iter());
        assert_eq!((decades.first, decades.last), (-5, -1));
        assert_eq!([0.0, 1e-9, 1e-5, 1e-1].map(|value| decades.part(value)), [0.0, 0.0, 0.0, 1.0]);
        let wide = Decades::of([1e-300, 1.0].into_iter());
        assert_eq!(wide.last - wide.first, Decades::MOST);
    }
}
