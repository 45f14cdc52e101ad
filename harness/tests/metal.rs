//! Tier metal and `mlx-parity metal run` as a newcomer meets them: a kernel and a TOML file to a verdict,
//! mistakes in either, and a machine without a compiler.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use mlx_parity::row::{NotRunKind, Outcome, Row};
use rstest::rstest;
use support::{PROGRAM, Ran, checkout};
use tempfile::TempDir;

const HELD: i32 = 0;
const USAGE: i32 = 2;
const NOTHING_RAN: i32 = 4;
const MISMATCH: i32 = 100;

/// `out = a + b`, one element a thread, with a tail that is guarded.
const ADD: &str = "// out = a + b
const uint n = a_shape[0];
const uint i = thread_position_in_grid.x;
if (i < n) {
  out[i] = a[i] + b[i];
}
";

const CASE: &str = r#"
[[case]]
name = "lattice"
source = "add.metal"
dtypes = ["f32"]
sizes = [{ n = [1, 65] }]
inputs = [{ name = "a", shape = ["n"] }, { name = "b", shape = ["n"] }]
outputs = [{ name = "out", shape = ["n"] }]
template = { T = "dtype" }
grid = ["ceil(n/32)*32", 1, 1]
group = [32, 1, 1]
modes = ["fibers"]
oracle = { op = "add" }
why = "a tail"
"#;

/// A newcomer's folder, outside of any project.
struct Folder(TempDir);

impl Folder {
    fn new(kernel: &str, case: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::write(folder.kernel(), kernel).unwrap();
        fs::write(folder.0.path().join("add.toml"), case).unwrap();
        folder
    }

    fn kernel(&self) -> PathBuf {
        self.0.path().join("add.metal")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["--root", checkout().to_str().unwrap(), "metal", "run"]);
        command.arg(self.kernel()).args(arguments).current_dir(self.0.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        Ran::from(self.command(arguments).output().unwrap())
    }

    fn rows(&self, code: i32) -> Vec<Row> {
        self.run(&["--format", "jsonl"]).expect(code).rows()
    }
}

#[test]
fn a_kernel_and_a_case_lead_to_a_verdict() {
    let folder = Folder::new(ADD, CASE);
    let rows = folder.rows(HELD);
    let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
    let wanted =
        ["metal/add/lattice/f32/n=1/random/fibers", "metal/add/lattice/f32/n=65/random/fibers"];
    assert_eq!(ids, wanted);
    for row in &rows {
        let tolerance = row.tolerance.as_ref().unwrap();
        assert!(row.outcome == Outcome::Held && tolerance.tolerance == 0.5, "{row:?}");
    }
    let text = folder.run(&[]).expect(HELD).stdout;
    assert!(text.contains("2 launches: 0 failed"), "{text}");
}

/// Mistakes that give right values on most machines, and wrong values without a fault of memory.
#[rstest]
#[case::no_guard("if (i < n) {", "{", "out-of-bounds at add.metal:5")]
#[case::wrong_value("a[i] + b[i]", "a[i] - b[i]", "over ")]
#[case::tail_left_out("i < n", "i + 1 < n", "unwritten-output")]
#[case::unordered("out[i] = a[i] + b[i]", "out[0] = a[i] + b[i]", "race at add.metal:5")]
fn a_wrong_kernel_is_rejected(#[case] right: &str, #[case] wrong: &str, #[case] wanted: &str) {
    assert!(ADD.contains(right));
    let folder = Folder::new(&ADD.replace(right, wrong), CASE);
    let ran = folder.run(&[]).expect(MISMATCH);
    assert!(ran.stdout.contains(wanted), "{}", ran.stdout);
    assert!(!ran.stdout.contains("replay"), "{}", ran.stdout);
}

#[test]
fn another_body_is_tried_on_the_same_case() {
    let folder = Folder::new(ADD, CASE);
    let other = folder.0.path().join("other.metal");
    fs::write(&other, ADD.replace("a[i] + b[i]", "b[i] + b[i]")).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["--root", checkout().to_str().unwrap(), "metal", "run"]);
    command.arg(&other).arg("--case").arg(folder.0.path().join("add.toml"));
    Ran::from(command.output().unwrap()).expect(MISMATCH);
}

#[test]
fn a_source_that_does_not_compile_says_where() {
    let folder = Folder::new(&ADD.replace("a[i] + b[i]", "a[i] + c[i]"), CASE);
    let rows = folder.rows(MISMATCH);
    let Outcome::Error { message } = &rows[0].outcome else { panic!("{:?}", rows[0]) };
    assert!(message.contains("add.metal:5:") && message.contains("declared"), "{message}");
}

#[test]
fn a_frozen_answer_is_an_oracle_too() {
    use mlx_parity_tensor::{HostTensor, safetensors::write};

    let case = CASE
        .replace("{ n = [1, 65] }", "{ n = 2 }")
        .replace(
            r#"{ name = "a", shape = ["n"] }"#,
            r#"{ name = "a", shape = ["n"], values = [1, 2] }"#,
        )
        .replace(
            r#"{ name = "b", shape = ["n"] }"#,
            r#"{ name = "b", shape = ["n"], values = [3, 4] }"#,
        )
        .replace(r#"{ op = "add" }"#, "{ file = \"want.safetensors\" }\nunits = 0");
    let folder = Folder::new(ADD, &case);
    let answer = |values: &[f32]| {
        let tensor = HostTensor::from_f32([2], values).unwrap();
        let path = folder.0.path().join("want.safetensors");
        write(path, [("out".to_owned(), &tensor)], &std::collections::BTreeMap::new()).unwrap();
    };
    answer(&[4.0, 6.0]);
    folder.rows(HELD);
    answer(&[4.0, 6.0_f32.next_up()]);
    folder.rows(MISMATCH);
}

#[rstest]
#[case::unknown_key("why =", "because =", "unknown field `because`")]
#[case::unknown_op("\"add\"", "\"plus\"", "`plus` is not an op of the table")]
#[case::extent("ceil(n/32)*32", "n+31", "`n+31` is no extent")]
#[case::no_such_size("\"ceil(n/32)*32\"", "\"m\"", "the case has no size `m`")]
#[case::operand("{ op = \"add\" }", "{ op = \"add\", operands = [\"c\"] }", "operand `c`")]
#[case::two_oracles("{ op = \"add\" }", "{ op = \"add\", file = \"x\" }", "or `file`")]
#[case::file_without_units("{ op = \"add\" }", "{ file = \"x\" }", "`units` is missing")]
#[case::same_name("name = \"b\"", "name = \"a\"", "`a` names two arrays")]
#[case::no_dtypes("[\"f32\"]", "[]", "`dtypes` is empty")]
#[case::two_sources(
    "shape = [\"n\"] }]",
    "shape = [\"n\"], values = [1], below = 3 }]",
    "wanted one of"
)]
fn a_case_that_cannot_be_used_says_why(
    #[case] right: &str,
    #[case] wrong: &str,
    #[case] wanted: &str,
) {
    assert!(CASE.contains(right));
    let folder = Folder::new(ADD, &CASE.replacen(right, wrong, 1));
    let ran = folder.run(&[]);
    assert!(matches!(ran.code, Some(USAGE | MISMATCH)), "{:?} {}", ran.code, ran.stderr);
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains(wanted), "{said}");
}

/// A name with characters of a shell is refused by the emulator, and runs nothing.
#[test]
fn a_name_of_shell_characters_is_refused() {
    let case = CASE.replace("source =", "kernel = \"a;touch pwned\"\nsource =");
    let folder = Folder::new(ADD, &case);
    let rows = folder.rows(MISMATCH);
    assert!(
        matches!(&rows[0].outcome, Outcome::Error { message } if message.contains("a;touch pwned"))
    );
    assert!(!folder.0.path().join("pwned").exists());
}

#[test]
fn without_a_compiler_nothing_runs_and_the_reason_is_told() {
    let folder = Folder::new(ADD, CASE);
    let empty = tempfile::tempdir().unwrap();
    let output = folder.command(&["--format", "jsonl"]).env("PATH", empty.path()).output().unwrap();
    let rows = Ran::from(output).expect(NOTHING_RAN).rows();
    let Outcome::NotRun { kind, message } = &rows[0].outcome else { panic!("{:?}", rows[0]) };
    assert_eq!(*kind, NotRunKind::Unsupported);
    assert!(message.contains("no C++20 compiler"), "{message}");
}

#[test]
fn outside_of_a_project_a_case_needs_its_own_bound() {
    let folder = Folder::new(ADD, CASE);
    let run = || {
        let mut command = Command::new(PROGRAM);
        command.args(["metal", "run", "add.metal"]).current_dir(folder.0.path());
        Ran::from(command.output().unwrap())
    };
    let ran = run().expect(USAGE);
    assert!(ran.stderr.contains("give the case `units`"), "{}", ran.stderr);
    fs::write(folder.0.path().join("add.toml"), format!("{CASE}units = 1\n")).unwrap();
    run().expect(HELD);
}

#[test]
fn no_kernel_is_a_usage_error() {
    let ran =
        Ran::from(Command::new(PROGRAM).args(["metal", "run", "absent.metal"]).output().unwrap());
    assert!(ran.expect(USAGE).stderr.contains("no kernel absent.metal"));
}

/// The committed cases are of kernels that are there.
#[test]
fn every_committed_case_has_its_kernel() {
    let cases = checkout().join("goldens/cases");
    let all = mlx_parity::case::load_all(&cases).unwrap();
    let metal = all.iter().filter_map(|case| match &case.kind {
        mlx_parity::case::Kind::Metal(metal) => Some(metal),
        _ => None,
    });
    let sources: Vec<_> = metal.map(|metal| cases.join("metal").join(&metal.source)).collect();
    assert!(sources.len() >= 4);
    assert!(sources.iter().all(|source: &PathBuf| Path::is_file(source)), "{sources:?}");
}
