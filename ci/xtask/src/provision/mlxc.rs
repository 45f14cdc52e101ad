//! `libmlxc.a`: mlx-c from the mlx-sys package's own sources, against the environment's libmlx.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::cargo;
use crate::process;

use super::Session;
use super::step::{Inputs, Step};
use super::venv::remove_all;

/// Stands in for `<format>`; included before every source.
const FORMAT_SHIM: &str = "ci/native/format.h";
/// Accessors that mlx-c leaves out on x86-64.
const HALF: &str = "ci/native/half.cpp";

/// How every source is compiled.
const FLAGS: [&str; 3] = ["-std=c++20", "-O2", "-fPIC"];

/// The step; its output is the archive.
pub fn step(session: &Session, venv: &Step) -> Result<Step> {
    let layout = session.layout;
    let inputs = Inputs::default()
        .step(venv)
        .text("mlx-sys", &cargo::locked(layout, "mlx-sys")?)
        .text("flags", &FLAGS.join(" "))
        .file(&layout.join(FORMAT_SHIM))?
        .file(&layout.join(HALF))?;
    Ok(Step::new(&layout.mlx(), "mlx-c", inputs, vec![layout.lib().join("libmlxc.a")]))
}

/// Compiles on all cores. Objects that an interrupted run finished are kept and used.
pub fn make(session: &Session, cxx: &Path, step: &Step) -> Result<()> {
    let layout = session.layout;
    let compile = Compile {
        session,
        cxx,
        mlx_c: sources_of_mlx_c(session)?,
        mlx: layout.site_packages()?.join("mlx/include"),
        objects: layout.mlx().join("build").join(&step.digest()[..16]),
    };
    fs::create_dir_all(&compile.objects)
        .with_context(|| format!("cannot create {}", compile.objects.display()))?;
    let mut sources = cpp_files(&compile.mlx_c.join("mlx/c"))?;
    sources.push(layout.join(HALF));
    compile.all(&sources)?;
    archive(session, &compile.objects, &sources)?;
    remove_all(&layout.mlx().join("build"))
}

/// The folder of the mlx-c sources.
pub fn sources_of_mlx_c(session: &Session) -> Result<PathBuf> {
    let offline = session.options.offline;
    Ok(cargo::package_sources(session.layout, "mlx-sys", offline)?.join("src/mlx-c"))
}

struct Compile<'a> {
    session: &'a Session<'a>,
    cxx: &'a Path,
    mlx_c: PathBuf,
    mlx: PathBuf,
    objects: PathBuf,
}

impl Compile<'_> {
    fn all(&self, sources: &[PathBuf]) -> Result<()> {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let queue = Mutex::new(sources.iter());
        let next = || queue.lock().ok().and_then(|mut queue| queue.next());
        thread::scope(|scope| {
            let work = || std::iter::from_fn(next).try_for_each(|source| self.one(source));
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a compile thread panicked")))
            })
        })
    }

    fn one(&self, source: &Path) -> Result<()> {
        let object = object(&self.objects, source);
        if object.exists() {
            return Ok(());
        }
        let part = object.with_extension("part");
        let mut cxx = self.session.command(self.cxx)?;
        cxx.args(FLAGS).args(["-c", "-include"]).arg(self.session.layout.join(FORMAT_SHIM));
        cxx.arg("-I").arg(&self.mlx_c).arg("-isystem").arg(&self.mlx);
        cxx.arg(source).arg("-o").arg(&part);
        process::capture(&mut cxx, &format!("compiling {}", source.display()))?;
        fs::rename(&part, &object).with_context(|| format!("cannot write {}", object.display()))
    }
}

fn archive(session: &Session, objects: &Path, sources: &[PathBuf]) -> Result<()> {
    let lib = session.layout.lib();
    fs::create_dir_all(&lib).with_context(|| format!("cannot create {}", lib.display()))?;
    let part = lib.join("libmlxc.a.part");
    if part.exists() {
        fs::remove_file(&part).with_context(|| format!("cannot remove {}", part.display()))?;
    }
    let mut ar = session.command("ar")?;
    ar.arg("rcsD").arg(&part).args(sources.iter().map(|source| object(objects, source)));
    process::capture(&mut ar, "making libmlxc.a")?;
    fs::rename(&part, lib.join("libmlxc.a")).context("cannot rename libmlxc.a.part")
}

fn object(objects: &Path, source: &Path) -> PathBuf {
    objects.join(source.file_name().unwrap_or_default()).with_extension("o")
}

fn cpp_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|ext| ext == "cpp"));
    files.sort();
    ensure!(!files.is_empty(), "{}: holds no .cpp file", folder.display());
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{Lock, Options};
    use super::*;
    use crate::layout::Layout;

    /// Compiles three sources with the fake compiler, which fails on the one named.
    fn compile(folder: &Path, fails_on: &str) -> Result<()> {
        let layout = Layout::at(folder);
        let options = Options::default();
        let lock = Lock::acquire(&folder.join("lock"))?;
        let session = Session { layout: &layout, options: &options, lock };
        fs::write(folder.join("fail"), fails_on)?;
        let compile = Compile {
            session: &session,
            cxx: &Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/cxx-fake"),
            mlx_c: "mlx-c".into(),
            mlx: "mlx".into(),
            objects: folder.to_owned(),
        };
        compile.all(&["a.cpp", "b.cpp", "c.cpp"].map(PathBuf::from))
    }

    fn compiled(folder: &Path) -> Vec<String> {
        let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_second_run_compiles_only_what_the_first_did_not_finish() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let error = compile(folder.path(), "b.cpp").expect_err("b.cpp fails");
        assert!(format!("{error:#}").contains("b.cpp: no memory left"), "{error:#}");
        let half_made = folder.path().join("b.o");
        assert!(!half_made.exists(), "a failed compile left {}", half_made.display());
        compile(folder.path(), "").expect("nothing fails");
        let log = compiled(folder.path());
        let once: BTreeSet<&str> = log.iter().map(String::as_str).collect();
        assert_eq!(once, BTreeSet::from(["a.cpp", "b.cpp", "c.cpp"]));
        assert_eq!(log.len(), once.len(), "compiled twice: {log:?}");
    }
}
