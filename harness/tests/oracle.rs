//! Oracles that die, babble, lie or hang: each gives one clear error and leaves nothing behind.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path, time::Duration};

use mlx_parity::oracle::{Launch, Oracle, OracleError, Request};
use rstest::rstest;

const HELLO: &str = r#"{"protocol":1,"id":1,"reply":"hello","oracle":"fake","packages":{},"backend":"cpu","device":"x"}"#;

fn start(script: &str) -> Result<(Oracle, tempfile::TempDir), OracleError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runner.sh");
    fs::write(&path, script).unwrap();
    let launch = Launch {
        name: "fake".into(),
        program: "/bin/sh".into(),
        script: path,
        limit: Duration::from_secs(2),
    };
    Ok((Oracle::start(launch)?, dir))
}

#[rstest]
#[case::garbage("echo Loading weights; sleep 5", "broke the protocol: wrote `Loading weights`")]
#[case::not_an_object("echo 12; sleep 5", "wrote `12`")]
#[case::version(r#"echo '{"protocol":7,"id":1}'; sleep 5"#, "speaks protocol 7, wanted 1")]
#[case::other_question(r#"echo '{"protocol":1,"id":9}'; sleep 5"#, "answered request 9, wanted 1")]
#[case::dies(
    "read line; echo out of memory >&2; exit 3",
    "died before it answered (exit status: 3)"
)]
#[case::dies_says_why("read line; echo out of memory >&2; exit 3", "out of memory")]
#[case::killed("read line; kill -9 $$", "signal: 9")]
#[case::silent("sleep 60", "no answer in 2 s")]
#[case::refuses(
    r#"read l; echo '{"protocol":1,"id":1,"reply":"error","kind":"ImportError","message":"no mlx"}'; sleep 5"#,
    "refused: ImportError: no mlx"
)]
fn a_bad_oracle_gives_one_clear_error(#[case] script: &str, #[case] wanted: &str) {
    let error = start(script).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(wanted) && error.starts_with("oracle fake"), "{error}");
}

#[test]
fn another_oracle_under_this_name_is_refused() {
    let script = format!("read l; echo '{}'; sleep 5", HELLO.replace("fake", "mlx-lm"));
    let error = start(&script).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("it is `mlx-lm`, wanted `fake`"), "{error}");
}

#[test]
fn an_oracle_that_dies_in_the_middle_of_an_answer_is_reported() {
    let script = format!("read l; echo '{HELLO}'; read l; printf '{{\"protocol\":1,'; kill -9 $$");
    let (mut oracle, _dir) = start(&script).unwrap();
    let error = oracle.ask(&Request::Hello).unwrap_err();
    assert!(matches!(error, OracleError::Garbage { .. } | OracleError::Died { .. }), "{error}");
}

#[test]
fn a_missing_interpreter_names_the_command_that_installs_it() {
    let launch = Launch {
        name: "mlx-lm".into(),
        program: "/nowhere/python".into(),
        script: Path::new("/bin/sh").into(),
        limit: Duration::from_secs(1),
    };
    let error = Oracle::start(launch).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("/nowhere/python") && error.contains("cargo xtask setup"), "{error}");
}
