//! `mlx-parity kl`: how far a student is from a teacher on a text.

use std::{
    io::IsTerminal as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Common, Failure, Result, say, size};
use crate::{
    exit::ExitCode,
    kl::{
        Asked, Convention, KlError, Observer, Options, Report, Source, Statistics, Thresholds,
        compare, human, plot,
    },
    store::DEFAULT_BUDGET,
};

/// Score how far a student's next-token distributions are from a teacher's, on one text
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// `MODEL[@COMPOSITION]`, store:DIGEST or a dump's FILE.safetensors
    #[arg(long, value_name = "SOURCE")]
    pub teacher: Source,
    /// The same; by default the teacher's model under --composition
    #[arg(long, value_name = "SOURCE", required_unless_present = "composition")]
    pub student: Option<Source>,
    /// How the student computes, where its name does not say: l1, l2:kv4, l2:kv8g32,stock …
    #[arg(long, value_name = "COMPOSITION")]
    pub composition: Option<String>,
    /// A text file (UTF-8); each one named is a document of its own
    #[arg(long, value_name = "FILE")]
    pub text: Vec<PathBuf>,
    /// A JSON file of token ids: a list, or a list of lists
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub ids: Option<PathBuf>,
    /// Read so many tokens at most
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_tokens: Option<usize>,
    /// Tokens of a window [default: 512, or as logits on file were cut]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub window: Option<usize>,
    /// Which positions are scored [default: every]
    #[arg(long, value_enum)]
    pub score: Option<Convention>,
    /// Tokens of a model call [default: as many as 32 MiB of logits hold]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub call: Option<usize>,
    /// Positions that the control lanes compute again, at least
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive)]
    pub control: usize,
    /// A control lane more: what should be as the teacher is, of another chip, version or engine
    #[arg(long, value_name = "SOURCE")]
    pub beside: Vec<Source>,
    /// Fail where the mean KL may be above this, in nats
    #[arg(long, value_name = "X", value_parser = bound)]
    pub max_mean: Option<f64>,
    /// Fail where the 99th percentile of KL may be above this, in nats
    #[arg(long, value_name = "X", value_parser = bound)]
    pub max_p99: Option<f64>,
    /// Fail where the argmax may agree at a smaller part of positions than this
    #[arg(long, value_name = "X", value_parser = part)]
    pub min_agreement: Option<f64>,
    /// Take the teacher's logits from the store, and leave them there
    #[arg(long)]
    pub keep_teacher: bool,
    /// The store's folder [default: target/mlx/teachers of the project]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// What the store may hold: `500MiB`, `8GiB`
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value_t = DEFAULT_BUDGET)]
    pub budget: u64,
    /// Count the overlap of so many likeliest tokens
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = positive)]
    pub top_k: usize,
    /// Bootstrap resamples
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub resamples: usize,
    /// Seed of the resamples
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Go on with a run of the same sources, tokens and windows that was killed
    #[arg(long)]
    pub resume: bool,
    /// Where runs are recorded [default: target/mlx/kl of the project]
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Write kl-by-place.svg and kl-histogram.svg there
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// Limit for one model call, in seconds
    #[arg(long, value_name = "S", default_value_t = 600)]
    pub timeout: u64,
    /// What stdout gets
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table.
    Human,
    /// The whole report as one JSON object.
    Json,
}

fn positive(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("wanted a number from 1".to_owned()),
        Ok(count) => Ok(count),
    }
}

fn bound(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(x),
        _ => Err("wanted a finite number that is not negative".to_owned()),
    }
}

fn part(text: &str) -> std::result::Result<f64, String> {
    bound(text).and_then(|x| if x <= 1.0 { Ok(x) } else { Err("wanted 0 to 1".to_owned()) })
}

/// Runs the command.
pub fn run(common: &Common, args: &Args) -> Result {
    let options = options(common, args)?;
    let mut screen = Screen { bar: ProgressBar::hidden() };
    let fail = |error: KlError| Failure::new(error.exit(), error);
    let report = compare(&options, &mut screen).map_err(fail)?;
    screen.bar.finish_and_clear();
    print(&report, args.format)?;
    if let Some(dir) = &args.plots {
        for file in plot::write(&report, dir).map_err(fail)? {
            eprintln!("plot {}", file.display());
        }
    }
    Ok(if report.summary.positions + report.summary.unscored == 0 {
        ExitCode::NothingRan
    } else {
        report.verdict.exit()
    })
}

fn print(report: &Report, format: Format) -> Result<()> {
    match format {
        Format::Human => say(human::table(report)),
        Format::Json => {
            say(serde_json::to_string(report).context("the report cannot be written")?);
        }
    }
    Ok(())
}

fn options(common: &Common, args: &Args) -> Result<Options> {
    let [teacher, student] = sources(args)?;
    Ok(Options {
        teacher: asked(common, teacher)?,
        student: asked(common, student)?,
        texts: args.text.clone(),
        ids: args.ids.clone(),
        max_tokens: args.max_tokens,
        window: args.window,
        convention: args.score,
        call: args.call,
        control: args.control,
        beside: args
            .beside
            .iter()
            .map(|source| asked(common, source.clone()))
            .collect::<Result<_>>()?,
        store: match &args.store {
            Some(dir) => dir.clone(),
            None => common.root()?.teachers(),
        },
        budget: args.budget,
        keep: args.keep_teacher,
        thresholds: Thresholds {
            max_mean: args.max_mean,
            max_p99: args.max_p99,
            min_agreement: args.min_agreement,
        },
        statistics: Statistics {
            top_k: args.top_k,
            resamples: args.resamples,
            seed: args.seed,
            level: 0.95,
        },
        program: std::env::current_exe().context("cannot find this binary")?,
        limit: Duration::from_secs(args.timeout),
        record: match &args.record {
            Some(dir) => dir.clone(),
            None => common.root()?.path().join("target/mlx/kl"),
        },
        resume: args.resume,
        command: super::command_line(),
    })
}

/// Both sides, the student under `--composition` where its name does not say how.
fn sources(args: &Args) -> Result<[Source; 2]> {
    let teacher = args.teacher.clone();
    let Some(text) = &args.composition else {
        let student = args.student.clone().unwrap_or_else(|| teacher.clone());
        return Ok([teacher, student]);
    };
    let asked = text.parse().map_err(Failure::usage)?;
    match args.student.as_ref().unwrap_or(&teacher) {
        Source::Engine { model, composition }
            if composition.is_none() || args.student.is_none() =>
        {
            let model = model.clone();
            Ok([teacher, Source::Engine { model, composition: Some(asked) }])
        }
        other => Err(Failure::usage(format_args!("--composition {text}: {other} says it already"))),
    }
}

fn asked(common: &Common, source: Source) -> Result<Asked> {
    Ok(match source {
        Source::Engine { model, composition } => Asked::Engine {
            folder: common.model_folder(Path::new(&model))?,
            composition: composition.unwrap_or_default(),
            name: model,
        },
        Source::Stored { digest } => Asked::Stored { digest },
        Source::Dump { file } => Asked::Dump { file },
    })
}

/// A progress bar on stderr where there is a terminal.
struct Screen {
    bar: ProgressBar,
}

impl Observer for Screen {
    fn begins(&mut self, what: &str, positions: usize, done: usize) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        self.bar.finish_and_clear();
        let template = "{msg} {bar:32} {human_pos}/{human_len} {per_sec} {elapsed} eta {eta}";
        let style = ProgressStyle::with_template(template);
        self.bar = ProgressBar::new(positions as u64)
            .with_position(done as u64)
            .with_message(what.to_owned())
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        self.bar.reset_eta();
    }

    fn scored(&mut self, positions: usize) {
        self.bar.inc(positions as u64);
    }
}
