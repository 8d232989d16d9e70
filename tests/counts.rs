//! What one message costs, as counts that do not depend on how busy the machine is: instructions of the process and
//! allocations, by the macro and by hand. `cargo test -p tests --test counts -- --nocapture` prints them as a table.
//!
//! A consumer built with an application's features and profile (`tests/counts/`) runs under valgrind with a few messages and
//! with more; the difference is what the messages cost, without start-up. The limits are what was measured and a little more:
//! who crosses one has made every message dearer. The goals stand beside them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use servers::Kind;

/// Deliveries whose instructions are counted, which differ from run to run by some per cent, and allocations, which do not.
const MESSAGES: [(&str, u32); 2] = [("callgrind", 500), ("dhat", 100)];
/// How often a crossed limit is counted again. Who is woken while nothing is there to be read only ever adds instructions.
const RECOUNTS: usize = 3;
const GOALS: &str = "goals: at most 1.05 of the instructions, at most 3 more allocations outside the driver";

struct Limits {
    kind: Kind,
    fresh: Limit,
    duplicate: Limit,
}

/// At most: so much of the instructions by hand, and so many allocations more than by hand, outside sqlx and in all.
struct Limit {
    instructions: f64,
    outside: f64,
    all: f64,
}

const LIMITS: [Limits; 3] = [
    Limits {
        kind: Kind::Postgres,
        fresh: Limit { instructions: 1.35, outside: 0.0, all: 7.0 },
        duplicate: Limit { instructions: 1.3, outside: 0.0, all: 0.0 },
    },
    Limits {
        kind: Kind::Mariadb,
        fresh: Limit { instructions: 1.35, outside: 1.0, all: 0.0 },
        duplicate: Limit { instructions: 1.35, outside: 2.0, all: 4.0 },
    },
    Limits {
        kind: Kind::Sqlite,
        fresh: Limit { instructions: 1.5, outside: 0.0, all: 5.0 },
        duplicate: Limit { instructions: 1.45, outside: 0.0, all: 6.0 },
    },
];

/// Of one message.
#[derive(Clone, Copy, Debug)]
struct Counts {
    instructions: f64,
    outside: f64,
    all: f64,
}

/// By hand, and by the macro.
#[derive(Clone, Copy, Debug)]
struct Both {
    hand: Counts,
    macros: Counts,
}

impl Both {
    fn ratio(&self) -> f64 {
        self.macros.instructions / self.hand.instructions
    }

    fn are_within(&self, limit: &Limit) -> bool {
        self.ratio() <= limit.instructions
            && self.macros.outside - self.hand.outside <= limit.outside + 0.5
            && self.macros.all - self.hand.all <= limit.all + 0.5
    }

    fn keep_less(&mut self, again: Self) {
        for (kept, again) in [(&mut self.hand, again.hand), (&mut self.macros, again.macros)] {
            kept.instructions = kept.instructions.min(again.instructions);
            kept.outside = kept.outside.min(again.outside);
            kept.all = kept.all.min(again.all);
        }
    }
}

/// Of a fresh message and of a duplicate.
async fn count(consumer: &Path, kind: Kind) -> [Both; 2] {
    let (hand, macros) = tokio::join!(counts(consumer, kind, "by-hand"), counts(consumer, kind, "handler"));
    [0, 1].map(|index| Both { hand: hand[index], macros: macros[index] })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_costs_as_many_instructions_and_allocations_as_before() {
    let valgrind = Command::new("valgrind").arg("--version").output();
    assert!(
        valgrind.is_ok_and(|output| output.status.success()),
        "needs valgrind (on Debian: apt-get install valgrind)"
    );
    let consumer = build();
    let mut table = format!(
        "{GOALS}\n\n| per message | instructions by hand | by the macro | ratio | limit | × its statements by hand | \
         allocations outside sqlx by hand | by the macro | limit | with sqlx by hand | by the macro | limit |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    let mut crossed = Vec::new();
    for limits in LIMITS {
        let kind = limits.kind;
        let mut counted = count(&consumer, kind).await;
        for _ in 0..RECOUNTS {
            if counted.iter().zip([&limits.fresh, &limits.duplicate]).all(|(both, limit)| both.are_within(limit)) {
                break;
            }
            for (both, again) in counted.iter_mut().zip(count(&consumer, kind).await) {
                both.keep_less(again);
            }
        }
        let same = instructions_of_the_same(&consumer, kind).await;
        for (index, (what, limit)) in [("fresh", limits.fresh), ("duplicate", limits.duplicate)].into_iter().enumerate()
        {
            let both = counted[index];
            let Both { hand, macros } = both;
            let _ = writeln!(
                table,
                "| {} {what} | {:.0} | {:.0} | {:.2} | {} | {} | {:.1} | {:.1} | +{} | {:.1} | {:.1} | +{} |",
                kind.name(),
                hand.instructions,
                macros.instructions,
                both.ratio(),
                limit.instructions,
                if index == 0 { format!("{:.2}", macros.instructions / same) } else { String::new() },
                hand.outside,
                macros.outside,
                limit.outside,
                hand.all,
                macros.all,
                limit.all,
            );
            if !both.are_within(&limit) {
                crossed.push(format!("{} {what}", kind.name()));
            }
            assert!(hand.all > 10.0 && hand.instructions > 10_000.0, "nothing was counted:\n{table}");
        }
    }
    println!("{table}");
    assert!(crossed.is_empty(), "{} crosses a limit:\n{table}", crossed.join(", "));
}

/// Builds the consumer alone, so that it has no features but an application's.
fn build() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    let cargo = cargo.args(["build", "--quiet", "--profile", "counted", "--package", "tests-counts"]);
    let output = cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("counts")).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // This test is target/debug/deps/counts-….
    let target = env::current_exe().expect("a path").ancestors().nth(3).expect("the target directory").to_owned();
    target.join("counted/consumer-to-count")
}

/// Of a fresh message and of a duplicate.
async fn counts(consumer: &Path, kind: Kind, way: &str) -> [Counts; 2] {
    let mut counts = [Counts { instructions: 0.0, outside: 0.0, all: 0.0 }; 2];
    for (tool, messages) in MESSAGES {
        let mut runs = Vec::new();
        for [fresh, duplicates] in [[0, 0], [messages, 0], [0, messages]] {
            runs.push(run(consumer, kind, way, tool, [fresh, duplicates]).await);
        }
        let per_message = |more: f64, less: f64| (more - less) / f64::from(messages);
        for (count, run) in counts.iter_mut().zip(&runs[1..]) {
            if tool == "callgrind" {
                let [run, base] = [run, &runs[0]].map(|run| instructions(run, kind == Kind::Sqlite));
                count.instructions = per_message(run, base);
            } else {
                let [run, base] = [run, &runs[0]].map(|run| allocations(run));
                (count.outside, count.all) = (per_message(run.0, base.0), per_message(run.1, base.1));
            }
        }
    }
    counts
}

/// Of a fresh message with the macro's statements, and without the library.
async fn instructions_of_the_same(consumer: &Path, kind: Kind) -> f64 {
    let (tool, messages) = MESSAGES[0];
    let of =
        async |fresh| instructions(&run(consumer, kind, "same-by-hand", tool, [fresh, 0]).await, kind == Kind::Sqlite);
    let (more, less) = tokio::join!(of(messages), of(0));
    (more - less) / f64::from(messages)
}

/// What the tool writes of so many fresh messages and duplicates.
async fn run(consumer: &Path, kind: Kind, way: &str, tool: &str, messages: [u32; 2]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let database = kind.fresh_database().await;
    let url = if kind == Kind::Sqlite { "sqlite::memory:" } else { database.url() };
    let file = folder.path().join(tool);
    let mut valgrind = tokio::process::Command::new("valgrind");
    // Whole stacks with whole paths: whose a stack is, its innermost frame of a crate says.
    valgrind.args(match tool {
        "callgrind" => ["--tool=callgrind", "--dump-line=no", "--fair-sched=yes"],
        _ => ["--tool=dhat", "--num-callers=60", "--fullpath-after="],
    });
    valgrind.arg(format!("--{tool}-out-file={}", file.display()));
    valgrind.arg(consumer).args([way, url]).args(messages.map(|messages| messages.to_string()));
    let output = valgrind.output().await.expect("valgrind");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(file).expect("what valgrind has written")
}

/// All that were executed, without what SQLite, which runs in the process, has done in the calls of others.
///
/// <https://valgrind.org/docs/manual/cl-format.html>: a call is the callee's file, where it is another, and the line after
/// `calls=` with what it has cost in all.
fn instructions(profile: &str, without_sqlite: bool) -> f64 {
    let (mut total, mut crossed, mut files) = (0.0, false, HashMap::new());
    let (mut file, mut callee) = (false, None);
    // Names are written once, as `(17) src/sqlite3.c`, and then as `(17)`.
    let mut is_sqlite = |name: &str| match name.split_once(' ') {
        Some((number, name)) => *files.entry(number.to_owned()).or_insert(name.ends_with("/sqlite3.c")),
        None => files.get(name).copied().unwrap_or_default(),
    };
    for line in profile.lines() {
        match line.split_once('=') {
            Some(("fl" | "fi" | "fe", name)) => file = is_sqlite(name),
            Some(("cfl" | "cfi", name)) => callee = Some(is_sqlite(name)),
            Some(("calls", _)) => crossed = !file && callee.take().unwrap_or(file),
            _ => {}
        }
        if let Some(sum) = line.strip_prefix("totals: ") {
            total += sum.trim().parse::<f64>().expect("a number");
        } else if !line.starts_with("calls=") && std::mem::take(&mut crossed) && without_sqlite {
            let cost = line.split_whitespace().last().and_then(|cost| cost.parse::<f64>().ok());
            total -= cost.expect("what a call has cost");
        }
    }
    total
}

/// Those that the application or the library asked for themselves, and all.
fn allocations(profile: &str) -> (f64, f64) {
    let profile: serde_json::Value = serde_json::from_str(profile).expect("JSON");
    let frames = profile["ftbl"].as_array().expect("frames");
    let points = profile["pps"].as_array().expect("program points");
    let (mut outside, mut all) = (0.0, 0.0);
    for point in points {
        let blocks = point["tbk"].as_f64().expect("a number of blocks");
        let stack = point["fs"].as_array().expect("a stack").iter().filter_map(|frame| {
            let frame = frames[usize::try_from(frame.as_u64()?).ok()?].as_str()?;
            let ours = ["idempotent-runtime/src", "idempotent_runtime::", "tests/counts", "consumer_to_count::"];
            let at = |text: &&str| frame.find(*text);
            let ours = ours.iter().filter_map(at).min();
            let driver = ["/sqlx-", "sqlx_"].iter().filter_map(at).min();
            match (ours, driver) {
                (None, None) => None,
                (ours, driver) => Some(driver.is_none_or(|driver| ours.is_some_and(|ours| ours < driver))),
            }
        });
        all += blocks;
        outside += if stack.take(1).any(|is_ours| is_ours) { blocks } else { 0.0 };
    }
    (outside, all)
}
