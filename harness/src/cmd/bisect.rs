//! `mlx-parity bisect`: where two paths of one model part.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;

use super::{Common, Failure, Result, say};
use crate::{
    bisect::{
        BisectError, Dump, EnginePath, EngineSide, Options, Outcome, PathSpec, Processor, Report,
        Script, Side, SideError, SideName, Threshold, Watch, parse_ids, save_taps, search, text,
    },
    composition::Spelled,
    exit::ExitCode,
};

/// Find the first layer, op and element where two paths of a model part
///
/// A path is l1, `l2:kvBITS[gGROUP][,WHEN][,ROUTE]`, fault:NAME (debug builds) or dump:FILE, the
/// intermediates of another engine (see the guide). Exits 0 where they do not part, 100 where they do.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A model from goldens/models.toml, or a folder with config.json and safetensors
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// The path that is believed, any but a dump
    #[arg(long, value_name = "PATH", default_value = "l1")]
    pub good: PathSpec,
    /// The path that is not
    #[arg(long, value_name = "PATH", required_unless_present_any = ["between_backends", "save_taps"])]
    pub bad: Option<PathSpec>,
    /// The good path on the CPU and on the GPU of one MLX, instead of two paths
    #[arg(long, conflicts_with = "bad")]
    pub between_backends: bool,
    /// What is run
    #[command(flatten)]
    pub input: Input,
    /// Let tensors part at a relative error above X, max|a - b| / max|b|, instead of at other bits
    #[arg(long, value_name = "X", value_parser = tolerance)]
    pub rtol: Option<f64>,
    /// Unwatched runs of each path, and repeats of the verdict
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..))]
    pub repeats: u8,
    /// Write the good path's intermediates as a dump
    #[arg(long, value_name = "FILE")]
    pub save_taps: Option<PathBuf>,
    /// Limit for each run, in seconds
    #[arg(long, value_name = "S", default_value_t = 300)]
    pub timeout: u64,
    /// What stdout gets
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

/// The ids, and the calls they are run in. A dump brings its own.
#[derive(Debug, Clone, clap::Args)]
pub struct Input {
    /// Token ids: a file of them, or the ids themselves, separated by commas
    #[arg(long, value_name = "FILE|IDS", conflicts_with_all = ["text", "prompt"])]
    pub ids: Option<String>,
    /// A text file, for the model's tokenizer
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub text: Option<PathBuf>,
    /// A text, for the model's tokenizer
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Run the last N ids one by one, as decode steps
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub steps: usize,
    /// Ids of a prompt that one model call takes
    #[arg(long, value_name = "N", default_value_t = 2048)]
    pub prefill_step: usize,
    /// The number of ids of each model call, instead of mlx-lm's split
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', conflicts_with_all = ["steps", "prefill_step"])]
    pub calls: Option<Vec<usize>>,
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// What was found, in words.
    Human,
    /// The whole report.
    Json,
}

fn tolerance(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(x),
        _ => Err("wanted a finite number that is not negative".to_owned()),
    }
}

/// Runs the command.
pub fn run(common: &Common, args: &Args) -> Result {
    let model = common.model_folder(&args.model)?;
    let dump = match &args.bad {
        Some(PathSpec::Dump(file)) => Some(Dump::open(file).map_err(refused)?),
        _ => None,
    };
    let script = match &dump {
        Some(dump) => args.input.of_dump(dump)?,
        None => args.input.script(&model)?,
    };
    let [good, bad] = args.processors();
    let mut good = args.start(&model, &args.good, good)?;
    if let Some(file) = &args.save_taps {
        let all = Watch::all([0, script.calls().len() - 1]);
        let walked = good.walk(&script, Some(&all)).map_err(of_side(SideName::Good))?;
        save_taps(file, &script, &walked).map_err(refused)?;
    }
    let bad: Box<dyn Side> = match (dump, &args.bad) {
        (Some(dump), _) => Box::new(dump),
        (None, Some(path)) => Box::new(args.start(&model, path, bad)?),
        (None, None) if args.between_backends => Box::new(args.start(&model, &args.good, bad)?),
        (None, None) => return Ok(ExitCode::Held),
    };
    let report = args.search(good, bad, script)?;
    match args.format {
        Format::Human => say(text(&report)),
        Format::Json => say(serde_json::to_string(&report).context("cannot write the report")?),
    }
    Ok(match report.outcome {
        Outcome::Same { .. } => ExitCode::Held,
        _ => ExitCode::Mismatch,
    })
}

fn refused(error: impl Into<BisectError>) -> Failure {
    let error = error.into();
    Failure::new(error.exit(), error)
}

fn of_side(side: SideName) -> impl Fn(SideError) -> Failure {
    move |error| refused(BisectError::Side { side, error })
}

impl Args {
    /// What the two paths compute on.
    fn processors(&self) -> [Option<Processor>; 2] {
        if self.between_backends { [Some(Processor::Cpu), Some(Processor::Gpu)] } else { [None; 2] }
    }

    fn start(
        &self,
        model: &Path,
        path: &PathSpec,
        processor: Option<Processor>,
    ) -> Result<EngineSide> {
        let (composition, fault) = match path {
            PathSpec::Composition(spelled) => (spelled.clone(), None),
            PathSpec::Fault(name) => (Spelled::default(), Some(name.clone())),
            PathSpec::Dump(_) => return Err(Failure::usage("a dump can only be the bad path")),
        };
        let model = model.to_owned();
        let path = EnginePath { model, composition, fault, processor };
        let program = std::env::current_exe().context("cannot find this binary")?;
        EngineSide::start(&program, path, Duration::from_secs(self.timeout))
            .map_err(|error| Failure::new(ExitCode::Crashed, error))
    }

    fn search(
        &self,
        mut good: EngineSide,
        mut bad: Box<dyn Side>,
        script: Script,
    ) -> Result<Report> {
        let threshold = self.rtol.map_or(Threshold::Bits, Threshold::Relative);
        let options = Options { threshold, repeats: usize::from(self.repeats) };
        let outcome = search(&mut good, bad.as_mut(), &script, options).map_err(refused)?;
        let [good, bad] = self.names();
        let replay = self.replay(&script, &outcome);
        let model = self.model.display().to_string();
        let repeats = options.repeats;
        Ok(Report { model, good, bad, script, threshold, repeats, outcome, replay })
    }

    fn names(&self) -> [String; 2] {
        let good = self.good.to_string();
        match &self.bad {
            Some(bad) => [good, bad.to_string()],
            None => [format!("{good} on the cpu"), format!("{good} on the gpu")],
        }
    }

    /// The command again, with the ids themselves and no call behind the one that matters.
    fn replay(&self, script: &Script, outcome: &Outcome) -> String {
        let script = match outcome {
            Outcome::Found(found) => script.upto(found.call),
            _ => script.clone(),
        };
        let mut words = vec![format!("mlx-parity bisect {}", self.model.display())];
        words.push(format!("--good {}", self.good));
        words.push(
            self.bad.as_ref().map_or("--between-backends".to_owned(), |b| format!("--bad {b}")),
        );
        if !matches!(self.bad, Some(PathSpec::Dump(_))) {
            words.push(format!(
                "--ids {} --calls {}",
                listed(script.ids()),
                listed(script.calls())
            ));
        }
        words.extend(self.rtol.map(|rtol| format!("--rtol {rtol:e}")));
        if self.repeats != 5 {
            words.push(format!("--repeats {}", self.repeats));
        }
        words.join(" ")
    }
}

fn listed(numbers: &[impl ToString]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl Input {
    fn is_given(&self) -> bool {
        self.ids.is_some() || self.text.is_some() || self.prompt.is_some() || self.calls.is_some()
    }

    fn of_dump(&self, dump: &Dump) -> Result<Script> {
        if self.is_given() || self.steps > 0 {
            return Err(Failure::usage("a dump brings its own ids and calls; leave yours out"));
        }
        Ok(dump.script().clone())
    }

    fn script(&self, model: &Path) -> Result<Script> {
        let ids = match (&self.ids, &self.text, &self.prompt) {
            (Some(ids), ..) => listed_ids(ids)?,
            (_, Some(file), _) => encode(model, &read(file)?)?,
            (_, _, Some(prompt)) => encode(model, prompt)?,
            _ => return Err(Failure::usage("nothing to run: wanted --ids, --text or --prompt")),
        };
        let script = match &self.calls {
            Some(calls) => Script::new(ids, calls.clone()),
            None => Script::split(ids, self.steps, self.prefill_step),
        };
        script.map_err(refused)
    }
}

/// Ids of a file of that name, or else of the text itself.
fn listed_ids(given: &str) -> Result<Vec<u32>> {
    let path = Path::new(given);
    let text = if path.is_file() { read(path)? } else { given.to_owned() };
    parse_ids(&text).map_err(|error| Failure::usage(format!("--ids {given}: {error}")))
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))
}

#[cfg(feature = "engine")]
fn encode(model: &Path, text: &str) -> Result<Vec<u32>> {
    let usage = |error: mlx_parity_engine::EngineError| Failure::new(ExitCode::Usage, error);
    mlx_parity_engine::Tokenizer::load(model)
        .and_then(|tokenizer| tokenizer.encode(text))
        .map_err(usage)
}

#[cfg(not(feature = "engine"))]
fn encode(_model: &Path, _text: &str) -> Result<Vec<u32>> {
    Err(Failure::usage("this build has no tokenizer; give --ids"))
}
