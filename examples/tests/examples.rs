//! Runs the examples as a reader would, and checks what they print.
//!
//! `cargo test -p examples` needs nothing installed. Where `IDEMPOTENT_TEST_POSTGRES` and `IDEMPOTENT_TEST_MYSQL` name an
//! account that may create databases, the examples that need a server are run too, in a database of their own.

mod built;

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use built::example;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _};

fn run(command: &mut Command) -> Output {
    command.output().expect("the example starts")
}

/// The number in front of `word` in the summary.
fn count(output: &str, word: &str) -> usize {
    let summary = output.rsplit("\n\n").next().expect("the summary comes last");
    let line = summary.lines().find_map(|line| line.trim().split_once(' ').filter(|(_, rest)| rest.starts_with(word)));
    line.and_then(|(number, _)| number.parse().ok()).unwrap_or_else(|| panic!("no `{word}` in:\n{output}"))
}

/// What it prints, and its counts: deliveries, processed, duplicates, effects and distinct ids.
fn summary(Output { status, stdout, stderr }: Output) -> (String, [usize; 5]) {
    let stdout = String::from_utf8(stdout).expect("UTF-8");
    assert!(status.success(), "{status}\n{stdout}\n{}", String::from_utf8_lossy(&stderr));
    let counts = ["deliveries", "processed", "duplicates", "effects", "distinct ids"].map(|word| count(&stdout, word));
    (stdout, counts)
}

/// Fails, and returns what it says.
fn failure(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = run(command);
    assert_eq!(status.code(), Some(1), "{}", String::from_utf8_lossy(&stdout));
    String::from_utf8(stderr).expect("UTF-8")
}

fn file(content: impl AsRef<[u8]>) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(content.as_ref()).expect("written");
    file
}

/// Recorded deliveries beside the checkout, if they are there.
fn github_deliveries() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/github-deliveries.jsonl");
    if path.exists() {
        return Some(path);
    }
    skipped("the recorded deliveries, since there is no ../shared/data/github-deliveries.jsonl");
    None
}

/// Past the test harness, which keeps to itself what a test prints that passes.
fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED in the tests of the examples: {what}");
}

#[test]
fn quickstart_has_one_effect_per_message_and_survives_both_crashes() {
    let (output, counts) = summary(run(&mut example("quickstart")));
    assert_eq!(counts, [12, 7, 5, 7, 7]);
    let line =
        |text: &str| output.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}\n{output}"));
    let inside = line("crashed inside the handler");
    assert!(inside.contains("  processed  ") && inside.ends_with("delivered again: processed"), "{inside}");
    let after = line("crashed after the commit");
    assert!(after.contains("  processed  ") && after.ends_with("delivered again: duplicate"), "{after}");
}

#[test]
fn quickstart_takes_recorded_deliveries() {
    let Some(path) = github_deliveries() else { return };
    let (output, counts) = summary(run(example("quickstart").arg(path)));
    assert_eq!(counts, [99, 60, 39, 60, 60]);
    assert_eq!(output.matches("delivered again").count(), 2);
}

#[test]
fn quickstart_crashes_twice_at_a_single_delivery() {
    let file = file(r#"{"delivery":"a","event":"e","payload":null,"unknown":1}"#);
    let (output, counts) = summary(run(example("quickstart").arg(file.path())));
    assert_eq!(counts, [1, 1, 0, 1, 1]);
    assert_eq!(output.matches("delivered again").count(), 2);
}

#[test]
fn quickstart_names_line_and_problem_of_a_malformed_delivery() {
    let good = r#"{"delivery":"a","event":"e","payload":{}}"#;
    for (line, problem) in [
        ("nonsense", "not a JSON object"),
        (r#"["a","e",{}]"#, "not a JSON object"),
        (r#"{"delivery":"a","event":"e""#, "EOF while parsing an object (column 27)"),
        (r#"{"delivery":"a","event":"e"}"#, "missing field `payload`"),
        (r#"{"event":"e","payload":{}}"#, "missing field `delivery`"),
        (r#"{"delivery":7,"event":"e","payload":{}}"#, "invalid type: integer `7`, expected a string (column 13)"),
        (r#"{"delivery":" ","event":"e","payload":{}}"#, "`delivery` is blank"),
        (r#"{"delivery":"a","event":"e","payload":{}} x"#, "trailing characters"),
    ] {
        let file = file(format!("{good}\n\n{line}\n{good}\n"));
        let message = failure(example("quickstart").arg(file.path()));
        assert!(message.contains("line 3: ") && message.contains(problem), "{line}: {message}");
    }
    let invalid = file(b"{\"delivery\":\"\xFF\"}");
    let message = failure(example("quickstart").arg(invalid.path()));
    assert!(message.contains("line 1: ") && message.contains("unicode"), "{message}");
}

/// Succeeds, and returns what it prints.
fn success(command: &mut Command) -> String {
    succeeded(run(command))
}

fn succeeded(Output { status, stdout, stderr }: Output) -> String {
    let stdout = String::from_utf8(stdout).expect("UTF-8");
    assert!(status.success(), "{status}\n{stdout}\n{}", String::from_utf8_lossy(&stderr));
    stdout
}

#[test]
fn stream_offsets_applies_each_record_once_though_it_is_killed_twenty_times() {
    let output = success(&mut example("stream_offsets"));
    let lives: Vec<Vec<&str>> = output.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let lives = &lives[..21];
    for (life, next) in lives.iter().zip(&lives[1..]) {
        assert_eq!(life[4], "killed", "{output}");
        let [applied, from] = [life[3], next[1]].map(|offset| offset.parse::<i64>().expect("an offset"));
        assert_eq!(from, applied + 1, "{output}");
    }
    assert!(output.contains("600 of 600 records were stale") && output.contains("600 records and"), "{output}");
}

#[test]
fn late_redelivery_is_told_from_a_new_message_by_its_timestamp() {
    let output = success(&mut example("late_redelivery"));
    let lines: Vec<String> = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "the first processed processed processed",
        "again duplicate duplicate duplicate",
        "with 3 claims purged processed too old: DeadLetter expired",
        "2 credits by `undated`",
    ] {
        assert!(lines.iter().any(|found| found == line), "no `{line}` in:\n{output}");
    }
}

#[test]
fn versioned_updates_end_in_the_newest_state_in_any_order() {
    for _ in 0..5 {
        let output = success(&mut example("versioned_updates"));
        let count = |outcome: &str| output.lines().filter(|line| line.starts_with(outcome)).count();
        assert_eq!(count("processed") + count("duplicate") + count("stale"), 30, "{output}");
        assert!(count("processed") >= 3 && count("duplicate") >= 3, "{output}");
        assert_eq!(output.matches(" is delivered").count(), 3, "{output}");
    }
}

#[test]
fn batch_consumer_adds_each_reading_once() {
    let output = success(&mut example("batch_consumer"));
    let lines: Vec<String> = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "1 500 350 150",
        "2 500 refused: message 200 has no `reading.id`, and is parked",
        "3 500 350 150 the acknowledgement is lost",
        "4 500 0 500",
    ] {
        assert!(lines.iter().any(|found| found == line), "no `{line}` in:\n{output}");
    }
    assert!(output.contains("2000 readings of 2000 messages, 1 parked"), "{output}");
}

/// What `contention` prints, and how often its bodies ran on the hot row.
fn contention(output: Output) -> (String, usize) {
    let output = succeeded(output);
    assert!(output.contains("\n  the first is processed\n  the second, delivered again, is a duplicate\n"), "{output}");
    assert!(output.contains("the row counts 200, no error came back"), "{output}");
    assert!(output.contains("10000 duplicates in "), "{output}");
    let runs = output.split_once("200 messages, ").and_then(|(_, rest)| rest.split_once(' ')).map(|(runs, _)| runs);
    let runs = runs.and_then(|runs| runs.parse().ok()).unwrap_or_else(|| panic!("{output}"));
    (output, runs)
}

#[test]
fn contention_on_sqlite_waits_and_runs_no_body_twice() {
    let (output, runs) = contention(run(&mut example("contention")));
    assert!(runs == 200 && output.contains("database is locked"), "{output}");
    let message = failure(example("contention").arg("nonsense"));
    assert!(message.contains("`nonsense` is no address of PostgreSQL or MariaDB"), "{message}");
}

#[test]
fn payments_api_shows_one_payment_for_many_requests() {
    let output = success(example("payments_api").arg("--demo"));
    let lines =
        ["no answer in time", "  409  ", "  201  Idempotent-Replayed: true  ", "  422  ", "  400  ", "  201  {"];
    let mut rest = &*output;
    for line in lines {
        (_, rest) = rest.split_once(line).unwrap_or_else(|| panic!("no `{line}` where it belongs in:\n{output}"));
    }
    let message = failure(example("payments_api").arg("--unknown"));
    assert!(message.contains("unknown argument `--unknown`") && message.contains("usage: "), "{message}");
}

#[test]
fn a_file_that_is_missing_or_empty_is_an_error() {
    let message = failure(example("quickstart").arg("no-such-file.jsonl"));
    assert!(message.contains("cannot read `no-such-file.jsonl`"), "{message}");
    let empty = file("\n");
    assert!(failure(example("quickstart").arg(empty.path())).contains("holds no deliveries"));
}

#[test]
fn the_examples_with_a_server_say_how_to_call_them() {
    for (name, url) in [("postgres", "postgres://"), ("mysql", "mysql://")] {
        let message = failure(&mut example(name));
        assert!(message.contains("the URL of a database is missing"), "{message}");
        assert!(message.contains(&format!("cargo run -p examples --example {name} -- {url}")), "{message}");
        let message = failure(example(name).arg("sqlite::memory:"));
        assert!(message.contains(&format!("does not start with {url}")), "{message}");
    }
}

/// Runs an example with its sample and with the recorded deliveries, in a database made for it.
macro_rules! the_balance_proves_one_credit_per_message {
    ($name:ident, $options:ty, $variable:literal) => {
        #[tokio::test]
        async fn $name() {
            let Ok(url) = env::var($variable) else {
                return skipped(concat!("the example `", stringify!($name), "`, since ", $variable, " is not set"));
            };
            let options: $options = url.parse().expect($variable);
            let mut server = options.connect().await.expect($variable);
            let database = format!("idempotent_example_{}", std::process::id());
            let created = server.execute(AssertSqlSafe(format!("CREATE DATABASE {database}"))).await;
            created.expect("a database of the test's own");

            let url = options.database(&database).to_url_lossy();
            let recorded = github_deliveries();
            let with_sample = run(example(stringify!($name)).arg(url.as_str()));
            let with_recorded = recorded.map(|path| run(example(stringify!($name)).arg(url.as_str()).arg(path)));
            let rivals = run(example("contention").arg(url.as_str()));
            let dropped = server.execute(AssertSqlSafe(format!("DROP DATABASE {database}"))).await;

            assert_eq!(summary(with_sample).1, [12, 7, 5, 7, 7]);
            if let Some(output) = with_recorded {
                assert_eq!(summary(output).1, [99, 60, 39, 60, 60]);
            }
            let (output, runs) = contention(rivals);
            assert!(runs >= 200 && output.contains(".slow` is being processed by another delivery"), "{output}");
            dropped.expect("nobody uses the database any more");
        }
    };
}

the_balance_proves_one_credit_per_message!(postgres, sqlx::postgres::PgConnectOptions, "IDEMPOTENT_TEST_POSTGRES");
the_balance_proves_one_credit_per_message!(mysql, sqlx::mysql::MySqlConnectOptions, "IDEMPOTENT_TEST_MYSQL");
